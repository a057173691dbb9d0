// The fourth variant of the matrix product: tensor cores. Formula and parameters: matmul.cuh.
//
// A block computes a SIDE×SIDE tile of C by the pipeline of common/tensor_tile.cuh.
//
// Kernels take rows that are multiples of 16 bytes, from multiples of 16 bytes on, which the host knows and which leaves a
// copy of 16 bytes and no choice. Those with `_any` in their names take all others: rows of multiples of 8 or 4 bytes are
// copied by those; odd rows of 16-bit elements cannot be copied asynchronously, and go through registers.
//
// Geometry: matmul_tensor_RxC_*: a warp for every 64×64 of the R×C results of a block, in the smallest tile for 64×32.
//           grid cut.blocks = splits·batches·ceil(m/R)·ceil(n/C) in x and y (matmul.cu); cut.part a multiple of 32.
//           C, kept, slope_at and the partial sums begin at multiples of 16 bytes; A and B of `_any` anywhere.
//           Only nt kernels for aligned rows take kept alone; only nn kernels take slope_at, and kept beside it, but for aligned rows
//           not in the smallest tile.
//           The largest tile has ProductTile128x256::BYTES of dynamic shared memory.
#pragma once

#include "common/tensor_tile.cuh"
#include "matmul.cuh"

// The largest tile; of 16-bit elements it has a stage more than a convolution's, which needs the registers for its gather, and than that
// of tf32, which needs them to round.
template <typename T> using ProductTile128x256 = TensorTile<2, 4, 64, 64, sizeof(T) == 2 ? 4 : 3>;

// The copies of an operand with rows of any length, at any address.
template <typename T, bool K_INNER, bool RIGHT, typename Tile>
struct AnyRows : OperandTile<T, K_INNER, RIGHT, Tile> {
    using Layout = OperandTile<T, K_INNER, RIGHT, Tile>;
    static constexpr int CHUNK = Layout::CHUNK, DEPTH = Layout::DEPTH, COPIES = Layout::COPIES, APART = Layout::APART;

    const T *from; // this thread's first chunk of the next stage
    u64 ld;
    int along;     // where that chunk begins along k
    int across;    // rows along k: how many of this thread's rows exist; rows across: elements of its chunks that do
    int width;     // bytes that can be copied at once

    // `first` and `end`: the block's first row or column of C, and C's end; `l`: where the block begins along k.
    __device__ __forceinline__ AnyRows(const T *src, u64 ld, u64 first, u64 end, u64 l) : ld(ld) {
        int row = Layout::row(0), chunk = Layout::chunk();
        u64 left = end - first; // first < end
        if constexpr (K_INNER) {
            across = row < left ? (int)min((left - row + APART - 1) / APART, (u64)COPIES) : 0;
            along = chunk * CHUNK;
            from = src + (first + row) * ld + l + along;
        } else {
            across = chunk * CHUNK < left ? (int)min(left - chunk * CHUNK, (u64)CHUNK) : 0;
            along = row;
            from = src + (l + row) * ld + first + chunk * CHUNK;
        }
        width = rows_aligned(src, ld, 16) ? 16 : rows_aligned(src, ld, 8) ? 8 : rows_aligned(src, ld, 4) ? 4 : 2;
    }

    // `count` elements, and zeros up to a chunk, by copies of BYTES.
    template <int BYTES> static __device__ __forceinline__ void copy_by(u32 dst, const T *src, int count) {
        constexpr int EACH = BYTES / sizeof(T);
#pragma unroll
        for (int j = 0; j < CHUNK; j += EACH)
            cp_async<BYTES>(dst + j * sizeof(T), src + j, (u32)(max(min(count - j, EACH), 0) * sizeof(T)));
    }

