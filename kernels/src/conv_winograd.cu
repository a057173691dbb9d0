// Winograd's convolution F(2×2, 3×3) in f32 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
// 2016): windows of 3 × 3, stride 1, dilation 1, one group. A tile of 2 × 2 results needs 16 products a channel pair in
// place of 36:
//
//   Y = Aᵀ [ (G w Gᵀ) ⊙ (Bᵀ d B) ] A, summed over channels before the outer transform, with
//   Bᵀ = ⎡1  0 −1  0⎤   G = ⎡ 1   0   0⎤   Aᵀ = ⎡1 1  1  0⎤
//        ⎢0  1  1  0⎥       ⎢ ½   ½   ½⎥        ⎣0 1 −1 −1⎦
//        ⎢0 −1  1  0⎥       ⎢ ½  −½   ½⎥
//        ⎣0  1  0 −1⎦       ⎣ 0   0   1⎦
//
// The sum over channels is then, for each of the 16 points, a product of matrices: sums[point] = v[point] · u[point]ᵀ,
// v [16, tiles, channels of the source], u [16, O, C], sums [16, tiles, channels of the result], all in f32.
// The data gradient is the same with the weight turned by half a turn and 2 − padding zeros before.
//
// Error: |v| ≤ 4 max|x|, |u| ≤ 9/4 max|w|, and a result adds 9 of the 16 sums. To first order, with unit 2⁻²⁴ and n
// source channels, every result is within (n + 12)·2⁻²⁴ · 81 · n · max|x| · max|w| of the exact one: up to nine times
// the bound of the plain sum. crates/cuda/tests/emulated/conv.rs holds the kernels to it, and to 4e-6 of the root of the
// mean of the squares of the results; for that, sums are added up from stretches of 64 channels.
// A NaN or infinity in one element of a tile makes all of its results NaN or infinite. A thread that meets such results
// computes its own by the definition, which keeps a NaN in the windows that see it.
//
// Contract: C and O are multiples of 4; the bounds of conv_gather.cuh. A call takes the tiles first … first + tiles of
// all (image, depth, row, column), so that the scratch has a limit.
// Geometry: 256 threads; weight: one dimension with a stride over O·C/4; source and result: over tiles·channels/4 (128
// threads); product: x ⌈tiles / tile⌉, y ⌈result channels / tile⌉, z 16; result with moments or a norm: 128 threads, x
// ⌈tiles / MOMENT_TILES⌉, y ⌈result channels / MOMENT_COLUMNS⌉.
#include "conv_gather.cuh"
#include "conv_norm.cuh"
#include "conv_tile.cuh"

constexpr int STRETCH = 64; // channels that are summed separately

// One convolution by tiles: forward, or the data gradient seen as one.
struct Tiles {
    u32 source[2], result[2]; // rows and columns
    int before[2];            // zeros before; may be negative
    u32 images, channels_in, channels_out;
    u32 count[2]; // tiles
};

template <bool DATA> __device__ __forceinline__ Tiles tiles_of(const ConvParams &p) {
    Tiles t;
    t.images = p.batch * p.input[0];
    t.channels_in = DATA ? p.out_channels : p.in_channels;
    t.channels_out = DATA ? p.in_channels : p.out_channels;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        t.source[i] = DATA ? p.output[i + 1] : p.input[i + 1];
        t.result[i] = DATA ? p.input[i + 1] : p.output[i + 1];
        t.before[i] = DATA ? 2 - (int)p.padding[i + 1] : (int)p.padding[i + 1];
        t.count[i] = (t.result[i] + 1) / 2;
    }
    return t;
}

struct TileAt {
    u64 image;
    u32 row, column;
};

__device__ __forceinline__ TileAt tile_at(const Tiles &t, u64 n) {
    TileAt at;
    n = split(n, t.count[1], at.column);
    at.image = split(n, t.count[0], at.row);
    return at;
}

