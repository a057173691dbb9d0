// The mean of each channel of a convolution's result, and the sum of its squared deviations from it, made while the result is written:
// the batch norm behind it then need not read the result for them.
//
// A thread of the epilogue has the same four columns in all its rows. It sums their distances from the first of them and the squares of
// these, so that a large mean costs no digits. Several threads share columns; they are joined by the formula of Chan, Golub and LeVeque, as
// are the blocks: the last of MOMENT_BLOCKS blocks of rows to arrive joins those, the last of all such groups joins the groups. In which
// order is decided by numbers of blocks alone.
#pragma once

#include "common/tile_number.cuh"
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

// How many values the moments of a set are of: of `each` in every set but the last, and `total` in all.
struct EqualCounts {
    u64 each, total;

    __device__ __forceinline__ float of(u32 set) const { return (float)min(each, total - set * each); }
    __device__ __forceinline__ void put(u32, float) const {}
    __device__ __forceinline__ EqualCounts of_groups(u32) const { return {MOMENT_BLOCKS * each, total}; }
};

// The same where sets differ: counts[set] is written beside the moments.
struct StoredCounts {
    float *counts;

    __device__ __forceinline__ float of(u32 set) const { return __ldcg(counts + set); }
    __device__ __forceinline__ void put(u32 set, float count) const {
        if (threadIdx.x == 0) counts[set] = count;
    }
    __device__ __forceinline__ StoredCounts of_groups(u32 sets) const { return {counts + sets}; }
};

// The moments of the `n` sets from[set, {mean, m2}, channel] from set `begin` on.
template <typename Counts>
__device__ __forceinline__ Moments joined_moments(const float *from, u64 channels, u32 begin, u32 n, const Counts &counts) {
    constexpr int SETS = 16;
    Moments all = {};
    from += begin * 2 * channels;
    for (u32 first = 0; first < n; first += SETS, from += SETS * 2 * channels) {
        float mean[SETS], m2[SETS], count[SETS];
#pragma unroll
        for (int i = 0; i < SETS; ++i) {
            const bool there = first + i < n;
            mean[i] = there ? __ldcg(from + i * 2 * channels) : 0.0f;
            m2[i] = there ? __ldcg(from + (i * 2 + 1) * channels) : 0.0f;
            count[i] = there ? counts.of(begin + first + i) : 0.0f;
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

// Writes the moments `m` of this thread's column of a block to partial[block, {mean, m2}, channel], and those of all `blocks`, after which
// groups of blocks lie in partial, to moments[{mean, m2}, channel]. The blocks of tile `columns` of the columns are joined; `channel` is
// that of this thread's column, if it is `inside`. Thread 0's is.
template <typename Counts>
__device__ __forceinline__ void join_moments(Moments m, u32 block, u32 blocks, u32 columns, const Counts &counts, u64 channels,
                                             u64 channel, bool inside, float *partial, float *moments, bool &last) {
    const u32 groups = (blocks - 1) / MOMENT_BLOCKS + 1, group = block / MOMENT_BLOCKS;
    const u32 tickets = columns * (groups + 1);
    const u64 set = 2 * channels;
    auto write = [&](float *to) {
        if (!inside) return;
        to[channel] = m.mean;
        to[channels + channel] = m.m2;
    };
    write(partial + block * set);
    counts.put(block, m.count);
    const u32 first = group * MOMENT_BLOCKS, few = min(MOMENT_BLOCKS, blocks - first);
    if (!moments_are_last(tickets + group, few, last)) return;
    if (inside) m = joined_moments(partial + channel, channels, first, few, counts);
    float *of_groups = partial + blocks * set;
    const Counts group_counts = counts.of_groups(blocks);
    write(of_groups + group * set);
    group_counts.put(group, m.count);
    if (!moments_are_last(tickets + groups, groups, last)) return;
    if (inside) m = joined_moments(of_groups + channel, channels, 0, groups, group_counts);
    write(moments);
}

// What a thread has seen of four columns.
struct FourMoments {
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

    // The moments of column threadIdx.x % COLUMNS, of which SHARES threads, COLUMNS / 4 apart, have a share each. `memory` has
    // MOMENT_BYTES<COLUMNS, SHARES>, and is free after a __syncthreads().
    template <int COLUMNS, int SHARES> __device__ __forceinline__ Moments of_block(float *memory) const {
        constexpr int FOURS = COLUMNS / 4;
        float *means = memory, *squares = means + SHARES * COLUMNS, *counts = squares + SHARES * COLUMNS;
        const float inverse = count > 0.0f ? 1.0f / count : 0.0f;
        const int at = (int)threadIdx.x / FOURS * COLUMNS + (int)threadIdx.x % FOURS * 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            means[at + i] = pivot[i] + sum[i] * inverse;
            squares[at + i] = fmaxf(square[i] - sum[i] * (sum[i] * inverse), 0.0f);
            counts[at + i] = count;
        }
        __syncthreads();
        Moments m = {};
#pragma unroll
        for (int s = 0; s < SHARES; ++s) {
            const int from = s * COLUMNS + threadIdx.x % COLUMNS;
            m.add(Moments{counts[from], means[from], squares[from]});
        }
        return m;
    }
};
template <int COLUMNS, int SHARES> constexpr int MOMENT_BYTES = 3 * SHARES * COLUMNS * 4;

// True in the threads, as many as the tile has columns, of which each has the sums of a column in the end.
template <typename Tile> __device__ __forceinline__ bool has_column() {
    return Tile::THREADS == Tile::COLUMNS || threadIdx.x < Tile::COLUMNS;
}

template <typename Tile> struct ChannelMoments {
    static constexpr int SHARES = Tile::THREADS / (Tile::COLUMNS / 4), BYTES = MOMENT_BYTES<Tile::COLUMNS, SHARES>;
    static_assert(Tile::THREADS % Tile::COLUMNS == 0, "a thread for each column");
    static_assert(BYTES < Tile::BYTES, "a set of every thread fits");

    FourMoments of_thread;

    __device__ __forceinline__ void add(const float (&v)[4]) { of_thread.add(v); }

    // Joins the moments of the block, whose tile is `tile`, with those of all others (join_moments). `rows` in all, of which a block has
    // Tile::ROWS; `channel` is that of this thread's column, if it is `inside`. `memory` is the block's, free after a __syncthreads().
    __device__ __forceinline__ void put(const TileNumber &tile, u64 rows, u64 channels, u64 channel, bool inside, float *partial, float *moments,
                                        unsigned char *memory) const {
        bool &last = *reinterpret_cast<bool *>(memory + BYTES);
        const Moments m = of_thread.of_block<Tile::COLUMNS, SHARES>(reinterpret_cast<float *>(memory));
        join_moments(m, tile.row, gridDim.x, blockIdx.z * gridDim.y + tile.column, EqualCounts{Tile::ROWS, rows}, channels, channel,
                     inside, partial, moments, last);
    }
};