    // The same through registers.
    static __device__ __forceinline__ void copy_plain(u32 dst, const T *src, int count) {
        Pack<T> x;
#pragma unroll
        for (int j = 0; j < CHUNK; ++j) x.v[j] = j < count ? src[j] : from_acc<T>(0.0f);
        u32 w[4];
        memcpy(w, &x, sizeof(w));
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(dst), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                     : "memory");
    }

    // Starts this thread's copies of the next stage, of which `left` elements along k exist.
    __device__ __forceinline__ void copy(u32 stage, int left) {
#pragma unroll 1
        for (int i = 0; i < COPIES; ++i) {
            int count = K_INNER ? (i < across ? max(min(left - along, CHUNK), 0) : 0)
                                : (along + i * APART < left ? across : 0);
            const T *src = from + i * APART * ld;
            u32 dst = stage + Layout::place(i);
            if (width == 16) copy_by<16>(dst, src, count);
            else if (width == 8) copy_by<8>(dst, src, count);
            else if (sizeof(T) == 4 || width == 4) copy_by<4>(dst, src, count);
            else copy_plain(dst, src, count);
        }
        from += K_INNER ? DEPTH : DEPTH * ld;
    }
};

// The epilogue of a tile of a product whose rows are multiples of 4 elements: bias and activation, or the slope of one, as write_four has them.
// What is read from memory is read for all rows of a step at once, a step ahead. `kept` gets f of slope_at if there is that.
template <typename T, typename Tile, bool PAIRS, bool KEEP, bool SLOPE>
__device__ __forceinline__ void write_tile(const MatmulParams &p, const Place &at, const T *__restrict__ bias,
                                           const T *__restrict__ slope_at, T *__restrict__ kept, T *__restrict__ c,
                                           float *__restrict__ parts, const typename Tile::Sums &sums,
                                           unsigned char *memory) {
    using Out = Drain<Tile, PAIRS>;
    const Out drain(memory);
    const u64 col = at.col + Out::column();
    const bool inside = col < p.n, sloped = SLOPE && slope_at && !parts;
    // Where the thread's columns begin in row 0 of the tile, and how many rows there are.
    const u64 first = at.out + at.row * p.n + col;
    const u64 rows = inside ? p.m - at.row : 0;
    float b[4] = {};
    if (bias && inside && !parts)
#pragma unroll
        for (int e = 0; e < 4; ++e) b[e] = to_acc(bias[col + e]);
    Few<T, 4> x[Out::EACH], next[Out::EACH];
    auto read = [&](int i) {
#pragma unroll
        for (int n = 0; n < Out::EACH; ++n) {
            const u64 row = Out::row(i, n);
            next[n] = load_now(slope_at + (row < rows ? first + row * p.n : 0));
        }
    };
    if (sloped) read(0);
#pragma unroll 1
    for (int i = 0; i < Tile::MS; ++i) {
        drain.put(sums, i);
        __syncthreads();
        if constexpr (SLOPE) {
            if (sloped) {
#pragma unroll
                for (int n = 0; n < Out::EACH; ++n) x[n] = next[n];
                if (i + 1 < Tile::MS) read(i + 1);
#pragma unroll 1
                for (int n = 0; n < Out::EACH; ++n) {
                    const float4 sum = *reinterpret_cast<const float4 *>(drain.of(n));
                    float v[4] = {sum.x, sum.y, sum.z, sum.w}, f[4];
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        v[e] = to_acc(from_acc<T>(v[e]));
                        f[e] = to_acc(x[0].v[e]);
                    }
                    activate_grads<T>(p.activation, f, v);
                    const u64 row = Out::row(i, n);
                    if (row < rows) {
                        store<4>(c + first + row * p.n, v);
                        if (kept) store<4>(kept + first + row * p.n, f);
                    }
#pragma unroll
                    for (int j = 0; j + 1 < Out::EACH; ++j) x[j] = x[j + 1];
                }
                __syncthreads();
                continue;
            }
        }
        if (parts) {
#pragma unroll
            for (int n = 0; n < Out::EACH; ++n) {
                const u64 row = Out::row(i, n);
                const float4 sum = *reinterpret_cast<const float4 *>(drain.of(n));
                if (row < rows) *reinterpret_cast<float4 *>(parts + first + row * p.n) = sum;
            }
        } else if (p.activation == ACTIVATION_NONE) {
#pragma unroll
            for (int n = 0; n < Out::EACH; ++n) {
                const u64 row = Out::row(i, n);
                const float4 sum = *reinterpret_cast<const float4 *>(drain.of(n));
                const float v[4] = {sum.x + b[0], sum.y + b[1], sum.z + b[2], sum.w + b[3]};
                if (row < rows) store<4>(c + first + row * p.n, v);
                if (KEEP && kept && row < rows) store<4>(kept + first + row * p.n, v);
            }
        } else {
#pragma unroll 1
            for (int n = 0; n < Out::EACH; ++n) {
                const u64 row = Out::row(i, n);
                const float4 sum = *reinterpret_cast<const float4 *>(drain.of(n));
                float v[4] = {sum.x + b[0], sum.y + b[1], sum.z + b[2], sum.w + b[3]};
                if (KEEP && kept && row < rows) store<4>(kept + first + row * p.n, v);
                activate_sums<T>(p.activation, v);
                if (row < rows) store<4>(c + first + row * p.n, v);
            }
        }
        __syncthreads();
    }
}

