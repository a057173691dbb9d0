// Softmax and log-softmax along one axis of x [outer, n, inner].
//
//   y = e^(x − m) / Σ e^(x − m), m = max x;   log: y = x − m − ln Σ e^(x − m)
//   dx = y·(g − Σ g·y);                       log: dx = g − e^y·Σ g
//
// Rows (inner = 1) that fit 32 lanes by 32 registers are held in registers: one read and one write of memory. Longer
// rows take a block each and read the row from memory (or cache) in three passes. Other axes (inner > 1) take one
// thread per (outer, inner), so that neighbouring threads read neighbouring addresses.
//
// Geometry: softmax_rows and its gradient: a warp per row, 8 rows a block of 256, grid ceil(outer / 8).
//           softmax_blocks: a block of 256 per row, grid min(outer, 2^31 − 1) with a stride.
//           softmax_columns: 256 threads, grid ceil(outer·inner / 256).
#include "common/types.cuh"
#include "common/warp.cuh"

struct SoftmaxParams {
    u64 outer, n, inner;
    u32 log, pad;
};
static_assert(sizeof(SoftmaxParams) == 32, "core::ops::SoftmaxParams");

// Rows of at most 32·VALUES elements, a warp each.
constexpr int VALUES = 32;

template <typename T>
__device__ __forceinline__ void rows(const SoftmaxParams &p, const T *__restrict__ x, T *__restrict__ y) {
    u64 row = (u64)blockIdx.x * 8 + threadIdx.x / WARP;
    if (row >= p.outer) return;
    int lane = threadIdx.x % WARP, n = (int)p.n;
    x += row * p.n;
    y += row * p.n;
    float v[VALUES], m = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < VALUES; ++i) {
        int at = i * WARP + lane;
        v[i] = at < n ? wide(x[at]) : -INFINITY;
        m = max_nan(m, v[i]);
    }
    m = warp_max(m);
#pragma unroll
    for (int i = 0; i < VALUES; ++i) sum += i * WARP + lane < n ? expf(v[i] - m) : 0.0f;
    sum = warp_sum(sum);
    float shift = p.log ? m + logf(sum) : m, scale = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < VALUES; ++i) {
        int at = i * WARP + lane;
        if (at < n) y[at] = narrow<T>(p.log ? v[i] - shift : expf(v[i] - m) * scale);
    }
}

#define ROWS(suffix, T)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) softmax_rows_##suffix(SoftmaxParams p, const T *__restrict__ x,  \
                                                                            T *__restrict__ y) {                       \
        rows<T>(p, x, y);                                                                                              \
    }
FOR_FLOATS(ROWS)
