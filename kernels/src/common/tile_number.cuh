// The tile that a block of a grid in two dimensions works on.
#pragma once

#include "types.cuh"

// The numbers of a tile's row and column among the tiles of the result.
struct TileNumber {
    u32 row, column;
};

// The tile of a block, in a grid of the rows of tiles by their columns. Blocks of neighbouring numbers have the columns of the same rows:
// they run at about the same time, so what they all read of the left operand is read from memory once, and whole lines of the result are
// written together.
__device__ __forceinline__ TileNumber tile_number() {
    const u32 number = blockIdx.y * gridDim.x + blockIdx.x;
    return {number / gridDim.y, number % gridDim.y};
}

// The same, computed again: it is needed at both ends of a kernel, and not worth registers in between.
__device__ __forceinline__ TileNumber tile_number_again() {
    u32 x, y;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(y));
    const u32 number = y * gridDim.x + x;
    return {number / gridDim.y, number % gridDim.y};
}
