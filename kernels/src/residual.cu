// Sums of a residual stream and their layer norm, rows [rows, width] of a stream of W beside branches and norms of H.
//
//   residual_add:       s = x + dropout(y);                      residual_add_grad:  dy = dropout(g)
//   residual_norm:      s = x + dropout(y) (s = x without y);    n = (s − mean)·rstd·scale + shift
//   residual_norm_grad: with g + more for g where more is given, ds = sum + rstd·(g·scale − Σ(g·scale)/width − ŝ·Σ(g·scale·ŝ)/width), ŝ = (s − mean)·rstd;
//                       dy = dropout(ds);  dscale = Σ g·ŝ,  dshift = Σ g over the rows
//
// The norm is of the rounded sum. Dropout zeroes element i where its 16 bits, half i % 2 of word i / 2 % 4 of Philox block i / 8, are below
// p.drop·2^16, as random.cu does; it is off where p.drop is 0. Pointers that may be null: y with s, more, sum, dy, step. Scale and shift, and
// their gradients, are f32 if p.wide, else W.
//
// The variants: *_held128 and *_held256 keep rows of up to 1024 and 2048 elements in the registers of a block, eight for a
// thread, so that memory is read and written once, and the gradient's block adds up its rows' parts of dscale and dshift on
// the way: partial [blocks, 2, width], which the last `sharers` blocks add up. *_plain takes rows of any width and reads them again for
// each pass; residual_columns makes the partial sums then, and the last block of 32 columns adds them up. residual_totals does where
// there are no rows, or more columns than counters: then residual_columns has no dscale.
//
// Contract: x, y, s, n, g, sum, ds and dy are aligned to 16 bytes; where 8 divides the width, rows move by 8 elements.
// Geometry: *_held128 128 threads, *_held256 and *_plain 256, a row or `step` rows a block; residual_columns [32, 8], a
// block for 32 columns and `step` rows; residual_totals [32, 8], 32 columns a block; the others 256, any grid (it strides).
#include "common/arrive.cuh"
#include "common/philox.cuh"
#include "common/vector.cuh"
#include "common/warp.cuh"

struct ResidualParams {
    u64 rows, width;
    double eps, drop;
    u64 seed;
    u32 stream;
    u32 wide; // padding in core: here 1 where scale and shift are f32, whatever the stream is
};
static_assert(sizeof(ResidualParams) == 48, "core::ops::ResidualParams");

// Elements of a row that a thread holds.
constexpr int HELD = 8;
constexpr int PLAIN = 256;

// Dropout of one call.
struct Drop {
    PhiloxKey key;
    u32 below;
    float scale;
    bool drops;

    // Nothing is drawn without a step.
    __device__ __forceinline__ Drop(const ResidualParams &p, const i32 *__restrict__ step) {
        drops = step && p.drop > 0.0;
        below = drop_below(p.drop);
        scale = p.drop < 1.0 ? (float)(1.0 / (1.0 - p.drop)) : 0.0f;
        key = PhiloxKey{p.seed, p.stream, step ? (u32)*step : 0};
    }
    __device__ __forceinline__ float of(u32 half, float v) const {
        // Rounded by itself, as on the CPU, before it is added.
        return half < below ? 0.0f : __fmul_rn(v, scale);
    }
    // Elements at .. at + V, where V is 1, or divides at and is a multiple of 8.
    template <int V> __device__ __forceinline__ void apply(u64 at, float (&v)[V]) const {
        if (!drops) return;
        if constexpr (V == 1) {
            uint4 w = philox_block(key, at / 8);
            u32 half = philox_half(w, 0);
#pragma unroll
            for (int j = 1; j < 8; ++j) half = at % 8 == j ? philox_half(w, j) : half;
            v[0] = of(half, v[0]);
        } else {
#pragma unroll
            for (int i = 0; i < V; i += 8) {
                uint4 w = philox_block(key, (at + i) / 8);
#pragma unroll
                for (int j = 0; j < 8; ++j) v[i + j] = of(philox_half(w, j), v[i + j]);
            }
        }
    }
};

// V values of scale or shift.
template <typename W, int V>
__device__ __forceinline__ void affine(const ResidualParams &p, const void *__restrict__ from, u64 at, float (&a)[V]) {
    if (p.wide) load<V>((const f32 *)from + at, a);
    else load<V>((const W *)from + at, a);
}