__device__ __forceinline__ float4 add(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 sub(float4 a, float4 b) {
    return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}
__device__ __forceinline__ float4 scale(float4 a, float s) { return make_float4(a.x * s, a.y * s, a.z * s, a.w * s); }

// G times a line of three.
__device__ __forceinline__ void spread(float4 a, float4 b, float4 c, float4 (&to)[4]) {
    float4 outer = add(a, c);
    to[0] = a;
    to[1] = scale(add(outer, b), 0.5f);
    to[2] = scale(sub(outer, b), 0.5f);
    to[3] = c;
}

template <bool DATA>
__device__ __forceinline__ void weight(const ConvParams &p, const f32 *__restrict__ w, f32 *__restrict__ u) {
    u64 plane = (u64)p.out_channels * p.in_channels, lanes = plane / 4;
    for (u64 at = global_thread(); at < lanes; at += global_threads()) {
        u32 c;
        u64 o = split(at * 4, p.in_channels, c);
        float4 rows[3][4];
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            float4 taps[3];
#pragma unroll
            for (int j = 0; j < 3; ++j) {
                int tap = DATA ? 8 - (i * 3 + j) : i * 3 + j;
                taps[j] = *reinterpret_cast<const float4 *>(w + (o * 9 + tap) * p.in_channels + c);
            }
            spread(taps[0], taps[1], taps[2], rows[i]);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float4 column[4];
            spread(rows[0][j], rows[1][j], rows[2][j], column);
#pragma unroll
            for (int i = 0; i < 4; ++i) *reinterpret_cast<float4 *>(u + (i * 4 + j) * plane + at * 4) = column[i];
        }
    }
}

// Bᵀ times a line of four, in place.
__device__ __forceinline__ void mix(float4 &a, float4 &b, float4 &c, float4 &d) {
    float4 first = sub(a, c), second = add(b, c), third = sub(c, b), fourth = sub(b, d);
    a = first, b = second, c = third, d = fourth;
}

