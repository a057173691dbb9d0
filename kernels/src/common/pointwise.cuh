// The functions of core's table, with one definition each of value and slope, by the codes that the build writes:
// elementwise kernels and the epilogues of products and convolutions compute these. They match crates/cpu's pointwise.rs:
// NaN, 0 and the ends of intervals give the same on both sides.
#pragma once

#include "types.cuh"
#include <codes.cuh>

// √(2/π) twice and its product with 0.044715, the cubic coefficient of the tanh form of GELU (Hendrycks & Gimpel 2016), each
// as the nearest float and the rest.
constexpr float GELU_LINEAR = 1.5957691216057308f, GELU_LINEAR_LOW = (float)(1.5957691216057308 - (double)GELU_LINEAR);
constexpr float GELU_CUBE = 0.07135481627260025f, GELU_CUBE_LOW = (float)(0.07135481627260025 - (double)GELU_CUBE);

// Scale and limit of SELU (Klambauer et al. 2017).
constexpr float SELU_SCALE = 1.0507009873554805f, SELU_SCALE_ALPHA = 1.7580993408473768f;

__device__ __forceinline__ float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
__device__ __forceinline__ float relu6(float x) {
    x = x < 0.0f ? 0.0f : x;
    return x > 6.0f ? 6.0f : x;
}

