// The end of a data gradient whose convolution reads the result of a batch norm in training, with a ReLU behind it and a residual or not:
// while the tile is written, it becomes the gradient of the norm before ReLU and residual, and the sums of each channel that the gradient
// of the norm is made of are taken, so that no kernel reads it for them.
//
//   d = g + more, zero where the ReLU was not positive;   dshift = Σ d;   dscale = Σ d·x̂,   x̂ = (x − mean)·rstd
//
// Terms are rounded as norm_sums of norm.cu rounds them: d has the same bits. A thread has the same four columns in all its rows; several
// threads share columns. Blocks are joined in the order of their numbers, as moments are (conv_moments.cuh): groups of MOMENT_BLOCKS by the
// last block of each, then all groups by the last of these.
#pragma once

#include "common/tensor_tile.cuh"
#include "conv.cuh"
#include "conv_moments.cuh"

#include <type_traits>

// The norm. `more`, `y`, `scale` and `shift` may be null; of y it is read where the ReLU was positive, and without it x says so. Then the norm's
// result may be written to `again`.
template <typename T> struct NormRead {
    const T *x, *more, *y;
    const float *mean, *rstd;
    const T *scale, *shift; // of f32 if `wide`
    u32 wide;
    float *dscale, *dshift;
    T *again;

    __device__ __forceinline__ float of_channel(const T *vector, u32 channel, float otherwise) const {
        if (vector == nullptr) return otherwise;
        return wide ? reinterpret_cast<const float *>(vector)[channel] : to_acc(vector[channel]);
    }
};

// The largest positive number that is zero as a T.
template <typename T> constexpr float ROUNDS_TO_ZERO = 0.0f;
template <> constexpr float ROUNDS_TO_ZERO<bf16> = 0x1p-134f;
template <> constexpr float ROUNDS_TO_ZERO<f16> = 0x1p-25f;

// Four elements as they lie in memory. Halves are rounded two at once, and bf16 is widened by its bits: an instruction for each.
template <typename T> struct NormFour {
    static constexpr bool HALF = sizeof(T) == 2;
    using Pair = typename std::conditional<std::is_same<T, f16>::value, __half2, __nv_bfloat162>::type;
    typename WordOf<4 * sizeof(T)>::Word word;

    static __device__ __forceinline__ u32 pair(float low, float high) {
        Pair both;
        if constexpr (std::is_same<T, f16>::value) both = __floats2half2_rn(low, high);
        else both = __floats2bfloat162_rn(low, high);
        u32 bits;
        memcpy(&bits, &both, 4);
        return bits;
    }
    static __device__ __forceinline__ void widen(u32 bits, float &low, float &high) {
        if constexpr (std::is_same<T, f16>::value) {
            __half2 both;
            memcpy(&both, &bits, 4);
            low = __low2float(both);
            high = __high2float(both);
        } else {
            low = __uint_as_float(bits << 16);
            high = __uint_as_float(bits & 0xffff0000u);
        }
    }
    __device__ __forceinline__ void load(const T *from) { word = LoadOf<4 * sizeof(T)>::load(from); }
    __device__ __forceinline__ void store(T *to) const { WordOf<4 * sizeof(T)>::store(to, word); }
    __device__ __forceinline__ void round(float x, float y, float z, float w) {
        if constexpr (HALF) {
            word.x = pair(x, y);
            word.y = pair(z, w);
        } else {
            word = {__float_as_uint(x), __float_as_uint(y), __float_as_uint(z), __float_as_uint(w)};
        }
    }
    __device__ __forceinline__ void get(float (&v)[4]) const {
        if constexpr (HALF) {
            widen(word.x, v[0], v[1]);
            widen(word.y, v[2], v[3]);
        } else {
            v[0] = __uint_as_float(word.x), v[1] = __uint_as_float(word.y);
            v[2] = __uint_as_float(word.z), v[3] = __uint_as_float(word.w);
        }
    }
};

// What an operand is read from, and its bits: without the operand x is read in its place, which is in the cache, and all bits are set to
// those of a number. So that no load depends on whether there is an operand.
template <typename T> struct NormOperand {
    const T *from;
    u32 mask, bits;

    __device__ __forceinline__ NormOperand(const T *operand, const T *x, float otherwise)
        : from(operand ? operand : x), mask(operand ? ~0u : 0u), bits(0) {
        if (operand) return;
        if constexpr (sizeof(T) == 2) bits = NormFour<T>::pair(otherwise, otherwise);
        else bits = __float_as_uint(otherwise);
    }
    __device__ __forceinline__ NormFour<T> of(NormFour<T> four) const {
        four.word.x = (four.word.x & mask) | bits;
        four.word.y = (four.word.y & mask) | bits;
        if constexpr (sizeof(T) == 4) {
            four.word.z = (four.word.z & mask) | bits;
            four.word.w = (four.word.w & mask) | bits;
        }
        return four;
    }
};