// v = x + dropout(y), rounded to W; x without a branch. `at` is the first element.
template <typename W, typename H, int V>
__device__ __forceinline__ void sum_at(const Drop &drop, const W *__restrict__ x, const H *__restrict__ y, u64 at,
                                       float (&v)[V]) {
    load<V>(x + at, v);
    if (!y) return;
    float b[V];
    load<V>(y + at, b);
    drop.apply<V>(at, b);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = to_acc(from_acc<W>(v[j] + b[j]));
}

// Sums of two numbers over the block, the same in each thread. `scratch` may be used again right after.
template <int TEAM> __device__ __forceinline__ void block_sums(float &a, float &b, float (&scratch)[2][TEAM / WARP]) {
    a = warp_sum(a);
    b = warp_sum(b);
    if (threadIdx.x % WARP == 0) {
        scratch[0][threadIdx.x / WARP] = a;
        scratch[1][threadIdx.x / WARP] = b;
    }
    __syncthreads();
    int lane = threadIdx.x % WARP;
    a = warp_sum(lane < TEAM / WARP ? scratch[0][lane] : 0.0f);
    b = warp_sum(lane < TEAM / WARP ? scratch[1][lane] : 0.0f);
    __syncthreads();
}

// f(first column, index of the pack) for each pack of V elements of a row that a thread has.
template <int V, int TEAM, typename F> __device__ __forceinline__ void packs(u32 n, F f) {
#pragma unroll
    for (int i = 0; i < HELD / V; ++i) {
        u32 at = (i * TEAM + threadIdx.x) * V;
        if (at < n) f(at, i);
    }
}

template <typename W, typename H, int V, int TEAM>
__device__ __forceinline__ void norm_held(const ResidualParams &p, const W *__restrict__ x, const H *__restrict__ y,
                                          const i32 *__restrict__ step, const void *__restrict__ scale,
                                          const void *__restrict__ shift, W *__restrict__ s, H *__restrict__ n,
                                          float *__restrict__ mean, float *__restrict__ rstd) {
    __shared__ float scratch[TEAM / WARP];
    const Drop drop(p, step);
    for (u64 row = blockIdx.x; row < p.rows; row += gridDim.x) {
        u64 first = row * p.width;
        float v[HELD / V][V], sum = 0.0f, squares = 0.0f;
        packs<V, TEAM>(p.width, [&](u32 at, int i) {
            sum_at<W, H, V>(drop, x, y, first + at, v[i]);
            if (y) store<V>(s + first + at, v[i]);
#pragma unroll
            for (int j = 0; j < V; ++j) sum += v[i][j];
        });
        float m = block_sum<TEAM>(sum, scratch) / (float)p.width;
        packs<V, TEAM>(p.width, [&](u32, int i) {
#pragma unroll
            for (int j = 0; j < V; ++j) {
                v[i][j] -= m;
                squares += v[i][j] * v[i][j];
            }
        });
        float k = 1.0f / sqrtf(block_sum<TEAM>(squares, scratch) / (float)p.width + (float)p.eps);
        packs<V, TEAM>(p.width, [&](u32 at, int i) {
            float a[V], b[V];
            affine<W, V>(p, scale, at, a);
            affine<W, V>(p, shift, at, b);
#pragma unroll
            for (int j = 0; j < V; ++j) v[i][j] = v[i][j] * k * a[j] + b[j];
            store<V>(n + first + at, v[i]);
        });
        if (threadIdx.x == 0) {
            mean[row] = m;
            rstd[row] = k;
        }
    }
}

