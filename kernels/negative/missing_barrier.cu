// Wrong on purpose: reverses each block's elements through shared memory without a barrier between write and read.
//
//   y[b·256 + i] = x[b·256 + 255 − i]
//
// Geometry: blocks of 256; n is a multiple of 256.
#include "../src/common/types.cuh"

extern "C" __global__ void __launch_bounds__(256) missing_barrier(const f32 *__restrict__ x, f32 *__restrict__ y) {
    __shared__ f32 tile[256];
    u64 first = (u64)blockIdx.x * 256;
    tile[threadIdx.x] = x[first + threadIdx.x];
    // __syncthreads() belongs here.
    y[first + threadIdx.x] = tile[255 - threadIdx.x];
}
