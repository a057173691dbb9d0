// Convolutions as products of gathered tiles on tensor cores (sm_80 and later): bf16 and f16 with sums in f32, or f32
// rounded to tf32.
//
// A block computes a tile of the result by the pipeline of common/tensor_tile.cuh, in units of its chunks of 16 bytes
// (8 elements, or 4 of tf32): a chunk is inside as a whole or not at all. One whose tap lies outside of the image is filled
// with zeros by the copy itself. What a tap adds to an address is the same for all rows, so a copy is an addition and a
// comparison of bits; positions are taken apart once, before the loop.
#pragma once

#include "common/tensor_tile.cuh"
#include "conv_gather.cuh"
#include "conv_moments.cuh"
#include "conv_norm.cuh"
#include "conv_tiled.cuh"

template <typename T> constexpr int CHUNK = LANES<T>;

// Most taps of a window in one dimension (kiln_cuda's `TENSOR_TAPS`): those inside of the image are bits of a word.
constexpr int MOST_TAPS = 9;

// Where the inner elements of a stage come from, of which there are STEP: a tap of the window, and from which of its channels on. It moves
// with the stages.
template <typename T, bool DATA, int STEP> struct Taps {
    Inner k;
    u32 bits;   // one for each dimension's tap
    bool whole; // else there are 8 bytes of a chunk
    i64 offset; // bytes from where tap 0 reads channel 0 to where this one reads

    __device__ __forceinline__ Taps(const Gather<DATA> &g, int chunk) : k(g, chunk * CHUNK<T>) { read(g); }
    __device__ __forceinline__ void read(const Gather<DATA> &g) {
        whole = k.w != g.w.taps - 1 || !g.half;
        bits = 1u << min(k.d, MOST_TAPS) | 1024u << k.h | 1048576u << k.w;
        int line = (k.d * g.d.tap_step * g.h.size + k.h * g.h.tap_step) * g.w.size + k.w * g.w.tap_step;
        offset = ((i64)line * g.channels + k.c) * (i64)sizeof(T);
    }
    // True if the tap is another one now.
    __device__ __forceinline__ bool advance(const Gather<DATA> &g) {
        k.c += STEP;
        offset += STEP * sizeof(T);
        if (k.c < (int)g.per) return false;
        k.advance(g, 0);
        read(g);
        return true;
    }
};

// Left operand of forward and data gradient: rows are positions. HALF: of some chunks there are 8 bytes.
template <typename T, bool DATA, bool HALF, typename Tile> struct TensorRows {
    using Layout = OperandTile<T, true, false, Tile>;
    const Gather<DATA> &g;
    u64 source[Layout::COPIES]; // address that tap 0 reads, which may lie outside
    u32 inside[Layout::COPIES]; // a bit for each tap of each dimension
    Taps<T, DATA, Layout::DEPTH> taps;

    __device__ __forceinline__ TensorRows(const Gather<DATA> &g, const T *__restrict__ source, u64 first)
        : g(g), taps(g, Layout::chunk()) {
#pragma unroll
        for (int i = 0; i < Layout::COPIES; ++i) {
            Row<T> row(g, source, first + Layout::row(i));
            i64 line = (row.d * g.h.size + row.h) * g.w.size + row.w;
            this->source[i] = (u64)row.image + (u64)(line * g.channels) * sizeof(T);
            inside[i] = row.valid ? within(g.d, row.d) | within(g.h, row.h) << 10 | within(g.w, row.w) << 20 : 0;
        }
    }
    // A bit for each tap that reads inside of the image when tap 0 reads `at`.
    static __device__ __forceinline__ u32 within(const Axis &axis, int at) {
        u32 bits = 0;
        for (int t = 0; t < axis.taps; ++t) bits |= (u32)((u32)(at + t * axis.tap_step) < (u32)axis.size) << t;
        return bits;
    }
    // The chunks, of which there are BYTES each.
    template <int BYTES> __device__ __forceinline__ void chunks(u32 stage) {
#pragma unroll
        for (int i = 0; i < Layout::COPIES; ++i) {
            bool there = (inside[i] & taps.bits) == taps.bits;
            cp_async<16>(stage + Layout::place(i), (const void *)(source[i] + taps.offset), there ? BYTES : 0);
        }
    }
    __device__ __forceinline__ void copy(u32 stage, int) {
        if (!HALF || taps.whole) chunks<16>(stage);
        else chunks<8>(stage);
        taps.advance(g);
    }
};