// A row of four columns: x, the other term, and what says where the ReLU was positive, y or x.
template <typename T> struct NormRow {
    NormFour<T> x, more, gate;
};

// A thread's four columns, from `channel` on, if they are `inside`. A ReLU is behind the norm if p.activation has it.
template <typename T> struct NormColumns {
    // Another term of -0 changes no sum. The ReLU was positive where (gate − centre)·a + b, rounded, is: that is what the norm made of x, or
    // y itself; without a ReLU the gate is 1.
    const T *x;
    NormOperand<T> more, gate;
    float m[4] = {}, k[4] = {}, dot[4] = {}, total[4] = {};
    float centre[4] = {}, a[4] = {1.0f, 1.0f, 1.0f, 1.0f}, b[4] = {};

    __device__ __forceinline__ NormColumns(const ConvParams &p, const NormRead<T> &norm, u32 channel, bool inside)
        : x(norm.x), more(norm.more, norm.x, -0.0f), gate(again(p, norm) ? norm.x : norm.y, norm.x, 1.0f) {
        if (!inside) return;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            m[i] = norm.mean[channel + i];
            k[i] = norm.rstd[channel + i];
            if (again(p, norm)) {
                centre[i] = m[i];
                a[i] = norm.of_channel(norm.scale, channel + i, 1.0f) * k[i];
                b[i] = norm.of_channel(norm.shift, channel + i, 0.0f);
            }
        }
    }
    static __device__ __forceinline__ bool again(const ConvParams &p, const NormRead<T> &norm) {
        return p.activation != 0 && norm.y == nullptr;
    }
    // Reads what is needed for the four elements from `at` on.
    __device__ __forceinline__ void load(NormRow<T> &row, u64 at) const {
        row.x.load(x + at);
        row.more.load(more.from + at);
        row.gate.load(gate.from + at);
    }
    // Makes d of a data gradient of four elements, writes it and adds it to the sums, if they are `there`. AGAIN: the norm's result, which has
    // a ReLU and no residual, is written to `result`. No branch is around what is computed: behind one, the compiler would put the loads.
    template <bool AGAIN = false>
    __device__ __forceinline__ void add(const NormRow<T> &row, const float4 &sum, bool there, T *to, T *result = nullptr) {
        NormFour<T> out;
        out.round(sum.x, sum.y, sum.z, sum.w);
        float g[4], v[4], other[4], open[4];
        out.get(g);
        row.x.get(v);
        more.of(row.more).get(other);
        gate.of(row.gate).get(open);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            open[q] = normalised(open[q], centre[q], a[q], b[q]);
            const bool blocks = open[q] <= ROUNDS_TO_ZERO<T>;
            g[q] = blocks ? 0.0f : g[q] + other[q];
        }
        if constexpr (AGAIN) {
#pragma unroll
            for (int q = 0; q < 4; ++q) open[q] = open[q] < 0.0f ? 0.0f : open[q];
            NormFour<T> y;
            y.round(open[0], open[1], open[2], open[3]);
            if (there) y.store(result);
        }
        out.round(g[0], g[1], g[2], g[3]);
        out.get(g);
        if (there) out.store(to);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            g[q] = there ? g[q] : 0.0f;
            v[q] = there ? v[q] : m[q];
            dot[q] += g[q] * ((v[q] - m[q]) * k[q]);
            total[q] += g[q];
        }
    }
    // The sums of column threadIdx.x % COLUMNS, of which SHARES threads, COLUMNS / 4 apart, have a share each. `memory` has
    // NORM_BYTES<COLUMNS, SHARES>, and is free after a __syncthreads().
    template <int COLUMNS, int SHARES> __device__ __forceinline__ float2 of_block(float *memory) const {
        constexpr int FOURS = COLUMNS / 4;
        float *totals = memory + SHARES * COLUMNS;
        const int at = (int)threadIdx.x / FOURS * COLUMNS + (int)threadIdx.x % FOURS * 4;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            memory[at + q] = dot[q];
            totals[at + q] = total[q];
        }
        __syncthreads();
        float2 of_block = {0.0f, 0.0f};
