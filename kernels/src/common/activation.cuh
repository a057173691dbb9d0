// The activations that products and convolutions apply to their results.
#pragma once

#include "pointwise_half.cuh"

#define ACTIVATION_CASE(code)                                                                                          \
    case ACTIVATION_##code: return value_as<T, UNARY_##code>(x, 0.0f, 0.0f);

// f(x), to be stored as T, as the elementwise op of that name computes it.
template <typename T> __device__ __forceinline__ float activate(u32 code, float x) {
    switch (code) {
        ACTIVATION_CODES(ACTIVATION_CASE)
    default: return x;
    }
}

#define ACTIVATION_OF_CASE(code)                                                                                       \
    case ACTIVATION_##code:                                                                                            \
        return value_as<T, UNARY_##code>(GRAD_READS_X<UNARY_##code> ? to_acc(from_acc<T>(x)) : x, 0.0f, 0.0f);

// The same of a sum `x` that is to be stored as T: where the gradient reads x, it is rounded first, so that the result is that
// of the elementwise op on what was stored.
template <typename T> __device__ __forceinline__ float activate_sum(u32 code, float x) {
    switch (code) {
        ACTIVATION_CODES(ACTIVATION_OF_CASE)
    default: return x;
    }
}

#define ACTIVATION_GRAD_CASE(code)                                                                                     \
    case ACTIVATION_##code: return slope_as<T, UNARY_##code>(at, at, g, 0.0f, 0.0f);

// g·f′, to be stored as T, as the elementwise op computes it; `at` is the input of f, or its result where the gradient reads that.
template <typename T> __device__ __forceinline__ float activate_grad(u32 code, float at, float g) {
    switch (code) {
        ACTIVATION_CODES(ACTIVATION_GRAD_CASE)
    default: return g;
    }
}

#define ACTIVATION_OF_FOUR_CASE(code)                                                                                  \
    case ACTIVATION_##code:                                                                                            \
        _Pragma("unroll") for (int i = 0; i < 4; ++i)                                                                  \
            x[i] = value_as<T, UNARY_##code>(GRAD_READS_X<UNARY_##code> ? to_acc(from_acc<T>(x[i])) : x[i], 0.0f, 0.0f);  \
        break;

// activate_sum of four, whose work overlaps.
template <typename T> __device__ __forceinline__ void activate_sums(u32 code, float (&x)[4]) {
    switch (code) { ACTIVATION_CODES(ACTIVATION_OF_FOUR_CASE) }
}

#define ACTIVATION_GRAD_OF_FOUR_CASE(code)                                                                             \
    case ACTIVATION_##code:                                                                                            \
        _Pragma("unroll") for (int i = 0; i < 4; ++i) {                                                                \
            g[i] = slope_as<T, UNARY_##code>(at[i], at[i], g[i], 0.0f, 0.0f);                                             \
            at[i] = value_as<T, UNARY_##code>(at[i], 0.0f, 0.0f);                                                         \
        }                                                                                                              \
        break;

// activate_grad of four, and f of `at` in its place, which shares much of it.
template <typename T> __device__ __forceinline__ void activate_grads(u32 code, float (&at)[4], float (&g)[4]) {
    switch (code) { ACTIVATION_CODES(ACTIVATION_GRAD_OF_FOUR_CASE) }
}
