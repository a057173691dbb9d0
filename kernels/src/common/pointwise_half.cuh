// Functions of the table whose results are stored in 16 bits. The sigmoid family takes the exponential and the reciprocal that the hardware
// approximates: results are right to 2⁻¹⁵ of themselves where the nearest bf16 is up to 2⁻⁸ of them away and the nearest f16 up to 2⁻¹¹, for fewer
// instructions than the last digits of f32 take. Results below 1e-35 may be 0. All others are pointwise.cuh's.
#pragma once

#include "pointwise.cuh"

// 2ˣ and 1/x, to about two units in the last place; numbers below the normal ones are taken as 0.
__device__ __forceinline__ float quick_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float quick_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

constexpr float LOG2_E = 1.4426950408889634f;

// 1/(1 + e⁻ˣ)
__device__ __forceinline__ float quick_logistic(float x) { return quick_reciprocal(1.0f + quick_exp2(-LOG2_E * x)); }

// The logistic function of 2·√(2/π)·(x + 0.044715·x³).
__device__ __forceinline__ float quick_gelu_logistic(float x) {
    const float slope = fmaf(-LOG2_E * GELU_CUBE, x * x, -LOG2_E * GELU_LINEAR);
    return quick_reciprocal(1.0f + quick_exp2(x * slope));
}

// The standard normal distribution function and e^(−x²/2). The upper tail is e^(−x²/2) times a polynomial in 1/(1 + 0.36·|x|) (the form of
// Hastings 1955), fitted to a relative error of 2⁻²⁰ up to |x| = 14.
struct QuickNormal {
    float cdf, bell;
    __device__ __forceinline__ explicit QuickNormal(float x) {
        const float t = quick_reciprocal(fmaf(0.36f, fabsf(x), 1.0f));
        float p = fmaf(0.0470560156f, t, -0.179763754f);
        p = fmaf(p, t, 0.180952751f);
        p = fmaf(p, t, 0.0265501676f);
        p = fmaf(p, t, 0.139718973f);
        p = fmaf(p, t, 0.141772503f);
        p = fmaf(p, t, 0.143713042f);
        bell = quick_exp2(x * x * (-0.5f * LOG2_E));
        const float tail = p * t * bell;
        cdf = x > 0.0f ? 1.0f - tail : tail;
    }
};

// f(x), to be stored as T
template <typename T, u32 OP> __device__ __forceinline__ float value_as(float x, float a, float b) {
    if constexpr (sizeof(T) == 2) {
        if constexpr (OP == UNARY_SIGMOID) return quick_logistic(x);
        if constexpr (OP == UNARY_SILU) return x * quick_logistic(x);
        if constexpr (OP == UNARY_GELU) return x * QuickNormal(x).cdf;
        if constexpr (OP == UNARY_GELU_TANH) return x * quick_gelu_logistic(x);
    }
    return value<OP>(x, a, b);
}

// g·f′(x), y being f(x), to be stored as T
template <typename T, u32 OP> __device__ __forceinline__ float slope_as(float x, float y, float g, float a, float b) {
    if constexpr (sizeof(T) == 2) {
        if constexpr (OP == UNARY_SILU) {
            const float s = quick_logistic(x);
            return g * s * (1.0f + x * (1.0f - s));
        }
        if constexpr (OP == UNARY_GELU) {
            const QuickNormal normal(x);
            return g * fmaf(x, normal.bell * 0.3989422804014327f, normal.cdf);
        }
        if constexpr (OP == UNARY_GELU_TANH) {
            // From far below 100 on, s·(1 − s) is 0, and the square of a large x would overflow.
            const float s = quick_gelu_logistic(x), z = fminf(fabsf(x), 100.0f);
            return g * fmaf(x * s * (1.0f - s), fmaf(3.0f * GELU_CUBE, z * z, GELU_LINEAR), s);
        }
    }
    return slope<OP>(x, y, g, a, b);
}
