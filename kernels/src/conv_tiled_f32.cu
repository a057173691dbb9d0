// Convolution and its gradients in f32, the second variant: conv_tiled.cuh; the convolution that also writes the moments of its channels
// (conv_moments.cuh), and the data gradient that ends as the norm that made x wants it (conv_norm.cuh).
//
// `partial` has 2·O numbers (2·C) for each block of rows (of each class) and for each group of MOMENT_BLOCKS of them. There are no more groups
// than MOMENT_TICKETS, one for each tile of columns and group of channels besides.
#include "conv_norm.cuh"
#include "conv_tiled.cuh"

// The moments of a tile: a thread's columns are fours, 64 apart (`owned` of conv_tile.cuh).
template <typename Tile> struct TiledMoments {
    static constexpr bool MOMENTS = true, NORM = false;
    static constexpr int COLUMNS = 64, SHARES = 16;
    float *partial, *moments, *memory;
    FourMoments of_thread[Tile::WIDE / 4];

    __device__ __forceinline__ void add(int four, const float (&v)[4]) { of_thread[four].add(v); }
    __device__ __forceinline__ void put(u64 rows, u64 channels, u64 channel, bool inside) const {
        __shared__ bool last;
        Moments m = {};
#pragma unroll
        for (int i = 0; i < Tile::WIDE / 4; ++i) {
            if (i > 0) __syncthreads();
            const Moments of_columns = of_thread[i].template of_block<COLUMNS, SHARES>(memory);
            if (threadIdx.x / COLUMNS == i) m = of_columns;
        }
        join_moments(m, blockIdx.x, gridDim.x, blockIdx.z * gridDim.y + blockIdx.y, EqualCounts{Tile::ROWS, rows}, channels, channel,
                     inside, partial, moments, last);
    }
};

// The end of a data gradient whose x a norm has made.
template <typename Tile> struct TiledNorm {
    static constexpr bool MOMENTS = false, NORM = true;
    static constexpr int COLUMNS = 64, SHARES = 16, AHEAD = 4; // rows whose loads are under way together
    const NormRead<f32> &norm;
    float *partial, *memory;

    __device__ __forceinline__ void put(const ConvParams &p, const Gather<true> &g, u64 first, u32 column,
                                        const float (&sums)[Tile::HIGH][Tile::WIDE], f32 *d) const {
        __shared__ bool last;
        const u32 per = group_in(p), ty = threadIdx.x / 16, tx = threadIdx.x % 16;
        u64 targets[Tile::HIGH];
#pragma unroll
        for (int i = 0; i < Tile::HIGH; ++i) {
            const u64 row = first + owned<Tile::HIGH>(ty, i);
            targets[i] = row < g.rows ? g.target(p, row) * p.in_channels + (u64)g.group * per : ~0ull;
        }
        float2 of_block = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < Tile::WIDE; j += 4) {
            const u32 c = column + owned<Tile::WIDE>(tx, j);
            const bool inside = c < per;
            NormColumns<f32> four(p, norm, g.group * per + c, inside);
#pragma unroll
            for (int from = 0; from < Tile::HIGH; from += AHEAD) {
                NormRow<f32> read[AHEAD];
                // Where there is no row, the first elements are read, and not used.
#pragma unroll
                for (int n = 0; n < AHEAD; ++n) {
                    const u64 to = targets[from + n];
                    four.load(read[n], inside && to != ~0ull ? to + c : 0);
                }
#pragma unroll
                for (int n = 0; n < AHEAD; ++n) {
                    const u64 to = targets[from + n];
                    const float(&v)[Tile::WIDE] = sums[from + n];
                    four.add(read[n], make_float4(v[j], v[j + 1], v[j + 2], v[j + 3]), inside && to != ~0ull, d + to + c);
                }
            }
            if (j > 0) __syncthreads();
            const float2 of_columns = four.template of_block<COLUMNS, SHARES>(memory);
            if (threadIdx.x / COLUMNS == j / 4) of_block = of_columns;
        }
        const u32 of = column + threadIdx.x;
        join_norm_sums(p, norm, TileNumber{blockIdx.x, blockIdx.y}, g.group, (u64)g.group * per + of, threadIdx.x < Tile::COLUMNS && of < per, of_block, partial, last);
    }
};

#define CONV_TILED_NORM(name, Tile, BLOCKS)                                                                            \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) conv_tiled_norm_data_grad##name(                         \
        ConvParams p, const f32 *__restrict__ g, const f32 *__restrict__ w, f32 *d, const f32 *x, const f32 *more,     \
        const f32 *y, const float *mean, const float *rstd, const f32 *scale, const f32 *shift, u32 wide,              \
        float *partial, float *dscale, float *dshift) {                                                                \
        __shared__ float memory[NORM_BYTES<64, 16> / 4];                                                               \
        const NormRead<f32> norm = {x, more, y, mean, rstd, scale, shift, wide, dscale, dshift};                       \
        gathered<f32, 4, true, Tile>(p, g, w, nullptr, d, TiledNorm<Tile>{norm, partial, memory});                     \
    }

#define CONV_TILED_MOMENTS(name, Tile, BLOCKS)                                                                         \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                          \
        conv_tiled_moments##name(ConvParams p, const f32 *__restrict__ x, const f32 *__restrict__ w,                   \
                                 f32 *__restrict__ y, float *partial, float *moments) {                                \
        __shared__ float memory[MOMENT_BYTES<64, 16> / 4];                                                             \
        gathered<f32, 4, false, Tile>(p, x, w, nullptr, y, TiledMoments<Tile>{partial, moments, memory});              \
    }

CONV_TILED(_f32, f32, 1, SmallTile, 2)
CONV_TILED(_packed_f32, f32, 4, SmallTile, 2)
CONV_TILED(_packed_large_f32, f32, 4, LargeTile, 1)
CONV_TILED_MOMENTS(_packed_f32, SmallTile, 2)
CONV_TILED_MOMENTS(_packed_large_f32, LargeTile, 1)
CONV_TILED_NORM(_packed_f32, SmallTile, 2)
CONV_TILED_NORM(_packed_large_f32, LargeTile, 1)
