// Convolutions as products of gathered tiles by warp groups, which only devices of compute capability 9.0 have: bf16 and f16.
//
// The gathers, the ends and the contract are those of conv_tensor.cuh, the pipeline that of common/warpgroup_tile.cuh. A stage is 64 inner
// elements, so the data gradient wants output channels per group in multiples of 64.
//
// Geometry: as conv_tensor_*, 256 threads; WarpgroupTile128xC::BYTES of dynamic shared memory.
#pragma once

#include "common/warpgroup_tile.cuh"
#include "conv_tensor.cuh"

#define CONV_WARPGROUPS(suffix, T)                                                                                     \
    CONV_TENSOR(warpgroup, 128x256, suffix, WarpgroupTile128x256, T, true, 1, DYNAMIC_MEMORY)                          \
    CONV_TENSOR(warpgroup, 128x128, suffix, WarpgroupTile128x128, T, true, 2, DYNAMIC_MEMORY)                          \
    CONV_TENSOR(warpgroup, 128x64, suffix, WarpgroupTile128x64, T, true, 2, DYNAMIC_MEMORY)
