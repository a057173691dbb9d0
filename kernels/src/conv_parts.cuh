// The end of a weight gradient whose sums are cut into splits: dw = Σ_s parts[s, ·], the splits in their order.
#pragma once

#include "common/arrive.cuh"
#include "common/vector.cuh"
#include "common/warp.cuh"

// Rows and columns of dw [O, columns] that a group of `splits` blocks has sums of.
struct Patch {
    u32 first, rows, left, width, columns;
};

// What dw has of the parts, seen as rows of `of` positions of `per` channels: the first `channels` of the first `positions` of each row.
// Everything if `channels` is 0.
struct Kept {
    u32 channels, per, positions, of;

    // Moves `at`, a place in the parts, to that in dw; false if there is none.
    __device__ __forceinline__ bool place(u64 &at) const {
        if (channels == 0) return true;
        const u64 position = at / per, row = position / of;
        const u32 c = (u32)(at - position * per), within = (u32)(position - row * of);
        at = (row * positions + within) * channels + c;
        return c < channels && within < positions;
    }
};

// Adds up the splits of a patch, where this block is one of the last `sharers` of those that have written them; each has a share of the
// elements. Nothing if `sharers` is 0. Every thread of a block calls. `place` is shared; `n` is the number of elements of a part.
template <typename T>
__device__ __forceinline__ void add_splits(u32 ticket, u32 splits, u32 sharers, u32 &place, const Patch &patch, u64 n, const f32 *parts,
                                           T *__restrict__ dw, const Kept &kept = {}) {
    if (sharers == 0) return;
    const u32 turn = arrives(ticket, splits, sharers, place);
    if (turn == sharers) return;
    const u32 each = sharers * blockDim.x, begin = turn * blockDim.x + threadIdx.x;
    if (kept.channels == 0 && ((patch.left | patch.width | patch.columns) & 3) == 0) {
        const u32 fours = patch.width / 4;
#pragma unroll 1
        for (u32 i = begin; i < patch.rows * fours; i += each) {
            const u64 at = (u64)(patch.first + i / fours) * patch.columns + patch.left + i % fours * 4;
            const f32 *from = parts + at;
            float4 sum = __ldcg(reinterpret_cast<const float4 *>(from));
#pragma unroll 4
            for (u32 s = 1; s < splits; ++s) {
                const float4 x = __ldcg(reinterpret_cast<const float4 *>(from += n));
                sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
            }
            *reinterpret_cast<Few<T, 4> *>(dw + at) = {from_acc<T>(sum.x), from_acc<T>(sum.y), from_acc<T>(sum.z), from_acc<T>(sum.w)};
        }
        return;
    }
#pragma unroll 1
    for (u32 i = begin; i < patch.rows * patch.width; i += each) {
        const u64 at = (u64)(patch.first + i / patch.width) * patch.columns + patch.left + i % patch.width;
        u64 to = at;
        if (!kept.place(to)) continue;
        const f32 *from = parts + at;
        float sum = __ldcg(from);
#pragma unroll 4
        for (u32 s = 1; s < splits; ++s) sum += __ldcg(from += n);
        dw[to] = from_acc<T>(sum);
    }
}

// The gradient of a bias, db[c] = Σ g[·, c], where g counts as zero where y ≤ 0 if y, the result of a ReLU, is given. It is made by
// blocks of 256 threads of its own, one for each channel, in whatever launch has them.
template <typename T> struct BiasGrad {
    const T *g, *y;
    T *db; // null if it is not wanted
    u64 positions;
    u32 channels;

    // Every thread of a block calls. `scratch` is shared.
    __device__ __forceinline__ void sum(u32 c, float (&scratch)[256 / WARP]) const {
        if (c >= channels) return;
        float total = 0.0f;
#pragma unroll 8
        for (u64 i = threadIdx.x; i < positions; i += 256) {
            const u64 at = i * channels + c;
            const float d = to_acc(g[at]);
            total += y && to_acc(y[at]) <= 0.0f ? 0.0f : d;
        }
        total = block_sum<256>(total, scratch);
        if (threadIdx.x == 0) db[c] = from_acc<T>(total);
    }
};