template <typename W, typename H, int V, int TEAM>
__device__ __forceinline__ void norm_plain(const ResidualParams &p, const W *__restrict__ x, const H *__restrict__ y,
                                           const i32 *__restrict__ step, const void *__restrict__ scale,
                                           const void *__restrict__ shift, W *__restrict__ s, H *__restrict__ n,
                                           float *__restrict__ mean, float *__restrict__ rstd) {
    __shared__ float scratch[TEAM / WARP];
    const Drop drop(p, step);
    for (u64 row = blockIdx.x; row < p.rows; row += gridDim.x) {
        u64 first = row * p.width;
        float v[V], sum = 0.0f, squares = 0.0f;
        for (u64 at = threadIdx.x * V; at < p.width; at += TEAM * V) {
            sum_at<W, H, V>(drop, x, y, first + at, v);
            if (y) store<V>(s + first + at, v);
#pragma unroll
            for (int j = 0; j < V; ++j) sum += v[j];
        }
        float m = block_sum<TEAM>(sum, scratch) / (float)p.width;
        for (u64 at = threadIdx.x * V; at < p.width; at += TEAM * V) {
            sum_at<W, H, V>(drop, x, y, first + at, v);
#pragma unroll
            for (int j = 0; j < V; ++j) squares += (v[j] - m) * (v[j] - m);
        }
        float k = 1.0f / sqrtf(block_sum<TEAM>(squares, scratch) / (float)p.width + (float)p.eps);
        for (u64 at = threadIdx.x * V; at < p.width; at += TEAM * V) {
            float a[V], b[V];
            sum_at<W, H, V>(drop, x, y, first + at, v);
            affine<W, V>(p, scale, at, a);
            affine<W, V>(p, shift, at, b);
#pragma unroll
            for (int j = 0; j < V; ++j) v[j] = (v[j] - m) * k * a[j] + b[j];
            store<V>(n + first + at, v);
        }
        if (threadIdx.x == 0) {
            mean[row] = m;
            rstd[row] = k;
        }
    }
}

// The gradient of the norm, in one term or two.
template <typename H> struct Gradient {
    const H *__restrict__ g, *__restrict__ more;

    template <int V> __device__ __forceinline__ void load_at(u64 at, float (&d)[V]) const {
        load<V>(g + at, d);
        if (!more) return;
        float a[V];
        load<V>(more + at, a);
#pragma unroll
        for (int j = 0; j < V; ++j) d[j] += a[j];
    }
};

// v = ŝ and d = g of V elements.
template <typename W, typename H, int V>
__device__ __forceinline__ void pair_at(const W *__restrict__ s, const Gradient<H> &g,
                                        u64 at, float m, float k, float (&v)[V], float (&d)[V]) {
    load<V>(s + at, v);
    g.load_at(at, d);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = (v[j] - m) * k;
}

// Stores ds = k·(d − total − v·dot) + sum, and the branch's dropout of it where it is asked for.
template <typename W, typename H, int V>
__device__ __forceinline__ void put_gradient(const Drop &drop, const W *__restrict__ sum, W *__restrict__ ds,
                                             H *__restrict__ dy, u64 at, float k, float total, float dot,
                                             const float (&v)[V], float (&d)[V]) {
#pragma unroll
    for (int j = 0; j < V; ++j) d[j] = k * (d[j] - total - v[j] * dot);
    if (sum) {
        float a[V];
        load<V>(sum + at, a);
#pragma unroll
        for (int j = 0; j < V; ++j) d[j] += a[j];
    }
    store<V>(ds + at, d);
    if (!dy) return;
    drop.apply<V>(at, d);
    store<V>(dy + at, d);
}

// dscale and dshift of WIDE columns from `column` on, from `parts` partial sums, added in order by eighths: thread (x, y) of WIDE × 8 has
// every eighth part of column x from y on.
template <typename A, int WIDE>
__device__ __forceinline__ void totals(u64 width, u64 column, u32 x, u32 y, const float *partial, A *__restrict__ dscale,
                                       A *__restrict__ dshift, u64 parts, float (&sums)[2][8][WIDE + 1]) {
    float slope = 0.0f, shift = 0.0f;
    if (column < width) {
#pragma unroll 4
        for (u64 part = y; part < parts; part += 8) {
            slope += __ldcg(partial + part * 2 * width + column);
            shift += __ldcg(partial + (part * 2 + 1) * width + column);
        }
    }
    sums[0][y][x] = slope;
    sums[1][y][x] = shift;
    __syncthreads();
    if (y > 1 || column >= width) return;
    float total = 0.0f;
    for (int i = 0; i < 8; ++i) total += sums[y][i][x];
    (y ? dshift : dscale)[column] = from_acc<A>(total);
}

