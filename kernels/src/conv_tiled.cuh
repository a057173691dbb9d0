// Convolutions as products of gathered tiles on the ordinary arithmetic units. V = 4 fetches four neighbouring channels
// at once and needs channels per group (in and out) that are multiples of 4; V = 1 takes anything.
#pragma once

#include "conv_gather.cuh"
#include "conv_parts.cuh"
#include "conv_tile.cuh"

// Left operand of forward and data gradient: rows are positions.
template <typename T, int V, bool DATA, typename Tile> struct GatheredRows {
    using Place = AlongK<Tile::ROWS, Tile::DEPTH>;
    const Gather<DATA> &g;
    Row<T> row;
    Inner k;

    __device__ __forceinline__ GatheredRows(const Gather<DATA> &g, const T *__restrict__ source, u64 first)
        : g(g), row(g, source, first + Place::line()), k(g, Place::k()) {}
    __device__ __forceinline__ void fetch(float (&v)[4]) {
        if constexpr (V == 4) {
            const T *at = row.at(g, k);
            v[0] = v[1] = v[2] = v[3] = 0.0f;
            if (at != nullptr) fetch4(at, v);
            k.advance(g, Tile::DEPTH);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const T *at = row.at(g, k);
                v[i] = at != nullptr ? to_acc(*at) : 0.0f;
                k.advance(g, 1);
            }
            k.advance(g, Tile::DEPTH - 4);
        }
    }
};

// Right operand of forward: columns are output channels, whose weights lie along the inner dimension.
template <typename T, int V, typename Tile> struct WeightOfOutputs {
    using Place = AlongK<Tile::COLUMNS, Tile::DEPTH>;
    const T *w;
    int k, depth;

    __device__ __forceinline__ WeightOfOutputs(const ConvParams &p, const Gather<false> &g, const T *__restrict__ w,
                                               u32 first) {
        u32 c = first + Place::line();
        k = Place::k();
        depth = c < group_out(p) ? g.depth : 0;
        this->w = w + ((u64)g.group * group_out(p) + c) * g.depth;
    }
    __device__ __forceinline__ void fetch(float (&v)[4]) {
        v[0] = v[1] = v[2] = v[3] = 0.0f;
        if constexpr (V == 4) {
            if (k < depth) fetch4(w + k, v);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (k + i < depth) v[i] = to_acc(w[k + i]);
        }
        k += Tile::DEPTH;
    }
};

// Right operand of the data gradient: columns are input channels, next to each other for one (tap, output channel).
template <typename T, int V, typename Tile> struct WeightOfInputs {
    using Place = AlongLine<Tile::COLUMNS, Tile::DEPTH>;
    const ConvParams &p;
    const Gather<true> &g;
    const T *w;
    Inner k;
    int left; // columns from this one on

    __device__ __forceinline__ WeightOfInputs(const ConvParams &p, const Gather<true> &g, const T *__restrict__ w,
                                              u32 first)
        : p(p), g(g), k(g, Place::k()) {
        int c = (int)first + Place::line();
        left = (int)group_in(p) - c;
        this->w = w + (u64)g.group * g.per * taps_of(p) * group_in(p) + c;
    }
    __device__ __forceinline__ void fetch(float (&v)[4]) {
        v[0] = v[1] = v[2] = v[3] = 0.0f;
        if (k.d < g.d.taps) {
            const T *at = w + ((u64)k.c * taps_of(p) + k.tap(p, g)) * group_in(p);
            if constexpr (V == 4) {
                if (left > 0) fetch4(at, v);
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (i < left) v[i] = to_acc(at[i]);
            }
        }
        k.advance(g, Tile::DEPTH);
    }
};

// Output positions of all images, in steps: the inner dimension of the weight gradient.
struct Positions {
    u64 image;
    int d, h, w;

