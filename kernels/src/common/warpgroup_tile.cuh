// A tile of a product on the tensor cores of sm_90a, by `wgmma`: the counterpart of TensorTile (tensor_tile.cuh), with the same copies and the
// same way out.
//
// A block of two warp groups computes 128 × COLUMNS results in steps of 128 bytes along k, 64 elements of 16 bits; a group has 64 rows. Operands
// travel to shared memory by cp.async, in a ring of stages, and are multiplied there: no fragment passes through registers.
//
// A stage of an operand is made of rows of 128 bytes, swizzled as wgmma.cuh says:
//   rows along k:   [side][64 of k]
//   rows across:    [side / 64][64 of k][64 across]
// (side: ROWS of A, COLUMNS of B.)
#pragma once

#include "tensor_tile.cuh"
#include "wgmma.cuh"

// ALONE: no other block shares the multiprocessor.
template <int COLUMNS_, int STAGES_, bool ALONE> struct WarpgroupTile {
    static constexpr bool WARPGROUPS = true;
    // Eight warps, each with 16 rows and all columns: of a group's 64 rows, a warp's are neighbours.
    static constexpr int DOWN = 8, ACROSS = 1, THREADS = 256;
    static constexpr int HEIGHT = 16, WIDTH = COLUMNS_, MS = 1, NS = WIDTH / 16;
    static constexpr int ROWS = 128, COLUMNS = COLUMNS_;
    // Shared memory of both operands, and SPARE bytes that are free of them and of the epilogue: `product` has a block of ones there if it sums
    // rows.
    static constexpr int STAGES = STAGES_, STAGE = (ROWS + COLUMNS) * 128, SPARE_AT = STAGES * STAGE, SPARE = 1024, BYTES = SPARE_AT + SPARE;

    using Sums = float[MS][2 * NS][4];

    static __device__ __forceinline__ int row() { return (int)(threadIdx.x / 32) * HEIGHT; }
    static __device__ __forceinline__ int column() { return 0; }

    // As tensor_product.
    template <typename T, typename A, typename B, bool OF_ROWS, typename Copy>
    static __device__ __forceinline__ void product(u32 memory, i64 left, Copy &&copy, Sums &sums, float (*rows)[MS][4]);
};

using WarpgroupTile128x256 = WarpgroupTile<256, 4, true>;
using WarpgroupTile128x128 = WarpgroupTile<128, 3, false>;
using WarpgroupTile128x64 = WarpgroupTile<64, 4, false>;

template <typename T, bool K_INNER, bool RIGHT, int COLUMNS, int STAGES, bool ALONE>
struct OperandTile<T, K_INNER, RIGHT, WarpgroupTile<COLUMNS, STAGES, ALONE>> {
    using Tile = WarpgroupTile<COLUMNS, STAGES, ALONE>;
    static_assert(sizeof(T) == 2, "16-bit elements");
    static constexpr int SIDE = RIGHT ? Tile::COLUMNS : Tile::ROWS;
    static constexpr int CHUNK = LANES<T>, DEPTH = 8 * CHUNK; // elements of 16 bytes, and of a stage along k
    static constexpr int ROWS = K_INNER ? SIDE : DEPTH, CHUNKS = K_INNER ? 8 : SIDE / CHUNK;
    static constexpr int BYTES = SIDE * 128;                // of a stage
    static constexpr int COPIES = SIDE * 8 / Tile::THREADS; // chunks that a thread copies a stage
    static constexpr int APART = Tile::THREADS / CHUNKS;    // rows between two of them
    static constexpr int BLOCK = DEPTH * 128;               // bytes of 64 columns of rows across
    static constexpr int ACROSS = K_INNER ? 0 : 1;
    static constexpr bool PAIRS = false; // of rows, as in OperandTile of TensorTile
    static_assert(Tile::THREADS % CHUNKS == 0 && COPIES * APART == ROWS, "threads divide the chunks evenly");
    static_assert(APART % 8 == 0, "rows of a thread are swizzled alike");

    // A thread copies chunk `chunk()` of row `row(i)` to `place(i)`, for every i < COPIES.
    static __device__ __forceinline__ int row(int i) { return (int)(threadIdx.x / CHUNKS) + i * APART; }
    static __device__ __forceinline__ int chunk() { return (int)(threadIdx.x % CHUNKS); }
    static __device__ __forceinline__ u32 place(int i) {
        const int row = (int)(threadIdx.x / CHUNKS), c = chunk();
        return (u32)(c / 8 * BLOCK + row * 128 + (c % 8 ^ row % 8) * 16) + i * APART * 128;
    }

    // The descriptor of the first 16 elements along k of the rows from `first` on, a multiple of 64, or of all columns.
    static __device__ __forceinline__ u64 operand(u32 stage, int first) {
        return wgmma_operand<K_INNER ? 16 : BLOCK, 1024>(stage + first * 128);
    }
    // What is added to it for the next 16.
    static constexpr int NEXT = (K_INNER ? 32 : 16 * 128) / 16;
};

// A block that is alone issues the products of a step while those of the step before are under way, so that the tensor cores have work while it
// waits for copies and for its other group; the stage that is filled is then the one before that. Others wait for their products, fill a stage
// more, and leave the tensor cores to another block meanwhile.
template <int COLUMNS, int STAGES, bool ALONE>
template <typename T, typename A, typename B, bool OF_ROWS, typename Copy>
__device__ __forceinline__ void WarpgroupTile<COLUMNS, STAGES, ALONE>::product(u32 memory, i64 left, Copy &&copy, Sums &sums,
                                                                               float (*rows)[MS][4]) {
    constexpr int AHEAD = ALONE ? STAGES - 2 : STAGES - 1, DEPTH = A::DEPTH;
    const int group = (int)(threadIdx.x / 128) * 64;
    auto queue = [&](u32 stage, i64 left) {
        if (left > 0) copy(stage, (int)min(left, (i64)DEPTH));
        cp_async_commit();
    };
#pragma unroll 1
    for (int s = 0; s < AHEAD; ++s) queue(memory + s * STAGE, left - s * DEPTH);
    // Ones as the right operand of a product give the sums of the rows of the left. Where all are equal, so are all layouts.
    if constexpr (OF_ROWS)
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(memory + SPARE_AT + threadIdx.x * 4), "r"(ONES<T>) : "memory");
    u32 now = memory, next = memory + AHEAD * STAGE;
    auto after = [&](u32 stage) { return stage == memory + (STAGES - 1) * STAGE ? memory : stage + STAGE; };
#pragma unroll 1
    for (; left > 0; left -= DEPTH) {
        cp_async_wait<AHEAD - 1>();
        fence_async_proxy();
        if constexpr (!ALONE) wgmma_wait<0>();
        __syncthreads();
        u64 a = A::operand(now, group), b = B::operand(now + A::BYTES, 0);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < DEPTH / 16; ++step) {
            Wgmma<T, COLUMNS, A::ACROSS, B::ACROSS>::run(sums[0], a, b);
            if constexpr (OF_ROWS) Wgmma<T, 8, A::ACROSS, 0>::run(*rows, a, wgmma_operand<16, 1024>(memory + SPARE_AT));
            a += A::NEXT;
            b += B::NEXT;
        }
        wgmma_commit();
        queue(next, left - AHEAD * DEPTH);
        if constexpr (ALONE) wgmma_wait<1>();
        now = after(now);
        next = after(next);
    }
    wgmma_wait<0>();
}