#pragma unroll
        for (int s = 0; s < SHARES; ++s) {
            of_block.x += memory[s * COLUMNS + threadIdx.x % COLUMNS];
            of_block.y += totals[s * COLUMNS + threadIdx.x % COLUMNS];
        }
        return of_block;
    }
};
template <int COLUMNS, int SHARES> constexpr int NORM_BYTES = 2 * SHARES * COLUMNS * 4;

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

// Writes the sums of a block to partial[block, {dot, total}, channel] and, in the last of `blocks`, those of all to dscale and dshift.
// `of_block` is that of this thread's column, if it is `inside`. The blocks of tile `columns` of the columns are joined.
template <typename T>
__device__ __forceinline__ void join_norm_sums(const NormRead<T> &norm, u32 block, u32 blocks, u32 columns, u64 channels, u64 channel,
                                               bool inside, float2 of_block, float *partial, bool &last) {
    const u64 set = 2 * channels;
    const u32 groups = (blocks - 1) / MOMENT_BLOCKS + 1, of = block / MOMENT_BLOCKS, first = of * MOMENT_BLOCKS;
    const u32 tickets = columns * (groups + 1), few = min(MOMENT_BLOCKS, blocks - first);
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

// The same for a block of a data gradient that takes the positions class by class: blocks count those of all classes.
template <typename T>
__device__ __forceinline__ void join_norm_sums(const ConvParams &p, const NormRead<T> &norm, const TileNumber &tile, u32 group,
                                               u64 channel, bool inside, float2 of_block, float *partial, bool &last) {
    const u32 block = blockIdx.z / p.groups * gridDim.x + tile.row, blocks = gridDim.z / p.groups * gridDim.x;
    join_norm_sums(norm, block, blocks, group * gridDim.y + tile.column, p.in_channels, channel, inside, of_block, partial, last);
}

// The end of the block of a tile: `d` lies where the data gradient would, `targets` has the place of each row, ~0 where there is none. Columns of the
// group are `per`, by fours; those of the block begin at `columns`. A ReLU is behind the norm if p.activation has it. AGAIN: the norm's result,
// which has a ReLU and no residual, is written.
template <typename T, typename Tile, bool AGAIN>
__device__ __forceinline__ void norm_sums(const ConvParams &p, const NormRead<T> &norm, const TileNumber &tile, u32 group, u32 columns,
                                          u32 per, const typename Tile::Sums &sums, const u64 *targets, T *d, float *partial,
                                          unsigned char *memory) {
    using Out = Drain<Tile>;
    // AHEAD: rows whose loads are under way together.
    constexpr int SHARES = Out::APART, AHEAD = sizeof(T) == 2 ? 4 : 2;
    static_assert(Tile::THREADS % Tile::COLUMNS == 0 && Out::EACH % AHEAD == 0, "a thread for each column");
    static_assert(NORM_BYTES<Tile::COLUMNS, SHARES> < EPILOGUE<Tile>, "a set of every thread fits");
    const Out drain(memory);
    const u32 c = columns + Out::column();
    const bool inside = c < per;
    NormColumns<T> four(p, norm, group * per + c, inside);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < Tile::MS; ++i) {
        NormRow<T> read[AHEAD];
        auto target = [&](int n) { return inside ? targets[Out::row(i, n)] : ~0ull; };
        // Where there is no row, the first elements are read, and not used.
        auto load = [&](int from) {
#pragma unroll
            for (int n = 0; n < AHEAD; ++n) {
                const u64 to = target(from + n);
                four.load(read[n], to == ~0ull ? 0 : to + c);
            }
        };
        drain.put(sums, i);
        __syncthreads();
#pragma unroll 1
        for (int from = 0; from < Out::EACH; from += AHEAD) {
            load(from);
#pragma unroll
            for (int n = 0; n < AHEAD; ++n) {
                const u64 to = target(from + n);
                const float4 sum = *reinterpret_cast<const float4 *>(drain.of(from + n));
                four.template add<AGAIN>(read[n], sum, to != ~0ull, d + to + c, AGAIN ? norm.again + to + c : nullptr);
            }
        }
        __syncthreads();
    }
    bool &last = *reinterpret_cast<bool *>(memory + NORM_BYTES<Tile::COLUMNS, SHARES>);
    const float2 of_block = four.template of_block<Tile::COLUMNS, SHARES>(drain.stage);
    const u32 of = columns + threadIdx.x;
    join_norm_sums(p, norm, tile, group, (u64)group * per + of, has_column<Tile>() && of < per, of_block, partial, last);
}
