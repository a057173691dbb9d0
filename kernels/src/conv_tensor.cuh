// Convolutions as products of gathered tiles on tensor cores (sm_80 and later): bf16 and f16 with sums in f32, or f32
// rounded to tf32.
//
// A block computes a tile of the result by the pipeline of common/tensor_tile.cuh, in units of its chunks of 16 bytes
// (8 elements, or 4 of tf32): a chunk is inside as a whole or not at all. One whose tap lies outside of the image is filled
// with zeros by the copy itself.
#pragma once

#include "common/tensor_tile.cuh"
#include "conv_gather.cuh"
#include "conv_tiled.cuh"

using LargeTensorTile = TensorTile<128>;
using SmallTensorTile = TensorTile<64>;

template <typename T> constexpr int CHUNK = LANES<T>;
template <typename T> constexpr int STEP = 4 * CHUNK<T>; // inner elements of a stage

// Copies one chunk, or zeros where there is none.
template <typename T> __device__ __forceinline__ void copy_chunk(u32 to, const T *from, const T *operand) {
    cp_async<16>(to, from != nullptr ? from : operand, from != nullptr ? 16 : 0);
}

// Left operand of forward and data gradient: rows are positions.
template <typename T, bool DATA, typename Tile> struct TensorRows {
    using Layout = OperandTile<T, true, Tile>;
    const Gather<DATA> &g;
    const T *source;
    Row<T> row[2];
    Inner k;

    __device__ __forceinline__ TensorRows(const Gather<DATA> &g, const T *__restrict__ source, u64 first)
        : g(g), source(source),
          row{Row<T>(g, source, first + Layout::row(0)), Row<T>(g, source, first + Layout::row(1))},
          k(g, Layout::chunk() * CHUNK<T>) {}
    __device__ __forceinline__ void copy(u32 stage, int) {
#pragma unroll
        for (int i = 0; i < 2; ++i) copy_chunk(stage + Layout::place(i), row[i].at(g, k), source);
        k.advance(g, STEP<T>);
    }
};

// Right operand of forward: columns are output channels.
template <typename T, typename Tile> struct TensorOutputs {
    using Layout = OperandTile<T, true, Tile>;
    const T *operand, *w[2];
    bool inside[2];

    __device__ __forceinline__ TensorOutputs(const ConvParams &p, const Gather<false> &g, const T *__restrict__ operand,
                                             u32 first)
        : operand(operand) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32 c = first + Layout::row(i);
            inside[i] = c < group_out(p);
            w[i] = operand + ((u64)g.group * group_out(p) + c) * g.depth + Layout::chunk() * CHUNK<T>;
        }
    }
    __device__ __forceinline__ void copy(u32 stage, int count) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            bool there = inside[i] && Layout::chunk() * CHUNK<T> < count;
            copy_chunk(stage + Layout::place(i), there ? w[i] : nullptr, operand);
            w[i] += STEP<T>;
        }
    }
};

// Right operand of the data gradient: columns are input channels.
template <typename T, typename Tile> struct TensorInputs {
    using Layout = OperandTile<T, false, Tile>;
    const ConvParams &p;
    const Gather<true> &g;
    const T *w;
    Inner k[2];
    int c;

    __device__ __forceinline__ TensorInputs(const ConvParams &p, const Gather<true> &g, const T *__restrict__ w,
                                            u32 first)
        : p(p), g(g), w(w), k{Inner(g, Layout::row(0)), Inner(g, Layout::row(1))},
          c((int)first + Layout::chunk() * CHUNK<T>) {}
    __device__ __forceinline__ void copy(u32 stage, int count) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            bool inside = Layout::row(i) < count && c < (int)group_in(p);
            u64 line = ((u64)g.group * g.per + k[i].c) * taps_of(p) + k[i].tap(p, g);
            copy_chunk(stage + Layout::place(i), inside ? w + line * group_in(p) + c : nullptr, w);
            k[i].advance(g, STEP<T>);
        }
    }
};

