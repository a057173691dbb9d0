// The fourth variant of the matrix product: tensor cores. Formula and parameters: matmul.cuh; fragments: common/mma.cuh.
//
// A block computes a SIDE×SIDE tile of C in steps of 64 bytes along k (32 elements of 16 bits, 16 of tf32), a warp
// 64×32 of it (32×32 in the small one). Operands travel from global to shared memory by cp.async, two steps ahead of
// the products, in a ring of three stages; from there to registers by ldmatrix.
//
// A stage of an operand is a table of 16-byte chunks, laid out as the operand lies in memory, so that no thread ever
// transposes by hand:
//   rows along k  (A, B with trans_b):   [SIDE][4 chunks of k]        ldmatrix
//   rows across   (A with trans_a, B):   [k of the step][SIDE/8 or /4 chunks]  ldmatrix_trans, or 4-byte reads (tf32)
// Chunk j of row r lies at place j ^ swizzle(r): whatever eight rows ldmatrix reads together are then in different banks.
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

#include "common/cp_async.cuh"
#include "common/mma.cuh"
#include "matmul.cuh"

constexpr int STAGES = 3;

// One operand of a block: SIDE rows or columns of C, 64 bytes along k a stage. K_INNER: rows of memory run along k.
template <typename T, bool K_INNER, int SIDE, int THREADS> struct Operand {
    static constexpr int CHUNK = LANES<T>;          // elements of 16 bytes
    static constexpr int DEPTH = 4 * CHUNK;         // elements of a stage along k
    static constexpr int ROWS = K_INNER ? SIDE : DEPTH, CHUNKS = K_INNER ? 4 : SIDE / CHUNK;
    static constexpr int BYTES = SIDE * 64;         // of a stage
    static constexpr int COPIES = SIDE * 4 / THREADS; // chunks that a thread copies a stage
    static constexpr int APART = THREADS / CHUNKS;  // rows between two of them
    static_assert(THREADS % CHUNKS == 0 && COPIES * APART == ROWS, "threads divide the chunks evenly");

    const T *from; // this thread's first chunk of the next stage
    u32 to;        // its place in a stage
    int along;     // where that chunk begins along k
    int across;    // rows along k: how many of this thread's rows exist; rows across: elements of its chunks that do
    int width;     // bytes that can be copied at once

    // Byte offset of a chunk in a stage.
    static __device__ __forceinline__ u32 place_of(int row, int chunk) {
        int swizzle = CHUNKS == 4 ? row / 2 % 4 : sizeof(T) == 2 ? row % 8 : row % 4 * 2;
        return (u32)(row * CHUNKS + (chunk ^ swizzle)) * 16;
    }

    // `first` and `end`: the block's first row or column of C, and C's end; `l`: where the block begins along k.
    __device__ __forceinline__ Operand(const T *src, u64 ld, u64 first, u64 end, u64 l) {
        int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
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
        to = place_of(row, chunk);
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
            u32 dst = stage + to + i * APART * CHUNKS * 16; // APART is a multiple of 8: the same swizzle
            if (width == 16) copy_by<16>(dst, src, count);
            else if (width == 8) copy_by<8>(dst, src, count);
            else if (sizeof(T) == 4 || width == 4) copy_by<4>(dst, src, count);
            else copy_plain(dst, src, count);
        }
        from += K_INNER ? DEPTH : DEPTH * ld;
    }

    // Where this lane reads the first fragment of the rows or columns of C from `mn` on (a multiple of 16). The other
    // fragments' addresses differ from it in constants only: bits that the swizzle flips stay apart (`^`), whole rows
    // are added. That takes one register, and a stage must begin at a multiple of 1024.
    static __device__ __forceinline__ u32 lane_offset(int mn) {
        int lane = threadIdx.x % 32;
        if constexpr (K_INNER) return place_of(mn + lane % 16, lane / 16);
        else if constexpr (sizeof(T) == 2) return place_of(lane % 8 + lane / 16 * 8, mn / 8 + lane / 8 % 2);
        else return place_of(lane % 4, (mn + lane / 4) / 4) + lane / 4 % 4 * 4;
    }

    // Fragment i (16 rows or columns each) of step `step` (32 bytes along k each), in the registers of an A fragment;
    // as B, r[0] and r[2] are its first eight columns, r[1] and r[3] the others. `from`: the stage + lane_offset.
    static __device__ __forceinline__ void fragment(u32 (&r)[4], u32 from, int i, int step) {
        if constexpr (K_INNER) {
            ldmatrix(r, (from ^ (32 * step)) + i * 16 * CHUNKS * 16);
        } else if constexpr (sizeof(T) == 2) {
            ldmatrix_trans(r, (from ^ (32 * i)) + step * 16 * CHUNKS * 16);
        } else {
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                u32 at = (from ^ (64 * i + q % 2 * 32)) + (8 * step + q / 2 * 4) * CHUNKS * 16;
                asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r[q]) : "r"(at) : "memory");
            }
        }
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int q = 0; q < 4; ++q) r[q] = tf32(r[q]);
        }
    }
};

