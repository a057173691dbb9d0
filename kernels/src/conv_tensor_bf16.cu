// Convolution and its gradients on tensor cores in bf16, as products of gathered tiles (conv_tensor.cuh): the third
// rung. Sums in f32, one rounding.
//
// Contract: channels per group are multiples of 8, in and out; the forward op needs that of the input only, and even
// output channels per group. The bounds of conv_gather.cuh hold. The weight gradient writes the sum of its split s to
// parts[s·|dw|], in f32; conv_sum_parts adds them in order.
//
// Geometry: `_large` tiles of 128 × 128 by 256 threads, others of 64 × 64 by 128. Forward and data gradient:
// x ⌈rows / tile⌉, y ⌈columns / tile⌉, z groups, times stride³ classes for the data gradient with the rows of the
// largest.
// Weight gradient: x ⌈taps·C/groups / tile⌉, y ⌈O/groups / tile⌉, z groups·splits.
#include "conv_tensor.cuh"

#define TENSOR(name, T, Tile)                                                                                          \
    extern "C" __global__ void __launch_bounds__(Tile::THREADS)                                                        \
        conv_tensor##name(ConvParams p, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ bias,  \
                          T *__restrict__ y) {                                                                         \
        tensor_gathered<T, false, Tile>(p, x, w, bias, y);                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(Tile::THREADS)                                                        \
        conv_tensor_data_grad##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ w,                    \
                                    T *__restrict__ dx) {                                                              \
        tensor_gathered<T, true, Tile>(p, g, w, nullptr, dx);                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(Tile::THREADS)                                                        \
        conv_tensor_weight_parts##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ x,                 \
                                       f32 *__restrict__ parts, u32 splits) {                                          \
        tensor_weight_parts<T, Tile>(p, g, x, parts, splits);                                                          \
    }
TENSOR(_bf16, bf16, SmallTensorTile)
TENSOR(_large_bf16, bf16, LargeTensorTile)
