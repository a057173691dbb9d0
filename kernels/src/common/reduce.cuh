// The reductions of core's `Reduce`, and how their kernels find the elements of an output.
#pragma once

#include "types.cuh"
#include "warp.cuh"
#include <codes.cuh>

struct ReduceParams {
    u64 shape[8];
    u32 reduced, rank, op, pad;
    u64 outputs, count;
};
static_assert(sizeof(ReduceParams) == 96, "core::ops::ReduceParams");


// How a fold takes an element, and how it joins two results: `of` is the join by the name that warp_reduce calls.
struct SumFold : Add {
    static __device__ __forceinline__ float load(float x) { return x; }
    static __device__ __forceinline__ float join(float a, float b) { return of(a, b); }
};
struct SumSquaresFold : Add {
    static __device__ __forceinline__ float load(float x) { return x * x; }
    static __device__ __forceinline__ float join(float a, float b) { return of(a, b); }
};
struct MaxFold : Max {
    static __device__ __forceinline__ float load(float x) { return x; }
    static __device__ __forceinline__ float join(float a, float b) { return of(a, b); }
};
struct MinFold : Min {
    static __device__ __forceinline__ float load(float x) { return x; }
    static __device__ __forceinline__ float join(float a, float b) { return of(a, b); }
};

// The offset of position `index` among the dimensions before `end` that are reduced (kind 1) or kept (kind 0).
__device__ __forceinline__ u64 walk(const ReduceParams &p, u32 kind, u32 end, u64 index) {
    u64 stride = 1, offset = 0;
#pragma unroll 1
    for (u32 i = p.rank; i-- > 0;) {
        if (i < end && (p.reduced >> i & 1) == kind) {
            u64 q, r;
            divide(index, p.shape[i], q, r);
            offset += r * stride;
            index = q;
        }
        stride *= p.shape[i];
    }
    return offset;
}
