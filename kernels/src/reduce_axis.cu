// The position of the largest (smallest) element, and the running sum, along one axis of x [outer, n, inner].
//
//   index[o, i] = argmax_j x[o, j, i], the first among equals, NaN before all;
//   y[o, j, i] = Σ_{l ≤ j} x[o, l, i], with p.reverse over l ≥ j;
//   sum += weight·#{o : argmax_j x[o, j] = labels[o]}, by the last block to arrive.
//
// Geometry: arg_warps: inner = 1, a warp per row, 8 a block of 256; arg_blocks: inner = 1, long rows, a block per row;
//           arg_columns: a thread per (outer, inner), neighbours reading neighbouring addresses.
//           correct_warps, correct_blocks: as arg_warps and arg_blocks; a block at least.
//           cumsum_blocks: inner = 1, a block of 256 per row, which scans 1024 elements at a time;
//           cumsum_columns: a thread per (outer, inner).
#include "common/arrive.cuh"
#include "common/axis.cuh"

// The candidate and its place as one number that is larger for what comes first: order, then the lower index.
__device__ __forceinline__ u64 candidate(const AxisParams &p, float x, u64 j) {
    u32 key = order(x);
    // The smallest first, but NaN before it.
    if (p.reverse && x == x) key = ~key;
    return (u64)key << 32 | (u32)~(u32)j;
}
__device__ __forceinline__ i32 place(u64 best) { return (i32)~(u32)best; }
__device__ __forceinline__ u64 larger(u64 a, u64 b) { return a > b ? a : b; }

__device__ __forceinline__ u64 warp_larger(u64 best) {
#pragma unroll
    for (int lane = WARP / 2; lane > 0; lane /= 2) best = larger(best, __shfl_xor_sync(FULL_WARP, best, lane));
    return best;
}

// The best candidate of a row, of a warp for lane 0 and of a block for thread 0.
template <typename T> __device__ __forceinline__ u64 best_of_warp(const AxisParams &p, const T *__restrict__ x) {
    u64 best = 0;
    for (u64 j = threadIdx.x % WARP; j < p.n; j += WARP) best = larger(best, candidate(p, to_acc(x[j]), j));
    return warp_larger(best);
}

template <typename T> __device__ __forceinline__ u64 best_of_block(const AxisParams &p, const T *__restrict__ x) {
    __shared__ u64 scratch[256 / WARP];
    u64 best = 0;
    for (u64 j = threadIdx.x; j < p.n; j += 256) best = larger(best, candidate(p, to_acc(x[j]), j));
    best = warp_larger(best);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = best;
    __syncthreads();
    for (int i = 1; i < 256 / WARP; ++i) best = larger(best, scratch[i]);
    return best;
}

template <typename T>
__device__ __forceinline__ void arg_warps(const AxisParams &p, const T *__restrict__ x, i32 *__restrict__ index) {
    u64 row = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    if (row >= p.outer) return;
    u64 best = best_of_warp(p, x + row * p.n);
    if (threadIdx.x % WARP == 0) index[row] = place(best);
}

template <typename T>
__device__ __forceinline__ void arg_blocks(const AxisParams &p, const T *__restrict__ x, i32 *__restrict__ index) {
    u64 best = best_of_block(p, x + blockIdx.x * p.n);
    if (threadIdx.x == 0) index[blockIdx.x] = place(best);
}

// sum += weight · the sum of counts[block], where each block has `mine`.
__device__ __forceinline__ void add_counts(u32 mine, u32 *counts, float weight, float *__restrict__ sum) {
    __shared__ u32 warps[256 / WARP];
    __shared__ bool last;
    if (threadIdx.x == 0) counts[blockIdx.x] = mine;
    if (!arrives_last(0, gridDim.x, last)) return;
    u32 count = 0;
    for (u32 i = threadIdx.x; i < gridDim.x; i += 256) count += __ldcg(counts + i);
#pragma unroll
    for (int lane = WARP / 2; lane > 0; lane /= 2) count += __shfl_xor_sync(FULL_WARP, count, lane);
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = count;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < 256 / WARP; ++i) count += warps[i];
    *sum = __fadd_rn(*sum, __fmul_rn((float)count, weight));
}

template <typename T>
__device__ __forceinline__ void correct_warps(const AxisParams &p, const T *__restrict__ x, const i32 *__restrict__ labels,
                                              u32 *counts, float weight, float *__restrict__ sum) {
    u64 row = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    bool correct = row < p.outer && place(best_of_warp(p, x + row * p.n)) == labels[row];
    add_counts(__syncthreads_count(correct && threadIdx.x % WARP == 0), counts, weight, sum);
}

