// Softmax and log-softmax along one axis of x [outer, n, inner].
//
//   y = e^(x − m) / Σ e^(x − m), m = max x;   log: y = x − m − ln Σ e^(x − m)
//   dx = y·(g − Σ g·y);                       log: dx = g − e^y·Σ g
//
// Rows (inner = 1) of up to 1024 elements are held in the registers of a warp: one read and one write of memory, by 16
// bytes (softmax_packs) where rows are multiples of that. Longer
// rows take a block each, which reads the row twice: the largest and the sum together (a running sum is scaled when a
// larger element turns up), then the results. Other axes (inner > 1) take one thread per (outer, inner), so that
// neighbouring threads read neighbouring addresses.
//
// softmax_naive is the plainest variant: rows by a thread each, in three passes. Neighbouring threads read
// addresses a row apart, so that every access moves 32 bytes for one element.
//
// Geometry: softmax_naive: 256 threads, grid ceil(outer / 256).
//           softmax_rows<N> and its gradient: rows of at most 32·N elements, a warp each, 8 a block of 256,
//           grid ceil(outer / 8).
//           softmax_packs<N> and its gradient: the same; n is a multiple of 16 bytes.
//           softmax_blocks and its gradient: a block of 256 per row, grid outer.
//           softmax_columns and its gradient: 256 threads, grid ceil(outer·inner / 256).
#include "common/softmax.cuh"
#include "common/vector.cuh"

struct SoftmaxParams {
    u64 outer, n, inner;
    u32 log, pad;
};
static_assert(sizeof(SoftmaxParams) == 32, "core::ops::SoftmaxParams");

template <typename T>
__device__ __forceinline__ void naive(const SoftmaxParams &p, const T *__restrict__ x, T *__restrict__ y) {
    u64 row = global_thread();
    if (row >= p.outer) return;
    x += row * p.n;
    y += row * p.n;
    float m = -INFINITY, sum = 0.0f;
    for (u64 j = 0; j < p.n; ++j) m = max_nan(m, to_acc(x[j]));
    for (u64 j = 0; j < p.n; ++j) sum += expf(to_acc(x[j]) - m);
    for (u64 j = 0; j < p.n; ++j) {
        float v = to_acc(x[j]) - m;
        y[j] = from_acc<T>(p.log ? v - logf(sum) : expf(v) / sum);
    }
}

template <int N, typename T>
__device__ __forceinline__ void rows(const SoftmaxParams &p, const T *__restrict__ x, T *__restrict__ y) {
    u64 row = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    if (row >= p.outer) return;
    x += row * p.n;
    y += row * p.n;
    WarpRow<N> v;
    v.load(x, (int)p.n);
    float m, sum;
    v.statistics(m, sum);
    float log_sum = logf(sum);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        int at = i * WARP + v.lane;
        if (at < v.n) y[at] = from_acc<T>(p.log ? v.v[i] - m - log_sum : expf(v.v[i] - m) / sum);
    }
}

template <int N, typename T>
__device__ __forceinline__ void rows_grad(const SoftmaxParams &p, const T *__restrict__ y, const T *__restrict__ g,
                                          T *__restrict__ dx) {
    u64 row = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    if (row >= p.outer) return;
    y += row * p.n;
    g += row * p.n;
    dx += row * p.n;
    WarpRow<N> vy, vg;
    vy.load(y, (int)p.n);
    vg.load(g, (int)p.n);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (i * WARP + vy.lane < vy.n) sum += p.log ? vg.v[i] : vg.v[i] * vy.v[i];
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        int at = i * WARP + vy.lane;
        float a = p.log ? vg.v[i] - expf(vy.v[i]) * sum : vy.v[i] * (vg.v[i] - sum);
        if (at < vy.n) dx[at] = from_acc<T>(a);
    }
}

// The row of a warp, and where this lane's pack `i` of it begins.
template <typename T> struct PackedRow {
    static constexpr int L = LANES<T>;
    u64 row = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    __device__ __forceinline__ int at(int i) const { return (i * WARP + (int)(threadIdx.x % WARP)) * L; }
};

