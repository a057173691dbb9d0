// A tile of a product on tensor cores (sm_80 and later): where its operands lie in shared memory, and the loop that
// multiplies them. Matrix products and convolutions bring their own copies from global memory.
//
// A block computes ROWS × COLUMNS results in steps of 64 bytes along k (32 elements of 16 bits, 16 of tf32), a warp
// HEIGHT × WIDTH of them. The larger a warp's part, the fewer fragments it loads for a product: 64 × 64 results are 32
// products of 8 loads. Operands travel from global to shared memory by cp.async, two or more steps ahead of the products, in a
// ring of stages; from there to registers by ldmatrix.
//
// A stage of an operand is a table of 16-byte chunks, laid out as the operand lies in memory, so that no thread ever
// transposes by hand:
//   rows along k:   [side][4 chunks of k]                      ldmatrix
//   rows across:    [k of the step][side/8 or /4 chunks]       ldmatrix_trans, or reads of 8 (A) and 4 bytes (tf32)
// (side: ROWS of A, COLUMNS of B). Chunk j of row r lies at place j ^ swizzle(r): whatever eight rows ldmatrix reads
// together are then in different banks.
#pragma once

#include "cp_async.cuh"
#include "vector.cuh"

// DOWN × ACROSS warps of HEIGHT × WIDTH results each.
template <int DOWN_, int ACROSS_, int HEIGHT_, int WIDTH_, int STAGES_ = 3> struct TensorTile {
    static constexpr bool WARPGROUPS = false; // their products are those of warps (warpgroup_tile.cuh)
    static constexpr int DOWN = DOWN_, ACROSS = ACROSS_, THREADS = DOWN * ACROSS * 32;
    static constexpr int HEIGHT = HEIGHT_, WIDTH = WIDTH_, MS = HEIGHT / 16, NS = WIDTH / 16; // of a warp; its fragments
    static constexpr int ROWS = DOWN * HEIGHT, COLUMNS = ACROSS * WIDTH;
    static constexpr int STAGES = STAGES_, STAGE = (ROWS + COLUMNS) * 64, BYTES = STAGES * STAGE; // shared memory of both operands

    using Sums = float[MS][2 * NS][4]; // fragments of C (common/mma.cuh)

    // The first row and column of this thread's warp.
    static __device__ __forceinline__ int row() { return (int)(threadIdx.x / 32 / ACROSS) * HEIGHT; }
    static __device__ __forceinline__ int column() { return (int)(threadIdx.x / 32 % ACROSS) * WIDTH; }
};

using TensorTile128x256 = TensorTile<2, 4, 64, 64>; // more shared memory than a kernel may declare
using TensorTile128x128 = TensorTile<2, 2, 64, 64>;
using TensorTile128x64 = TensorTile<2, 1, 64, 64>;
using TensorTile64x64 = TensorTile<1, 2, 64, 32>;

