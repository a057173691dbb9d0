// Functions of one tensor and their gradients, by the codes of core's `Unary`. As crates/cpu's elementwise/unary.rs has
// them: what NaN, 0 and the ends of intervals give is the same on both sides.
#pragma once

#include "types.cuh"

// clang-format off
#define UNARY_CODES(M)                                                                                                 \
    M(AFFINE) M(NEG) M(ABS) M(EXP) M(LOG) M(SQRT) M(RSQRT) M(SQUARE) M(RECIPROCAL) M(SIN) M(COS) M(TANH) M(SIGMOID)     \
    M(RELU) M(LEAKY_RELU) M(ELU) M(GELU) M(GELU_TANH) M(SILU) M(SOFTPLUS) M(CLAMP) M(POWF) M(ERF) M(SIGN)
// clang-format on

#define NAME(code) UNARY_##code,
enum UnaryCode : u32 { UNARY_CODES(NAME) };
#undef NAME

// √(2/π) twice, and the cubic coefficient of the tanh form of GELU (Hendrycks & Gimpel 2016).
constexpr float GELU_TWICE = 1.5957691216057308f;
constexpr float GELU_CUBE = 0.044715f;

__device__ __forceinline__ float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
// The standard normal distribution function; erfc keeps its lower tail accurate.
__device__ __forceinline__ float normal_cdf(float x) { return 0.5f * erfcf(x * -0.70710678118654752f); }
// 1/2·(1 + tanh u) = 1/(1 + e⁻²ᵘ)
__device__ __forceinline__ float gelu_gate(float x) { return logistic(GELU_TWICE * (x + GELU_CUBE * x * x * x)); }

// Whether a function is a few instructions, so that all lanes of a pack may be unrolled.
template <u32 OP>
constexpr bool UNARY_LIGHT =
    OP == UNARY_AFFINE || OP == UNARY_NEG || OP == UNARY_ABS || OP == UNARY_SQUARE || OP == UNARY_RELU ||
           OP == UNARY_LEAKY_RELU || OP == UNARY_CLAMP || OP == UNARY_SIGN;

// f(x)
template <u32 OP> __device__ __forceinline__ float unary(float x, float a, float b) {
    if constexpr (OP == UNARY_AFFINE) return a * x + b;
    if constexpr (OP == UNARY_NEG) return -x;
    if constexpr (OP == UNARY_ABS) return fabsf(x);
    if constexpr (OP == UNARY_EXP) return expf(x);
    if constexpr (OP == UNARY_LOG) return logf(x);
    if constexpr (OP == UNARY_SQRT) return sqrtf(x);
    if constexpr (OP == UNARY_RSQRT) return 1.0f / sqrtf(x);
    if constexpr (OP == UNARY_SQUARE) return x * x;
    if constexpr (OP == UNARY_RECIPROCAL) return 1.0f / x;
    if constexpr (OP == UNARY_SIN) return sinf(x);
    if constexpr (OP == UNARY_COS) return cosf(x);
    if constexpr (OP == UNARY_TANH) return tanhf(x);
    if constexpr (OP == UNARY_SIGMOID) return logistic(x);
    if constexpr (OP == UNARY_RELU) return x < 0.0f ? 0.0f : x;
    if constexpr (OP == UNARY_LEAKY_RELU) return x > 0.0f ? x : a * x;
    if constexpr (OP == UNARY_ELU) return x > 0.0f ? x : a * expm1f(x);
    if constexpr (OP == UNARY_GELU) return x * normal_cdf(x);
    if constexpr (OP == UNARY_GELU_TANH) return x * gelu_gate(x);
    if constexpr (OP == UNARY_SILU) return x * logistic(x);
    if constexpr (OP == UNARY_SOFTPLUS) return a * x > b ? x : log1pf(expf(a * x)) / a;
    if constexpr (OP == UNARY_CLAMP) {
        float low = x < a ? a : x;
        return low > b ? b : low;
    }
    if constexpr (OP == UNARY_POWF) return powf(x, a);
    if constexpr (OP == UNARY_ERF) return erff(x);
    if constexpr (OP == UNARY_SIGN) return sign(x);
}

