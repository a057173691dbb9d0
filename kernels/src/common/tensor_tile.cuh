// A square tile of a product on tensor cores (sm_80 and later): where its operands lie in shared memory, and the loop
// that multiplies them. Matrix products and convolutions bring their own copies from global memory.
//
// A block computes SIDE × SIDE results in steps of 64 bytes along k (32 elements of 16 bits, 16 of tf32), a warp
// 64 × 32 of them (32 × 32 in the small tile). Operands travel from global to shared memory by cp.async, two steps ahead
// of the products, in a ring of three stages; from there to registers by ldmatrix.
//
// A stage of an operand is a table of 16-byte chunks, laid out as the operand lies in memory, so that no thread ever
// transposes by hand:
//   rows along k:   [SIDE][4 chunks of k]                      ldmatrix
//   rows across:    [k of the step][SIDE/8 or /4 chunks]       ldmatrix_trans, or 4-byte reads (tf32)
// Chunk j of row r lies at place j ^ swizzle(r): whatever eight rows ldmatrix reads together are then in different banks.
#pragma once

#include "cp_async.cuh"
#include "vector.cuh"

template <int SIDE_> struct TensorTile {
    static constexpr int SIDE = SIDE_;
    static constexpr int DOWN = 2, ACROSS = SIDE / 32, THREADS = DOWN * ACROSS * 32; // warps
    static constexpr int HEIGHT = SIDE / DOWN, MS = HEIGHT / 16, NS = 2;             // of a warp; its fragments
    static constexpr int STAGES = 3, STAGE = 2 * SIDE * 64, BYTES = STAGES * STAGE;  // shared memory of both operands

    using Sums = float[MS][2 * NS][4]; // fragments of C (common/mma.cuh)

    // The first row and column of this thread's warp.
    static __device__ __forceinline__ int row() { return (int)(threadIdx.x / 32 / ACROSS) * HEIGHT; }
    static __device__ __forceinline__ int column() { return (int)(threadIdx.x / 32 % ACROSS) * 32; }
};

// One operand in shared memory: SIDE rows or columns of C, 64 bytes along k a stage. K_INNER: rows of memory run along k.
template <typename T, bool K_INNER, typename Tile> struct OperandTile {
    static constexpr int CHUNK = LANES<T>;  // elements of 16 bytes
    static constexpr int DEPTH = 4 * CHUNK; // elements of a stage along k
    static constexpr int ROWS = K_INNER ? Tile::SIDE : DEPTH, CHUNKS = K_INNER ? 4 : Tile::SIDE / CHUNK;
    static constexpr int BYTES = Tile::SIDE * 64;               // of a stage
    static constexpr int COPIES = Tile::SIDE * 4 / Tile::THREADS; // chunks that a thread copies a stage
    static constexpr int APART = Tile::THREADS / CHUNKS;          // rows between two of them
    static_assert(Tile::THREADS % CHUNKS == 0 && COPIES * APART == ROWS, "threads divide the chunks evenly");
    static_assert(APART % 8 == 0, "a thread's chunks have the same swizzle");

    // A thread copies chunk `chunk()` of row `row(i)` to `place(i)`, for every i < COPIES.
    static __device__ __forceinline__ int row(int i) { return (int)(threadIdx.x / CHUNKS) + i * APART; }
    static __device__ __forceinline__ int chunk() { return (int)(threadIdx.x % CHUNKS); }
    static __device__ __forceinline__ u32 place(int i) { return place_of(row(0), chunk()) + i * APART * CHUNKS * 16; }

    // Byte offset of a chunk in a stage.
    static __device__ __forceinline__ u32 place_of(int row, int chunk) {
        int swizzle = CHUNKS == 4 ? row / 2 % 4 : sizeof(T) == 2 ? row % 8 : row % 4 * 2;
        return (u32)(row * CHUNKS + (chunk ^ swizzle)) * 16;
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

template <typename T> __device__ __forceinline__ void mma_step(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (sizeof(T) == 4) mma_tf32(c, a, b);
    else mma<T>(c, a, b);
}

// sums += A·B over `left` elements along k. `copy(stage, count)` queues this thread's chunks of the next stage, of which
// `count` elements along k exist: A's from that address on, B's from A::BYTES after it. `memory` is Tile::BYTES of shared
// memory, from a multiple of 1024 on; after one more __syncthreads() it is free again.
template <typename T, typename A, typename B, typename Tile, typename Copy>
__device__ __forceinline__ void tensor_product(u32 memory, i64 left, Copy &&copy, typename Tile::Sums &sums) {
    constexpr int AHEAD = Tile::STAGES - 1, DEPTH = A::DEPTH;
    u32 lane_a = A::lane_offset(Tile::row()), lane_b = A::BYTES + B::lane_offset(Tile::column());
    auto queue = [&](u32 stage, i64 left) {
        if (left > 0) copy(stage, (int)min(left, (i64)DEPTH));
        cp_async_commit();
    };
#pragma unroll 1
    for (int s = 0; s < AHEAD; ++s) queue(memory + s * Tile::STAGE, left - s * DEPTH);
    u32 now = memory, next = memory + AHEAD * Tile::STAGE;
    for (; left > 0; left -= DEPTH) {
        cp_async_wait<AHEAD - 1>();
        __syncthreads();
        queue(next, left - AHEAD * DEPTH);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            u32 b[Tile::NS][4];
#pragma unroll
            for (int j = 0; j < Tile::NS; ++j) B::fragment(b[j], now + lane_b, j, step);
#pragma unroll
            for (int i = 0; i < Tile::MS; ++i) {
                u32 a[4];
                A::fragment(a, now + lane_a, i, step);
#pragma unroll
                for (int j = 0; j < Tile::NS; ++j) {
                    mma_step<T>(sums[i][2 * j], a, {b[j][0], b[j][2]});
                    mma_step<T>(sums[i][2 * j + 1], a, {b[j][1], b[j][3]});
                }
            }
        }
        next = now;
        now = now == memory + AHEAD * Tile::STAGE ? memory : now + Tile::STAGE;
    }
}
