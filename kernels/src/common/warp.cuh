// Reductions of a warp and of a block by shuffles. The order of additions is fixed by the lane numbers alone, so the
// same values give the same bits in every run.
#pragma once

constexpr unsigned FULL_WARP = 0xffffffffu;
constexpr int WARP = 32;

// The larger; NaN if either is (fmaxf would drop it).
__device__ __forceinline__ float max_nan(float a, float b) { return (a > b || a != a) ? a : b; }
// The smaller; NaN if either is.
__device__ __forceinline__ float min_nan(float a, float b) { return (a < b || a != a) ? a : b; }

struct Add {
    static __device__ __forceinline__ float identity() { return 0.0f; }
    static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
struct Max {
    static __device__ __forceinline__ float identity() { return -INFINITY; }
    static __device__ __forceinline__ float of(float a, float b) { return max_nan(a, b); }
};
struct Min {
    static __device__ __forceinline__ float identity() { return INFINITY; }
    static __device__ __forceinline__ float of(float a, float b) { return min_nan(a, b); }
};

// The reduction over all 32 lanes, the same value in each. Every lane of the warp must call.
template <typename Op> __device__ __forceinline__ float warp_reduce(float x) {
#pragma unroll
    for (int lane = WARP / 2; lane > 0; lane /= 2) x = Op::of(x, __shfl_xor_sync(FULL_WARP, x, lane));
    return x;
}

// The reduction over a block of THREADS threads (a multiple of 32), the same value in each thread. `scratch` is shared
// memory of THREADS/32 floats; it may be used again right after.
template <typename Op, int THREADS> __device__ __forceinline__ float block_reduce(float x, float *scratch) {
    static_assert(THREADS % WARP == 0 && THREADS <= 1024, "whole warps");
    x = warp_reduce<Op>(x);
    if constexpr (THREADS > WARP) {
        if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = x;
        __syncthreads();
        int lane = threadIdx.x % WARP;
        x = warp_reduce<Op>(lane < THREADS / WARP ? scratch[lane] : Op::identity());
        __syncthreads();
    }
    return x;
}

__device__ __forceinline__ float warp_sum(float x) { return warp_reduce<Add>(x); }
__device__ __forceinline__ float warp_max(float x) { return warp_reduce<Max>(x); }
template <int THREADS> __device__ __forceinline__ float block_sum(float x, float *scratch) {
    return block_reduce<Add, THREADS>(x, scratch);
}
template <int THREADS> __device__ __forceinline__ float block_max(float x, float *scratch) {
    return block_reduce<Max, THREADS>(x, scratch);
}