// Left operand of the weight gradient: rows are output channels.
template <typename T, typename Tile> struct TensorGrads {
    using Layout = OperandTile<T, false, Tile>;
    const T *operand, *g;
    u64 channels;
    bool inside;

    __device__ __forceinline__ TensorGrads(const ConvParams &p, const T *__restrict__ operand, u32 group, u32 first,
                                           u64 from)
        : operand(operand), channels(p.out_channels) {
        u32 c = first + Layout::chunk() * CHUNK<T>;
        inside = c < group_out(p);
        g = operand + (from + Layout::row(0)) * channels + (u64)group * group_out(p) + c;
    }
    __device__ __forceinline__ void copy(u32 stage, int count) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            bool there = inside && Layout::row(i) < count;
            copy_chunk(stage + Layout::place(i), there ? g + i * Layout::APART * channels : nullptr, operand);
        }
        g += STEP<T> * channels;
    }
};

// Right operand of the weight gradient: columns are (tap, input channel).
template <typename T, typename Tile> struct TensorTaps {
    using Layout = OperandTile<T, false, Tile>;
    const ConvParams &p;
    const T *x;
    Positions o[2];
    int d, h, w, c; // source of window 0, and channel; c < 0: no column

    __device__ __forceinline__ TensorTaps(const ConvParams &p, const T *__restrict__ x, u32 group, u32 first, u64 from)
        : p(p), x(x), o{Positions(p, from + Layout::row(0)), Positions(p, from + Layout::row(1))} {
        u32 per = group_in(p), n = first + Layout::chunk() * CHUNK<T>, channel;
        bool inside = n < taps_of(p) * per;
        Position tap = position_of(split(inside ? n : 0, per, channel), p.kernel);
        d = (int)tap.at[0] * (int)p.dilation[0] - (int)p.padding[0];
        h = (int)tap.at[1] * (int)p.dilation[1] - (int)p.padding[1];
        w = (int)tap.at[2] * (int)p.dilation[2] - (int)p.padding[2];
        c = inside ? (int)(group * per + channel) : -1;
    }
    __device__ __forceinline__ void copy(u32 stage, int count) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int sd = o[i].d * (int)p.stride[0] + d, sh = o[i].h * (int)p.stride[1] + h,
                sw = o[i].w * (int)p.stride[2] + w;
            bool inside = c >= 0 && Layout::row(i) < count && (u32)sd < p.input[0] && (u32)sh < p.input[1] &&
                          (u32)sw < p.input[2];
            u64 q = o[i].image * volume(p.input) + ((u32)sd * p.input[1] + (u32)sh) * p.input[2] + (u32)sw;
            copy_chunk(stage + Layout::place(i), inside ? x + q * p.in_channels + c : nullptr, x);
            o[i].advance(p, STEP<T>);
        }
    }
};

// sums += A·B over `depth` inner elements.
template <typename T, typename Tile, typename A, typename B>
__device__ __forceinline__ void gathered_product(A &a, B &b, i64 depth, typename Tile::Sums &sums) {
    __shared__ __align__(1024) unsigned char memory[Tile::BYTES];
    using LayoutA = typename A::Layout;
    tensor_product<T, LayoutA, typename B::Layout, Tile>(
        shared_address(memory), depth,
        [&](u32 stage, int count) {
            a.copy(stage, count);
            b.copy(stage + LayoutA::BYTES, count);
        },
        sums);
}

// Calls f(row, column, sums of the row, half) for the pairs of neighbouring results of this thread, counted within the
// tile: those of a row are sums[n][half] and sums[n][half + 1] in columns column + 8n and the next.
template <typename Tile, typename F>
__device__ __forceinline__ void each_row(const typename Tile::Sums &sums, F &&f) {
    int lane = threadIdx.x % 32;
    int row = Tile::row() + lane / 4, column = Tile::column() + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < Tile::MS; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) f(row + 16 * m + 8 * half, column, sums[m], 2 * half);
}