// One operand in shared memory, 64 bytes along k a stage: the rows of A or, RIGHT, the columns of B. K_INNER: rows of
// memory run along k.
template <typename T, bool K_INNER, bool RIGHT, typename Tile> struct OperandTile {
    static constexpr int SIDE = RIGHT ? Tile::COLUMNS : Tile::ROWS;
    static constexpr int CHUNK = LANES<T>;  // elements of 16 bytes
    static constexpr int DEPTH = 4 * CHUNK; // elements of a stage along k
    static constexpr int ROWS = K_INNER ? SIDE : DEPTH, CHUNKS = K_INNER ? 4 : SIDE / CHUNK;
    static constexpr int BYTES = SIDE * 64;                 // of a stage
    static constexpr int COPIES = SIDE * 4 / Tile::THREADS; // chunks that a thread copies a stage
    static constexpr int APART = Tile::THREADS / CHUNKS;    // rows between two of them
    // Rows 2g and 2g + 1 of sixteen are rows g and g + 8 of a fragment of A, so that a lane reads both at once.
    static constexpr bool PAIRS = sizeof(T) == 4 && !K_INNER && !RIGHT;
    static_assert(Tile::THREADS % CHUNKS == 0 && COPIES * APART == ROWS, "threads divide the chunks evenly");
    static_assert((APART & (APART - 1)) == 0, "rows of a thread differ in bits that its first row has not");

    // A thread copies chunk `chunk()` of row `row(i)` to `place(i)`, for every i < COPIES.
    static __device__ __forceinline__ int row(int i) { return (int)(threadIdx.x / CHUNKS) + i * APART; }
    static __device__ __forceinline__ int chunk() { return (int)(threadIdx.x % CHUNKS); }
    static __device__ __forceinline__ u32 place(int i) {
        return (place_of(row(0), chunk()) ^ (u32)(swizzle(i * APART) * 16)) + i * APART * CHUNKS * 16;
    }

    static __device__ __forceinline__ int swizzle(int row) {
        return CHUNKS == 4 ? row / 2 % 4 : sizeof(T) == 2 ? row % 8 : row % 4 * 2;
    }

    // Byte offset of a chunk in a stage.
    static __device__ __forceinline__ u32 place_of(int row, int chunk) {
        return (u32)(row * CHUNKS + (chunk ^ swizzle(row))) * 16;
    }

    // Where this lane reads the first fragment of the rows or columns of C from `mn` on (a multiple of 32). The other
    // fragments' addresses differ from it in constants only: bits that the swizzle flips stay apart (`^`), whole rows
    // are added. That takes one register, and a stage must begin at a multiple of 1024.
    static __device__ __forceinline__ u32 lane_offset(int mn) {
        int lane = threadIdx.x % 32;
        // Rows of eight that ldmatrix reads: of A, the second eight are across and the third along k; of B, the other way.
        int near = lane % 8 + (RIGHT == K_INNER ? lane / 16 * 8 : lane / 8 % 2 * 8), far = RIGHT == K_INNER ? lane / 8 % 2 : lane / 16;
        if constexpr (K_INNER) return place_of(mn + near, far);
        else if constexpr (sizeof(T) == 2) return place_of(near, mn / 8 + far);
        else if constexpr (PAIRS) return place_of(lane % 4, (mn + lane / 4 * 2) / 4) + lane / 4 % 2 * 8;
        else return place_of(lane % 4, (mn + lane / 4) / 4) + lane / 4 % 4 * 4;
    }

    // Fragment i (16 rows or columns each) of step `step` (32 bytes along k each), in the registers of an A fragment or,
    // RIGHT, of two B fragments of eight columns each. `from`: the stage + lane_offset.
    static __device__ __forceinline__ void fragment(u32 (&r)[4], u32 from, int i, int step) {
        if constexpr (K_INNER) {
            ldmatrix(r, (from ^ (32 * step)) + i * 16 * CHUNKS * 16);
        } else if constexpr (sizeof(T) == 2) {
            ldmatrix_trans(r, (from ^ (32 * i)) + step * 16 * CHUNKS * 16);
        } else if constexpr (PAIRS) {
#pragma unroll
            for (int along = 0; along < 2; ++along) {
                u32 at = (from ^ (i % 2 * 64)) + i / 2 * 128 + (8 * step + along * 4) * CHUNKS * 16;
                asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(r[2 * along]), "=r"(r[2 * along + 1]) : "r"(at) : "memory");
            }
        } else {
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                u32 at = (from ^ (i % 2 * 64 + q / 2 * 32)) + i / 2 * 128 + (8 * step + q % 2 * 4) * CHUNKS * 16;
                asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r[q]) : "r"(at) : "memory");
            }
        }
        if constexpr (sizeof(T) == 4) {
            // Two of the same row or, RIGHT, column at a time: where either is NaN, all its results are.
            constexpr int NEXT = RIGHT ? 1 : 2;
            tf32_pair(r[0], r[NEXT]);
            tf32_pair(r[3 - NEXT], r[3]);
        }
    }
};

