// Convolutions as products of gathered tiles on tensor cores (sm_80 and later): bf16 and f16 with sums in f32, or f32
// rounded to tf32.
//
// Everything is counted in chunks of 16 bytes: CHUNK = 8 or 4 elements. A step of the inner dimension is four chunks'
// worth of elements (32 or 16), an mma takes two. Tiles travel from global to shared memory by cp.async, three stages
// deep; a chunk whose tap lies outside the image is filled with zeros by the copy itself. Two layouts of a tile in
// shared memory, as the operand lies in memory:
//
//   along the inner dimension:  [line][4 chunks],      chunk c of line l at place c ^ (l/2 % 4)
//   along the lines:            [inner][lines/CHUNK],  chunk c of inner k at place c ^ (k % 8), tf32: c ^ 2·(k % 4)
//
// The exclusive ors spread what one ldmatrix (or, for tf32 along the lines, one load of a warp) reads over all banks.
//
// A block has WARPS_M × WARPS_N warps; each owns a part of the tile of 16·MT × 8·NT results.
#pragma once

#include "common/cp_async.cuh"
#include "common/mma.cuh"
#include "conv_gather.cuh"
#include "conv_tiled.cuh"

template <int LINES_, int WARPS_M_, int WARPS_N_> struct TensorTile {
    static constexpr int LINES = LINES_; // rows and columns
    static constexpr int WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, THREADS = 32 * WARPS_M * WARPS_N;
    static constexpr int MT = LINES / WARPS_M / 16, NT = LINES / WARPS_N / 8;
    static constexpr int STAGES = 3, STAGE = LINES * 64; // bytes of one operand
    static_assert(LINES * 4 == 2 * THREADS && NT % 2 == 0, "two chunks a thread, columns by pairs of mma");
};
using LargeTensorTile = TensorTile<128, 2, 4>;
using SmallTensorTile = TensorTile<64, 2, 2>;

template <typename T> constexpr int CHUNK = LANES<T>;
template <typename T> constexpr int STEP = 4 * CHUNK<T>; // inner elements of a stage
template <typename T> constexpr bool IS_F32 = sizeof(T) == 4;

// A tile along the inner dimension.
template <typename T, typename Tile> struct AlongInner {
    static constexpr int LINE_STEP = Tile::THREADS / 4;
    // What a thread copies: chunk `chunk()` of lines `line(0)` and `line(1)`.
    static __device__ __forceinline__ int line(int i) { return threadIdx.x / 4 + i * LINE_STEP; }
    static __device__ __forceinline__ int chunk() { return threadIdx.x % 4; }
    static __device__ __forceinline__ u32 place(int line, int chunk) {
        return (u32)((line * 4 + (chunk ^ (line / 2 % 4))) * 16);
    }
    static __device__ __forceinline__ u32 place(int i) { return place(line(i), chunk()); }

    // The operands of rows `line` … + 16 at inner chunks 2·half, 2·half + 1.
    static __device__ __forceinline__ void rows(u32 tile, int line, int half, u32 (&a)[4]) {
        int lane = threadIdx.x % 32;
        ldmatrix(a, tile + place(line + lane % 16, 2 * half + lane / 16));
        round(a);
    }
    // The operands of columns `line` … + 8 and `line` + 8 … + 16.
    static __device__ __forceinline__ void columns(u32 tile, int line, int half, u32 (&b)[4]) {
        int lane = threadIdx.x % 32;
        ldmatrix(b, tile + place(line + lane % 8 + 8 * (lane / 16), 2 * half + lane / 8 % 2));
        round(b);
    }
    static __device__ __forceinline__ void round(u32 (&r)[4]) {
        if constexpr (IS_F32<T>) {
#pragma unroll
            for (int i = 0; i < 4; ++i) r[i] = tf32(r[i]);
        }
    }
};