// `memory`: Tile::BYTES of shared memory, from a multiple of 1024 on. KEEP and SLOPE: whether the kernel has these epilogues.
template <typename T, typename Tile, typename A, typename B, bool KEEP, bool SLOPE>
__device__ __forceinline__ void tensor(const MatmulParams &p, const T *__restrict__ a, const T *__restrict__ b,
                                       const T *__restrict__ bias, T *__restrict__ kept,
                                       const T *__restrict__ slope_at, T *__restrict__ c, float *parts,
                                       const RowNorm &norm, const Cut &cut, u64 lda, u64 ldb, unsigned char *memory) {
    u64 number = block_number();
    if (number >= cut.blocks) return; // the whole block
    Place at = place<Tile::ROWS, Tile::COLUMNS>(p, cut, number);
    // The epilogue writes what it has read for the slope.
    if (SLOPE && kept && (norm.s || parts || p.n % 4 != 0)) write_values<T, Tile::ROWS, Tile::COLUMNS, Tile::THREADS>(p, at, norm, slope_at, kept);
    A from_a(a + batch_offset(p, p.a_batch, at.batch), lda, at.row, p.m, at.from);
    B from_b(b + batch_offset(p, p.b_batch, at.batch), ldb, at.col, p.n, at.from);
    typename Tile::Sums sums = {};
    tensor_product<T, A, B, Tile>(
        shared_address(memory), (i64)(at.to - at.from),
        [&](u32 stage, int count) {
            from_a.copy(stage, count);
            from_b.copy(stage + A::BYTES, count);
        },
        sums);
    __syncthreads();
    at = place<Tile::ROWS, Tile::COLUMNS>(p, cut, block_number_again());
    if (p.n % 4 == 0)
        write_tile<T, Tile, A::Layout::PAIRS, KEEP, SLOPE>(p, at, bias, slope_at, SLOPE && norm.s ? nullptr : kept, c, parts, sums, memory);
    else
        each_four<Tile, 1, A::Layout::PAIRS>(sums, memory, [&](int row, int column, float *v) {
            write_four(p, at, bias, c, parts, at.row + row, at.col + column, v, KEEP ? kept : nullptr,
                       SLOPE ? slope_at : nullptr);
        });
    add_parts<T, Tile::ROWS, Tile::COLUMNS, Tile::THREADS>(
        p, cut, bias, c, parts, reinterpret_cast<float *>(memory), [](u32) {}, KEEP ? kept : nullptr,
        SLOPE ? slope_at : nullptr);
}

