// The fifth variant of the matrix product: tensor cores by warp groups, which only devices of compute capability 9.0 have. Formula and
// parameters: matmul.cuh.
//
// A block computes a tile of C by the pipeline of common/warpgroup_tile.cuh; everything around that is the fourth variant's (matmul_tensor.cuh):
// the copies of rows of multiples of 16 bytes, the parts of k, the epilogues.
//
// The largest tile is alone on its multiprocessor. Of 128×128 two blocks share one: the products of one hide what the other does before and
// after its own.
//
// Geometry: matmul_warpgroup_128xC_*: 256 threads, grid as matmul_tensor_128xC_*, cut.part a multiple of 32; WarpgroupTile128xC::BYTES of
//           dynamic shared memory. nt kernels take kept alone; nn kernels take slope_at, and kept beside it.
#pragma once

#include "common/warpgroup_tile.cuh"
#include "matmul_tensor.cuh"

#define MATMUL_WARPGROUPS(suffix, T)                                                                                   \
    MATMUL_TENSOR(warpgroup, 128x256, suffix, WarpgroupTile128x256, T, AlignedRows, true, true, 1, DYNAMIC_MEMORY)     \
    MATMUL_TENSOR(warpgroup, 128x128, suffix, WarpgroupTile128x128, T, AlignedRows, true, true, 2, DYNAMIC_MEMORY)     \
    LINEAR_WEIGHT_GRAD(linear_weight_grad_warpgroup_128x256_##suffix, WarpgroupTile128x256, T, 1, DYNAMIC_MEMORY)      \
    LINEAR_WEIGHT_GRAD(linear_weight_grad_warpgroup_128x128_##suffix, WarpgroupTile128x128, T, 2, DYNAMIC_MEMORY)