template <int N, typename T>
__device__ __forceinline__ void packs(const SoftmaxParams &p, const T *__restrict__ x, T *__restrict__ y) {
    constexpr int L = LANES<T>, P = N / L;
    PackedRow<T> r;
    const int n = (int)p.n;
    if (r.row >= p.outer) return;
    x += r.row * p.n;
    y += r.row * p.n;
    float v[P][L], m = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < P; ++i) {
        if (r.at(i) < n) load<L>(x + r.at(i), v[i]);
        else
#pragma unroll
            for (int k = 0; k < L; ++k) v[i][k] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < P; ++i)
#pragma unroll
        for (int k = 0; k < L; ++k) m = max_nan(m, v[i][k]);
    m = warp_max(m);
    // Powers take the place of the elements, but the log needs these.
    const auto each = [&](auto &&f) {
#pragma unroll
        for (int i = 0; i < P; ++i)
            if (r.at(i) < n)
#pragma unroll
                for (int k = 0; k < L; ++k) v[i][k] = f(v[i][k]);
    };
    const auto power = [&](float x) {
        float e = expf(x - m);
        sum += e;
        return e;
    };
    if (p.log) {
        each([&](float x) { return power(x), x; });
        float log_sum = logf(warp_sum(sum));
        each([&](float x) { return x - m - log_sum; });
    } else {
        each(power);
        float one = 1.0f / warp_sum(sum);
        each([&](float x) { return x * one; });
    }
#pragma unroll
    for (int i = 0; i < P; ++i)
        if (r.at(i) < n) store<L>(y + r.at(i), v[i]);
}

template <int N, typename T>
__device__ __forceinline__ void packs_grad(const SoftmaxParams &p, const T *__restrict__ y, const T *__restrict__ g,
                                           T *__restrict__ dx) {
    constexpr int L = LANES<T>, P = N / L;
    PackedRow<T> r;
    const int n = (int)p.n;
    if (r.row >= p.outer) return;
    y += r.row * p.n;
    g += r.row * p.n;
    dx += r.row * p.n;
    Pack<T> vy[P] = {}, vg[P] = {};
#pragma unroll
    for (int i = 0; i < P; ++i)
        if (r.at(i) < n) vy[i] = load16(y + r.at(i)), vg[i] = load16(g + r.at(i));
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < P; ++i)
#pragma unroll
        for (int k = 0; k < L; ++k) sum += p.log ? to_acc(vg[i].v[k]) : to_acc(vg[i].v[k]) * to_acc(vy[i].v[k]);
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < P; ++i) {
#pragma unroll
        for (int k = 0; k < L; ++k) {
            float a = to_acc(vy[i].v[k]), b = to_acc(vg[i].v[k]);
            vg[i].v[k] = from_acc<T>(p.log ? b - expf(a) * sum : a * (b - sum));
        }
        if (r.at(i) < n) store16(dx + r.at(i), vg[i]);
    }
}

template <typename T>
__device__ __forceinline__ void blocks(const SoftmaxParams &p, const T *__restrict__ x, T *__restrict__ y) {
    __shared__ float scratch[256 / WARP];
    x += blockIdx.x * p.n;
    y += blockIdx.x * p.n;
    float m, sum;
    block_statistics(x, p.n, m, sum, scratch);
    float log_sum = logf(sum);
    map_row(x, y, p.n, [&](float v, u64) { return p.log ? v - m - log_sum : expf(v - m) / sum; });
}

template <typename T>
__device__ __forceinline__ void blocks_grad(const SoftmaxParams &p, const T *__restrict__ y, const T *__restrict__ g,
                                            T *__restrict__ dx) {
    __shared__ float scratch[256 / WARP];
    y += blockIdx.x * p.n;
    g += blockIdx.x * p.n;
    dx += blockIdx.x * p.n;
    constexpr int L = LANES<T>;
    const u64 packs = aligned16(y) && aligned16(g) && aligned16(dx) ? p.n / L : 0;
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < packs; i += 256) {
        Pack<T> vy = load16(y + i * L), vg = load16(g + i * L);
#pragma unroll
        for (int k = 0; k < L; ++k) sum += p.log ? to_acc(vg.v[k]) : to_acc(vg.v[k]) * to_acc(vy.v[k]);
    }
    for (u64 i = packs * L + threadIdx.x; i < p.n; i += 256) sum += p.log ? to_acc(g[i]) : to_acc(g[i]) * to_acc(y[i]);
    sum = block_sum<256>(sum, scratch);
    const auto slope = [&](float vy, float vg) { return p.log ? vg - expf(vy) * sum : vy * (vg - sum); };
    for (u64 i = threadIdx.x; i < packs; i += 256) {
        Pack<T> vy = load16(y + i * L), vg = load16(g + i * L);
#pragma unroll
        for (int k = 0; k < L; ++k) vg.v[k] = from_acc<T>(slope(to_acc(vy.v[k]), to_acc(vg.v[k])));
        store16(dx + i * L, vg);
    }
    for (u64 i = packs * L + threadIdx.x; i < p.n; i += 256) dx[i] = from_acc<T>(slope(to_acc(y[i]), to_acc(g[i])));
}