// The copies of an operand whose rows lie `ld` elements apart and are multiples of 16 bytes, fewer than 2³² of them: a chunk is inside as a
// whole or not at all.
template <typename T, bool K_INNER, bool RIGHT, typename Tile>
struct AlignedRows : OperandTile<T, K_INNER, RIGHT, Tile> {
    using Layout = OperandTile<T, K_INNER, RIGHT, Tile>;

    u64 from;  // address of this thread's first chunk of the next stage
    u32 line;  // chunks from a row to the next
    u32 apart; // from one of its chunks to the next, where a line has one
    int along; // where the first begins along k
    int there; // rows along k: how many of its rows exist; rows across: those that do, all or none

    // `first` and `end`: the block's first row or column of C, and C's end; `l`: where the block begins along k.
    __device__ __forceinline__ AlignedRows(const T *src, u64 ld, u64 first, u64 end, u64 l) {
        int row = Layout::row(0), chunk = Layout::chunk() * Layout::CHUNK;
        i64 left = (i64)(end - first); // above 0
        line = (u32)(ld / Layout::CHUNK);
        // APART times the bytes of a chunk, in a way that does not tell the compiler: it would make each copy's address by constants of its own.
        apart = ((threadIdx.x + blockDim.x) / Layout::CHUNKS - threadIdx.x / Layout::CHUNKS) * 16;
        if constexpr (K_INNER) {
            there = (int)min(max((left - row + Layout::APART - 1) / Layout::APART, (i64)0), (i64)Layout::COPIES);
            along = chunk;
            from = (u64)(src + (first + row) * ld + l + along);
        } else {
            there = chunk < left ? Layout::DEPTH : 0;
            along = row;
            from = (u64)(src + (l + row) * ld + first + chunk);
        }
    }

    // Starts this thread's copies of the next stage, of which `left` elements along k exist.
    __device__ __forceinline__ void copy(u32 stage, int left) {
        int count = K_INNER ? (along < left ? there : 0) : min(there, left) - along;
        u64 src = from;
#pragma unroll
        for (int i = 0; i < Layout::COPIES; ++i) {
            cp_async<16>(stage + Layout::place(i), (const void *)src, (K_INNER ? i : i * Layout::APART) < count ? 16 : 0);
            asm("mad.wide.u32 %0, %1, %2, %0;" : "+l"(src) : "r"(line), "r"(apart));
        }
        from = K_INNER ? from + Layout::DEPTH * sizeof(T) : src; // or DEPTH rows on
    }
};

template <typename T> __device__ __forceinline__ void mma_step(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (sizeof(T) == 4) mma_tf32(c, a, b);
    else mma<T>(c, a, b);
}

// Two elements of 1 in a register, or one of f32.
template <typename T> constexpr u32 ONES = sizeof(T) == 4 ? 0x3f800000 : 0;
template <> constexpr u32 ONES<bf16> = 0x3f803f80;
template <> constexpr u32 ONES<f16> = 0x3c003c00;

// The sums along k of a warp's rows of A: fragments of A·1, every column of which has them.
template <typename Tile> using RowSums = float[Tile::MS][4];