// A tile along the lines.
template <typename T, typename Tile> struct AlongLines {
    static constexpr int CHUNKS = Tile::LINES / CHUNK<T>, K_STEP = Tile::THREADS / CHUNKS;
    static_assert(2 * K_STEP == STEP<T>, "two chunks a thread");
    // What a thread copies: chunk `chunk()` of inner elements `k(0)` and `k(1)`.
    static __device__ __forceinline__ int k(int i) { return (int)threadIdx.x / CHUNKS + i * K_STEP; }
    static __device__ __forceinline__ int chunk() { return threadIdx.x % CHUNKS; }
    static __device__ __forceinline__ u32 place(int k, int chunk) {
        return (u32)((k * CHUNKS + (chunk ^ (IS_F32<T> ? 2 * (k % 4) : k % 8))) * 16);
    }
    static __device__ __forceinline__ u32 place(int i) { return place(k(i), chunk()); }

    static __device__ __forceinline__ u32 element(u32 tile, int k, int line) {
        u32 value;
        u32 from = tile + place(k, line / 4) + line % 4 * 4;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
        return tf32(value);
    }
    static __device__ __forceinline__ void rows(u32 tile, int line, int half, u32 (&a)[4]) {
        int lane = threadIdx.x % 32;
        if constexpr (IS_F32<T>) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                a[i] = element(tile, 8 * half + lane % 4 + 4 * (i / 2), line + lane / 4 + 8 * (i % 2));
        } else {
            ldmatrix_trans(a, tile + place(16 * half + lane % 8 + 8 * (lane / 16), line / 8 + lane / 8 % 2));
        }
    }
    static __device__ __forceinline__ void columns(u32 tile, int line, int half, u32 (&b)[4]) {
        int lane = threadIdx.x % 32;
        if constexpr (IS_F32<T>) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                b[i] = element(tile, 8 * half + lane % 4 + 4 * (i % 2), line + lane / 4 + 8 * (i / 2));
        } else {
            ldmatrix_trans(b, tile + place(16 * half + lane % 16, line / 8 + lane / 16));
        }
    }
};

template <typename T> __device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (IS_F32<T>) {
        mma_tf32(c, a, b);
    } else {
        mma<T>(c, a, b);
    }
}

// sums += A·B over `steps` stages. `copy(tile)` of an operand queues this thread's two chunks of the next stage.
template <typename T, typename Tile, typename A, typename B>
__device__ __forceinline__ void tensor_product(A &a, B &b, int steps, float (&sums)[Tile::MT][Tile::NT][4]) {
    __shared__ __align__(128) unsigned char memory[2 * Tile::STAGES * Tile::STAGE];
    u32 as = shared_address(memory), bs = as + Tile::STAGES * Tile::STAGE;
    int warp = threadIdx.x / 32;
    int row = warp % Tile::WARPS_M * (16 * Tile::MT), column = warp / Tile::WARPS_M * (8 * Tile::NT);
#pragma unroll
    for (int s = 0; s < Tile::STAGES - 1; ++s) {
        if (s < steps) {
            a.copy(as + s * Tile::STAGE);
            b.copy(bs + s * Tile::STAGE);
        }
        cp_async_commit();
    }
    for (int step = 0, now = 0, next = Tile::STAGES - 1; step < steps; ++step) {
        cp_async_wait<Tile::STAGES - 2>();
        __syncthreads();
        if (step + Tile::STAGES - 1 < steps) {
            a.copy(as + next * Tile::STAGE);
            b.copy(bs + next * Tile::STAGE);
        }
        cp_async_commit();
        u32 at = as + now * Tile::STAGE, bt = bs + now * Tile::STAGE;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            u32 ra[Tile::MT][4], rb[Tile::NT][2];
#pragma unroll
            for (int m = 0; m < Tile::MT; ++m) A::Layout::rows(at, row + 16 * m, half, ra[m]);
#pragma unroll
            for (int n = 0; n < Tile::NT; n += 2) {
                u32 pair[4];
                B::Layout::columns(bt, column + 8 * n, half, pair);
                rb[n][0] = pair[0], rb[n][1] = pair[1], rb[n + 1][0] = pair[2], rb[n + 1][1] = pair[3];
            }
#pragma unroll
            for (int m = 0; m < Tile::MT; ++m)
#pragma unroll
                for (int n = 0; n < Tile::NT; ++n) multiply<T>(sums[m][n], ra[m], rb[n]);
        }
        now = now + 1 < Tile::STAGES ? now + 1 : 0;
        next = next + 1 < Tile::STAGES ? next + 1 : 0;
    }
}

// Copies one chunk, or zeros where there is none.
template <typename T> __device__ __forceinline__ void copy_chunk(u32 to, const T *from, const T *operand) {
    cp_async<16>(to, from != nullptr ? from : operand, from != nullptr ? 16 : 0);
}

// Left operand of forward and data gradient: rows are positions.
template <typename T, bool DATA, typename Tile> struct TensorRows {
    using Layout = AlongInner<T, Tile>;
    const Gather<DATA> &g;
    const T *source;
    Row<T> row[2];
    Inner k;

    __device__ __forceinline__ TensorRows(const Gather<DATA> &g, const T *__restrict__ source, u64 first)
        : g(g), source(source),
          row{Row<T>(g, source, first + Layout::line(0)), Row<T>(g, source, first + Layout::line(1))},
          k(g, Layout::chunk() * CHUNK<T>) {}
    __device__ __forceinline__ void copy(u32 tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) copy_chunk(tile + Layout::place(i), row[i].at(g, k), source);
        k.advance(g, STEP<T>);
    }
};