// The same into gradients of f32 if p.wide, else of W.
template <typename W, int WIDE>
__device__ __forceinline__ void totals_of(const ResidualParams &p, u64 column, u32 x, u32 y, const float *partial,
                                          void *__restrict__ dscale, void *__restrict__ dshift, u64 parts,
                                          float (&sums)[2][8][WIDE + 1]) {
    if (p.wide) totals<f32, WIDE>(p.width, column, x, y, partial, (f32 *)dscale, (f32 *)dshift, parts, sums);
    else totals<W, WIDE>(p.width, column, x, y, partial, (W *)dscale, (W *)dshift, parts, sums);
}

template <typename W, typename H, int V, int TEAM>
__device__ __forceinline__ void grad_held(const ResidualParams &p, const W *__restrict__ s,
                                          const void *__restrict__ scale, const float *__restrict__ mean,
                                          const float *__restrict__ rstd, const Gradient<H> &g,
                                          const W *__restrict__ sum, const i32 *__restrict__ step,
                                          W *__restrict__ ds, H *__restrict__ dy, float *partial, u64 each,
                                          void *__restrict__ dscale, void *__restrict__ dshift, u32 sharers) {
    constexpr int WIDE = TEAM / 8;
    __shared__ float scratch[2][TEAM / WARP], sums[2][8][WIDE + 1];
    __shared__ u32 place;
    const Drop drop(p, dy ? step : nullptr);
    float slopes[HELD / V][V] = {}, shifts[HELD / V][V] = {};
    u64 last = (blockIdx.x + 1) * each < p.rows ? (blockIdx.x + 1) * each : p.rows;
    for (u64 row = blockIdx.x * each; row < last; ++row) {
        u64 first = row * p.width;
        float v[HELD / V][V], d[HELD / V][V], total = 0.0f, dot = 0.0f, m = mean[row], k = rstd[row];
        packs<V, TEAM>(p.width, [&](u32 at, int i) {
            pair_at<W, H, V>(s, g, first + at, m, k, v[i], d[i]);
            float a[V];
            affine<W, V>(p, scale, at, a);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                slopes[i][j] += d[i][j] * v[i][j];
                shifts[i][j] += d[i][j];
                d[i][j] *= a[j];
                total += d[i][j];
                dot += d[i][j] * v[i][j];
            }
        });
        block_sums<TEAM>(total, dot, scratch);
        total /= (float)p.width;
        dot /= (float)p.width;
        packs<V, TEAM>(p.width, [&](u32 at, int i) {
            put_gradient<W, H, V>(drop, sum, ds, dy, first + at, k, total, dot, v[i], d[i]);
        });
    }
    float *to = partial + blockIdx.x * 2 * p.width;
    packs<V, TEAM>(p.width, [&](u32 at, int i) {
        store<V>(to + at, slopes[i]);
        store<V>(to + p.width + at, shifts[i]);
    });
    const u32 turn = arrives(0, gridDim.x, sharers, place);
    if (turn == sharers) return;
#pragma unroll 1
    for (u64 first = turn * WIDE; first < p.width; first += sharers * WIDE) {
        const u32 x = threadIdx.x % WIDE, y = threadIdx.x / WIDE;
        totals_of<W, WIDE>(p, first + x, x, y, partial, dscale, dshift, gridDim.x, sums);
        __syncthreads();
    }
}

template <typename W, typename H, int V, int TEAM>
__device__ __forceinline__ void grad_plain(const ResidualParams &p, const W *__restrict__ s,
                                           const void *__restrict__ scale, const float *__restrict__ mean,
                                           const float *__restrict__ rstd, const Gradient<H> &g,
                                           const W *__restrict__ sum, const i32 *__restrict__ step,
                                           W *__restrict__ ds, H *__restrict__ dy) {
    __shared__ float scratch[2][TEAM / WARP];
    const Drop drop(p, dy ? step : nullptr);
    for (u64 row = blockIdx.x; row < p.rows; row += gridDim.x) {
        u64 first = row * p.width;
        float v[V], d[V], a[V], total = 0.0f, dot = 0.0f, m = mean[row], k = rstd[row];
        for (u64 at = threadIdx.x * V; at < p.width; at += TEAM * V) {
            pair_at<W, H, V>(s, g, first + at, m, k, v, d);
            affine<W, V>(p, scale, at, a);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                total += d[j] * a[j];
                dot += d[j] * a[j] * v[j];
            }
        }
        block_sums<TEAM>(total, dot, scratch);
        total /= (float)p.width;
        dot /= (float)p.width;
        for (u64 at = threadIdx.x * V; at < p.width; at += TEAM * V) {
            pair_at<W, H, V>(s, g, first + at, m, k, v, d);
            affine<W, V>(p, scale, at, a);
#pragma unroll
            for (int j = 0; j < V; ++j) d[j] *= a[j];
            put_gradient<W, H, V>(drop, sum, ds, dy, first + at, k, total, dot, v, d);
        }
    }
}

