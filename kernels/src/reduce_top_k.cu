// The k largest (smallest with p.reverse) along one axis of x [outer, n, inner], sorted, ties by lower index first; NaN
// counts as the largest. values and index are [outer, k, inner].
//
// An element and its place make one key of 64 bits that is larger for what comes first. No two keys are equal, so any
// order of comparisons gives the same result.
//
// Geometry: top_k_select: k ≤ 1024 or n ≤ 2048, a block of 256 per (outer, inner). 2048 keys in shared memory; keys that
//           beat the k-th best so far are appended, and a full buffer is sorted and cut to k.
//           top_k_sort: any k, a block of 256 per (outer, inner) with a stride; sorts n keys in `scratch`, `size` keys
//           (n rounded up to a power of 2) for each block.
#include "common/axis.cuh"

constexpr u32 THREADS = 256, CAPACITY = 2048;

__device__ __forceinline__ u64 key_of(const AxisParams &p, float x, u64 j) {
    u32 key = order(x);
    return (u64)(p.reverse ? ~key : key) << 32 | (u32)~(u32)j;
}

// Sorts `size` keys (a power of 2) from the largest down; the whole block calls, and sees the result (Batcher 1968).
__device__ __forceinline__ void sort(u64 *keys, u64 size) {
    for (u64 run = 2; run <= size; run *= 2) {
        for (u64 step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            for (u64 t = threadIdx.x; t < size / 2; t += THREADS) {
                u64 i = 2 * t - (t & (step - 1)), a = keys[i], b = keys[i + step];
                bool down = (i & run) == 0;
                if ((a < b) == down) {
                    keys[i] = b;
                    keys[i + step] = a;
                }
            }
        }
    }
    __syncthreads();
}

// Writes the first k of sorted keys as row `r`.
template <typename T>
__device__ __forceinline__ void write(const AxisParams &p, u64 r, const u64 *keys, const T *__restrict__ x,
                                      T *__restrict__ values, i32 *__restrict__ index) {
    const u64 from = axis_start(p, r, p.n), to = axis_start(p, r, p.k);
    for (u64 j = threadIdx.x; j < p.k; j += THREADS) {
        u32 place = ~(u32)keys[j];
        values[to + j * p.inner] = x[from + place * p.inner];
        index[to + j * p.inner] = (i32)place;
    }
}

template <typename T>
__device__ __forceinline__ void top_k_select(const AxisParams &p, const T *__restrict__ x, T *__restrict__ values,
                                             i32 *__restrict__ index) {
    __shared__ u64 keys[CAPACITY];
    __shared__ u32 filled;
    const T *from = x + axis_start(p, blockIdx.x, p.n);
    u64 worst = 0;
    if (threadIdx.x == 0) filled = 0;
    __syncthreads();
    // The last round reads no keys: it sorts those in the buffer.
    for (u64 tile = 0;; tile += THREADS) {
        const u32 count = filled;
        const bool last = tile >= p.n;
        if (last || count + THREADS > CAPACITY) {
            u32 size = 1;
            while (size < count) size *= 2;
            for (u32 i = count + threadIdx.x; i < size; i += THREADS) keys[i] = 0;
            sort(keys, size);
            if (last) break;
            worst = keys[p.k - 1];
            __syncthreads();
            if (threadIdx.x == 0) filled = (u32)p.k;
        }
        __syncthreads();
        u64 j = tile + threadIdx.x;
        if (j < p.n) {
            u64 key = key_of(p, to_acc(from[j * p.inner]), j);
            if (key > worst) keys[atomicAdd(&filled, 1u)] = key;
        }
        __syncthreads();
    }
    write(p, blockIdx.x, keys, x, values, index);
}

template <typename T>
__device__ __forceinline__ void top_k_sort(const AxisParams &p, const T *__restrict__ x, T *__restrict__ values,
                                           i32 *__restrict__ index, u64 *__restrict__ scratch, u64 size) {
    u64 *keys = scratch + blockIdx.x * size;
    for (u64 r = blockIdx.x; r < p.outer * p.inner; r += gridDim.x) {
        const T *from = x + axis_start(p, r, p.n);
        for (u64 j = threadIdx.x; j < size; j += THREADS)
            keys[j] = j < p.n ? key_of(p, to_acc(from[j * p.inner]), j) : 0;
        sort(keys, size);
        write(p, r, keys, x, values, index);
        __syncthreads();
    }
}

#define ENTRIES(suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) top_k_select_##suffix(                                           \
        AxisParams p, const T *__restrict__ x, T *__restrict__ values, i32 *__restrict__ index) {                      \
        top_k_select(p, x, values, index);                                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        top_k_sort_##suffix(AxisParams p, const T *__restrict__ x, T *__restrict__ values, i32 *__restrict__ index,    \
                            u64 *__restrict__ scratch, u64 size) {                                                     \
        top_k_sort(p, x, values, index, scratch, size);                                                                \
    }
FOR_FLOATS(ENTRIES)
