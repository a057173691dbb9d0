// The third variant of the matrix product: tiles in registers, f32 arithmetic for every dtype. Formula: matmul.cuh.
//
// A block computes a SIDE×SIDE tile of C in steps of 8 along k, a thread 8×8 of it (8×4 in the small one) in registers.
// Per step of k a thread reads 16 (12) numbers from shared memory for 64 (32) products: a quarter of a read a product
// where matmul_tiled has two. Both slabs of shared memory are double: while one is used, the next is on its way from
// global memory, through registers. One __syncthreads() a step.
//
//   slab [8][SIDE + 4] of f32, k by k, so that a thread's operands are 16-byte reads. The 4 floats of padding put the
//   8 values that a transposing store writes for two k's into banks of their own.
//
// Thread (y, x) of a block holds rows {4y .. 4y+3} + SIDE/2·{0, 1} and columns {4x .. 4x+3} (+ SIDE/2·{0, 1}): halves
// lie SIDE/2 apart so that the 16-byte reads of neighbouring threads are neighbours, without bank conflicts.
// Rows whose address and length are multiples of 4 elements are read 4 at a time, others one by one.
//
// Geometry: matmul_registers_128: 256 threads. matmul_registers_64: 128 threads.
//           grid cut.blocks = splits·batches·ceil(m/SIDE)·ceil(n/SIDE) in x and y (matmul.cu); cut.part a multiple of 8.
// By ptxas (CUDA 13.0), sm_80 / sm_90, of 65,536 registers and 64 warps a multiprocessor:
//   kernel                registers  shared     blocks  warps
//   matmul_registers_128  128 / 128  16.5 KiB   2       16, 25 %: 64 of the registers are sums, each an independent chain
//   matmul_registers_64   67 / 69    8.5 KiB    7       28, 44 %
#include "matmul.cuh"

constexpr int DEPTH = 8; // of a step along k

// One operand on its way from global to shared memory. `across` counts along m or n.
template <typename T, int SIDE, int THREADS> struct Slab {
    static constexpr int STRIDE = SIDE + 4;
    static_assert(SIDE * DEPTH == 4 * THREADS, "four elements a thread");

    const T *from;        // this thread's elements of the next step
    u64 step;             // from one step to the next
    int across, along;    // how many of its elements lie inside across, and where it begins along k
    float v[4];           // fetched, on their way to shared memory
    bool k_inner, vector; // whether rows of memory run along k, and whether they can be read by fours

    // `first` and `end`: the slab's first index across, and the operand's end; l: where it begins along k.
    __device__ __forceinline__ Slab(const T *src, bool k_inner, u64 first, u64 end, u64 k, u64 l) : k_inner(k_inner) {
        int t = threadIdx.x, mine = k_inner ? t / 2 : t % (SIDE / 4) * 4;
        along = k_inner ? t % 2 * 4 : t / (SIDE / 4);
        u64 at = first + mine, ld = k_inner ? k : end;
        across = at >= end ? 0 : k_inner ? 4 : (int)min(end - at, (u64)4);
        step = k_inner ? DEPTH : DEPTH * ld;
        from = src + (k_inner ? at * ld + l + along : (l + along) * ld + at);
        vector = rows_aligned(src, ld, 4 * sizeof(T));
    }

    // Reads this thread's four elements of the next step, of which `left` columns along k exist; zeros outside.
    __device__ __forceinline__ void fetch(int left) {
        int count = left > along ? k_inner ? min(left - along, across) : across : 0;
        v[0] = v[1] = v[2] = v[3] = 0.0f;
        if (vector) { // then rows end at multiples of 4, as parts of k do
            if (count > 0) {
                Few<T, 4> x = *reinterpret_cast<const Few<T, 4> *>(from);
#pragma unroll
                for (int j = 0; j < 4; ++j) v[j] = to_acc(x.v[j]);
            }
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (j < count) v[j] = to_acc(from[j]);
        }
        from += step;
    }

    __device__ __forceinline__ void store(float *slab) const {
        int t = threadIdx.x;
        if (k_inner) {
            float *at = slab + t % 2 * 4 * STRIDE + t / 2;
#pragma unroll
            for (int j = 0; j < 4; ++j) at[j * STRIDE] = v[j];
        } else {
            float *at = slab + t / (SIDE / 4) * STRIDE + t % (SIDE / 4) * 4;
            *reinterpret_cast<float4 *>(at) = make_float4(v[0], v[1], v[2], v[3]);
        }
    }
};