// Right operand of the data gradient: columns are input channels, and a stage is output channels of one tap.
template <typename T, typename Tile> struct TensorInputs {
    using Layout = OperandTile<T, false, true, Tile>;
    const ConvParams &p;
    const Gather<true> &g;
    const T *w, *from; // this thread's first chunk of the next stage
    u32 line;          // elements from an output channel to the next
    Inner k;           // of the stage
    bool there;

    __device__ __forceinline__ TensorInputs(const ConvParams &p, const Gather<true> &g, const T *__restrict__ w,
                                            u32 first)
        : p(p), g(g), line(taps_of(p) * group_in(p)), k(g, 0) {
        u32 c = first + Layout::chunk() * CHUNK<T>;
        there = c < group_in(p);
        this->w = w + ((u64)g.group * g.per + Layout::row(0)) * line + c;
        read();
    }
    __device__ __forceinline__ void read() { from = w + (u64)(u32)k.c * line + (u64)k.tap(p, g) * group_in(p); }
    __device__ __forceinline__ void copy(u32 stage, int) {
#pragma unroll
        for (int i = 0; i < Layout::COPIES; ++i) {
            cp_async<16>(stage + Layout::place(i), from, there ? 16 : 0);
            from += (u64)Layout::APART * line;
        }
        k.c += Layout::DEPTH;
        if (k.c == (int)g.per) {
            k.advance(g, 0);
            read();
        }
    }
};

// The same where a stage may be of several taps.
template <typename T, typename Tile> struct TensorInputsOfTaps {
    using Layout = OperandTile<T, false, true, Tile>;
    const ConvParams &p;
    const Gather<true> &g;
    const T *w;
    Inner k;
    int c;

    __device__ __forceinline__ TensorInputsOfTaps(const ConvParams &p, const Gather<true> &g, const T *__restrict__ w,
                                                  u32 first)
        : p(p), g(g), w(w), k(g, Layout::row(0)), c((int)first + Layout::chunk() * CHUNK<T>) {}
    __device__ __forceinline__ void copy(u32 stage, int count) {
#pragma unroll
        for (int i = 0; i < Layout::COPIES; ++i) {
            bool inside = Layout::row(i) < count && c < (int)group_in(p);
            u64 line = ((u64)g.group * g.per + k.c) * taps_of(p) + k.tap(p, g);
            cp_async<16>(stage + Layout::place(i), w + line * group_in(p) + c, inside ? 16 : 0);
            k.advance(g, Layout::APART);
        }
    }
};