// Forward (DATA false: source x, result y) and data gradient (DATA true: source g, result dx). The result's channels
// per group are even.
template <typename T, bool DATA, typename Tile>
__device__ __forceinline__ void tensor_gathered(const ConvParams &p, const T *__restrict__ source,
                                                const T *__restrict__ w, const T *__restrict__ bias,
                                                T *__restrict__ result) {
    Gather<DATA> g(p, blockIdx.z);
    u64 first = (u64)blockIdx.x * Tile::SIDE;
    if (first >= g.rows) return; // classes of remainders differ in size
    u32 columns = blockIdx.y * Tile::SIDE;
    TensorRows<T, DATA, Tile> a(g, source, first);
    typename Tile::Sums sums = {};
    if constexpr (DATA) {
        TensorInputs<T, Tile> b(p, g, w, columns);
        gathered_product<T, Tile>(a, b, g.depth, sums);
    } else {
        TensorOutputs<T, Tile> b(p, g, w, columns);
        gathered_product<T, Tile>(a, b, g.depth, sums);
    }
    u32 per = DATA ? group_in(p) : group_out(p), channels = DATA ? p.in_channels : p.out_channels;
    each_row<Tile>(sums, [&](int line, int column, const float (&row)[2 * Tile::NS][4], int half) {
        if (first + line >= g.rows) return;
        T *to = result + g.target(p, first + line) * channels + (u64)g.group * per;
#pragma unroll
        for (int n = 0; n < 2 * Tile::NS; ++n) {
            u32 c = columns + column + 8 * n;
            if (c >= per) continue;
            Few<T, 2> out;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float sum = row[n][half + i];
                out.v[i] = DATA ? from_acc<T>(sum) : finish(p, bias, g.group * per + c + i, sum);
            }
            *reinterpret_cast<Few<T, 2> *>(to + c) = out;
        }
    });
}

// The weight gradient's sums over the positions of one split.
template <typename T, typename Tile>
__device__ __forceinline__ void tensor_weight_parts(const ConvParams &p, const T *__restrict__ grad,
                                                    const T *__restrict__ x, f32 *__restrict__ parts, u32 splits) {
    u32 group = blockIdx.z / splits, part = blockIdx.z % splits;
    u64 positions = p.batch * volume(p.output), share = (positions + splits - 1) / splits;
    u64 from = min(part * share, positions), to = min(from + share, positions);
    u32 first = blockIdx.y * Tile::SIDE, left = blockIdx.x * Tile::SIDE, columns = taps_of(p) * group_in(p);
    typename Tile::Sums sums = {};
    if (from < to) {
        TensorGrads<T, Tile> a(p, grad, group, first, from);
        TensorTaps<T, Tile> b(p, x, group, left, from);
        gathered_product<T, Tile>(a, b, (i64)(to - from), sums);
    }
    parts += (u64)part * p.out_channels * columns;
    each_row<Tile>(sums, [&](int line, int column, const float (&row)[2 * Tile::NS][4], int half) {
        u32 c = first + line;
        if (c >= group_out(p)) return;
        f32 *to = parts + (u64)(group * group_out(p) + c) * columns;
#pragma unroll
        for (int n = 0; n < 2 * Tile::NS; ++n) {
            u32 at = left + column + 8 * n;
            if (at < columns) *reinterpret_cast<float2 *>(to + at) = make_float2(row[n][half], row[n][half + 1]);
        }
    });
}

// The kernels of a dtype: convolution and its gradients as products of gathered tiles on tensor cores. Sums in f32,
// one rounding.
//
// Contract: channels per group are multiples of 8 (of 4 in tf32), in and out; the forward op needs that of the input
// only, and even output channels per group. The bounds of conv_gather.cuh hold. The weight gradient writes the sum of
// its split s to parts[s·|dw|], in f32; conv_sum_parts adds them in order.
//
// Geometry: `_large` tiles of 128 × 128 by 256 threads, others of 64 × 64 by 128. Forward and data gradient:
// x ⌈rows / tile⌉, y ⌈columns / tile⌉, z groups, times stride³ classes for the data gradient with the rows of the
// largest.
// Weight gradient: x ⌈taps·C/groups / tile⌉, y ⌈O/groups / tile⌉, z groups·splits.
#define CONV_TENSOR(name, T, Tile)                                                                                     \
    extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::SIDE == 128 ? 2 : 5)                             \
        conv_tensor##name(ConvParams p, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ bias,  \
                          T *__restrict__ y) {                                                                         \
        tensor_gathered<T, false, Tile>(p, x, w, bias, y);                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(Tile::THREADS)                                                        \
        conv_tensor_data_grad##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ w,                    \
                                    T *__restrict__ dx) {                                                              \
        tensor_gathered<T, true, Tile>(p, g, w, nullptr, dx);                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::SIDE == 128 ? 2 : 5)                             \
        conv_tensor_weight_parts##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ x,                 \
                                       f32 *__restrict__ parts, u32 splits) {                                          \
        tensor_weight_parts<T, Tile>(p, g, x, parts, splits);                                                          \
    }
