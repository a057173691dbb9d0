// Parameters of convolutions, and code that all variants share.
#pragma once

#include "common/activation.cuh"
#include "common/window.cuh"

struct ConvParams : WindowParams {
    u32 batch, groups, in_channels, out_channels;
    u32 activation;
    u32 half; // core's padding: 1 if the last tap of each row of a window has 8 of its 16 bytes of channels (conv_pad.cu)
};
static_assert(sizeof(ConvParams) == 96, "core::ops::ConvParams");

__device__ __forceinline__ u64 volume(const u32 (&size)[3]) { return (u64)size[0] * size[1] * size[2]; }
__device__ __forceinline__ u32 taps_of(const ConvParams &p) { return p.kernel[0] * p.kernel[1] * p.kernel[2]; }
__device__ __forceinline__ u32 group_in(const ConvParams &p) { return p.in_channels / p.groups; }
__device__ __forceinline__ u32 group_out(const ConvParams &p) { return p.out_channels / p.groups; }

// The result of the forward op from a sum.
template <typename T>
__device__ __forceinline__ T finish(const ConvParams &p, const T *__restrict__ bias, u32 channel, float sum) {
    if (bias != nullptr) sum += to_acc(bias[channel]);
    return from_acc<T>(activate<T>(p.activation, sum));
}