    __device__ __forceinline__ Positions(const ConvParams &p, u64 n) {
        Position o = position_of(n, p.output);
        image = o.image;
        d = (int)o.at[0], h = (int)o.at[1], w = (int)o.at[2];
    }
    __device__ __forceinline__ void advance(const ConvParams &p, int by) {
        w += by;
        while (w >= (int)p.output[2]) {
            w -= (int)p.output[2];
            if (++h == (int)p.output[1]) {
                h = 0;
                if (++d == (int)p.output[0]) {
                    d = 0;
                    ++image;
                }
            }
        }
    }
};

// Left operand of the weight gradient: rows are output channels.
template <typename T, int V, typename Tile> struct GradOfOutputs {
    using Place = AlongLine<Tile::ROWS, Tile::DEPTH>;
    const T *g;
    u64 step;
    i64 at, end; // positions
    int left;    // channels from this one on

    __device__ __forceinline__ GradOfOutputs(const ConvParams &p, const T *__restrict__ g, u32 group, u32 first,
                                             u64 from, u64 to) {
        int c = (int)first + Place::line();
        at = (i64)from + Place::k();
        end = (i64)to;
        left = (int)group_out(p) - c;
        this->g = g + (u64)at * p.out_channels + (u64)group * group_out(p) + c;
        step = (u64)Tile::DEPTH * p.out_channels;
    }
    __device__ __forceinline__ void fetch(float (&v)[4]) {
        v[0] = v[1] = v[2] = v[3] = 0.0f;
        if (at < end) {
            if constexpr (V == 4) {
                if (left > 0) fetch4(g, v);
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (i < left) v[i] = to_acc(g[i]);
            }
        }
        at += Tile::DEPTH;
        g += step;
    }
};

// Right operand of the weight gradient: columns are (tap, input channel).
template <typename T, int V, typename Tile> struct GatheredTaps {
    using Place = AlongLine<Tile::COLUMNS, Tile::DEPTH>;
    const ConvParams &p;
    const T *x;
    Positions o;
    i64 left; // positions
    int d[4 / V], h[4 / V], w[4 / V], c[4 / V]; // of each column: source of window 0, and channel; c < 0: no column

    __device__ __forceinline__ GatheredTaps(const ConvParams &p, const T *__restrict__ x, u32 group, u32 first,
                                            u64 from, u64 to)
        : p(p), o(p, from + Place::k()), left((i64)to - (i64)from - Place::k()) {
        u32 per = group_in(p), columns = taps_of(p) * per;
        this->x = x + (u64)group * per;
#pragma unroll
        for (int i = 0; i < 4 / V; ++i) {
            u32 n = first + Place::line() + i, channel;
            Position tap = position_of(split(n < columns ? n : 0, per, channel), p.kernel);
            d[i] = (int)tap.at[0] * (int)p.dilation[0] - (int)p.padding[0];
            h[i] = (int)tap.at[1] * (int)p.dilation[1] - (int)p.padding[1];
            w[i] = (int)tap.at[2] * (int)p.dilation[2] - (int)p.padding[2];
            c[i] = n < columns ? (int)channel : -1;
        }
    }
    __device__ __forceinline__ const T *at(int i) const {
        int sd = o.d * (int)p.stride[0] + d[i], sh = o.h * (int)p.stride[1] + h[i], sw = o.w * (int)p.stride[2] + w[i];
        bool inside = left > 0 && c[i] >= 0 && (u32)sd < p.input[0] && (u32)sh < p.input[1] && (u32)sw < p.input[2];
        u64 q = o.image * volume(p.input) + ((u32)sd * p.input[1] + (u32)sh) * p.input[2] + (u32)sw;
        return inside ? x + q * p.in_channels + c[i] : nullptr;
    }
    __device__ __forceinline__ void fetch(float (&v)[4]) {
        if constexpr (V == 4) {
            const T *from = at(0);
            v[0] = v[1] = v[2] = v[3] = 0.0f;
            if (from != nullptr) fetch4(from, v);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const T *from = at(i);
                v[i] = from != nullptr ? to_acc(*from) : 0.0f;
            }
        }
        left -= Tile::DEPTH;
        o.advance(p, Tile::DEPTH);
    }
};