// Right operand of the weight gradient: columns are (tap, input channel). From one row of a stage to the next, the place moves by additions,
// over the ends of lines too, without a branch. Where a plane of the result ends within a stage, a loop copies its rows one by one.
template <typename T, typename Tile> struct TensorTaps {
    using Layout = OperandTile<T, false, true, Tile>;
    const ConvParams &p;
    u64 image, plane;   // addresses of this column in an image's first position, and in that of the plane which is read
    int height;         // lines of that plane, none if it is outside
    int h, w;           // what is read there
    int h_end, w_last;  // h behind the last window, and w from which on APART windows more are over the end of a line
    int dh, dw, dw_end; // what those add to h, and to w within a line and over its end
    int at, d, d_first; // place in a plane of the result, that plane, and what its first one reads
    bool there;

    __device__ __forceinline__ TensorTaps(const ConvParams &p, const T *__restrict__ x, u32 group, u32 first, u64 from) : p(p) {
        u32 per = group_in(p), n = first + Layout::chunk() * CHUNK<T>, channel, rest;
        there = n < taps_of(p) * per;
        const Position tap = position_of(split(there ? n : 0, per, channel), p.kernel);
        const Position o = position_of(from + Layout::row(0), p.output);
        const int h_first = (int)tap.at[1] * (int)p.dilation[1] - (int)p.padding[1];
        const int w_first = (int)tap.at[2] * (int)p.dilation[2] - (int)p.padding[2];
        d_first = (int)tap.at[0] * (int)p.dilation[0] - (int)p.padding[0];
        d = (int)o.at[0];
        h = h_first + (int)(o.at[1] * p.stride[1]), h_end = h_first + (int)(p.output[1] * p.stride[1]);
        w = w_first + (int)(o.at[2] * p.stride[2]);
        at = (int)(o.at[1] * p.output[2] + o.at[2]);
        dh = (int)split(Layout::APART, p.output[2], rest) * (int)p.stride[1];
        dw = (int)(rest * p.stride[2]);
        w_last = w_first + (int)(p.output[2] * p.stride[2]) - dw;
        dw_end = dw - (int)(p.output[2] * p.stride[2]);
        asm("" : "+r"(dw), "+r"(dw_end)); // and not one from the other
        image = (u64)(x + o.image * volume(p.input) * p.in_channels + group * per + channel);
        read();
    }
    // The address `positions` of the image on from another one.
    __device__ __forceinline__ u64 on(u64 from, u32 positions) const {
        return from + (u64)positions * (p.in_channels * (u32)sizeof(T));
    }
    __device__ __forceinline__ void read() {
        const int from = d * (int)p.stride[0] + d_first;
        height = there && (u32)from < p.input[0] ? (int)p.input[1] : 0;
        plane = on(image, (u32)from * p.input[1] * p.input[2]);
    }
    // Copies row i, of which there are `left` from row(0) on, and goes to the next.
    __device__ __forceinline__ void next(u32 stage, int i, int left) {
        const bool inside = i * Layout::APART < left && (u32)h < (u32)height && (u32)w < p.input[2];
        cp_async<16>(stage + Layout::place(i), (const void *)on(plane, (u32)h * p.input[2] + (u32)w), inside ? 16 : 0);
        const bool ends = w >= w_last;
        h += ends ? dh + (int)p.stride[1] : dh;
        w += ends ? dw_end : dw;
        at += Layout::APART;
    }
    // Goes to the plane that the place is in.
    __device__ __forceinline__ void planes() {
        while (h >= h_end) {
            h -= (int)(p.output[1] * p.stride[1]);
            at -= (int)(p.output[1] * p.output[2]);
            if (++d == (int)p.output[0]) {
                d = 0;
                image = on(image, p.input[0] * p.input[1] * p.input[2]);
            }
            read();
        }
    }
    __device__ __forceinline__ void copy(u32 stage, int count) {
        const int left = count - Layout::row(0);
        if (at + Layout::DEPTH - Layout::APART < (int)(p.output[1] * p.output[2])) {
#pragma unroll
            for (int i = 0; i < Layout::COPIES; ++i) next(stage, i, left);
            planes();
        } else {
#pragma unroll 1
            for (int i = 0; i < Layout::COPIES; ++i) {
                next(stage, i, left);
                planes();
            }
        }
    }
};

// sums += A·B over `depth` inner elements. `memory`: Tile::BYTES of shared memory, from a multiple of 1024 on.
template <typename T, typename Tile, typename A, typename B>
__device__ __forceinline__ void gathered_product(A &a, B &b, i64 depth, unsigned char *memory,
                                                 typename Tile::Sums &sums) {
    using LayoutA = typename A::Layout;
    tensor_product<T, LayoutA, typename B::Layout, Tile>(
        shared_address(memory), depth,
        [&](u32 stage, int count) {
            a.copy(stage, count);
            b.copy(stage + LayoutA::BYTES, count);
        },
        sums);
    __syncthreads();
}

// What all threads of a block have alike. Warp groups have it in shared memory, where their products leave a place for it: its registers are
// those of sums.
template <typename Tile, typename G> __device__ __forceinline__ const G &kept_by(const G &g, unsigned char *memory) {
    if constexpr (Tile::WARPGROUPS) {
        static_assert(sizeof(G) <= Tile::SPARE, "a place for it");
        G *to = reinterpret_cast<G *>(memory + Tile::SPARE_AT);
        if (threadIdx.x == 0) *to = g;
        __syncthreads();
        return *to;
    } else {
        return g;
    }
}

