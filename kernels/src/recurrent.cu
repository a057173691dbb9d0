// One direction of a recurrent layer, a step a launch: the products of the states before it with their weight, and the functions of the
// gates behind them. a = x[t] + W·h + b in parts of H elements, in PyTorch's order of the gates:
//
//   tanh, relu:  h' = tanh(a), max(a, 0)
//   LSTM:        i, f, o = σ(aᵢ), σ(a_f), σ(a_o), g = tanh(a_g), c' = f·c + i·g, h' = o·tanh(c')
//   GRU:         r, z = σ(a_r), σ(a_z), q = W_n·h + b_n, n = tanh(x_n + r·q), h' = n + z·(h − n)
//
// x [T, N, G·H], W [G·H, H], bias [G·H] or null, lengths [N] or null, y [T + last_cells, N, H], kept [T, N, K·H] in f32 or null: i, f, g,
// o, c' of an LSTM, r, z, n, q of a GRU. States lie in f32 [N, H] between launches, those of the step before in `h_old`, and cells in `c`.
// Behind a sequence (t ≥ its length) y is 0 and the state is carried.
//
// recurrent_step: a warp has one element of the states of ROWS sequences, so that a row of each gate of W is read once for them; its lanes
//   go along k and join their sums by shuffles, and lane r makes the gates of sequence r.
//   Geometry: 256 threads, grid (ceil(H / 8), up to 65535 of ceil(N / ROWS)).
// recurrent_grad_step: a block has 32 elements of ROWS_BACK sequences. Each of its warps adds up every eighth row of W, which all lanes
//   read side by side, for dh = dr_old·W; the sums of the warps are joined in their order, and warp r makes the gradients of the gates of
//   sequence r: dx [T, N, G·H], dr (null but for a GRU) and dr_new [N, G·H] in f32, which the next launch reads, and before [T, N, H],
//   the state that the step read. dh and dc are in f32 [N, H]. The launch with t = T adds the product of the first step to dh alone.
//   Geometry: 256 threads, grid (ceil(H / 32), up to 65535 of ceil(N / ROWS_BACK)).
//
// Sums have one order. Contract: H ≥ 1; `first` and `last` name the first and the last launch of a direction's steps.
#include "common/pointwise.cuh"
#include "common/types.cuh"
#include "common/warp.cuh"

struct RecurrentParams {
    u64 steps, batch, hidden;
    u32 cell, reverse, last_cells, pad;
};
static_assert(sizeof(RecurrentParams) == 40, "core::ops::RecurrentParams");

struct RecurrentStep {
    u64 t;
    u32 first, last;
};
static_assert(sizeof(RecurrentStep) == 16, "cuda::ops::recurrent::Step");

// Codes of core::ops::RecurrentCell.
constexpr u32 TANH = 0, RELU = 1, LSTM = 2, GRU = 3;

constexpr int WARPS = 8;
constexpr int ROWS = 4;
constexpr int ROWS_BACK = WARPS;

template <u32 CELL> constexpr int GATES = CELL == LSTM ? 4 : CELL == GRU ? 3 : 1;
template <u32 CELL> constexpr int KEPT = CELL == LSTM ? 5 : CELL == GRU ? 4 : 0;

__device__ __forceinline__ bool is_own(u64 t, const i32 *__restrict__ lengths, u64 n) {
    return !lengths || (i64)t < (i64)lengths[n];
}

