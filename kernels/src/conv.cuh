// Parameters of convolutions, and what all variants share.
#pragma once

#include "common/activation.cuh"
#include "common/window.cuh"

struct ConvParams {
    u32 batch, groups, in_channels, out_channels;
    u32 input[3], kernel[3], output[3], stride[3], padding[3], dilation[3];
    u32 activation, pad;
};
static_assert(sizeof(ConvParams) == 96, "core::ops::ConvParams");

__device__ __forceinline__ u64 volume(const u32 (&size)[3]) { return (u64)size[0] * size[1] * size[2]; }
__device__ __forceinline__ u32 taps_of(const ConvParams &p) { return p.kernel[0] * p.kernel[1] * p.kernel[2]; }
__device__ __forceinline__ u32 group_in(const ConvParams &p) { return p.in_channels / p.groups; }
__device__ __forceinline__ u32 group_out(const ConvParams &p) { return p.out_channels / p.groups; }

// The taps of window `o` inside the input, in dimension `i`.
__device__ __forceinline__ Span inside(const ConvParams &p, int i, u32 o) {
    return taps_inside(o, p.stride[i], p.padding[i], p.dilation[i], p.kernel[i], p.input[i]);
}

// The input that tap `k` of window `o` reads, in dimension `i`, when the tap is inside.
__device__ __forceinline__ u32 source(const ConvParams &p, int i, u32 o, u32 k) {
    return (u32)((i64)o * p.stride[i] + (i64)k * p.dilation[i] - p.padding[i]);
}

// The taps with which outputs read input `at`, in dimension `i`.
__device__ __forceinline__ Readers readers(const ConvParams &p, int i, u32 at) {
    TapStep step = tap_step(p.stride[i], p.dilation[i]);
    return readers(step, at, p.stride[i], p.padding[i], p.dilation[i], p.kernel[i], p.output[i]);
}

// The output that reads input `at` by tap `k`, which is one of `readers`, in dimension `i`.
__device__ __forceinline__ u32 reader(const ConvParams &p, int i, u32 at, u32 k) {
    return (at + p.padding[i] - k * p.dilation[i]) / p.stride[i];
}

// The result of the forward op from a sum.
template <typename T>
__device__ __forceinline__ T finish(const ConvParams &p, const T *__restrict__ bias, u32 channel, float sum) {
    if (bias != nullptr) sum += to_acc(bias[channel]);
    return from_acc<T>(activate(p.activation, sum));
}
