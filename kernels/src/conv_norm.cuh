// The end of a data gradient whose convolution reads the result of a batch norm in training, with a ReLU behind it and a residual or not:
// while the tile is written, it becomes the gradient of the norm before ReLU and residual, and the sums of each channel that the gradient
// of the norm is made of are taken, so that no kernel reads it for them.
//
//   d = g + more, zero where the ReLU was not positive;   dshift = Σ d;   dscale = Σ d·x̂,   x̂ = (x − mean)·rstd
//
// Terms are rounded as norm_sums of norm.cu rounds them: d has the same bits. A thread has the same four columns in all its rows; four
// threads share columns. Blocks are joined in the order of their numbers, as moments are (conv_moments.cuh): groups of MOMENT_BLOCKS by the
// last block of each, then all groups by the last of these.
#pragma once

#include "conv_moments.cuh"

// The norm. `more`, `y`, `scale` and `shift` may be null; of y it is read where the ReLU was positive, and without it x says so.
template <typename T> struct NormRead {
    const T *x, *more, *y;
    const float *mean, *rstd;
    const T *scale, *shift; // of f32 if `wide`
    u32 wide;
    float *dscale, *dshift;

    __device__ __forceinline__ float of_channel(const T *vector, u32 channel, float otherwise) const {
        if (vector == nullptr) return otherwise;
        return wide ? reinterpret_cast<const float *>(vector)[channel] : to_acc(vector[channel]);
    }
};

// Four elements of each operand of a row, as they lie in memory.
template <typename T> struct NormFour {
    Few<T, 4> x, more, y;

    __device__ __forceinline__ void load(const NormRead<T> &norm, u64 at) {
        x = *reinterpret_cast<const Few<T, 4> *>(norm.x + at);
        if (norm.more) more = *reinterpret_cast<const Few<T, 4> *>(norm.more + at);
        if (norm.y) y = *reinterpret_cast<const Few<T, 4> *>(norm.y + at);
    }
};

// The sums of n sets from[set, {dot, total}, channel].
__device__ __forceinline__ float2 joined_sums(const float *from, u64 channels, u32 n) {
    constexpr u32 SETS = 8;
    float2 sum = {0.0f, 0.0f};
#pragma unroll 1
    for (u32 first = 0; first < n; first += SETS, from += SETS * 2 * channels) {
        float dot[SETS], total[SETS];
#pragma unroll
        for (u32 i = 0; i < SETS; ++i) {
            dot[i] = first + i < n ? __ldcg(from + i * 2 * channels) : 0.0f;
            total[i] = first + i < n ? __ldcg(from + (i * 2 + 1) * channels) : 0.0f;
        }
#pragma unroll
        for (u32 i = 0; i < SETS; ++i) {
            sum.x += dot[i];
            sum.y += total[i];
        }
    }
    return sum;
}

// Writes the sums of the block to partial[block, {dot, total}, channel] and, in the last block, those of all to dscale and dshift.
// `of_block` is that of this thread's column, if it is `inside`; blocks count those of all classes of remainders.
template <typename T>
__device__ __forceinline__ void join_norm_sums(const ConvParams &p, const NormRead<T> &norm, u32 group, u64 channel, bool inside,
                                               float2 of_block, float *partial, bool &last) {
    const u64 channels = p.in_channels, set = 2 * channels;
    const u32 block = blockIdx.z / p.groups * gridDim.x + blockIdx.x, blocks = gridDim.z / p.groups * gridDim.x;
    const u32 groups = (blocks - 1) / MOMENT_BLOCKS + 1, of = block / MOMENT_BLOCKS, first = of * MOMENT_BLOCKS;
    const u32 tickets = (group * gridDim.y + blockIdx.y) * (groups + 1), few = min(MOMENT_BLOCKS, blocks - first);
    auto write = [&](float *to) {
        if (!inside) return;
        to[channel] = of_block.x;
        to[channels + channel] = of_block.y;
    };
    write(partial + block * set);
    if (!moments_are_last(tickets + of, few, last)) return;
    if (inside) of_block = joined_sums(partial + first * set + channel, channels, few);
    float *of_groups = partial + blocks * set;
    write(of_groups + of * set);
    if (!moments_are_last(tickets + groups, groups, last)) return;
    if (!inside) return;
    of_block = joined_sums(of_groups + channel, channels, groups);
    norm.dscale[channel] = of_block.x;
    norm.dshift[channel] = of_block.y;
}

