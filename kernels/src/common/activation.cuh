// The activations that products and convolutions apply to their results.
#pragma once

#include "pointwise.cuh"

#define ACTIVATION_CASE(code)                                                                                          \
    case ACTIVATION_##code: return value<UNARY_##code>(x, 0.0f, 0.0f);

// f(x), as the elementwise op of that name computes it.
__device__ __forceinline__ float activate(u32 code, float x) {
    switch (code) {
        ACTIVATION_CODES(ACTIVATION_CASE)
    default: return x;
    }
}