template <typename T>
__device__ __forceinline__ void correct_blocks(const AxisParams &p, const T *__restrict__ x, const i32 *__restrict__ labels,
                                               u32 *counts, float weight, float *__restrict__ sum) {
    bool correct = blockIdx.x < p.outer && place(best_of_block(p, x + blockIdx.x * p.n)) == labels[blockIdx.x];
    add_counts(correct, counts, weight, sum);
}

template <typename T>
__device__ __forceinline__ void arg_columns(const AxisParams &p, const T *__restrict__ x, i32 *__restrict__ index) {
    u64 i = global_thread();
    if (i >= p.outer * p.inner) return;
    x += axis_start(p, i, p.n);
    u64 best = 0;
    for (u64 j = 0; j < p.n; ++j) best = larger(best, candidate(p, to_acc(x[j * p.inner]), j));
    index[i] = place(best);
}

// Elements as their sums have them, and back.
template <typename T> __device__ __forceinline__ float widened(T x) { return to_acc(x); }
__device__ __forceinline__ u32 widened(i32 x) { return (u32)x; }
template <typename T> __device__ __forceinline__ T rounded(float x) { return from_acc<T>(x); }
template <typename T> __device__ __forceinline__ T rounded(u32 x) { return (T)x; }

// Each thread sums 4 neighbours, warps and then the block scan the sums by shuffles, and a total goes from tile to tile.
template <typename T>
__device__ __forceinline__ void cumsum_blocks(const AxisParams &p, const T *__restrict__ x, T *__restrict__ y) {
    using Sum = decltype(widened(T()));
    constexpr int EACH = 4, TILE = 256 * EACH;
    __shared__ Sum sums[256 / WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    x += blockIdx.x * p.n;
    y += blockIdx.x * p.n;
    Sum total = 0;
    for (u64 tile = 0; tile < p.n; tile += TILE) {
        Sum v[EACH], sum = 0;
        u64 first = tile + threadIdx.x * EACH;
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            u64 j = first + k;
            sum += j < p.n ? widened(x[p.reverse ? p.n - 1 - j : j]) : 0;
            v[k] = sum;
        }
        Sum up = sum;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            Sum other = __shfl_up_sync(FULL_WARP, up, step);
            if (lane >= step) up += other;
        }
        if (lane == WARP - 1) sums[warp] = up;
        __syncthreads();
        Sum before = 0, all = 0;
#pragma unroll
        for (int w = 0; w < 256 / WARP; ++w) {
            if (w == warp) before = all;
            all += sums[w];
        }
        // The sums before this thread's elements: of earlier tiles, warps and lanes.
        Sum lanes = __shfl_up_sync(FULL_WARP, up, 1);
        before = total + (before + (lane > 0 ? lanes : 0));
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            u64 j = first + k;
            if (j < p.n) y[p.reverse ? p.n - 1 - j : j] = rounded<T>(before + v[k]);
        }
        total += all;
        __syncthreads();
    }
}

template <typename T>
__device__ __forceinline__ void cumsum_columns(const AxisParams &p, const T *__restrict__ x, T *__restrict__ y) {
    u64 i = global_thread();
    if (i >= p.outer * p.inner) return;
    u64 from = axis_start(p, i, p.n);
    decltype(widened(T())) total = 0, part = 0;
    for (u64 step = 0; step < p.n; ++step) {
        u64 at = from + (p.reverse ? p.n - 1 - step : step) * p.inner;
        part += widened(x[at]);
        y[at] = rounded<T>(total + part);
        // Blocks of 64 are summed from zero: shorter chains of roundings.
        if (step % 64 == 63) {
            total += part;
            part = 0;
        }
    }
}

#define ENTRY(name, suffix, T, Y)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        name##_##suffix(AxisParams p, const T *__restrict__ x, Y *__restrict__ y) {                                    \
        name(p, x, y);                                                                                                 \
    }
#define CORRECT(name, suffix, T)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        name##_##suffix(AxisParams p, const T *__restrict__ x, const i32 *__restrict__ labels, u32 *counts,            \
                        float weight, float *__restrict__ sum) {                                                       \
        name(p, x, labels, counts, weight, sum);                                                                       \
    }
#define ENTRIES(suffix, T)                                                                                             \
    CORRECT(correct_warps, suffix, T)                                                                                  \
    CORRECT(correct_blocks, suffix, T)                                                                                 \
    ENTRY(arg_warps, suffix, T, i32)                                                                                   \
    ENTRY(arg_blocks, suffix, T, i32)                                                                                  \
    ENTRY(arg_columns, suffix, T, i32)                                                                                 \
    ENTRY(cumsum_blocks, suffix, T, T)                                                                                 \
    ENTRY(cumsum_columns, suffix, T, T)
FOR_FLOATS(ENTRIES)
ENTRY(cumsum_blocks, i32, i32, i32)
ENTRY(cumsum_columns, i32, i32, i32)
