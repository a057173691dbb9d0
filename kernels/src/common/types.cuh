// Element types, how they widen for arithmetic and round for storage, and 16-byte accesses.
//
// All arithmetic is in f32. A kernel template `kernel<T>` loads with `to_acc`, computes in float, stores with `from_acc`
// (round to nearest even), as core's `Float` does on the CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

using f32 = float;
using bf16 = __nv_bfloat16;
using f16 = __half;
using u8 = uint8_t;
using u32 = uint32_t;
using i32 = int32_t;
using u64 = unsigned long long;
using i64 = long long;

__device__ __forceinline__ float to_acc(f32 x) { return x; }
__device__ __forceinline__ float to_acc(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_acc(f16 x) { return __half2float(x); }

template <typename T> __device__ __forceinline__ T from_acc(float x);
template <> __device__ __forceinline__ f32 from_acc<f32>(float x) { return x; }
template <> __device__ __forceinline__ bf16 from_acc<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ f16 from_acc<f16>(float x) { return __float2half_rn(x); }

// Elements of a 16-byte access.
template <typename T> constexpr int LANES = 16 / sizeof(T);

// 16 bytes of elements, loaded and stored at once.
template <typename T> struct alignas(16) Pack {
    T v[LANES<T>];
};

template <typename T> __device__ __forceinline__ Pack<T> load16(const T *__restrict__ p) {
    return *reinterpret_cast<const Pack<T> *>(p);
}
template <typename T> __device__ __forceinline__ void store16(T *__restrict__ p, const Pack<T> &x) {
    *reinterpret_cast<Pack<T> *>(p) = x;
}

// True if a pointer can be accessed by 16 bytes.
__device__ __forceinline__ bool aligned16(const void *p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }

// The index of this thread in a grid of one dimension, and the number of threads: for grid-stride loops.
__device__ __forceinline__ u64 global_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 global_threads() { return (u64)gridDim.x * blockDim.x; }

// Quotient and remainder; in 32 bits where both fit, which is several times faster.
__device__ __forceinline__ void divide(u64 x, u64 by, u64 &quotient, u64 &remainder) {
    if (((x | by) >> 32) == 0) {
        u32 q = (u32)x / (u32)by;
        quotient = q;
        remainder = (u32)x - q * (u32)by;
    } else {
        quotient = x / by;
        remainder = x - quotient * by;
    }
}

// Instances of a macro for every float dtype: M(suffix, type).
#define FOR_FLOATS(M) M(f32, f32) M(bf16, bf16) M(f16, f16)