// Right operand of forward: columns are output channels.
template <typename T, typename Tile> struct TensorOutputs {
    using Layout = AlongInner<T, Tile>;
    const T *operand, *w[2];
    int k, depth[2];

    __device__ __forceinline__ TensorOutputs(const ConvParams &p, const Gather<false> &g, const T *__restrict__ operand,
                                             u32 first)
        : operand(operand), k(Layout::chunk() * CHUNK<T>) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32 c = first + Layout::line(i);
            depth[i] = c < group_out(p) ? g.depth : 0;
            w[i] = operand + ((u64)g.group * group_out(p) + c) * g.depth;
        }
    }
    __device__ __forceinline__ void copy(u32 tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) copy_chunk(tile + Layout::place(i), k < depth[i] ? w[i] + k : nullptr, operand);
        k += STEP<T>;
    }
};

// Right operand of the data gradient: columns are input channels.
template <typename T, typename Tile> struct TensorInputs {
    using Layout = AlongLines<T, Tile>;
    const ConvParams &p;
    const Gather<true> &g;
    const T *w;
    Inner k[2];
    int c;

    __device__ __forceinline__ TensorInputs(const ConvParams &p, const Gather<true> &g, const T *__restrict__ w,
                                            u32 first)
        : p(p), g(g), w(w), k{Inner(g, Layout::k(0)), Inner(g, Layout::k(1))},
          c((int)first + Layout::chunk() * CHUNK<T>) {}
    __device__ __forceinline__ void copy(u32 tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            bool inside = k[i].d < g.d.taps && c < (int)group_in(p);
            u64 line = ((u64)g.group * g.per + k[i].c) * taps_of(p) + k[i].tap(p, g);
            copy_chunk(tile + Layout::place(i), inside ? w + line * group_in(p) + c : nullptr, w);
            k[i].advance(g, STEP<T>);
        }
    }
};

// Left operand of the weight gradient: rows are output channels.
template <typename T, typename Tile> struct TensorGrads {
    using Layout = AlongLines<T, Tile>;
    const T *operand, *g;
    u64 channels;
    i64 left; // positions from k(0) on
    bool inside;

    __device__ __forceinline__ TensorGrads(const ConvParams &p, const T *__restrict__ operand, u32 group, u32 first,
                                           u64 from, u64 to)
        : operand(operand), channels(p.out_channels) {
        u32 c = first + Layout::chunk() * CHUNK<T>;
        inside = c < group_out(p);
        left = (i64)to - (i64)from - Layout::k(0);
        g = operand + (from + Layout::k(0)) * channels + (u64)group * group_out(p) + c;
    }
    __device__ __forceinline__ void copy(u32 tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int skip = i * Layout::K_STEP;
            copy_chunk(tile + Layout::place(i), inside && left > skip ? g + skip * channels : nullptr, operand);
        }
        left -= STEP<T>;
        g += STEP<T> * channels;
    }
};

// Right operand of the weight gradient: columns are (tap, input channel).
template <typename T, typename Tile> struct TensorTaps {
    using Layout = AlongLines<T, Tile>;
    const ConvParams &p;
    const T *x;
    Positions o[2];
    i64 left;
    int d, h, w, c; // source of window 0, and channel; c < 0: no column

    __device__ __forceinline__ TensorTaps(const ConvParams &p, const T *__restrict__ x, u32 group, u32 first, u64 from,
                                          u64 to)
        : p(p), x(x), o{Positions(p, from + Layout::k(0)), Positions(p, from + Layout::k(1))} {
        u32 per = group_in(p), n = first + Layout::chunk() * CHUNK<T>, channel;
        bool inside = n < taps_of(p) * per;
        Position tap = position_of(split(inside ? n : 0, per, channel), p.kernel);
        d = (int)tap.at[0] * (int)p.dilation[0] - (int)p.padding[0];
        h = (int)tap.at[1] * (int)p.dilation[1] - (int)p.padding[1];
        w = (int)tap.at[2] * (int)p.dilation[2] - (int)p.padding[2];
        c = inside ? (int)(group * per + channel) : -1;
        left = (i64)to - (i64)from - Layout::k(0);
    }
    __device__ __forceinline__ void copy(u32 tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int sd = o[i].d * (int)p.stride[0] + d, sh = o[i].h * (int)p.stride[1] + h,
                sw = o[i].w * (int)p.stride[2] + w;
            bool inside = c >= 0 && left > i * Layout::K_STEP && (u32)sd < p.input[0] && (u32)sh < p.input[1] &&
                          (u32)sw < p.input[2];
            u64 q = o[i].image * volume(p.input) + ((u32)sd * p.input[1] + (u32)sh) * p.input[2] + (u32)sw;
            copy_chunk(tile + Layout::place(i), inside ? x + q * p.in_channels + c : nullptr, x);
            o[i].advance(p, STEP<T>);
        }
        left -= STEP<T>;
    }
};