__device__ __forceinline__ void read4(float *to, const float *from) {
    float4 x = *reinterpret_cast<const float4 *>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

template <typename T, int SIDE, int COLS>
__device__ __forceinline__ void registers(const MatmulParams &p, const T *__restrict__ a, const T *__restrict__ b,
                                          const T *__restrict__ bias, T *__restrict__ kept,
                                          const T *__restrict__ slope_at, T *__restrict__ c, float *__restrict__ parts,
                                          const RowNorm &norm, const Cut &cut) {
    constexpr int ROWS = 8, ACROSS = SIDE / COLS, THREADS = SIDE / ROWS * ACROSS;
    using Side = Slab<T, SIDE, THREADS>;
    constexpr int STRIDE = Side::STRIDE, SLAB = DEPTH * STRIDE;
    __shared__ __align__(16) float shared[4 * SLAB]; // A twice, B twice; rows of C at the end
    __shared__ Place at; // not in registers, which are short
    u64 number = block_number();
    if (number >= cut.blocks) return; // the whole block
    if (threadIdx.x == 0) at = place<SIDE, SIDE>(p, cut, number);
    __syncthreads();
    if ((slope_at || norm.s) && kept) write_values<T, SIDE, SIDE, THREADS>(p, at, norm, slope_at, kept);
    Side sa(a + batch_offset(p, p.a_batch, at.batch), !p.trans_a, at.row, p.m, p.k, at.from);
    Side sb(b + batch_offset(p, p.b_batch, at.batch), p.trans_b, at.col, p.n, p.k, at.from);
    int y = threadIdx.x / ACROSS, x = threadIdx.x % ACROSS;

    float acc[ROWS][COLS] = {};
    i64 left = (i64)(at.to - at.from);
    sa.fetch((int)min(left, (i64)DEPTH));
    sb.fetch((int)min(left, (i64)DEPTH));
    sa.store(shared);
    sb.store(shared + 2 * SLAB);
    __syncthreads();
    for (int now = 0; left > 0; now ^= 1) {
        left -= DEPTH;
        if (left > 0) {
            sa.fetch((int)min(left, (i64)DEPTH));
            sb.fetch((int)min(left, (i64)DEPTH));
        }
        const float *as = shared + now * SLAB + 4 * y, *bs = shared + (2 + now) * SLAB + 4 * x;
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            float u[ROWS], w[COLS];
#pragma unroll
            for (int h = 0; h < ROWS / 4; ++h) read4(u + 4 * h, as + i * STRIDE + h * SIDE / 2);
#pragma unroll
            for (int h = 0; h < COLS / 4; ++h) read4(w + 4 * h, bs + i * STRIDE + h * SIDE / 2);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int s = 0; s < COLS; ++s) acc[r][s] += u[r] * w[s];
        }
        if (left > 0) {
            sa.store(shared + (now ^ 1) * SLAB);
            sb.store(shared + (2 + (now ^ 1)) * SLAB);
        }
        __syncthreads();
    }

    // Row r of every thread at once: SIDE/8 rows of C.
    static_assert(SIDE / ROWS * STRIDE <= 4 * SLAB, "they fit");
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int h = 0; h < COLS / 4; ++h) {
            float *to = shared + y * STRIDE + 4 * x + h * SIDE / 2;
            *reinterpret_cast<float4 *>(to) =
                make_float4(acc[r][4 * h], acc[r][4 * h + 1], acc[r][4 * h + 2], acc[r][4 * h + 3]);
        }
        __syncthreads();
        drain<T, SIDE / ROWS, SIDE, STRIDE, THREADS>(shared, p, at, bias, kept, slope_at, c, parts,
                                                     [r](int i) { return r / 4 * (SIDE / 2) + 4 * i + r % 4; });
        __syncthreads();
    }
    add_parts<T, SIDE, SIDE, THREADS>(
        p, cut, bias, c, parts, shared, [](u32) {}, kept, slope_at);
}

#define MATMUL_REGISTERS(suffix, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                               \
        matmul_registers_128_##suffix(MatmulParams p, const T *__restrict__ a, const T *__restrict__ b,                \
                                      const T *__restrict__ bias, T *__restrict__ kept,                                \
                                      const T *__restrict__ slope_at, T *__restrict__ c, float *__restrict__ parts,    \
                                      RowNorm norm, Cut cut) {                                                         \
        registers<T, 128, 8>(p, a, b, bias, kept, slope_at, c, parts, norm, cut);                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128)                                                                  \
        matmul_registers_64_##suffix(MatmulParams p, const T *__restrict__ a, const T *__restrict__ b,                 \
                                     const T *__restrict__ bias, T *__restrict__ kept,                                 \
                                     const T *__restrict__ slope_at, T *__restrict__ c, float *__restrict__ parts,     \
                                     RowNorm norm, Cut cut) {                                                          \
        registers<T, 64, 4>(p, a, b, bias, kept, slope_at, c, parts, norm, cut);                                       \
    }
FOR_FLOATS(MATMUL_REGISTERS)
