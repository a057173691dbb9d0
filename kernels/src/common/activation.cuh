// The activations that products and convolutions apply to their results: codes of core's `Activation`.
#pragma once

#include "types.cuh"

enum Activation : u32 { ACT_NONE, ACT_RELU, ACT_GELU, ACT_GELU_TANH, ACT_SILU, ACT_SIGMOID, ACT_TANH };

// 1/(1+e⁻ˣ)
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
// x·Φ(x) by erf
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }
// x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
__device__ __forceinline__ float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}
// max(x, 0); NaN stays NaN
__device__ __forceinline__ float relu(float x) { return x < 0.0f ? 0.0f : x; }

__device__ __forceinline__ float activate(u32 code, float x) {
    switch (code) {
    case ACT_RELU: return relu(x);
    case ACT_GELU: return gelu(x);
    case ACT_GELU_TANH: return gelu_tanh(x);
    case ACT_SILU: return x * sigmoid(x);
    case ACT_SIGMOID: return sigmoid(x);
    case ACT_TANH: return tanhf(x);
    default: return x;
    }
}
