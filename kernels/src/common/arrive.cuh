// Sums whose parts are written by several blocks, and added in the same launch by the blocks that come last. Which those are differs
// from run to run; what is added, and in which order, does not.
#pragma once

#include "types.cuh"

// Of each group of blocks, by its ticket: how many have arrived, and how many of those that add have seen the last one. Both are zero
// between kernels.
constexpr u32 TICKETS = 4096;
__device__ u32 arrived[TICKETS], gone[TICKETS];

// The place of this block among the last `sharers` of a group of `blocks` blocks, from 0 on, or `sharers` if it came before them. A
// block that has a place sees what all blocks of the group have written before. Every thread of a block calls; `place` is shared.
//
// All but the last of the sharers wait, so the device has to hold a block more than those of all groups that may wait
// (crates/cuda/src/finish.rs); a single sharer does not wait.
__device__ __forceinline__ u32 arrives(u32 ticket, u32 blocks, u32 sharers, u32 &place) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        u32 number = atomicAdd(&arrived[ticket], 1), early = blocks - sharers;
        place = number < early ? sharers : number - early;
        if (number >= early) {
            while (*(volatile u32 *)&arrived[ticket] < blocks) __nanosleep(100);
            if (atomicInc(&gone[ticket], sharers - 1) == sharers - 1) atomicExch(&arrived[ticket], 0);
        }
    }
    __syncthreads();
    if (place < sharers) __threadfence();
    return place;
}

// True in all threads of the block that is the last of `blocks` to come here with this ticket. It sees what the others have written
// before. Every thread of a block calls; `last` is shared.
__device__ __forceinline__ bool arrives_last(u32 ticket, u32 blocks, bool &last) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) last = atomicInc(&arrived[ticket], blocks - 1) == blocks - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}