// tensor_product of TensorTile.
//
// A tile of four stages is alone on its multiprocessor, where no other block has work while this one waits: fragments are then loaded a step
// before they are multiplied, from the next stage too.
template <typename T, typename A, typename B, typename Tile, bool ROWS, typename Copy>
__device__ __forceinline__ void warp_product(u32 memory, i64 left, Copy &&copy, typename Tile::Sums &sums,
                                             RowSums<Tile> *rows) {
    constexpr int AHEAD = Tile::STAGES - 1, DEPTH = A::DEPTH;
    u32 lane_a = A::lane_offset(Tile::row()), lane_b = A::BYTES + B::lane_offset(Tile::column());
    int steps = (int)((left + DEPTH - 1) / DEPTH);
    const int rest = (int)((u32)(left - 1) % DEPTH) + 1; // elements of the last
    // Copies a stage, from which `steps` are left.
    auto queue = [&](u32 stage, int steps) {
        if (steps > 0) copy(stage, steps == 1 ? rest : DEPTH);
        cp_async_commit();
    };
    auto load_b = [&](u32 (&b)[Tile::NS][4], u32 stage, int step) {
#pragma unroll
        for (int j = 0; j < Tile::NS; ++j) B::fragment(b[j], stage + lane_b, j, step);
    };
    // Constants would be moved into two registers anew at every product.
    const u32 ones[2] = {ONES<T> * blockDim.y, ONES<T> * blockDim.z};
    auto multiply = [&](int i, const u32 (&a)[4], const u32 (&b)[Tile::NS][4]) {
        if constexpr (ROWS) mma_step<T>((*rows)[i], a, ones);
#pragma unroll
        for (int j = 0; j < Tile::NS; ++j) {
            mma_step<T>(sums[i][2 * j], a, {b[j][0], b[j][1]});
            mma_step<T>(sums[i][2 * j + 1], a, {b[j][2], b[j][3]});
        }
    };
#pragma unroll 1
    for (int s = 0; s < AHEAD; ++s) queue(memory + s * Tile::STAGE, steps - s);
    u32 now = memory, next = memory + AHEAD * Tile::STAGE;
    auto after = [&](u32 stage) { return stage == memory + AHEAD * Tile::STAGE ? memory : stage + Tile::STAGE; };
    if constexpr (AHEAD > 2) {
        u32 a[2][Tile::MS][4], b[2][Tile::NS][4];
        auto load = [&](int to, u32 stage, int step) {
            load_b(b[to], stage, step);
#pragma unroll
            for (int i = 0; i < Tile::MS; ++i) A::fragment(a[to][i], stage + lane_a, i, step);
        };
        auto multiply_all = [&](int of) {
#pragma unroll
            for (int i = 0; i < Tile::MS; ++i) multiply(i, a[of][i], b[of]);
        };
        if (steps <= 0) return;
        cp_async_wait<AHEAD - 1>();
        __syncthreads();
        load(0, now, 0);
        for (;;) {
            load(1, now, 1);
            multiply_all(0);
            if (--steps > 0) {
                cp_async_wait<AHEAD - 2>();
                __syncthreads();
                queue(next, steps - (AHEAD - 1));
                next = now;
                now = after(now);
                load(0, now, 0);
            }
            multiply_all(1);
            if (steps <= 0) return;
        }
    } else {
        for (; steps > 0; --steps) {
            cp_async_wait<AHEAD - 1>();
            __syncthreads();
            queue(next, steps - AHEAD);
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                u32 b[Tile::NS][4];
                load_b(b, now, step);
#pragma unroll
                for (int i = 0; i < Tile::MS; ++i) {
                    u32 a[4];
                    A::fragment(a, now + lane_a, i, step);
                    multiply(i, a, b);
                }
            }
            next = now;
            now = after(now);
        }
    }
}

// sums += A·B over `left` elements along k; with ROWS, also rows += A·1. `copy(stage, count)` queues this thread's chunks of the next stage, of which
// `count` elements along k exist: A's from that address on, B's from A::BYTES after it. `memory` is Tile::BYTES of shared
// memory, from a multiple of 1024 on; after one more __syncthreads() it is free again.
template <typename T, typename A, typename B, typename Tile, bool ROWS = false, typename Copy>
__device__ __forceinline__ void tensor_product(u32 memory, i64 left, Copy &&copy, typename Tile::Sums &sums,
                                               RowSums<Tile> *rows = nullptr) {
    if constexpr (Tile::WARPGROUPS) Tile::template product<T, A, B, ROWS>(memory, left, copy, sums, rows);
    else warp_product<T, A, B, Tile, ROWS>(memory, left, copy, sums, rows);
}