// Calls f(row, column, a, b) for each pair of neighbouring results of this thread, counted within the tile.
template <typename Tile, typename F>
__device__ __forceinline__ void each_pair(const float (&sums)[Tile::MT][Tile::NT][4], F &&f) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = warp % Tile::WARPS_M * (16 * Tile::MT) + lane / 4;
    int column = warp / Tile::WARPS_M * (8 * Tile::NT) + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < Tile::MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            f(row + 16 * m + 8 * half, column, sums[m], 2 * half);
}

// Forward (DATA false: source x, result y) and data gradient (DATA true: source g, result dx). The result's channels
// per group are even.
template <typename T, bool DATA, typename Tile>
__device__ __forceinline__ void tensor_gathered(const ConvParams &p, const T *__restrict__ source,
                                                const T *__restrict__ w, const T *__restrict__ bias,
                                                T *__restrict__ result) {
    Gather<DATA> g(p, blockIdx.z);
    u64 first = (u64)blockIdx.x * Tile::LINES;
    if (first >= g.rows) return; // classes of remainders differ in size
    u32 columns = blockIdx.y * Tile::LINES;
    TensorRows<T, DATA, Tile> a(g, source, first);
    float sums[Tile::MT][Tile::NT][4] = {};
    int steps = (g.depth + STEP<T> - 1) / STEP<T>;
    if constexpr (DATA) {
        TensorInputs<T, Tile> b(p, g, w, columns);
        tensor_product<T, Tile>(a, b, steps, sums);
    } else {
        TensorOutputs<T, Tile> b(p, g, w, columns);
        tensor_product<T, Tile>(a, b, steps, sums);
    }
    u32 per = DATA ? group_in(p) : group_out(p), channels = DATA ? p.in_channels : p.out_channels;
    each_pair<Tile>(sums, [&](int line, int column, const float (&row)[Tile::NT][4], int half) {
        if (first + line >= g.rows) return;
        T *to = result + g.target(p, first + line) * channels + (u64)g.group * per;
#pragma unroll
        for (int n = 0; n < Tile::NT; ++n) {
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
    u32 first = blockIdx.y * Tile::LINES, left = blockIdx.x * Tile::LINES, columns = taps_of(p) * group_in(p);
    float sums[Tile::MT][Tile::NT][4] = {};
    if (from < to) {
        TensorGrads<T, Tile> a(p, grad, group, first, from, to);
        TensorTaps<T, Tile> b(p, x, group, left, from, to);
        tensor_product<T, Tile>(a, b, (int)((to - from + STEP<T> - 1) / STEP<T>), sums);
    }
    parts += (u64)part * p.out_channels * columns;
    each_pair<Tile>(sums, [&](int line, int column, const float (&row)[Tile::NT][4], int half) {
        u32 c = first + line;
        if (c >= group_out(p)) return;
        f32 *to = parts + (u64)(group * group_out(p) + c) * columns;
#pragma unroll
        for (int n = 0; n < Tile::NT; ++n) {
            u32 at = left + column + 8 * n;
            if (at < columns) *reinterpret_cast<float2 *>(to + at) = make_float2(row[n][half], row[n][half + 1]);
        }
    });
}

// The kernels of a dtype: convolution and its gradients as products of gathered tiles on tensor cores. Sums in f32,
// one rounding.
//
// Contract: channels per group are multiples of 8 (of 4 in tf32), in and out; the forward op needs that of the input
// only, and even output channels per group. The bounds of conv_gather.cuh hold. The weight gradient writes the sum of its split s to
// parts[s·|dw|], in f32; conv_sum_parts adds them in order.
//
// Geometry: `_large` tiles of 128 × 128 by 256 threads, others of 64 × 64 by 128. Forward and data gradient:
// x ⌈rows / tile⌉, y ⌈columns / tile⌉, z groups, times stride³ classes for the data gradient with the rows of the
// largest.
// Weight gradient: x ⌈taps·C/groups / tile⌉, y ⌈O/groups / tile⌉, z groups·splits.
#define CONV_TENSOR(name, T, Tile)                                                                                     \
    extern "C" __global__ void __launch_bounds__(Tile::THREADS)                                                        \
        conv_tensor##name(ConvParams p, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ bias,  \
                          T *__restrict__ y) {                                                                         \
        tensor_gathered<T, false, Tile>(p, x, w, bias, y);                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(Tile::THREADS)                                                        \
        conv_tensor_data_grad##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ w,                    \
                                    T *__restrict__ dx) {                                                              \
        tensor_gathered<T, true, Tile>(p, g, w, nullptr, dx);                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(Tile::THREADS)                                                        \
        conv_tensor_weight_parts##name(ConvParams p, const T *__restrict__ g, const T *__restrict__ x,                 \
                                       f32 *__restrict__ parts, u32 splits) {                                          \
        tensor_weight_parts<T, Tile>(p, g, x, parts, splits);                                                          \
    }