// Forward (DATA false: source x, result y) and data gradient (DATA true: source g, result dx). The result's channels
// per group are even. WHOLE: in the data gradient, the source's channels per group are a multiple of a stage's. MOMENTS: the forward op
// also writes the moments of the result's channels, by way of `partial` (conv_moments.cuh). NORM: the data gradient ends as `norm`, the norm
// that made x, wants it, and AGAIN writes its result (conv_norm.cuh).
template <typename T, bool DATA, bool WHOLE, typename Tile, bool MOMENTS = false, bool NORM = false, bool AGAIN = false>
__device__ __forceinline__ void tensor_gathered(const ConvParams &p, const T *__restrict__ source,
                                                const T *__restrict__ w, const T *__restrict__ bias,
                                                T *__restrict__ result, unsigned char *memory, float *partial = nullptr,
                                                float *moments = nullptr, const NormRead<T> &norm = {}) {
    const Gather<DATA> of_block(p, blockIdx.z);
    const Gather<DATA> &g = kept_by<Tile>(of_block, memory);
    TileNumber tile = tile_number();
    u64 first = (u64)tile.row * Tile::ROWS;
    const bool some = first < g.rows; // classes of remainders differ in size
    if (!NORM && !some) return;
    u32 columns = tile.column * Tile::COLUMNS, per = DATA ? group_in(p) : group_out(p);
    typename Tile::Sums sums = {};
    if (some) {
        if constexpr (!DATA) {
            AlignedRows<T, true, true, Tile> b(w, g.depth, (u64)g.group * per + columns, (u64)(g.group + 1) * per, 0);
            if (g.half) {
                TensorRows<T, DATA, true, Tile> a(g, source, first);
                gathered_product<T, Tile>(a, b, g.depth, memory, sums);
            } else {
                TensorRows<T, DATA, false, Tile> a(g, source, first);
                gathered_product<T, Tile>(a, b, g.depth, memory, sums);
            }
        } else {
            TensorRows<T, DATA, false, Tile> a(g, source, first);
            if (WHOLE || g.per % TensorInputs<T, Tile>::Layout::DEPTH == 0) {
                TensorInputs<T, Tile> b(p, g, w, columns);
                gathered_product<T, Tile>(a, b, g.depth, memory, sums);
            } else {
                TensorInputsOfTaps<T, Tile> b(p, g, w, columns);
                gathered_product<T, Tile>(a, b, g.depth, memory, sums);
            }
        }
    }
    tile = tile_number_again();
    first = (u64)tile.row * Tile::ROWS;
    columns = tile.column * Tile::COLUMNS;
    u32 channels = DATA ? p.in_channels : p.out_channels;
    u64 *targets = reinterpret_cast<u64 *>(memory + EPILOGUE<Tile>);
    static_assert(EPILOGUE<Tile> % 8 == 0 && EPILOGUE<Tile> + 8 * Tile::ROWS <= Tile::BYTES, "a place for every row");
    for (int r = threadIdx.x; r < Tile::ROWS; r += Tile::THREADS)
        targets[r] = first + r < g.rows ? g.target(p, first + r) * channels + (u64)g.group * per : ~0ull;
    if constexpr (NORM) {
        norm_sums<T, Tile, AGAIN>(p, norm, tile, g.group, columns, per, sums, targets, result, partial, memory);
        return;
    }
    const bool fours = per % 4 == 0;
    ChannelMoments<Tile> of_channels;
    auto write = [&](int row, int column, const float *v, auto &&of) {
        u64 to = targets[row];
        u32 c = columns + column;
        if (to == ~0ull || c >= per) return;
        Few<T, 4> out;
#pragma unroll
        for (int i = 0; i < 4; ++i) out.v[i] = of(min(c + i, per - 1), v[i]);
        if (fours) store_whole(result + to + c, out);
        else
            for (int i = 0; i < 4 && c + i < per; ++i) result[to + c + i] = out.v[i];
        if constexpr (MOMENTS) {
            float stored[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) stored[i] = to_acc(out.v[i]);
            of_channels.add(stored);
        }
    };
    if (DATA || (bias == nullptr && p.activation == ACTIVATION_NONE))
        each_four<Tile, Tile::WIDTH == 64 ? 4 : 2>(sums, memory, [&](int row, int column, const float *v) {
            write(row, column, v, [](u32, float sum) { return from_acc<T>(sum); });
        });
    else
        each_four<Tile>(sums, memory, [&](int row, int column, const float *v) {
            write(row, column, v, [&](u32 c, float sum) { return finish(p, bias, g.group * per + c, sum); });
        });
    if constexpr (MOMENTS) {
        const u32 c = columns + threadIdx.x;
        of_channels.put(tile, g.rows, channels, (u64)g.group * per + c, has_column<Tile>() && c < per, partial, moments, memory);
    }
}

