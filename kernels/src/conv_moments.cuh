// The mean of each channel of a convolution's result, and the sum of its squared deviations from it, made while the result is written:
// the batch norm behind it then need not read the result for them.
//
// A thread of the epilogue (each_four of common/tensor_tile.cuh) has the same four columns in all its rows. It sums their distances from
// the first of them and the squares of these, so that a large mean costs no digits. Four threads share columns; they are joined by the
// formula of Chan, Golub and LeVeque, as are the blocks: the last of MOMENT_BLOCKS blocks of rows to arrive joins those, the last of all
// such groups joins the groups. In which order is decided by numbers of blocks alone.
#pragma once

#include "common/tensor_tile.cuh"
#include "norm.cuh"

constexpr u32 MOMENT_BLOCKS = 64;     // kiln_cuda's `MOMENT_BLOCKS`
constexpr u32 MOMENT_TICKETS = 16384; // kiln_cuda's `MOMENT_TICKETS`

// The blocks of each group, and groups, that have arrived; zero between kernels.
__device__ u32 moments_arrived[MOMENT_TICKETS];

// True in all threads of the block that is the last of `blocks` to come here with this ticket, which then sees what the others have
// written before. Every thread of a block calls; `last` is shared.
__device__ __forceinline__ bool moments_are_last(u32 ticket, u32 blocks, bool &last) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(&moments_arrived[ticket], blocks - 1) == blocks - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// The moments of `n` sets from[set, {mean, m2}, channel] of `each` values each, but the last, of `total` values in all.
__device__ __forceinline__ Moments joined_moments(const float *from, u64 channels, u32 n, u64 each, u64 total) {
    constexpr int SETS = 16;
    Moments all = {};
    for (u32 first = 0; first < n; first += SETS, from += SETS * 2 * channels) {
        float mean[SETS], m2[SETS], count[SETS];
#pragma unroll
        for (int i = 0; i < SETS; ++i) {
            const bool there = first + i < n;
            mean[i] = there ? __ldcg(from + i * 2 * channels) : 0.0f;
            m2[i] = there ? __ldcg(from + (i * 2 + 1) * channels) : 0.0f;
            count[i] = there ? (float)min(each, total - (first + i) * each) : 0.0f;
        }
        Moments few = {0.0f, 0.0f, 0.0f};
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < SETS; ++i) {
            few.count += count[i];
            sum += count[i] * (mean[i] - mean[0]);
        }
        few.mean = mean[0] + sum / few.count;
#pragma unroll
        for (int i = 0; i < SETS; ++i) few.m2 += m2[i] + count[i] * (mean[i] - few.mean) * (mean[i] - few.mean);
        all.add(few);
    }
    return all;
}

template <typename Tile> struct ChannelMoments {
    static constexpr int FOURS = Tile::COLUMNS / 4, SHARES = Tile::THREADS / FOURS;
    static_assert(Tile::THREADS == Tile::COLUMNS, "a thread for each column");
    static_assert(3 * SHARES * Tile::COLUMNS * 4 < Tile::BYTES, "a set of every thread fits");

    float pivot[4] = {}, sum[4] = {}, square[4] = {};
    float count = 0.0f;

    // Adds a row of this thread's four columns.
    __device__ __forceinline__ void add(const float (&v)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (count == 0.0f) pivot[i] = v[i];
            const float d = v[i] - pivot[i];
            sum[i] += d;
            square[i] = fmaf(d, d, square[i]);
        }
        count += 1.0f;
    }

    // Writes the moments of the block to partial[block, {mean, m2}, channel], and those of all blocks, after which groups of blocks lie in
    // partial, to moments[{mean, m2}, channel]. `rows` in all, of which a block has Tile::ROWS; `channel` is that of this thread's
    // column, if it is `inside`. `memory` is the block's, free after a __syncthreads().
    __device__ __forceinline__ void put(u64 rows, u64 channels, u64 channel, bool inside, float *partial, float *moments,
                                        unsigned char *memory) const {
        float *means = reinterpret_cast<float *>(memory), *squares = means + SHARES * Tile::COLUMNS,
              *counts = squares + SHARES * Tile::COLUMNS;
        bool &last = *reinterpret_cast<bool *>(counts + SHARES * Tile::COLUMNS);
        const float inverse = count > 0.0f ? 1.0f / count : 0.0f;
        const int at = (int)threadIdx.x / FOURS * Tile::COLUMNS + (int)threadIdx.x % FOURS * 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            means[at + i] = pivot[i] + sum[i] * inverse;
            squares[at + i] = fmaxf(square[i] - sum[i] * (sum[i] * inverse), 0.0f);
            counts[at + i] = count;
        }
        __syncthreads();
        const u32 groups = (gridDim.x - 1) / MOMENT_BLOCKS + 1, group = blockIdx.x / MOMENT_BLOCKS;
        const u32 tickets = (blockIdx.z * gridDim.y + blockIdx.y) * (groups + 1);
        const u64 set = 2 * channels;
        Moments m = {};
#pragma unroll
        for (int s = 0; s < SHARES; ++s) {
            const int from = s * Tile::COLUMNS + threadIdx.x;
            m.add(Moments{counts[from], means[from], squares[from]});
        }
        auto write = [&](float *to) {
            if (!inside) return;
            to[channel] = m.mean;
            to[channels + channel] = m.m2;
        };
        write(partial + blockIdx.x * set);
        const u32 first = group * MOMENT_BLOCKS, blocks = min(MOMENT_BLOCKS, gridDim.x - first);
        if (!moments_are_last(tickets + group, blocks, last)) return;
        const u64 begin = (u64)first * Tile::ROWS, size = (u64)MOMENT_BLOCKS * Tile::ROWS;
        if (inside)
            m = joined_moments(partial + first * set + channel, channels, blocks, Tile::ROWS, min(size, rows - begin));
        float *of_groups = partial + gridDim.x * set;
        write(of_groups + group * set);
        if (!moments_are_last(tickets + groups, groups, last)) return;
        if (inside) m = joined_moments(of_groups + channel, channels, groups, size, rows);
        write(moments);
    }
};
