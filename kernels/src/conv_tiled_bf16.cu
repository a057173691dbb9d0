// Convolution and its gradients in bf16, as products of gathered tiles (conv_gather.cuh) in shared memory and
// registers (conv_tile.cuh): the second rung. Sums in f32, one rounding.
//
//   forward        rows positions of y,  columns O/groups,           inner taps·C/groups
//   data gradient  rows positions of dx, columns C/groups,           inner the taps that meet · O/groups
//   weight grad.   rows O/groups,        columns taps·C/groups,      inner positions of y, split between blocks
//
// Tiles are 64 × 64. `_packed` kernels fetch four channels at once: channels per group
// are multiples of 4, in and out. The weight gradient writes the sum of its split s to parts[s·|dw|], in f32;
// conv_sum_parts adds them in order.
//
// Geometry: 256 threads. Forward and data gradient: x ⌈rows / tile⌉, y ⌈columns / tile⌉, z groups, times stride³
// classes for the data gradient with the rows of the largest. Weight gradient: x ⌈columns / tile⌉, y ⌈rows / tile⌉,
// z groups·splits.
#include "conv_tiled.cuh"

#define TILED(name, T, V, Tile, BLOCKS)                                                                                \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                          \
        conv_tiled##name(ConvParams p, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ bias,   \
                         T *__restrict__ y) {                                                                          \
        gathered<T, V, false, Tile>(p, x, w, bias, y);                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                          \
        conv_tiled_data_grad##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ w,                     \
                                   T *__restrict__ dx) {                                                               \
        gathered<T, V, true, Tile>(p, g, w, nullptr, dx);                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                          \
        conv_tiled_weight_parts##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ x,                  \
                                      f32 *__restrict__ parts, u32 splits) {                                           \
        weight_parts<T, V, Tile>(p, g, x, parts, splits);                                                              \
    }
TILED(_bf16, bf16, 1, SmallTile, 2)
TILED(_packed_bf16, bf16, 4, SmallTile, 2)