// Four neighbouring elements of a row of the result, `left` of which exist.
template <typename T, int V>
__device__ __forceinline__ void put4(T *__restrict__ to, const float (&v)[4], int left) {
    if constexpr (V == 4) {
        Few<T, 4> out;
#pragma unroll
        for (int i = 0; i < 4; ++i) out.v[i] = from_acc<T>(v[i]);
        if (left > 0) *reinterpret_cast<Few<T, 4> *>(to) = out;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (i < left) to[i] = from_acc<T>(v[i]);
    }
}

// Nothing is taken of the result.
struct NothingElse {
    static constexpr bool MOMENTS = false, NORM = false;
};

// Forward (DATA false: source x, result y) and data gradient (DATA true: source g, result dx). `of` sees the rows of the result if it wants
// MOMENTS, and writes it itself if it is the end that a NORM wants, with the blocks of a class that have no rows.
template <typename T, int V, bool DATA, typename Tile, typename Of = NothingElse>
__device__ __forceinline__ void gathered(const ConvParams &p, const T *__restrict__ source, const T *__restrict__ w,
                                         const T *__restrict__ bias, T *__restrict__ result, Of of = {}) {
    Gather<DATA> g(p, blockIdx.z);
    u64 first = (u64)blockIdx.x * Tile::ROWS;
    const bool some = first < g.rows; // classes of remainders differ in size
    if (!Of::NORM && !some) return;
    u32 column = blockIdx.y * Tile::COLUMNS;
    float sums[Tile::HIGH][Tile::WIDE] = {};
    if (!Of::NORM || some) {
        GatheredRows<T, V, DATA, Tile> a(g, source, first);
        int steps = (g.depth + Tile::DEPTH - 1) / Tile::DEPTH;
        if constexpr (DATA) {
            WeightOfInputs<T, V, Tile> b(p, g, w, column);
            product<Tile>(a, b, steps, sums);
        } else {
            WeightOfOutputs<T, V, Tile> b(p, g, w, column);
            product<Tile>(a, b, steps, sums);
        }
    }
    u32 per = DATA ? group_in(p) : group_out(p), channels = DATA ? p.in_channels : p.out_channels;
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    if constexpr (Of::NORM) {
        of.put(p, g, first, column, sums, result);
    } else {
#pragma unroll
        for (int i = 0; i < Tile::HIGH; ++i) {
            u64 row = first + owned<Tile::HIGH>(ty, i);
            if (row >= g.rows) continue;
            T *to = result + g.target(p, row) * channels + (u64)g.group * per;
#pragma unroll
            for (int j = 0; j < Tile::WIDE; j += 4) {
                int c = (int)column + owned<Tile::WIDE>(tx, j), left = (int)per - c;
                float v[4];
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    v[n] = sums[i][j + n];
                    if constexpr (!DATA) {
                        if (bias != nullptr && n < left) v[n] += to_acc(bias[g.group * per + c + n]);
                        v[n] = activate<T>(p.activation, v[n]);
                    }
                }
                put4<T, V>(to + c, v, left);
                if constexpr (Of::MOMENTS) of.add(j / 4, v);
            }
        }
        if constexpr (Of::MOMENTS) {
            u32 c = column + threadIdx.x;
            of.put(g.rows, channels, (u64)g.group * per + c, threadIdx.x < Tile::COLUMNS && c < per);
        }
    }
}