// The parts of dscale and dshift of `each` rows: 32 columns by 8 rows at a time.
template <typename W, typename H>
__device__ __forceinline__ void columns(const ResidualParams &p, const W *__restrict__ s,
                                        const float *__restrict__ mean, const float *__restrict__ rstd,
                                        const Gradient<H> &g, float *partial, u64 each,
                                        void *__restrict__ dscale, void *__restrict__ dshift) {
    __shared__ float sums[2][8][WARP + 1];
    __shared__ bool final;
    u64 column = (u64)blockIdx.x * WARP + threadIdx.x;
    u64 last = (blockIdx.y + 1) * each < p.rows ? (blockIdx.y + 1) * each : p.rows;
    float slope = 0.0f, shift = 0.0f;
    if (column < p.width) {
        for (u64 row = blockIdx.y * each + threadIdx.y; row < last; row += 8) {
            float one[1];
            g.load_at(row * p.width + column, one);
            float d = one[0];
            slope += d * (to_acc(s[row * p.width + column]) - mean[row]) * rstd[row];
            shift += d;
        }
    }
    sums[0][threadIdx.y][threadIdx.x] = slope;
    sums[1][threadIdx.y][threadIdx.x] = shift;
    __syncthreads();
    if (threadIdx.y <= 1 && column < p.width) {
        float total = 0.0f;
        for (int i = 0; i < 8; ++i) total += sums[threadIdx.y][i][threadIdx.x];
        partial[(blockIdx.y * 2 + threadIdx.y) * p.width + column] = total;
    }
    if (!dscale || !arrives_last(blockIdx.x, gridDim.y, final)) return;
    totals_of<W, WARP>(p, column, threadIdx.x, threadIdx.y, partial, dscale, dshift, gridDim.y, sums);
}

template <typename W, typename H>
__device__ __forceinline__ void add(const ResidualParams &p, const W *__restrict__ x, const H *__restrict__ y,
                                    const i32 *__restrict__ step, W *__restrict__ s) {
    const Drop drop(p, step);
    const u64 n = p.rows * p.width;
    for (u64 at = global_thread() * 8; at < n; at += global_threads() * 8) {
        if (at + 8 <= n) {
            float v[8];
            sum_at<W, H, 8>(drop, x, y, at, v);
            store<8>(s + at, v);
            continue;
        }
        for (u64 i = at; i < n; ++i) {
            float v[1];
            sum_at<W, H, 1>(drop, x, y, i, v);
            s[i] = from_acc<W>(v[0]);
        }
    }
}

template <typename W, typename H>
__device__ __forceinline__ void add_grad(const ResidualParams &p, const W *__restrict__ g,
                                         const i32 *__restrict__ step, H *__restrict__ dy) {
    const Drop drop(p, step);
    const u64 n = p.rows * p.width;
    for (u64 at = global_thread() * 8; at < n; at += global_threads() * 8) {
        if (at + 8 <= n) {
            float v[8];
            load<8>(g + at, v);
            drop.apply<8>(at, v);
            store<8>(dy + at, v);
            continue;
        }
        for (u64 i = at; i < n; ++i) {
            float v[1] = {to_acc(g[i])};
            drop.apply<1>(i, v);
            dy[i] = from_acc<H>(v[0]);
        }
    }
}

// A body by eight elements where they divide the rows, else by single ones.
#define BY_WIDTH(body, W, H, TEAM, ...)                                                                                \
    if (p.width % 8 == 0) body<W, H, 8, TEAM>(__VA_ARGS__);                                                            \
    else body<W, H, 1, TEAM>(__VA_ARGS__);