// The end of a block: `d` lies where the data gradient would, `targets` has the place of each row, ~0 where there is none. Columns of the
// group are `per`, by fours; those of the block begin at `columns`. A ReLU is behind the norm if p.activation has it.
template <typename T, typename Tile>
__device__ __forceinline__ void norm_sums(const ConvParams &p, const NormRead<T> &norm, u32 group, u32 columns, u32 per,
                                          const typename Tile::Sums &sums, const u64 *targets, T *d, float *partial,
                                          unsigned char *memory) {
    constexpr int STRIDE = Tile::COLUMNS + 8, FOURS = Tile::COLUMNS / 4, SHARES = Tile::THREADS / FOURS;
    constexpr int EACH = 16 * Tile::DOWN / SHARES;                    // rows of a thread in 16 of every warp
    constexpr int AHEAD = sizeof(T) == 2 || EACH < 4 ? EACH : 4;      // of those, whose loads are under way together
    static_assert(Tile::THREADS == Tile::COLUMNS && EACH % AHEAD == 0, "a thread for each column");
    static_assert(2 * SHARES * Tile::COLUMNS * 4 < EPILOGUE<Tile>, "a set of every thread fits");
    float *stage = reinterpret_cast<float *>(memory);
    const int lane = threadIdx.x % 32, warp_row = Tile::row() / Tile::HEIGHT;
    const int mine = threadIdx.x / FOURS, column = threadIdx.x % FOURS * 4;
    const u32 c = columns + column;
    const bool inside = c < per, relu = p.activation != 0, again = relu && norm.y == nullptr;
    float m[4] = {}, k[4] = {}, a[4] = {}, b[4] = {}, dot[4] = {}, total[4] = {};
    if (inside) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 channel = group * per + c + i;
            m[i] = norm.mean[channel];
            k[i] = norm.rstd[channel];
            a[i] = norm.of_channel(norm.scale, channel, 1.0f) * k[i];
            b[i] = norm.of_channel(norm.shift, channel, 0.0f);
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Tile::MS; ++i) {
        NormFour<T> read[AHEAD];
        // Row n of this thread, counted within the block's 16 of every warp, and in the tile.
        auto row = [&](int n) { return mine + n * SHARES; };
        auto target = [&](int n) { return inside ? targets[row(n) / 16 * Tile::HEIGHT + 16 * i + row(n) % 16] : ~0ull; };
        auto load = [&](int from) {
#pragma unroll
            for (int n = 0; n < AHEAD; ++n) {
                const u64 to = target(from + n);
                if (to != ~0ull) read[n].load(norm, to + c);
            }
        };
        load(0);
#pragma unroll
        for (int j = 0; j < 2 * Tile::NS; ++j) {
            float *to = stage + (warp_row * 16 + lane / 4) * STRIDE + Tile::column() + 8 * j + lane % 4 * 2;
            *reinterpret_cast<float2 *>(to) = make_float2(sums[i][j][0], sums[i][j][1]);
            *reinterpret_cast<float2 *>(to + 8 * STRIDE) = make_float2(sums[i][j][2], sums[i][j][3]);
        }
        __syncthreads();
#pragma unroll
        for (int from = 0; from < EACH; from += AHEAD) {
            if (from > 0) load(from);
#pragma unroll
            for (int n = 0; n < AHEAD; ++n) {
                const u64 to = target(from + n);
                if (to == ~0ull) continue;
                const float *v = stage + row(from + n) * STRIDE + column;
                Few<T, 4> out;
#pragma unroll
                for (int q = 0; q < 4; ++q) {
                    const float x = to_acc(read[n].x.v[q]);
                    T stored = from_acc<T>(v[q]);
                    if (norm.more) stored = from_acc<T>(to_acc(stored) + to_acc(read[n].more.v[q]));
                    bool blocks = again && relu_blocks<T>(x, m[q], a[q], b[q]);
                    if (norm.y) blocks = to_acc(read[n].y.v[q]) <= 0.0f;
                    if (blocks) stored = from_acc<T>(0.0f);
                    out.v[q] = stored;
                    const float g = to_acc(stored);
                    dot[q] += g * ((x - m[q]) * k[q]);
                    total[q] += g;
                }
                *reinterpret_cast<Few<T, 4> *>(d + to + c) = out;
            }
        }
        __syncthreads();
    }
    float *totals = stage + SHARES * Tile::COLUMNS;
    bool &last = *reinterpret_cast<bool *>(totals + SHARES * Tile::COLUMNS);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        stage[mine * Tile::COLUMNS + column + q] = dot[q];
        totals[mine * Tile::COLUMNS + column + q] = total[q];
    }
    __syncthreads();
    float2 of_block = {0.0f, 0.0f};
#pragma unroll
    for (int s = 0; s < SHARES; ++s) {
        of_block.x += stage[s * Tile::COLUMNS + threadIdx.x];
        of_block.y += totals[s * Tile::COLUMNS + threadIdx.x];
    }
    const u32 of = columns + threadIdx.x;
    join_norm_sums(p, norm, group, (u64)group * per + of, of < per, of_block, partial, last);
}