// The bytes of shared memory that 16 rows of every warp take on their way out.
template <typename Tile> constexpr int EPILOGUE = 16 * Tile::DOWN * (Tile::COLUMNS + 8) * 4;

// The results of a block on their way out: through shared memory, 16 rows of every warp at once, so that neighbouring threads have neighbouring
// columns, whatever layout the sums had in registers. A thread has the same four columns in all its rows. `memory` is what `tensor_product`
// had, after a __syncthreads(); EPILOGUE bytes of it are used. PAIRS: that of A's OperandTile.
template <typename Tile, bool PAIRS = false> struct Drain {
    static constexpr int STRIDE = Tile::COLUMNS + 8, FOURS = Tile::COLUMNS / 4, HEIGHT = 16 * Tile::DOWN;
    static constexpr int APART = Tile::THREADS / FOURS, EACH = HEIGHT / APART; // rows between two of a thread, and how many of 16 it has
    static_assert(Tile::THREADS % FOURS == 0 && HEIGHT % APART == 0, "a thread keeps its columns");
    static_assert(EPILOGUE<Tile> <= Tile::BYTES, "16 rows of every warp fit");

    float *stage;

    __device__ __forceinline__ explicit Drain(unsigned char *memory) : stage(reinterpret_cast<float *>(memory)) {}

    // The thread's first column, counted in the tile.
    static __device__ __forceinline__ int column() { return (int)threadIdx.x % FOURS * 4; }
    // Its row n of the `i`th 16 of every warp, counted in the tile.
    static __device__ __forceinline__ int row(int i, int n) {
        const int r = (int)threadIdx.x / FOURS + n * APART;
        return r / 16 * Tile::HEIGHT + 16 * i + r % 16;
    }
    // Its sums there.
    __device__ __forceinline__ float *of(int n) const {
        return stage + ((int)threadIdx.x / FOURS + n * APART) * STRIDE + column();
    }
    // Puts the `i`th 16 rows of every warp into shared memory: i is the same in all threads, and no constant.
    __device__ __forceinline__ void put(const typename Tile::Sums &sums, int i) const {
        const int lane = threadIdx.x % 32;
        float *first = stage + (Tile::row() / Tile::HEIGHT * 16 + lane / 4 * (PAIRS ? 2 : 1)) * STRIDE + Tile::column() + lane % 4 * 2;
#pragma unroll
        for (int m = 0; m < Tile::MS; ++m) {
            if (m != i) continue;
#pragma unroll
            for (int j = 0; j < 2 * Tile::NS; ++j) {
                float *to = first + 8 * j;
                *reinterpret_cast<float2 *>(to) = make_float2(sums[m][j][0], sums[m][j][1]);
                *reinterpret_cast<float2 *>(to + (PAIRS ? 1 : 8) * STRIDE) = make_float2(sums[m][j][2], sums[m][j][3]);
            }
        }
    }
};

// Calls f(row, column, v) for every four neighbouring results v[0..4] of the tile, counted within it; 16 bytes of f32 each, which the callee may
// change. What is done with them is in the code UNROLL times.
template <typename Tile, int UNROLL = 1, bool PAIRS = false, typename F>
__device__ __forceinline__ void each_four(const typename Tile::Sums &sums, unsigned char *memory, F &&f) {
    const Drain<Tile, PAIRS> drain(memory);
#pragma unroll 1
    for (int i = 0; i < Tile::MS; ++i) {
        drain.put(sums, i);
        __syncthreads();
#pragma unroll UNROLL
        for (int n = 0; n < Drain<Tile>::EACH; ++n) f(drain.row(i, n), drain.column(), drain.of(n));
        __syncthreads();
    }
}