#define NORM(name, body, W, H, TEAM)                                                                                   \
    extern "C" __global__ void __launch_bounds__(TEAM, 512 / TEAM)                                                     \
        name(ResidualParams p, const W *__restrict__ x, const H *__restrict__ y, const i32 *__restrict__ step,         \
             const void *__restrict__ scale, const void *__restrict__ shift, W *__restrict__ s, H *__restrict__ n,     \
             float *__restrict__ mean, float *__restrict__ rstd) {                                                     \
        BY_WIDTH(body, W, H, TEAM, p, x, y, step, scale, shift, s, n, mean, rstd)                                      \
    }
#define HELD_GRAD(name, W, H, TEAM)                                                                                    \
    extern "C" __global__ void __launch_bounds__(TEAM, 512 / TEAM)                                                     \
        name(ResidualParams p, const W *__restrict__ s, const void *__restrict__ scale,                                \
             const float *__restrict__ mean, const float *__restrict__ rstd, const H *__restrict__ g,                  \
             const H *__restrict__ more, const W *__restrict__ sum, const i32 *__restrict__ step,                      \
             W *__restrict__ ds, H *__restrict__ dy,                                                                   \
             float *__restrict__ partial, u64 each, void *__restrict__ dscale, void *__restrict__ dshift,              \
             u32 sharers) {                                                                                            \
        BY_WIDTH(grad_held, W, H, TEAM, p, s, scale, mean, rstd, (Gradient<H>{g, more}), sum, step, ds, dy, partial,   \
                 each, dscale, dshift, sharers)                                                                        \
    }
#define OF(suffix, W, H)                                                                                               \
    NORM(residual_norm_held128_##suffix, norm_held, W, H, 128)                                                            \
    NORM(residual_norm_held256_##suffix, norm_held, W, H, 256)                                                       \
    NORM(residual_norm_plain_##suffix, norm_plain, W, H, PLAIN)                                                        \
    HELD_GRAD(residual_norm_grad_held128_##suffix, W, H, 128)                                                             \
    HELD_GRAD(residual_norm_grad_held256_##suffix, W, H, 256)                                                        \
    extern "C" __global__ void __launch_bounds__(PLAIN) residual_norm_grad_plain_##suffix(                             \
        ResidualParams p, const W *__restrict__ s, const void *__restrict__ scale, const float *__restrict__ mean,     \
        const float *__restrict__ rstd, const H *__restrict__ g, const H *__restrict__ more,                           \
        const W *__restrict__ sum, const i32 *__restrict__ step, W *__restrict__ ds, H *__restrict__ dy) {             \
        BY_WIDTH(grad_plain, W, H, PLAIN, p, s, scale, mean, rstd, (Gradient<H>{g, more}), sum, step, ds, dy)          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        residual_columns_##suffix(ResidualParams p, const W *__restrict__ s, const float *__restrict__ mean,           \
                                  const float *__restrict__ rstd, const H *__restrict__ g,                             \
                                  const H *__restrict__ more, float *__restrict__ partial, u64 each,                   \
                                  void *__restrict__ dscale, void *__restrict__ dshift) {                              \
        columns<W, H>(p, s, mean, rstd, {g, more}, partial, each, dscale, dshift);                                     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        residual_add_##suffix(ResidualParams p, const W *__restrict__ x, const H *__restrict__ y,                      \
                              const i32 *__restrict__ step, W *__restrict__ s) {                                       \
        add<W, H>(p, x, y, step, s);                                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        residual_add_grad_##suffix(ResidualParams p, const W *__restrict__ g, const i32 *__restrict__ step,            \
                                   H *__restrict__ dy) {                                                               \
        add_grad<W, H>(p, g, step, dy);                                                                                \
    }
#define SAME(suffix, T) OF(suffix, T, T)
FOR_FLOATS(SAME)
// Halves beside a stream of f32.
OF(beside_bf16, f32, bf16)
OF(beside_f16, f32, f16)

#define TOTALS(suffix, A)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        residual_totals_##suffix(ResidualParams p, const float *__restrict__ partial, A *__restrict__ dscale,          \
                                 A *__restrict__ dshift, u64 parts) {                                                  \
        __shared__ float sums[2][8][WARP + 1];                                                                         \
        totals<A, WARP>(p.width, (u64)blockIdx.x * WARP + threadIdx.x, threadIdx.x, threadIdx.y, partial, dscale,      \
                        dshift, parts, sums);                                                                          \
    }
FOR_FLOATS(TOTALS)