// The weight gradient's sums over the positions of one split.
template <typename T, int V, typename Tile>
__device__ __forceinline__ void weight_parts(const ConvParams &p, const T *__restrict__ grad, const T *__restrict__ x,
                                             f32 *parts, u32 splits, T *__restrict__ dw, u32 sharers,
                                             const BiasGrad<T> &bias, u32 tiles) {
    __shared__ float scratch[256 / WARP];
    __shared__ u32 place;
    if (blockIdx.x >= tiles) { // the whole block
        bias.sum(((blockIdx.x - tiles) * gridDim.y + blockIdx.y) * gridDim.z + blockIdx.z, scratch);
        return;
    }
    u32 group = blockIdx.z / splits, part = blockIdx.z % splits;
    u64 positions = p.batch * volume(p.output);
    u64 share = (positions + splits - 1) / splits;
    u64 from = min(part * share, positions), to = min(from + share, positions);
    u32 row = blockIdx.y * Tile::ROWS, column = blockIdx.x * Tile::COLUMNS;
    u32 columns = taps_of(p) * group_in(p);
    float sums[Tile::HIGH][Tile::WIDE] = {};
    if (from < to) {
        GradOfOutputs<T, V, Tile> a(p, grad, group, row, from, to);
        GatheredTaps<T, V, Tile> b(p, x, group, column, from, to);
        product<Tile>(a, b, (int)((to - from + Tile::DEPTH - 1) / Tile::DEPTH), sums);
    }
    const u64 n = (u64)p.out_channels * columns;
    f32 *result = parts + part * n;
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < Tile::HIGH; ++i) {
        u32 c = row + owned<Tile::HIGH>(ty, i);
        if (c >= group_out(p)) continue;
        f32 *to = result + (u64)(group * group_out(p) + c) * columns;
#pragma unroll
        for (int j = 0; j < Tile::WIDE; j += 4) {
            u32 n = column + owned<Tile::WIDE>(tx, j);
            float v[4];
#pragma unroll
            for (int m = 0; m < 4; ++m) v[m] = sums[i][j + m];
            put4<f32, V>(to + n, v, (int)columns - (int)n);
        }
    }
    const Patch patch = {group * group_out(p) + row, min(group_out(p) - row, (u32)Tile::ROWS), column,
                         min(columns - column, (u32)Tile::COLUMNS), columns};
    add_splits<T>((group * gridDim.y + blockIdx.y) * tiles + blockIdx.x, splits, sharers, place, patch, n, parts, dw);
}

// The kernels of a dtype: convolution and its gradients as products of gathered tiles (conv_gather.cuh) in shared
// memory and registers (conv_tile.cuh): the second variant. Sums in f32, one rounding.
//
//   forward        rows positions of y,  columns O/groups,           inner taps·C/groups
//   data gradient  rows positions of dx, columns C/groups,           inner the taps that meet · O/groups
//   weight grad.   rows O/groups,        columns taps·C/groups,      inner positions of y, split between blocks
//
// `_large` tiles are 128 × 128, the others 64 × 64. `_packed` kernels fetch four channels at once: channels per group
// are multiples of 4, in and out. The weight gradient writes the sum of its split s to parts[s·|dw|], in f32;
// the last `sharers` blocks of each tile add them in order (conv_parts.cuh), or conv_sum_parts if that is 0. Blocks from x = `tiles` on
// have the gradient of the bias.
//
// Geometry: 256 threads. Forward and data gradient: x ⌈rows / tile⌉, y ⌈columns / tile⌉, z groups, times stride³
// classes for the data gradient with the rows of the largest. Weight gradient: x ⌈columns / tile⌉, y ⌈rows / tile⌉,
// z groups·splits, and so many more of x that there is a block for each output channel if the gradient of a bias is wanted.
#define CONV_TILED(name, T, V, Tile, BLOCKS)                                                                           \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                          \
        conv_tiled##name(ConvParams p, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ bias,   \
                         T *__restrict__ y) {                                                                          \
        gathered<T, V, false, Tile>(p, x, w, bias, y);                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                          \
        conv_tiled_data_grad##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ w,                     \
                                   T *__restrict__ dx) {                                                               \
        gathered<T, V, true, Tile>(p, g, w, nullptr, dx);                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                          \
        conv_tiled_weight_parts##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ x,                  \
                                      f32 *__restrict__ parts, u32 splits, T *__restrict__ dw, u32 sharers,            \
                                      const T *__restrict__ bias_g, const T *__restrict__ bias_y,                      \
                                      T *__restrict__ db, u64 positions, u32 tiles) {                                  \
        weight_parts<T, V, Tile>(p, g, x, parts, splits, dw, sharers,                                                  \
                                 BiasGrad<T>{bias_g, bias_y, db, positions, p.out_channels}, tiles);                   \
    }
