// A list of tensors that one launch works on, a chunk of 4096 elements a block.
//
// The list travels by value in the launch's own parameters (a replayed graph keeps it), in flat words: a record per tensor, whose last
// word is the number of its first chunk. A tensor's chunks follow those of the tensor before it, and a block finds its tensor by
// bisection. PyTorch's multi_tensor_apply cuts work the same way, with the search done on the host.
#pragma once
#include "vector.cuh"

// The tensors of one launch.
struct Tensors {
    u32 count, halves;
    u64 words[500];
};
static_assert(sizeof(Tensors) == 4008, "cuda::tensors::Tensors; with the other parameters below 4096 bytes");

constexpr u32 CHUNK = 4096;

// The record of the last tensor whose first chunk, word FIRST of a record of `size` words, is not after this block's.
template <int FIRST> __device__ __forceinline__ const u64 *find(const Tensors &tensors, u32 size) {
    u32 low = 0, high = tensors.count;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (tensors.words[middle * size + FIRST] <= blockIdx.x) low = middle;
        else high = middle;
    }
    return tensors.words + low * size;
}