// Where column `i` of outer·inner begins.
__device__ __forceinline__ u64 column(const SoftmaxParams &p, u64 i) {
    u64 outer, inner;
    divide(i, p.inner, outer, inner);
    return outer * p.n * p.inner + inner;
}

template <typename T>
__device__ __forceinline__ void columns(const SoftmaxParams &p, const T *__restrict__ x, T *__restrict__ y) {
    u64 i = global_thread();
    if (i >= p.outer * p.inner) return;
    u64 from = column(p, i);
    Running r;
    for (u64 j = 0; j < p.n; ++j) r.add(to_acc(x[from + j * p.inner]));
    float m = r.m, sum = r.sum, log_sum = logf(sum);
    for (u64 j = 0; j < p.n; ++j) {
        u64 at = from + j * p.inner;
        float v = to_acc(x[at]);
        y[at] = from_acc<T>(p.log ? v - m - log_sum : expf(v - m) / sum);
    }
}

template <typename T>
__device__ __forceinline__ void columns_grad(const SoftmaxParams &p, const T *__restrict__ y, const T *__restrict__ g,
                                             T *__restrict__ dx) {
    u64 i = global_thread();
    if (i >= p.outer * p.inner) return;
    u64 from = column(p, i);
    float sum = 0.0f;
    for (u64 j = 0; j < p.n; ++j) {
        u64 at = from + j * p.inner;
        sum += p.log ? to_acc(g[at]) : to_acc(g[at]) * to_acc(y[at]);
    }
    for (u64 j = 0; j < p.n; ++j) {
        u64 at = from + j * p.inner;
        float vy = to_acc(y[at]), vg = to_acc(g[at]);
        dx[at] = from_acc<T>(p.log ? vg - expf(vy) * sum : vy * (vg - sum));
    }
}

#define ENTRY(name, body, suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        softmax_##name##_##suffix(SoftmaxParams p, const T *__restrict__ x, T *__restrict__ y) {                       \
        body(p, x, y);                                                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) softmax_grad_##name##_##suffix(                                  \
        SoftmaxParams p, const T *__restrict__ y, const T *__restrict__ g, T *__restrict__ dx)
#define NAIVE(suffix, T)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        softmax_naive_##suffix(SoftmaxParams p, const T *__restrict__ x, T *__restrict__ y) {                          \
        naive(p, x, y);                                                                                                \
    }
FOR_FLOATS(NAIVE)

#define ENTRIES(suffix, T)                                                                                             \
    ENTRY(rows1, rows<1>, suffix, T) { rows_grad<1>(p, y, g, dx); }                                                    \
    ENTRY(rows4, rows<4>, suffix, T) { rows_grad<4>(p, y, g, dx); }                                                    \
    ENTRY(rows32, rows<32>, suffix, T) { rows_grad<32>(p, y, g, dx); }                                                 \
    ENTRY(packs8, packs<8>, suffix, T) { packs_grad<8>(p, y, g, dx); }                                                 \
    ENTRY(packs32, packs<32>, suffix, T) { packs_grad<32>(p, y, g, dx); }                                              \
    ENTRY(blocks, blocks, suffix, T) { blocks_grad(p, y, g, dx); }                                                     \
    ENTRY(columns, columns, suffix, T) { columns_grad(p, y, g, dx); }
FOR_FLOATS(ENTRIES)