// Whether the gradient reads x, and y.
template <u32 OP>
constexpr bool GRAD_READS_X =
    OP == UNARY_ABS || OP == UNARY_LOG || OP == UNARY_SQUARE || OP == UNARY_SIN || OP == UNARY_COS ||
           OP == UNARY_LEAKY_RELU || OP == UNARY_ELU || OP == UNARY_GELU || OP == UNARY_GELU_TANH || OP == UNARY_SILU ||
           OP == UNARY_SOFTPLUS || OP == UNARY_CLAMP || OP == UNARY_POWF || OP == UNARY_ERF;
template <u32 OP>
constexpr bool GRAD_READS_Y =
    OP == UNARY_EXP || OP == UNARY_SQRT || OP == UNARY_RSQRT || OP == UNARY_RECIPROCAL || OP == UNARY_TANH ||
           OP == UNARY_SIGMOID || OP == UNARY_RELU;
template <u32 OP>
constexpr bool GRAD_LIGHT =
    UNARY_LIGHT<OP> || OP == UNARY_EXP || OP == UNARY_RSQRT || OP == UNARY_RECIPROCAL || OP == UNARY_TANH ||
           OP == UNARY_SIGMOID;

// g·f′(x), y being f(x)
template <u32 OP> __device__ __forceinline__ float unary_grad(float x, float y, float g, float a, float b) {
    if constexpr (OP == UNARY_AFFINE) return a * g;
    if constexpr (OP == UNARY_NEG) return -g;
    if constexpr (OP == UNARY_ABS) return g * sign(x);
    if constexpr (OP == UNARY_EXP) return g * y;
    if constexpr (OP == UNARY_LOG) return g / x;
    if constexpr (OP == UNARY_SQRT) return g / (2.0f * y);
    if constexpr (OP == UNARY_RSQRT) return -0.5f * g * (y * y * y);
    if constexpr (OP == UNARY_SQUARE) return 2.0f * g * x;
    if constexpr (OP == UNARY_RECIPROCAL) return -g * (y * y);
    if constexpr (OP == UNARY_SIN) return g * cosf(x);
    if constexpr (OP == UNARY_COS) return -g * sinf(x);
    if constexpr (OP == UNARY_TANH) return g * (1.0f - y * y);
    if constexpr (OP == UNARY_SIGMOID) return g * (1.0f - y) * y;
    if constexpr (OP == UNARY_RELU) return y <= 0.0f ? 0.0f : g;
    if constexpr (OP == UNARY_LEAKY_RELU) return x > 0.0f ? g : a * g;
    if constexpr (OP == UNARY_ELU) return x <= 0.0f ? g * a * expf(x) : g;
    if constexpr (OP == UNARY_GELU) return g * (normal_cdf(x) + x * (expf(-0.5f * x * x) * 0.3989422804014327f));
    if constexpr (OP == UNARY_GELU_TANH) {
        float s = gelu_gate(x), slope = GELU_TWICE * (1.0f + 3.0f * GELU_CUBE * x * x);
        return g * (s + x * s * (1.0f - s) * slope);
    }
    if constexpr (OP == UNARY_SILU) {
        float s = logistic(x);
        return g * s * (1.0f + x * (1.0f - s));
    }
    if constexpr (OP == UNARY_SOFTPLUS) return a * x > b ? g : g * logistic(a * x);
    // An infinite bound is none, so it may be reached.
    if constexpr (OP == UNARY_CLAMP) {
        bool above = x > a || (x == a && a == -INFINITY), below = x < b || (x == b && b == INFINITY);
        return above && below ? g : 0.0f;
    }
    // The exponent 0 is a constant function, also at 0 where 0·0⁻¹ would be NaN.
    if constexpr (OP == UNARY_POWF) return a == 0.0f ? 0.0f : g * (a * powf(x, a - 1.0f));
    if constexpr (OP == UNARY_ERF) return g * 1.1283791670955126f * expf(-x * x);
    if constexpr (OP == UNARY_SIGN) return 0.0f;
}