template <bool DATA>
__device__ __forceinline__ void source_tiles(const ConvParams &p, const f32 *__restrict__ x, f32 *__restrict__ v,
                                             u64 first, u32 tiles) {
    Tiles t = tiles_of<DATA>(p);
    u32 lanes = t.channels_in / 4;
    u64 plane = (u64)tiles * t.channels_in;
    for (u64 n = global_thread(); n < (u64)tiles * lanes; n += global_threads()) {
        u32 lane;
        TileAt at = tile_at(t, first + split(n, lanes, lane));
        int row = (int)at.row * 2 - t.before[0], column = (int)at.column * 2 - t.before[1];
        const f32 *image = x + at.image * t.source[0] * t.source[1] * t.channels_in + lane * 4;
        float4 d[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                bool inside = (u32)(row + i) < t.source[0] && (u32)(column + j) < t.source[1];
                u64 q = (u64)(u32)(row + i) * t.source[1] + (u32)(column + j);
                d[i][j] = inside ? *reinterpret_cast<const float4 *>(image + q * t.channels_in)
                                 : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
#pragma unroll
        for (int j = 0; j < 4; ++j) mix(d[0][j], d[1][j], d[2][j], d[3][j]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            mix(d[i][0], d[i][1], d[i][2], d[i][3]);
#pragma unroll
            for (int j = 0; j < 4; ++j) *reinterpret_cast<float4 *>(v + (i * 4 + j) * plane + n * 4) = d[i][j];
        }
    }
}

// Rows of v: four channels of a tile at a time.
template <typename Tile> struct PointRows {
    using Place = AlongK<Tile::ROWS, Tile::DEPTH>;
    const f32 *from;
    int k, depth;

    __device__ __forceinline__ PointRows(const f32 *v, u64 row, u64 rows, u32 channels) {
        u64 line = row + Place::line();
        k = Place::k();
        depth = line < rows ? (int)channels : 0;
        from = v + line * channels;
    }
    __device__ __forceinline__ void fetch(float (&v)[4]) {
        v[0] = v[1] = v[2] = v[3] = 0.0f;
        if (k < depth) fetch4(from + k, v);
        k += Tile::DEPTH;
    }
};

// Rows of u as columns of the product (forward: u [O, C], C along the inner dimension) …
template <typename Tile> using PointColumns = PointRows<Tile>;
// … and columns of u (data gradient: O along the inner dimension).
template <typename Tile> struct PointLines {
    using Place = AlongLine<Tile::COLUMNS, Tile::DEPTH>;
    const f32 *from;
    int k, depth;
    u32 channels;

    __device__ __forceinline__ PointLines(const f32 *u, u32 first, u32 rows, u32 channels) : channels(channels) {
        u32 c = first + Place::line();
        k = Place::k();
        depth = c < channels ? (int)rows : 0;
        from = u + (u64)k * channels + c;
    }
    __device__ __forceinline__ void fetch(float (&v)[4]) {
        v[0] = v[1] = v[2] = v[3] = 0.0f;
        if (k < depth) fetch4(from, v);
        k += Tile::DEPTH;
        from += (u64)Tile::DEPTH * channels;
    }
};

template <bool DATA, typename Tile>
__device__ __forceinline__ void points(const ConvParams &p, const f32 *__restrict__ v, const f32 *__restrict__ u,
                                       f32 *__restrict__ result, u32 tiles) {
    u32 inner = DATA ? p.out_channels : p.in_channels, outer = DATA ? p.in_channels : p.out_channels;
    u64 first = (u64)blockIdx.x * Tile::ROWS, point = blockIdx.z;
    u32 column = blockIdx.y * Tile::COLUMNS;
    v += point * tiles * inner;
    u += point * p.out_channels * p.in_channels;
    result += point * tiles * outer;
    float sums[Tile::HIGH][Tile::WIDE] = {};
    int steps = ((int)inner + Tile::DEPTH - 1) / Tile::DEPTH;
    PointRows<Tile> a(v, first, tiles, inner);
    if constexpr (DATA) {
        PointLines<Tile> b(u, column, inner, outer);
        product<Tile, STRETCH / Tile::DEPTH>(a, b, steps, sums);
    } else {
        PointColumns<Tile> b(u, column, outer, inner);
        product<Tile, STRETCH / Tile::DEPTH>(a, b, steps, sums);
    }
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < Tile::HIGH; ++i) {
        u64 row = first + owned<Tile::HIGH>(ty, i);
        if (row >= tiles) continue;
#pragma unroll
        for (int j = 0; j < Tile::WIDE; j += 4) {
            u32 c = column + owned<Tile::WIDE>(tx, j);
            float4 out = make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
            if (c < outer) *reinterpret_cast<float4 *>(result + row * outer + c) = out;
        }
    }
}

// A result by the definition: four channels from `c` on, at a row and column.
template <bool DATA>
__device__ __forceinline__ float4 direct(const ConvParams &p, const f32 *__restrict__ x, const f32 *__restrict__ w,
                                      u64 image, u32 row, u32 column, u32 c) {
    Tiles t = tiles_of<DATA>(p);
    float sums[4] = {};
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) {
            u32 h = row + i - t.before[0], k = column + j - t.before[1];
            if (h >= t.source[0] || k >= t.source[1]) continue;
            const f32 *from = x + ((image * t.source[0] + h) * t.source[1] + k) * t.channels_in;
            u32 tap = DATA ? 8 - (i * 3 + j) : i * 3 + j;
            for (u32 n = 0; n < t.channels_in; ++n)
                for (int m = 0; m < 4; ++m) {
                    u64 at = DATA ? ((u64)n * 9 + tap) * t.channels_out + c + m
                                  : ((u64)(c + m) * 9 + tap) * t.channels_in + n;
                    sums[m] = fmaf(from[n], w[at], sums[m]);
                }
        }
    return make_float4(sums[0], sums[1], sums[2], sums[3]);
}