template <u32 CELL, typename T>
__device__ __forceinline__ void step(const RecurrentParams &p, const RecurrentStep &s, const T *__restrict__ x,
                                     const T *__restrict__ w, const T *__restrict__ bias,
                                     const i32 *__restrict__ lengths, const float *__restrict__ h_old,
                                     float *__restrict__ h_new, float *__restrict__ c, T *__restrict__ y,
                                     float *__restrict__ kept) {
    constexpr int G = GATES<CELL>;
    const int lane = threadIdx.x % WARP;
    const u64 j = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (j >= p.hidden) return;
    for (u64 first = (u64)blockIdx.y * ROWS; first < p.batch; first += (u64)gridDim.y * ROWS) {
        const int rows = (int)(p.batch - first < ROWS ? p.batch - first : ROWS);
        float sums[ROWS][G] = {};
        for (u64 k = lane; k < p.hidden; k += WARP) {
            float a[G];
#pragma unroll
            for (int g = 0; g < G; ++g) a[g] = to_acc(w[(g * p.hidden + j) * p.hidden + k]);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                if (r < rows) {
                    const float h = h_old[(first + r) * p.hidden + k];
#pragma unroll
                    for (int g = 0; g < G; ++g) sums[r][g] += a[g] * h;
                }
            }
        }
        // Lane r ends row r.
        float q[G] = {};
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int g = 0; g < G; ++g) {
                const float sum = warp_sum(sums[r][g]);
                q[g] = lane == r ? sum : q[g];
            }
        }
        if (lane < rows) {
            const u64 n = first + lane, at = n * p.hidden + j, row = s.t * p.batch + n;
            const float old = h_old[at];
            const bool own = is_own(s.t, lengths, n);
            float h = old;
            float cells = CELL == LSTM ? c[at] : 0.0f;
            if (own) {
                float in[G];
#pragma unroll
                for (int g = 0; g < G; ++g) {
                    if (bias) q[g] += to_acc(bias[g * p.hidden + j]);
                    in[g] = to_acc(x[(row * G + g) * p.hidden + j]);
                }
                float *keep = kept + row * KEPT<CELL> * p.hidden + j;
                if constexpr (CELL == LSTM) {
                    const float i = logistic(in[0] + q[0]), f = logistic(in[1] + q[1]);
                    const float g = tanhf(in[2] + q[2]), o = logistic(in[3] + q[3]);
                    cells = f * cells + i * g;
                    h = o * tanhf(cells);
                    c[at] = cells;
                    if (kept) {
                        keep[0] = i;
                        keep[p.hidden] = f;
                        keep[2 * p.hidden] = g;
                        keep[3 * p.hidden] = o;
                        keep[4 * p.hidden] = cells;
                    }
                } else if constexpr (CELL == GRU) {
                    const float r = logistic(in[0] + q[0]), z = logistic(in[1] + q[1]);
                    const float made = tanhf(in[2] + r * q[2]);
                    h = made + z * (old - made);
                    if (kept) {
                        keep[0] = r;
                        keep[p.hidden] = z;
                        keep[2 * p.hidden] = made;
                        keep[3 * p.hidden] = q[2];
                    }
                } else if constexpr (CELL == RELU) {
                    const float a = in[0] + q[0];
                    h = a < 0.0f ? 0.0f : a;
                } else {
                    h = tanhf(in[0] + q[0]);
                }
            }
            y[row * p.hidden + j] = from_acc<T>(own ? h : 0.0f);
            h_new[at] = h;
            if (CELL == LSTM && s.last && p.last_cells) {
                y[(p.steps * p.batch + n) * p.hidden + j] = from_acc<T>(cells);
            }
        }
    }
}

// The operands of the gradient.
template <typename T> struct Back {
    const T *__restrict__ w;
    const i32 *__restrict__ lengths;
    const float *__restrict__ kept;
    const T *__restrict__ y;
    const T *__restrict__ g;
    const T *__restrict__ h0;
    const T *__restrict__ c0;
    const float *__restrict__ dr_old;
    float *__restrict__ dr_new;
    float *__restrict__ dh;
    float *__restrict__ dc;
    T *__restrict__ dx;
    T *__restrict__ dr;
    T *__restrict__ before;
};

// The gradients of the gates of one element, from `later`, that of its state by what comes after the step.
template <u32 CELL, typename T>
__device__ __forceinline__ void gates_back(const RecurrentParams &p, const RecurrentStep &s, const Back<T> &of, u64 n,
                                           u64 k, float later) {
    constexpr int G = GATES<CELL>;
    const u64 hidden = p.hidden, at = n * hidden + k, row = s.t * p.batch + n;
    float dc = 0.0f;
    if constexpr (CELL == LSTM) {
        if (!s.first) dc = of.dc[at];
        else if (p.last_cells) dc = to_acc(of.g[(p.steps * p.batch + n) * hidden + k]);
    }
    float d_x[G] = {}, d_r[G] = {}, before = 0.0f;
    if (is_own(s.t, of.lengths, n)) {
        // The step before, if this is not the sequence's first.
        const bool has = p.reverse ? s.t + 1 < p.steps && is_own(s.t + 1, of.lengths, n) : s.t > 0;
        const u64 earlier = (p.reverse ? s.t + 1 : s.t - 1) * p.batch + n;
        before = has ? to_acc(of.y[earlier * hidden + k]) : to_acc(of.h0[at]);
        const float d = later + to_acc(of.g[row * hidden + k]);
        const float *keep = of.kept + row * KEPT<CELL> * hidden + k;
        if constexpr (CELL == LSTM) {
            const float i = keep[0], f = keep[hidden], g = keep[2 * hidden], o = keep[3 * hidden];
            const float c = tanhf(keep[4 * hidden]);
            const float old = has ? of.kept[(earlier * KEPT<CELL> + 4) * hidden + k] : to_acc(of.c0[at]);
            dc += d * o * (1.0f - c * c);
            d_x[0] = dc * g * (1.0f - i) * i;
            d_x[1] = dc * old * (1.0f - f) * f;
            d_x[2] = dc * i * (1.0f - g * g);
            d_x[3] = d * c * (1.0f - o) * o;
            dc *= f;
            later = 0.0f;
        } else if constexpr (CELL == GRU) {
            const float r = keep[0], z = keep[hidden], made = keep[2 * hidden], q = keep[3 * hidden];
            d_x[2] = d * (1.0f - z) * (1.0f - made * made);
            d_x[1] = d * (before - made) * (1.0f - z) * z;
            d_x[0] = d_x[2] * q * (1.0f - r) * r;
            d_r[2] = d_x[2] * r;
            later = d * z;
        } else {
            const float y = to_acc(of.y[row * hidden + k]);
            if constexpr (CELL == RELU) d_x[0] = y <= 0.0f ? 0.0f : d;
            else d_x[0] = d * (1.0f - y * y);
            later = 0.0f;
        }
    }
    of.dh[at] = later;
    if constexpr (CELL == LSTM) of.dc[at] = dc;
    of.before[row * hidden + k] = from_acc<T>(before);
#pragma unroll
    for (int g = 0; g < G; ++g) {
        if (CELL != GRU || g < 2) d_r[g] = d_x[g];
        const u64 place = (row * G + g) * hidden + k;
        of.dx[place] = from_acc<T>(d_x[g]);
        if constexpr (CELL == GRU) of.dr[place] = from_acc<T>(d_r[g]);
        of.dr_new[(n * G + g) * hidden + k] = d_r[g];
    }
}

