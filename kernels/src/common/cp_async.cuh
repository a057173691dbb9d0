// Copies from global to shared memory that run beside arithmetic (sm_80 and later), without passing through registers.
//
// A thread issues copies, closes a group of them with `cp_async_commit`, and later waits until at most N of its newest
// groups are still under way. The wait covers the thread's own copies only: a `__syncthreads()` after it makes
// everyone's visible to all. A pipeline of S stages, one commit an iteration (an empty group where nothing is left to
// copy, so that the count stays right):
//
//   for (s = 0; s < S − 1; ++s) { copy(s); cp_async_commit(); }
//   for (i = 0; i < n; ++i) {
//       cp_async_wait<S − 2>();    // stage i has arrived for this thread
//       __syncthreads();           // … for all, and everyone has finished reading stage i − 1, whose place is next
//       if (i + S − 1 < n) copy(i + S − 1);
//       cp_async_commit();
//       compute(i % S);
//   }
//
// BYTES is 4, 8 or 16, and both addresses are aligned to it. Only the first `valid` bytes are read; the rest of the
// BYTES written are zero. With `valid` = 0 nothing is read, wherever `src` points.
#pragma once

#include "mma.cuh"

template <int BYTES> __device__ __forceinline__ void cp_async(u32 dst, const void *src, u32 valid = BYTES) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "what cp.async copies");
    u64 from = (u64)__cvta_generic_to_global(src);
    if constexpr (BYTES == 16) {
        // .cg: through L2 alone. A tile is read once by each block, so L1 has nothing to keep.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(from), "r"(valid) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(dst), "l"(from), "n"(BYTES), "r"(valid)
                     : "memory");
    }
}

// Closes the group of all copies issued since the last commit.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's newest groups are under way.
template <int N> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
