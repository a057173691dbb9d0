// Ops along one axis of [outer, n, inner].
#pragma once

#include "types.cuh"
#include "warp.cuh"

struct AxisParams {
    u64 outer, n, inner, k;
    u32 reverse, pad;
};
static_assert(sizeof(AxisParams) == 40, "core::ops::AxisParams");

// Where (outer, inner) number `i` begins in a tensor whose axis has `n` entries.
__device__ __forceinline__ u64 axis_start(const AxisParams &p, u64 i, u64 n) {
    u64 outer, inner;
    divide(i, p.inner, outer, inner);
    return outer * n * p.inner + inner;
}

// An unsigned number in the order of the floats: −0 equals 0, NaN is the largest.
__device__ __forceinline__ u32 order(float x) {
    if (x != x) return 0xffffffffu;
    u32 bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
