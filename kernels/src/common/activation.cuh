// The activations that products and convolutions apply to their results: codes of core's `Activation`.
#pragma once

#include "unary.cuh"

enum Activation : u32 { ACT_NONE, ACT_RELU, ACT_GELU, ACT_GELU_TANH, ACT_SILU, ACT_SIGMOID, ACT_TANH };

// f(x), as the elementwise op of that name computes it.
__device__ __forceinline__ float activate(u32 code, float x) {
    switch (code) {
    case ACT_RELU: return unary<UNARY_RELU>(x, 0.0f, 0.0f);
    case ACT_GELU: return unary<UNARY_GELU>(x, 0.0f, 0.0f);
    case ACT_GELU_TANH: return unary<UNARY_GELU_TANH>(x, 0.0f, 0.0f);
    case ACT_SILU: return unary<UNARY_SILU>(x, 0.0f, 0.0f);
    case ACT_SIGMOID: return unary<UNARY_SIGMOID>(x, 0.0f, 0.0f);
    case ACT_TANH: return unary<UNARY_TANH>(x, 0.0f, 0.0f);
    default: return x;
    }
}