// The gradients of a linear layer: dw = gᵀ·x, a product with A stored [k, m], and db, the sums of A's rows along k. The
// blocks of the first columns have those sums from products of the fragments of A that they hold with 1. With `parts`, both
// are partial sums: of dw as of any product, of db in bias_parts [splits, m], and end as those do.
template <typename T, typename Tile>
__device__ __forceinline__ void linear_weight_grad(const MatmulParams &p, const T *__restrict__ g,
                                                   const T *__restrict__ x, T *__restrict__ dw, T *__restrict__ db,
                                                   float *parts, float *bias_parts, const Cut &cut,
                                                   unsigned char *memory) {
    using A = AlignedRows<T, false, false, Tile>;
    using B = AlignedRows<T, false, true, Tile>;
    u64 number = block_number();
    if (number >= cut.blocks) return; // the whole block
    Place at = place<Tile::ROWS, Tile::COLUMNS>(p, cut, number);
    A from_a(g, p.m, at.row, p.m, at.from);
    B from_b(x, p.n, at.col, p.n, at.from);
    auto copy = [&](u32 stage, int count) {
        from_a.copy(stage, count);
        from_b.copy(stage + A::BYTES, count);
    };
    typename Tile::Sums sums = {};
    i64 depth = (i64)(at.to - at.from);
    if (at.col == 0) {
        RowSums<Tile> rows = {};
        tensor_product<T, A, B, Tile, true>(shared_address(memory), depth, copy, sums, &rows);
        u64 part = at.from / cut.part;
        if (Tile::column() == 0 && threadIdx.x % 4 == 0) {
#pragma unroll
            for (int i = 0; i < Tile::MS; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const u32 of = threadIdx.x % 32 / 4;
                    u64 row = at.row + Tile::row() + 16 * i + (A::Layout::PAIRS ? 2 * of + half : of + 8 * half);
                    if (row >= p.m) continue;
                    if (parts) bias_parts[part * p.m + row] = rows[i][2 * half];
                    else db[row] = from_acc<T>(rows[i][2 * half]);
                }
        }
    } else {
        tensor_product<T, A, B, Tile>(shared_address(memory), depth, copy, sums);
    }
    __syncthreads();
    at = place<Tile::ROWS, Tile::COLUMNS>(p, cut, block_number_again());
    if (p.n % 4 == 0)
        write_tile<T, Tile, A::Layout::PAIRS, false, false>(p, at, (const T *)nullptr, (const T *)nullptr, (T *)nullptr, dw, parts, sums, memory);
    else
        each_four<Tile, 1, A::Layout::PAIRS>(sums, memory, [&](int row, int column, float *v) {
            write_four(p, at, (const T *)nullptr, dw, parts, at.row + row, at.col + column, v);
        });
    add_parts<T, Tile::ROWS, Tile::COLUMNS, Tile::THREADS>(
        p, cut, (const T *)nullptr, dw, parts, reinterpret_cast<float *>(memory), [&](u32 turn) {
            if (at.col > 0) return;
            for (u32 i = turn * Tile::THREADS + threadIdx.x; i < Tile::ROWS; i += cut.sharers * Tile::THREADS) {
                const u64 row = at.row + i;
                if (row >= p.m) continue;
                float sum = 0.0f;
#pragma unroll 4
                for (u32 s = 0; s < cut.splits; ++s) sum += __ldcg(bias_parts + s * p.m + row);
                db[row] = from_acc<T>(sum);
            }
        });
}

// matmul_FAMILY_TILE_AB_dtype: n for an operand that is not transposed, t for one that is. SHAPE is the tile's type.
#define MATMUL_TENSOR_KERNEL(name, SHAPE, T, ta, tb, keep, slope, Rows, blocks, declare)                               \
    extern "C" __global__ void __launch_bounds__(SHAPE::THREADS, blocks)                                               \
        name(MatmulParams p, const T *__restrict__ a, const T *__restrict__ b, const T *__restrict__ bias,             \
             T *__restrict__ kept, const T *__restrict__ slope_at, T *__restrict__ c, float *__restrict__ parts,       \
             RowNorm norm, Cut cut) {                                                                                  \
        using Tile = SHAPE;                                                                                            \
        declare;                                                                                                       \
        tensor<T, Tile, Rows<T, !ta, false, Tile>, Rows<T, tb, true, Tile>, keep, slope>(                              \
            p, a, b, bias, kept, slope_at, c, parts, norm, cut, ta ? p.m : p.k, tb ? p.k : p.n, memory);               \
    }