template <typename T> __device__ __forceinline__ void product(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (sizeof(T) == 4) mma_tf32(c, a, b);
    else mma<T>(c, a, b);
}

template <typename T, bool TRANS_A, bool TRANS_B, int SIDE>
__device__ __forceinline__ void tensor(const MatmulParams &p, const T *__restrict__ a, const T *__restrict__ b,
                                       const T *__restrict__ bias, T *__restrict__ c, float *__restrict__ parts,
                                       const Cut &cut) {
    constexpr int DOWN = 2, ACROSS = SIDE / 32, THREADS = DOWN * ACROSS * 32; // warps
    constexpr int HEIGHT = SIDE / DOWN, MS = HEIGHT / 16, NS = 2;             // of a warp; its fragments
    using A = Operand<T, !TRANS_A, SIDE, THREADS>;
    using B = Operand<T, TRANS_B, SIDE, THREADS>;
    constexpr int DEPTH = A::DEPTH, STAGE = A::BYTES + B::BYTES, STRIDE = SIDE + 8;
    __shared__ __align__(1024) unsigned char shared[STAGES * STAGE];
    static_assert(32 * STRIDE * 4 <= sizeof(shared), "32 rows of C fit");
    u64 number = block_number();
    if (number >= cut.blocks) return; // the whole block
    Place at = place<SIDE, SIDE>(p, cut, number);
    u64 lda = TRANS_A ? p.m : p.k, ldb = TRANS_B ? p.k : p.n;
    A from_a(a + batch_offset(p, p.a_batch, at.batch), lda, at.row, p.m, at.from);
    B from_b(b + batch_offset(p, p.b_batch, at.batch), ldb, at.col, p.n, at.from);
    int warp = threadIdx.x / 32, row = warp / ACROSS * HEIGHT, col = warp % ACROSS * 32;

    u32 base = shared_address(shared);
    u32 lane_a = A::lane_offset(row), lane_b = A::BYTES + B::lane_offset(col);
    i64 left = (i64)(at.to - at.from); // along k: what is not multiplied yet
    auto copy = [&](u32 stage, i64 left) {
        if (left > 0) {
            int count = (int)min(left, (i64)DEPTH);
            from_a.copy(stage, count, lda);
            from_b.copy(stage + A::BYTES, count, ldb);
        }
        cp_async_commit();
    };
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; ++s) copy(base + s * STAGE, left - s * DEPTH);

    float acc[MS][2 * NS][4] = {};
    u32 now = base, next = base + (STAGES - 1) * STAGE;
    for (; left > 0; left -= DEPTH) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        copy(next, left - (STAGES - 1) * DEPTH);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            u32 fb[NS][4];
#pragma unroll
            for (int j = 0; j < NS; ++j) B::fragment(fb[j], now + lane_b, j, step);
#pragma unroll
            for (int i = 0; i < MS; ++i) {
                u32 fa[4];
                A::fragment(fa, now + lane_a, i, step);
#pragma unroll
                for (int j = 0; j < NS; ++j) {
                    product<T>(acc[i][2 * j], fa, {fb[j][0], fb[j][2]});
                    product<T>(acc[i][2 * j + 1], fa, {fb[j][1], fb[j][3]});
                }
            }
        }
        next = now;
        now = now == base + (STAGES - 1) * STAGE ? base : now + STAGE;
    }
    cp_async_wait<0>();
    __syncthreads();

    at = place<SIDE, SIDE>(p, cut, block_number_again());
    // 16 rows of every warp at once, through the memory of the stages.
    float *stage = reinterpret_cast<float *>(shared);
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < MS; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * NS; ++j) {
            float *to = stage + (warp / ACROSS * 16 + lane / 4) * STRIDE + col + 8 * j + lane % 4 * 2;
            *reinterpret_cast<float2 *>(to) = make_float2(acc[i][j][0], acc[i][j][1]);
            *reinterpret_cast<float2 *>(to + 8 * STRIDE) = make_float2(acc[i][j][2], acc[i][j][3]);
        }
        __syncthreads();
        drain<T, 32, SIDE, STRIDE, THREADS>(stage, p, at, bias, c, parts,
                                            [i](int r) { return r / 16 * HEIGHT + 16 * i + r % 16; });
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