template <u32 CELL, typename T>
__device__ __forceinline__ void step_back(const RecurrentParams &p, const RecurrentStep &s, const Back<T> &of,
                                          float (*joined)[ROWS_BACK][WARP]) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u64 k = (u64)blockIdx.x * WARP + lane, width = GATES<CELL> * p.hidden;
    for (u64 first = (u64)blockIdx.y * ROWS_BACK; first < p.batch; first += (u64)gridDim.y * ROWS_BACK) {
        const int rows = (int)(p.batch - first < ROWS_BACK ? p.batch - first : ROWS_BACK);
        float sum = 0.0f;
        if (!s.first) {
            float sums[ROWS_BACK] = {};
            if (k < p.hidden) {
                for (u64 g = warp; g < width; g += WARPS) {
                    const float a = to_acc(of.w[g * p.hidden + k]);
#pragma unroll
                    for (int r = 0; r < ROWS_BACK; ++r) {
                        if (r < rows) sums[r] += of.dr_old[(first + r) * width + g] * a;
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS_BACK; ++r) joined[warp][r][lane] = sums[r];
            __syncthreads();
#pragma unroll
            for (int i = 0; i < WARPS; ++i) sum += joined[i][warp][lane];
            __syncthreads();
        }
        if (warp < rows && k < p.hidden) {
            const u64 n = first + warp;
            const float later = (s.first ? 0.0f : of.dh[n * p.hidden + k]) + sum;
            if (s.t == p.steps) of.dh[n * p.hidden + k] = later;
            else gates_back<CELL>(p, s, of, n, k, later);
        }
    }
}

#define ENTRIES(suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(WARPS *WARP) recurrent_step_##suffix(                                 \
        RecurrentParams p, RecurrentStep s, const T *__restrict__ x, const T *__restrict__ w,                          \
        const T *__restrict__ bias, const i32 *__restrict__ lengths, const float *__restrict__ h_old,                  \
        float *__restrict__ h_new, float *__restrict__ c, T *__restrict__ y, float *__restrict__ kept) {               \
        if (p.cell == LSTM) step<LSTM, T>(p, s, x, w, bias, lengths, h_old, h_new, c, y, kept);                        \
        else if (p.cell == GRU) step<GRU, T>(p, s, x, w, bias, lengths, h_old, h_new, c, y, kept);                     \
        else if (p.cell == RELU) step<RELU, T>(p, s, x, w, bias, lengths, h_old, h_new, c, y, kept);                   \
        else step<TANH, T>(p, s, x, w, bias, lengths, h_old, h_new, c, y, kept);                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(WARPS *WARP) recurrent_grad_step_##suffix(                            \
        RecurrentParams p, RecurrentStep s, const T *__restrict__ w, const i32 *__restrict__ lengths,                  \
        const float *__restrict__ kept, const T *__restrict__ y, const T *__restrict__ g, const T *__restrict__ h0,    \
        const T *__restrict__ c0, const float *__restrict__ dr_old, float *__restrict__ dr_new,                        \
        float *__restrict__ dh, float *__restrict__ dc, T *__restrict__ dx, T *__restrict__ dr,                        \
        T *__restrict__ before) {                                                                                      \
        __shared__ float joined[WARPS][ROWS_BACK][WARP];                                                               \
        const Back<T> of = {w, lengths, kept, y, g, h0, c0, dr_old, dr_new, dh, dc, dx, dr, before};                   \
        if (p.cell == LSTM) step_back<LSTM>(p, s, of, joined);                                                         \
        else if (p.cell == GRU) step_back<GRU>(p, s, of, joined);                                                      \
        else if (p.cell == RELU) step_back<RELU>(p, s, of, joined);                                                    \
        else step_back<TANH>(p, s, of, joined);                                                                        \
    }
FOR_FLOATS(ENTRIES)