// 1/(1 + e⁻ˣ): the exponential is at most 1, so neither side overflows, and small results are as accurate as it is.
__device__ __forceinline__ float logistic(float x) {
    float e = expf(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// x·logistic(u + low) for a `low` that is small beside u. The exponential is multiplied by its root twice: where it lies
// below the normal numbers, the product need not.
__device__ __forceinline__ float times_logistic(float x, float u, float low) {
    float root = expf(-0.5f * fabsf(u)), e = root * root;
    if (u < 0.0f) return x * root * fmaf(root, low, root) / (1.0f + e);
    return x / (1.0f + fmaf(e, -low, e));
}

// The standard normal distribution function. erfc keeps its lower tail accurate, up to the rounding of its argument: its
// slope there is −2z times itself.
__device__ __forceinline__ float normal_cdf(float x) {
    constexpr float ROOT_HALF = 0.70710678118654752f, LOW = (float)(0.70710678118654752 - (double)ROOT_HALF);
    float z = __fmul_rn(x, -ROOT_HALF), c = 0.5f * erfcf(z);
    float rest = fmaf(x, -LOW, fmaf(x, -ROOT_HALF, -z));
    return z > 1.0f && z < 11.0f ? fmaf(c, -2.0f * z * rest, c) : c;
}

// 2·√(2/π)·(x + 0.044715·x³) as a number and the rest that rounding left: an exponential's relative error is its
// argument's absolute one. Knuth's sum, and products with their errors.
struct GeluArgument {
    float u, low;
    __device__ __forceinline__ explicit GeluArgument(float x) {
        float square = __fmul_rn(x, x), square_low = fmaf(x, x, -square);
        float high = __fmul_rn(GELU_CUBE, square), high_low = fmaf(GELU_CUBE, square, -high);
        float sum = __fadd_rn(high, GELU_LINEAR), part = __fadd_rn(sum, -high);
        float sum_low = __fadd_rn(__fadd_rn(high, -__fadd_rn(sum, -part)), __fadd_rn(GELU_LINEAR, -part));
        float rest = fmaf(GELU_CUBE, square_low, fmaf(GELU_CUBE_LOW, square, sum_low + high_low + GELU_LINEAR_LOW));
        u = __fmul_rn(x, sum);
        low = fabsf(u) < 200.0f ? fmaf(x, sum, -u) + x * rest : 0.0f;
    }
};

// f(x)
template <u32 OP> __device__ __forceinline__ float value(float x, float a, float b) {
    if constexpr (OP == UNARY_AFFINE) return a * x + b;
    if constexpr (OP == UNARY_NEG) return -x;
    if constexpr (OP == UNARY_ABS) return fabsf(x);
    if constexpr (OP == UNARY_SIGN) return sign(x);
    if constexpr (OP == UNARY_FLOOR) return floorf(x);
    if constexpr (OP == UNARY_CEIL) return ceilf(x);
    if constexpr (OP == UNARY_ROUND) return rintf(x);
    if constexpr (OP == UNARY_TRUNC) return truncf(x);
    if constexpr (OP == UNARY_EXP) return expf(x);
    if constexpr (OP == UNARY_EXP2) return exp2f(x);
    if constexpr (OP == UNARY_EXPM1) return expm1f(x);
    if constexpr (OP == UNARY_LOG) return logf(x);
    if constexpr (OP == UNARY_LOG2) return log2f(x);
    if constexpr (OP == UNARY_LOG10) return log10f(x);
    if constexpr (OP == UNARY_LOG1P) return log1pf(x);
    if constexpr (OP == UNARY_SQRT) return sqrtf(x);
    if constexpr (OP == UNARY_RSQRT) return 1.0f / sqrtf(x);
    if constexpr (OP == UNARY_SQUARE) return x * x;
    if constexpr (OP == UNARY_RECIPROCAL) return 1.0f / x;
    if constexpr (OP == UNARY_POWF) return powf(x, a);
    if constexpr (OP == UNARY_SIN) return sinf(x);
    if constexpr (OP == UNARY_COS) return cosf(x);
    if constexpr (OP == UNARY_TAN) return tanf(x);
    if constexpr (OP == UNARY_ASIN) return asinf(x);
    if constexpr (OP == UNARY_ACOS) return acosf(x);
    if constexpr (OP == UNARY_ATAN) return atanf(x);
    if constexpr (OP == UNARY_SINH) return sinhf(x);
    if constexpr (OP == UNARY_COSH) return coshf(x);
    if constexpr (OP == UNARY_TANH) return tanhf(x);
    if constexpr (OP == UNARY_ASINH) return asinhf(x);
    if constexpr (OP == UNARY_ACOSH) return acoshf(x);
    if constexpr (OP == UNARY_ATANH) return atanhf(x);
    if constexpr (OP == UNARY_ERF) return erff(x);
    if constexpr (OP == UNARY_ERFC) return erfcf(x);
    if constexpr (OP == UNARY_SIGMOID) return logistic(x);
    if constexpr (OP == UNARY_LOG_SIGMOID) return (x < 0.0f ? x : 0.0f) - log1pf(expf(-fabsf(x)));
    if constexpr (OP == UNARY_RELU) return x < 0.0f ? 0.0f : x;
    if constexpr (OP == UNARY_LEAKY_RELU) return x > 0.0f ? x : a * x;
    if constexpr (OP == UNARY_ELU) return x > 0.0f ? x : a * expm1f(x);
    if constexpr (OP == UNARY_SELU) return x > 0.0f ? SELU_SCALE * x : SELU_SCALE_ALPHA * expm1f(x);
    if constexpr (OP == UNARY_CELU) return x > 0.0f ? x : a * expm1f(x / a);
    if constexpr (OP == UNARY_GELU) return x * normal_cdf(x);
    // 1/2·(1 + tanh u) = logistic(2u): one exponential, and no cancellation in the lower tail.
    if constexpr (OP == UNARY_GELU_TANH) {
        GeluArgument argument(x);
        return times_logistic(x, argument.u, argument.low);
    }
    if constexpr (OP == UNARY_SILU) return times_logistic(x, x, 0.0f);
    // With e = eˣ and n = e·(e + 2), tanh(ln(1 + e)) = n/(n + 2): no difference cancels. From 20 on it is 1.
    if constexpr (OP == UNARY_MISH) {
        float e = expf(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);
        return x > 20.0f ? x : x * n / (n + 2.0f);
    }
    if constexpr (OP == UNARY_SOFTPLUS) return a * x > b ? x : log1pf(expf(a * x)) / a;
    if constexpr (OP == UNARY_SOFTSIGN) return x / (1.0f + fabsf(x));
    if constexpr (OP == UNARY_HARDSIGMOID) return relu6(x + 3.0f) / 6.0f;
    if constexpr (OP == UNARY_HARDSWISH) return x * (relu6(x + 3.0f) / 6.0f);
    // A NaN is outside of every interval and stays.
    if constexpr (OP == UNARY_HARDSHRINK) return x >= -a && x <= a ? 0.0f : x;
    if constexpr (OP == UNARY_SOFTSHRINK) return x > a ? x - a : x < -a ? x + a : x * 0.0f;
    if constexpr (OP == UNARY_CLAMP) {
        float low = x < a ? a : x;
        return low > b ? b : low;
    }
}

// g·f′(x), y being f(x)
template <u32 OP> __device__ __forceinline__ float slope(float x, float y, float g, float a, float b) {
    if constexpr (OP == UNARY_AFFINE) return a * g;
    if constexpr (OP == UNARY_NEG) return -g;
    if constexpr (OP == UNARY_ABS) return g * sign(x);
    if constexpr (OP == UNARY_SIGN || OP == UNARY_FLOOR || OP == UNARY_CEIL || OP == UNARY_ROUND || OP == UNARY_TRUNC)
        return 0.0f;
    if constexpr (OP == UNARY_EXP) return g * y;
    if constexpr (OP == UNARY_EXP2) return g * (y * 0.6931471805599453f);
    if constexpr (OP == UNARY_EXPM1) return g * (y + 1.0f);
    if constexpr (OP == UNARY_LOG) return g / x;
    if constexpr (OP == UNARY_LOG2) return g / (x * 0.6931471805599453f);
    if constexpr (OP == UNARY_LOG10) return g / (x * 2.302585092994046f);
    if constexpr (OP == UNARY_LOG1P) return g / (x + 1.0f);
    if constexpr (OP == UNARY_SQRT) return g / (2.0f * y);
    if constexpr (OP == UNARY_RSQRT) return g * (-0.5f * y * y * y);
    if constexpr (OP == UNARY_SQUARE) return 2.0f * g * x;
    if constexpr (OP == UNARY_RECIPROCAL) return -g * (y * y);
    // With exponent 0 the function is constant, also at 0 where 0·0⁻¹ would be NaN.
    if constexpr (OP == UNARY_POWF) return a == 0.0f ? 0.0f : g * (a * powf(x, a - 1.0f));
    if constexpr (OP == UNARY_SIN) return g * cosf(x);
    if constexpr (OP == UNARY_COS) return -g * sinf(x);
    if constexpr (OP == UNARY_TAN) return g * (1.0f + y * y);
    if constexpr (OP == UNARY_ASIN) return g / sqrtf((1.0f - x) * (1.0f + x));
    if constexpr (OP == UNARY_ACOS) return -g / sqrtf((1.0f - x) * (1.0f + x));
    if constexpr (OP == UNARY_ATAN) return g / (1.0f + x * x);
    if constexpr (OP == UNARY_SINH) return g * coshf(x);
    if constexpr (OP == UNARY_COSH) return g * sinhf(x);
    if constexpr (OP == UNARY_TANH) return g * (1.0f - y * y);
    // The square of a large x would overflow.
    if constexpr (OP == UNARY_ASINH) return g / (fabsf(x) > 1e8f ? fabsf(x) : sqrtf(x * x + 1.0f));
    if constexpr (OP == UNARY_ACOSH) return g / (sqrtf(x - 1.0f) * sqrtf(x + 1.0f));
    if constexpr (OP == UNARY_ATANH) return g / ((1.0f - x) * (1.0f + x));
    if constexpr (OP == UNARY_ERF) return g * 1.1283791670955126f * expf(-x * x);
    if constexpr (OP == UNARY_ERFC) return -g * 1.1283791670955126f * expf(-x * x);
    if constexpr (OP == UNARY_SIGMOID) return g * (1.0f - y) * y;
    if constexpr (OP == UNARY_LOG_SIGMOID) return g * logistic(-x);
    if constexpr (OP == UNARY_RELU) return y <= 0.0f ? 0.0f : g;
    if constexpr (OP == UNARY_LEAKY_RELU) return x > 0.0f ? g : a * g;
    if constexpr (OP == UNARY_ELU) return x <= 0.0f ? g * a * expf(x) : g;
    if constexpr (OP == UNARY_SELU) return x <= 0.0f ? g * SELU_SCALE_ALPHA * expf(x) : g * SELU_SCALE;
    if constexpr (OP == UNARY_CELU) return x <= 0.0f ? g * expf(x / a) : g;
    if constexpr (OP == UNARY_GELU) return g * (normal_cdf(x) + x * (expf(-0.5f * x * x) * 0.3989422804014327f));
    if constexpr (OP == UNARY_GELU_TANH) {
        // From far below 100 on, s·(1 − s) is 0, and the square of a large x would overflow.
        float s = logistic(GeluArgument(x).u), z = fminf(fabsf(x), 100.0f);
        return g * (s + x * s * (1.0f - s) * (GELU_LINEAR + 3.0f * GELU_CUBE * z * z));
    }
    if constexpr (OP == UNARY_SILU) {
        float s = logistic(x);
        return g * s * (1.0f + x * (1.0f - s));
    }
    if constexpr (OP == UNARY_MISH) {
        float e = expf(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f), d = n + 2.0f;
        return x > 20.0f ? g : g * ((n + 4.0f * e * x * (1.0f + e) / d) / d);
    }
    if constexpr (OP == UNARY_SOFTPLUS) return a * x > b ? g : g * logistic(a * x);
    if constexpr (OP == UNARY_SOFTSIGN) {
        float d = 1.0f + fabsf(x);
        return g / (d * d);
    }
    if constexpr (OP == UNARY_HARDSIGMOID) return x > -3.0f && x < 3.0f ? g / 6.0f : 0.0f;
    if constexpr (OP == UNARY_HARDSWISH) return x <= -3.0f ? 0.0f : x < 3.0f ? g * (x / 3.0f + 0.5f) : g;
    if constexpr (OP == UNARY_HARDSHRINK || OP == UNARY_SOFTSHRINK) return x >= -a && x <= a ? 0.0f : g;
    // An infinite bound is none, so it may be reached.
    if constexpr (OP == UNARY_CLAMP) {
        bool above = x > a || (x == a && a == -INFINITY), below = x < b || (x == b && b == INFINITY);
        return above && below ? g : 0.0f;
    }
}
