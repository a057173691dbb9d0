// The fourth variant of the matrix product: tensor cores. Formula and parameters: matmul.cuh.
//
// A block computes a SIDE×SIDE tile of C by the pipeline of common/tensor_tile.cuh.
//
// Rows that are multiples of 16 bytes are copied by 16; of 8 or 4 bytes by those; odd rows of 16-bit elements cannot be
// copied asynchronously, and go through registers.
//
// Geometry: matmul_tensor_128_*: 256 threads, 8 warps as 2×4. matmul_tensor_64_*: 128 threads, 4 warps as 2×2.
//           grid cut.blocks = splits·batches·ceil(m/SIDE)·ceil(n/SIDE) in x and y (matmul.cu); cut.part a multiple of 32.
//           C and the partial sums begin at multiples of 16 bytes; A and B anywhere.
// By ptxas (CUDA 13.0), of 65,536 registers, 64 warps and 164 (sm_90: 228) KiB of shared memory a multiprocessor:
//   kernel               registers sm_80 / sm_90   shared    blocks  warps
//   matmul_tensor_128_*  108–122 / 115–122         48 KiB    2       16, 25 %
//   matmul_tensor_64_*    78–90  /  86–94          24 KiB    5 or 6  20 or 24, 31 % or 38 %
#pragma once

#include "common/tensor_tile.cuh"
#include "matmul.cuh"

// The copies of one operand of a block.
template <typename T, bool K_INNER, typename Tile> struct Operand : OperandTile<T, K_INNER, Tile> {
    using Layout = OperandTile<T, K_INNER, Tile>;
    static constexpr int CHUNK = Layout::CHUNK, DEPTH = Layout::DEPTH, COPIES = Layout::COPIES, APART = Layout::APART;

    const T *from; // this thread's first chunk of the next stage
    int along;     // where that chunk begins along k
    int across;    // rows along k: how many of this thread's rows exist; rows across: elements of its chunks that do
    int width;     // bytes that can be copied at once

    // `first` and `end`: the block's first row or column of C, and C's end; `l`: where the block begins along k.
    __device__ __forceinline__ Operand(const T *src, u64 ld, u64 first, u64 end, u64 l) {
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
    __device__ __forceinline__ void copy(u32 stage, int left, u64 ld) {
#pragma unroll
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

template <typename T, bool TRANS_A, bool TRANS_B, int SIDE>
__device__ __forceinline__ void tensor(const MatmulParams &p, const T *__restrict__ a, const T *__restrict__ b,
                                       const T *__restrict__ bias, T *__restrict__ c, float *__restrict__ parts,
                                       const Cut &cut) {
    using Tile = TensorTile<SIDE>;
    using A = Operand<T, !TRANS_A, Tile>;
    using B = Operand<T, TRANS_B, Tile>;
    constexpr int STRIDE = SIDE + 8;
    __shared__ __align__(1024) unsigned char shared[Tile::BYTES];
    static_assert(32 * STRIDE * 4 <= sizeof(shared), "32 rows of C fit");
    u64 number = block_number();
    if (number >= cut.blocks) return; // the whole block
    Place at = place<SIDE, SIDE>(p, cut, number);
    u64 lda = TRANS_A ? p.m : p.k, ldb = TRANS_B ? p.k : p.n;
    A from_a(a + batch_offset(p, p.a_batch, at.batch), lda, at.row, p.m, at.from);
    B from_b(b + batch_offset(p, p.b_batch, at.batch), ldb, at.col, p.n, at.from);
    typename Tile::Sums acc = {};
    tensor_product<T, A, B, Tile>(
        shared_address(shared), (i64)(at.to - at.from),
        [&](u32 stage, int count) {
            from_a.copy(stage, count, lda);
            from_b.copy(stage + A::BYTES, count, ldb);
        },
        acc);
    __syncthreads();

    at = place<SIDE, SIDE>(p, cut, block_number_again());
    // 16 rows of every warp at once, through the memory of the stages.
    float *stage = reinterpret_cast<float *>(shared);
    int lane = threadIdx.x % 32, warp_row = Tile::row() / Tile::HEIGHT;
#pragma unroll
    for (int i = 0; i < Tile::MS; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * Tile::NS; ++j) {
            float *to = stage + (warp_row * 16 + lane / 4) * STRIDE + Tile::column() + 8 * j + lane % 4 * 2;
            *reinterpret_cast<float2 *>(to) = make_float2(acc[i][j][0], acc[i][j][1]);
            *reinterpret_cast<float2 *>(to + 8 * STRIDE) = make_float2(acc[i][j][2], acc[i][j][3]);
        }
        __syncthreads();
        drain<T, 32, SIDE, STRIDE, Tile::THREADS>(
            stage, p, at, bias, c, parts, [i](int r) { return r / 16 * Tile::HEIGHT + 16 * i + r % 16; });
        __syncthreads();
    }
}

// matmul_tensor_SIDE_AB_dtype: n for an operand that is not transposed, t for one that is.
#define MATMUL_TENSOR(name, suffix, T, ta, tb, side)                                                                   \
    extern "C" __global__ void __launch_bounds__(2 * side, side == 128 ? 2 : 4)                                        \
        matmul_tensor_##side##_##name##_##suffix(MatmulParams p, const T *__restrict__ a, const T *__restrict__ b,     \
                                                 const T *__restrict__ bias, T *__restrict__ c,                        \
                                                 float *__restrict__ parts, Cut cut) {                                 \
        tensor<T, ta, tb, side>(p, a, b, bias, c, parts, cut);                                                         \
    }
#define MATMUL_TENSORS(suffix, T)                                                                                      \
    MATMUL_TENSOR(nn, suffix, T, false, false, 128)                                                                    \
    MATMUL_TENSOR(nt, suffix, T, false, true, 128)                                                                     \
    MATMUL_TENSOR(tn, suffix, T, true, false, 128)                                                                     \
    MATMUL_TENSOR(tt, suffix, T, true, true, 128)                                                                      \
    MATMUL_TENSOR(nn, suffix, T, false, false, 64)                                                                     \
    MATMUL_TENSOR(nt, suffix, T, false, true, 64)                                                                      \
    MATMUL_TENSOR(tn, suffix, T, true, false, 64)                                                                      \
    MATMUL_TENSOR(tt, suffix, T, true, true, 64)
