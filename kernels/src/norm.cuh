// Shared by the norms: their parameters, and the statistics of a set of values.
#pragma once

#include "common/vector.cuh"
#include "common/warp.cuh"

struct GroupNormParams {
    u64 samples, positions, groups, width;
    double eps;
    u32 rms;
    u32 flags; // padding in core
};
static_assert(sizeof(GroupNormParams) == 48, "core::ops::GroupNormParams");

// Flags: scale and shift are f32 whatever x is; the result is that of a ReLU; the gradients of scale and shift are f32; in place of rstd, the
// sums of squared deviations from the mean are written, behind the means.
constexpr u32 NORM_WIDE = 1;
constexpr u32 NORM_RELU = 2;
constexpr u32 NORM_WIDE_GRADS = 4;
constexpr u32 NORM_M2 = 8;

// `count` values with mean `mean` and squared deviations `m2` from it.
struct Moments {
    float count, mean, m2;

    // Adds another set (Chan, Golub and LeVeque 1979).
    __device__ __forceinline__ void add(const Moments &b) {
        if (b.count == 0.0f) return;
        float total = count + b.count, share = b.count / total, delta = b.mean - mean;
        mean += delta * share;
        m2 += b.m2 + delta * delta * count * share;
        count = total;
    }
};

// The moments of all 32 lanes' sets, in each lane.
__device__ __forceinline__ Moments warp_moments(Moments a) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        Moments b;
        b.count = __shfl_xor_sync(FULL_WARP, a.count, step);
        b.mean = __shfl_xor_sync(FULL_WARP, a.mean, step);
        b.m2 = __shfl_xor_sync(FULL_WARP, a.m2, step);
        // Both partners add the upper lane's set to the lower's: the same bits in both.
        bool upper = threadIdx.x & step;
        Moments low = upper ? b : a;
        low.add(upper ? a : b);
        a = low;
    }
    return a;
}

__device__ __forceinline__ float rstd_of(float var, double eps) { return 1.0f / sqrtf(var + (float)eps); }

// What a norm makes of x, with a = rstd·scale. The gradient of a ReLU behind it is zero where this, as it was stored, is not positive:
// forward and backward kernels share it so that both round alike.
__device__ __forceinline__ float normalised(float x, float mean, float a, float shift) {
    return __fmaf_rn(x - mean, a, shift);
}

// True if the ReLU of it, stored as T, was not positive.
template <typename T> __device__ __forceinline__ bool relu_blocks(float x, float mean, float a, float shift) {
    return to_acc(from_acc<T>(normalised(x, mean, a, shift))) <= 0.0f;
}

// Visits i = first, first + stride, … as quotient i / d and remainder i % d, dividing 32-bit numbers once.
struct Walk {
    u64 quotient, remainder, d;
    u32 step_quotient, step_remainder;

    __device__ __forceinline__ Walk(u32 first, u32 stride, u64 divisor) : d(divisor) {
        u32 small = divisor < 0xffffffffu ? (u32)divisor : 0xffffffffu;
        quotient = first / small;
        remainder = first % small;
        step_quotient = stride / small;
        step_remainder = stride % small;
    }
    __device__ __forceinline__ void next() {
        quotient += step_quotient;
        remainder += step_remainder;
        if (remainder >= d) {
            remainder -= d;
            ++quotient;
        }
    }
};