// The weight gradient's sums over the positions of one split.
template <typename T, typename Tile>
__device__ __forceinline__ void tensor_weight_parts(const ConvParams &p, const T *__restrict__ grad,
                                                    const T *__restrict__ x, f32 *parts, u32 splits,
                                                    T *__restrict__ dw, u32 sharers, const Kept &kept,
                                                    unsigned char *memory) {
    u32 group = blockIdx.z / splits, part = blockIdx.z % splits, per = group_out(p);
    u64 positions = p.batch * volume(p.output), share = (positions + splits - 1) / splits;
    u64 from = min(part * share, positions), to = min(from + share, positions);
    u32 first = blockIdx.y * Tile::ROWS, left = blockIdx.x * Tile::COLUMNS, columns = taps_of(p) * group_in(p);
    typename Tile::Sums sums = {};
    if (from < to) {
        AlignedRows<T, false, false, Tile> a(grad, p.out_channels, (u64)group * per + first, (u64)(group + 1) * per, from);
        TensorTaps<T, Tile> b(p, x, group, left, from);
        gathered_product<T, Tile>(a, b, (i64)(to - from), memory, sums);
    }
    const u64 n = (u64)p.out_channels * columns;
    f32 *here = parts + part * n;
    each_four<Tile, 4, OperandTile<T, false, false, Tile>::PAIRS>(sums, memory, [&](int row, int column, const float *v) {
        u32 c = first + row, at = left + column;
        if (c < per && at < columns)
            *reinterpret_cast<float4 *>(here + (u64)(group * per + c) * columns + at) =
                *reinterpret_cast<const float4 *>(v);
    });
    const Patch patch = {group * per + first, min(per - first, (u32)Tile::ROWS), left, min(columns - left, (u32)Tile::COLUMNS), columns};
    add_splits<T>((group * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x, splits, sharers, *reinterpret_cast<u32 *>(memory), patch,
                  n, parts, dw, kept);
}

// The kernels of a dtype: convolution and its gradients as products of gathered tiles on tensor cores. Sums in f32,
// one rounding.
//
// Contract: channels per group are multiples of 8 (of 4 in tf32), in and out; the forward op needs that of the input
// only, and even output channels per group; the data gradient with WHOLE wants output channels per group in multiples of a
// stage's, 32 (16 in tf32). A window has at most MOST_TAPS taps in each dimension. The bounds of conv_gather.cuh hold. The weight gradient writes the sum of its split s
// to parts[s·|dw|], in f32; the last `sharers` blocks of each tile add them in order (conv_parts.cuh), or conv_sum_parts if that is 0.
// Of channels and taps that were padded dw has those that are `kept`.
//
// With moments, `partial` has 2·O numbers for each block of rows and for each group of MOMENT_BLOCKS of them, and there are no more groups
// than MOMENT_TICKETS, one for each tile of columns and group of channels besides.
//
// The data gradient with a norm: `partial` has 2·C numbers for each block of rows of each class, and for each group of MOMENT_BLOCKS of them,
// which are no more than MOMENT_TICKETS for all tiles of columns and groups of channels.
//
// Geometry: tiles of R × C by a warp for every 64 × 64, in the smallest for 64 × 32. Forward and data gradient:
// x ⌈rows / R⌉, y ⌈columns / C⌉, z groups, times stride³ classes for the data gradient with the rows of the largest.
// Weight gradient: x ⌈taps·C/groups / C⌉, y ⌈O/groups / R⌉, z groups·splits. The largest tile has TensorTile128x256::BYTES of dynamic
// shared memory.
#define STATIC_MEMORY(SHAPE) __shared__ __align__(1024) unsigned char memory[SHAPE::BYTES]
#define DYNAMIC_MEMORY(SHAPE) extern __shared__ __align__(1024) unsigned char memory[]
// SHAPE is the tile's type.
#define CONV_TENSOR(family, tile, suffix, SHAPE, T, WHOLE, blocks, DECLARE)                                            \
    extern "C" __global__ void __launch_bounds__(SHAPE::THREADS, blocks)                                               \
        conv_##family##_##tile##_##suffix(ConvParams p, const T *__restrict__ x, const T *__restrict__ w,              \
                                      const T *__restrict__ bias, T *__restrict__ y) {                                 \
        DECLARE(SHAPE);                                                                                                \
        tensor_gathered<T, false, WHOLE, SHAPE>(p, x, w, bias, y, memory);                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SHAPE::THREADS, blocks)                                               \
        conv_##family##_moments_##tile##_##suffix(ConvParams p, const T *__restrict__ x, const T *__restrict__ w,      \
                                              T *__restrict__ y, float *partial, float *moments) {                     \
        DECLARE(SHAPE);                                                                                                \
        tensor_gathered<T, false, WHOLE, SHAPE, true>(p, x, w, nullptr, y, memory, partial, moments);                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SHAPE::THREADS, blocks)                                               \
        conv_##family##_data_grad_##tile##_##suffix(ConvParams p, const T *__restrict__ g, const T *__restrict__ w,    \
                                                T *__restrict__ dx) {                                                  \
        DECLARE(SHAPE);                                                                                                \
        tensor_gathered<T, true, WHOLE, SHAPE>(p, g, w, nullptr, dx, memory);                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SHAPE::THREADS, blocks)                                               \
        conv_##family##_norm_data_grad_##tile##_##suffix(                                                              \
            ConvParams p, const T *__restrict__ g, const T *__restrict__ w, T *__restrict__ d, const T *__restrict__ x,\
            const T *__restrict__ more, const T *__restrict__ y, const float *__restrict__ mean,                       \
            const float *__restrict__ rstd, const T *__restrict__ scale, const T *__restrict__ shift, u32 wide,        \
            float *partial, float *dscale, float *dshift) {                                                            \
        DECLARE(SHAPE);                                                                                                \
        const NormRead<T> norm = {x, more, y, mean, rstd, scale, shift, wide, dscale, dshift, nullptr};                \
        tensor_gathered<T, true, WHOLE, SHAPE, false, true>(p, g, w, nullptr, d, memory, partial, nullptr,             \
                                                                       norm);                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SHAPE::THREADS, blocks)                                               \
        conv_##family##_norm_again_data_grad_##tile##_##suffix(                                                        \
            ConvParams p, const T *__restrict__ g, const T *__restrict__ w, T *__restrict__ d, const T *__restrict__ x,\
            const T *__restrict__ more, T *__restrict__ y, const float *__restrict__ mean,                             \
            const float *__restrict__ rstd, const T *__restrict__ scale, const T *__restrict__ shift, u32 wide,        \
            float *partial, float *dscale, float *dshift) {                                                            \
        DECLARE(SHAPE);                                                                                                \
        const NormRead<T> norm = {x, more, nullptr, mean, rstd, scale, shift, wide, dscale, dshift, y};                \
        tensor_gathered<T, true, WHOLE, SHAPE, false, true, true>(p, g, w, nullptr, d, memory, partial,                \
                                                                             nullptr, norm);                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SHAPE::THREADS, blocks)                                               \
        conv_##family##_weight_parts_##tile##_##suffix(ConvParams p, const T *__restrict__ g, const T *__restrict__ x, \
                                                   f32 *__restrict__ parts, u32 splits, T *__restrict__ dw,            \
                                                   u32 sharers, Kept kept) {                                           \
        DECLARE(SHAPE);                                                                                                \
        tensor_weight_parts<T, SHAPE>(p, g, x, parts, splits, dw, sharers, kept, memory);                              \
    }
#define CONV_TENSORS(suffix, T)                                                                                        \
    CONV_TENSOR(tensor, 128x256, suffix, TensorTile128x256, T, true, 1, DYNAMIC_MEMORY)                                \
    CONV_TENSOR(tensor, 128x128, suffix, TensorTile128x128, T, true, 2, STATIC_MEMORY)                                 \
    CONV_TENSOR(tensor, 128x64, suffix, TensorTile128x64, T, true, 4, STATIC_MEMORY)                                   \
    CONV_TENSOR(tensor, 64x64, suffix, TensorTile64x64, T, false, 6, STATIC_MEMORY)