__device__ __forceinline__ bool finite(float4 v) {
    // Zero times a NaN or an infinity is NaN.
    return v.x * 0.0f + v.y * 0.0f + v.z * 0.0f + v.w * 0.0f == 0.0f;
}

// Aᵀ times a line of four.
__device__ __forceinline__ void gather_line(float4 a, float4 b, float4 c, float4 d, float4 &first, float4 &second) {
    first = add(add(a, b), c);
    second = sub(sub(b, c), d);
}

// The four results of tile n of this call, four channels from 4·lane on.
__device__ __forceinline__ void results_of(const Tiles &t, const f32 *__restrict__ sums, u32 tiles, u64 n, u32 lane, float4 (&out)[4]) {
    u64 plane = (u64)tiles * t.channels_out;
    sums += n * t.channels_out + lane * 4;
    float4 rows[2][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        float4 m[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) m[i] = *reinterpret_cast<const float4 *>(sums + (i * 4 + j) * plane);
        gather_line(m[0], m[1], m[2], m[3], rows[0][j], rows[1][j]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) gather_line(rows[i][0], rows[i][1], rows[i][2], rows[i][3], out[i * 2], out[i * 2 + 1]);
}

__device__ __forceinline__ bool finite(const float4 (&out)[4]) {
    return finite(out[0]) && finite(out[1]) && finite(out[2]) && finite(out[3]);
}

// Writes the results of tile n of this call, of all, four channels of them, and shows each to `see`.
template <bool DATA, typename See>
__device__ __forceinline__ void put_results(const ConvParams &p, const Tiles &t, const f32 *__restrict__ x, const f32 *__restrict__ w,
                                            const f32 *__restrict__ sums, const f32 *__restrict__ bias, f32 *__restrict__ y, u64 first,
                                            u32 tiles, u64 n, u32 lane, See see) {
    TileAt at = tile_at(t, first + n);
    float4 out[4];
    results_of(t, sums, tiles, n, lane, out);
    f32 *image = y + at.image * t.result[0] * t.result[1] * t.channels_out + lane * 4;
    bool all = finite(out);
    // The results one by one, and the four channels too: unrolled, an activation and direct sums do not fit the registers.
#pragma unroll 1
    for (u32 i = 0; i < 4; ++i) {
        u32 row = at.row * 2 + i / 2, column = at.column * 2 + i % 2, c = lane * 4;
        if (row >= t.result[0] || column >= t.result[1]) continue;
        float4 v = i < 2 ? (i == 0 ? out[0] : out[1]) : (i == 2 ? out[2] : out[3]);
        if (!all) v = direct<DATA>(p, x, w, at.image, row, column, c);
        if constexpr (!DATA)
#pragma unroll 1
            for (u32 q = 0; q < 4; ++q) v = make_float4(v.y, v.z, v.w, finish(p, bias, c + q, v.x));
        *reinterpret_cast<float4 *>(image + ((u64)row * t.result[1] + column) * t.channels_out) = v;
        see(v);
    }
}

template <bool DATA>
__device__ __forceinline__ void result_tiles(const ConvParams &p, const f32 *__restrict__ x, const f32 *__restrict__ w,
                                             const f32 *__restrict__ sums, const f32 *__restrict__ bias,
                                             f32 *__restrict__ y, u64 first, u32 tiles) {
    Tiles t = tiles_of<DATA>(p);
    u32 lanes = t.channels_out / 4;
    for (u64 at = global_thread(); at < (u64)tiles * lanes; at += global_threads()) {
        u32 lane;
        u64 n = split(at, lanes, lane);
        put_results<DATA>(p, t, x, w, sums, bias, y, first, tiles, n, lane, [](const float4 &) {});
    }
}

// Forward, without a bias, with the moments of the channels by way of `partial` (conv_moments.cuh). A block has 64 channels of
// MOMENT_TILES tiles, which are blocks `first / MOMENT_TILES` … of `blocks` of all calls. Behind the moments of all blocks and groups of
// them lie how many results they are of, in each tile of 64 channels.
constexpr int MOMENT_TILES = 16, MOMENT_COLUMNS = 64; // kiln_cuda's `MOMENT_TILES`, `MOMENT_COLUMNS`

__device__ __forceinline__ void result_moments(const ConvParams &p, const f32 *__restrict__ x, const f32 *__restrict__ w,
                                               const f32 *__restrict__ sums, f32 *__restrict__ y, u64 first, u32 tiles, u32 blocks,
                                               float *partial, float *moments) {
    constexpr int FOURS = MOMENT_COLUMNS / 4, SHARES = 128 / FOURS;
    __shared__ float memory[MOMENT_BYTES<MOMENT_COLUMNS, SHARES> / 4];
    __shared__ bool last;
    Tiles t = tiles_of<false>(p);
    const u32 lane = blockIdx.y * FOURS + threadIdx.x % FOURS, channels = t.channels_out;
    FourMoments of_thread;
    if (lane * 4 < channels)
#pragma unroll 1
        for (u32 i = threadIdx.x / FOURS; i < MOMENT_TILES; i += SHARES) {
            const u64 n = (u64)blockIdx.x * MOMENT_TILES + i;
            if (n >= tiles) break;
            put_results<false>(p, t, x, w, sums, nullptr, y, first, tiles, n, lane, [&](const float4 &v) {
                const float row[4] = {v.x, v.y, v.z, v.w};
                of_thread.add(row);
            });
        }
    const Moments m = of_thread.of_block<MOMENT_COLUMNS, SHARES>(memory);
    const u32 channel = blockIdx.y * MOMENT_COLUMNS + threadIdx.x, sets = blocks + (blocks - 1) / MOMENT_BLOCKS + 1;
    const StoredCounts counts = {partial + (u64)sets * 2 * channels + blockIdx.y * sets};
    join_moments(m, (u32)(first / MOMENT_TILES) + blockIdx.x, blocks, blockIdx.y, counts, channels, channel,
                 threadIdx.x < MOMENT_COLUMNS && channel < channels, partial, moments, last);
}

// The data gradient that ends as the norm that made x wants it (conv_norm.cuh), by the same blocks.
__device__ __forceinline__ void result_norm(const ConvParams &p, const f32 *__restrict__ grad, const f32 *__restrict__ w,
                                            const f32 *__restrict__ sums, f32 *d, u64 first, u32 tiles, u32 blocks,
                                            const NormRead<f32> &norm, float *partial) {
    constexpr int FOURS = MOMENT_COLUMNS / 4, SHARES = 128 / FOURS;
    __shared__ float memory[NORM_BYTES<MOMENT_COLUMNS, SHARES> / 4];
    __shared__ bool last;
    Tiles t = tiles_of<true>(p);
    const u32 lane = blockIdx.y * FOURS + threadIdx.x % FOURS, channels = t.channels_out;
    const bool inside = lane * 4 < channels;
    NormColumns<f32> four(p, norm, lane * 4, inside);
    if (inside)
#pragma unroll 1
        for (u32 i = threadIdx.x / FOURS; i < MOMENT_TILES; i += SHARES) {
            const u64 n = (u64)blockIdx.x * MOMENT_TILES + i;
            if (n >= tiles) break;
            TileAt at = tile_at(t, first + n);
            const u32 rows = min(2u, t.result[0] - at.row * 2), columns = min(2u, t.result[1] - at.column * 2);
            const u64 base = ((at.image * t.result[0] + at.row * 2) * t.result[1] + at.column * 2) * channels + lane * 4;
            auto there = [&](int q) { return q / 2 < rows && q % 2 < columns; };
            auto place = [&](int q) { return base + ((u64)(q / 2) * t.result[1] + q % 2) * channels; };
            float4 out[4];
            results_of(t, sums, tiles, n, lane, out);
            if (!finite(out))
#pragma unroll 1
                for (u32 m = 0; m < 4; ++m) {
                    if (!there(m)) continue;
                    const float4 v = direct<true>(p, grad, w, at.image, at.row * 2 + m / 2, at.column * 2 + m % 2, lane * 4);
#pragma unroll
                    for (u32 q = 0; q < 4; ++q) out[q] = q == m ? v : out[q];
                }
            NormRow<f32> read[4];
#pragma unroll
            for (int q = 0; q < 4; ++q) four.load(read[q], there(q) ? place(q) : base);
#pragma unroll
            for (int q = 0; q < 4; ++q)
                four.add(read[q], out[q], there(q), d + place(q));
        }
    const float2 of_block = four.of_block<MOMENT_COLUMNS, SHARES>(memory);
    const u32 channel = blockIdx.y * MOMENT_COLUMNS + threadIdx.x;
    join_norm_sums(norm, (u32)(first / MOMENT_TILES) + blockIdx.x, blocks, blockIdx.y, channels, channel,
                   threadIdx.x < MOMENT_COLUMNS && channel < channels, of_block, partial, last);
}

#define WINOGRAD(suffix, DATA)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        conv_winograd_weight##suffix(ConvParams p, const f32 *__restrict__ w, f32 *__restrict__ u) {                   \
        weight<DATA>(p, w, u);                                                                                         \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) conv_winograd_source##suffix(                                    \
        ConvParams p, const f32 *__restrict__ x, f32 *__restrict__ v, u64 first, u32 tiles) {                          \
        source_tiles<DATA>(p, x, v, first, tiles);                                                                     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2) conv_winograd_product##suffix(                                \
        ConvParams p, const f32 *__restrict__ v, const f32 *__restrict__ u, f32 *__restrict__ sums, u32 tiles) {       \
        points<DATA, SmallTile>(p, v, u, sums, tiles);                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 1) conv_winograd_product_large##suffix(                          \
        ConvParams p, const f32 *__restrict__ v, const f32 *__restrict__ u, f32 *__restrict__ sums, u32 tiles) {       \
        points<DATA, LargeTile>(p, v, u, sums, tiles);                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128, 6)                                                               \
        conv_winograd_result##suffix(ConvParams p, const f32 *__restrict__ x, const f32 *__restrict__ w,               \
                                     const f32 *__restrict__ sums, const f32 *__restrict__ bias, f32 *__restrict__ y,  \
                                     u64 first, u32 tiles) {                                                           \
        result_tiles<DATA>(p, x, w, sums, bias, y, first, tiles);                                                      \
    }
WINOGRAD(_f32, false)
WINOGRAD(_data_grad_f32, true)

extern "C" __global__ void __launch_bounds__(128, 5)
    conv_winograd_result_moments_f32(ConvParams p, const f32 *__restrict__ x, const f32 *__restrict__ w,
                                     const f32 *__restrict__ sums, f32 *__restrict__ y, u64 first, u32 tiles, u32 blocks,
                                     float *partial, float *moments) {
    result_moments(p, x, w, sums, y, first, tiles, blocks, partial, moments);
}
extern "C" __global__ void __launch_bounds__(128, 4) conv_winograd_result_norm_data_grad_f32(
    ConvParams p, const f32 *__restrict__ g, const f32 *__restrict__ w, const f32 *__restrict__ sums, f32 *d, u64 first, u32 tiles,
    u32 blocks, const f32 *x, const f32 *more, const f32 *y, const float *mean, const float *rstd, const f32 *scale, const f32 *shift,
    u32 wide, float *partial, float *dscale, float *dshift) {
    const NormRead<f32> norm = {x, more, y, mean, rstd, scale, shift, wide, dscale, dshift};
    result_norm(p, g, w, sums, d, first, tiles, blocks, norm, partial);
}