#define LINEAR_WEIGHT_GRAD(name, SHAPE, T, blocks, declare)                                                            \
    extern "C" __global__ void __launch_bounds__(SHAPE::THREADS, blocks)                                               \
        name(MatmulParams p, const T *__restrict__ g, const T *__restrict__ x, T *__restrict__ dw, T *__restrict__ db, \
             float *__restrict__ parts, float *__restrict__ bias_parts, Cut cut) {                                     \
        using Tile = SHAPE;                                                                                            \
        declare;                                                                                                       \
        linear_weight_grad<T, Tile>(p, g, x, dw, db, parts, bias_parts, cut, memory);                                  \
    }
#define STATIC_MEMORY __shared__ __align__(1024) unsigned char memory[Tile::BYTES]
#define DYNAMIC_MEMORY extern __shared__ __align__(1024) unsigned char memory[]
// Of a linear layer nt is the product itself, which keeps, and nn the gradient of the input, which has slopes. In the smallest
// tile registers of one or the other would cost the main loop up to 46 instructions.
#define MATMUL_TENSOR(family, tile, suffix, SHAPE, T, Rows, keep, slope, blocks, declare)                              \
    MATMUL_TENSOR_KERNEL(matmul_##family##_##tile##_nn_##suffix, SHAPE, T, false, false, false, slope, Rows, blocks, declare) \
    MATMUL_TENSOR_KERNEL(matmul_##family##_##tile##_nt_##suffix, SHAPE, T, false, true, keep, false, Rows, blocks, declare)   \
    MATMUL_TENSOR_KERNEL(matmul_##family##_##tile##_tn_##suffix, SHAPE, T, true, false, false, false, Rows, blocks, declare)  \
    MATMUL_TENSOR_KERNEL(matmul_##family##_##tile##_tt_##suffix, SHAPE, T, true, true, false, false, Rows, blocks, declare)
#define MATMUL_TENSORS(suffix, T)                                                                                      \
    MATMUL_TENSOR(tensor, 128x256, suffix, ProductTile128x256<T>, T, AlignedRows, true, true, 1, DYNAMIC_MEMORY)       \
    MATMUL_TENSOR(tensor, 128x128, suffix, TensorTile128x128, T, AlignedRows, true, true, 2, STATIC_MEMORY)            \
    MATMUL_TENSOR(tensor, 128x64, suffix, TensorTile128x64, T, AlignedRows, true, true, 4, STATIC_MEMORY)              \
    MATMUL_TENSOR(tensor, 64x64, suffix, TensorTile64x64, T, AlignedRows, true, false, 6, STATIC_MEMORY)               \
    MATMUL_TENSOR(tensor, 64x64_any, suffix, TensorTile64x64, T, AnyRows, false, true, 6, STATIC_MEMORY)               \
    LINEAR_WEIGHT_GRAD(linear_weight_grad_128x256_##suffix, ProductTile128x256<T>, T, 1, DYNAMIC_MEMORY)               \
    LINEAR_WEIGHT_GRAD(linear_weight_grad_128x128_##suffix, TensorTile128x128, T, 2, STATIC_MEMORY)                    \
    LINEAR_WEIGHT_GRAD(linear_weight_grad_128x64_##suffix, TensorTile128x64, T, 4, STATIC_MEMORY)                      \
    LINEAR_WEIGHT_GRAD(linear_weight_grad_64x64_##suffix, TensorTile64x64, T, 6, STATIC_MEMORY)
