// Shared by the variants of the matrix product: parameters, the part of the result that a block computes, and the epilogue.
//
//   C[b] = f(op(A[b])·op(B[b]) + bias),  A [m, k] (stored [k, m] when trans_a), B [k, n] (stored [n, k] when trans_b),
//   C [m, n], all row-major without gaps; bias [n] or null; sums in f32, one rounding to the dtype at the end, and one before an
//   f whose gradient reads its input. `kept` [m, n], if it is not null, gets that input.
//   With `slope_at` [m, n] (and no bias), C is the product, rounded, times the slope of f: its input there, or its result where
//   the gradient reads that. `kept` gets f of it then, or with a `norm` that norm.
#pragma once

#include "common/activation.cuh"
#include "common/arrive.cuh"
#include "common/vector.cuh"

struct MatmulParams {
    u64 batch[8];   // batch dimensions of C
    i64 a_batch[8]; // strides of A's batches in elements, 0 where broadcast
    i64 b_batch[8];
    u64 m, n, k;
    u32 batch_rank, trans_a, trans_b, activation;
};
static_assert(sizeof(MatmulParams) == 232, "core::ops::MatmulParams");

// How the host cut the work: `blocks` thread blocks in all; the k dimension in `splits` parts of `part` (the last one
// may be shorter). With more than one part, block results are partial sums, written in f32 to
// parts [splits, batches, m, n] and added up by the last `sharers` blocks of each tile, or if that is 0 by matmul_reduce.
struct Cut {
    u64 blocks, part;
    u32 splits, sharers;
};
static_assert(sizeof(Cut) == 24, "cuda::ops::matmul::Cut");

// A layer norm of a residual stream (residual.cu), the input of a linear layer whose data gradient is the product: it makes the input again.
struct RowNorm {
    const void *s;              // [m, n], f32 if wide_stream, else T; null if there is none
    const float *mean, *rstd;   // [m]
    const void *scale, *shift;  // [n], f32 if wide, else T
    u32 wide_stream, wide;
};
static_assert(sizeof(RowNorm) == 48, "cuda::ops::matmul::RowNorm");

// The number of this block in a grid of two dimensions, which holds more blocks than one of one.
__device__ __forceinline__ u64 block_number() { return (u64)blockIdx.y * gridDim.x + blockIdx.x; }

// The same number, read again: it is needed at both ends of a kernel, and not worth registers in between.
__device__ __forceinline__ u64 block_number_again() {
    u32 x, y;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(y));
    return (u64)y * gridDim.x + x;
}

// Where batch number `batch` starts.
__device__ __forceinline__ i64 batch_offset(const MatmulParams &p, const i64 (&strides)[8], u64 batch) {
    i64 at = 0;
    for (int i = (int)p.batch_rank - 1; i >= 0; --i) {
        at += (i64)(batch % p.batch[i]) * strides[i];
        batch /= p.batch[i];
    }
    return at;
}

// The tile of C, and the part of k, that a block works on.
struct Place {
    u64 batch, row, col; // the tile's first element
    u64 from, to;        // of k
    u64 out;             // where the tile's matrix starts in C, or in the partial sums
};

// Neighbouring blocks run at about the same time, so their tiles are made to lie in a patch GROUP tiles high instead of
// in one long row of tiles: what they read of A and B together is then less, and more of it is found in L2.
template <int ROWS, int COLS> __device__ __forceinline__ Place place(const MatmulParams &p, const Cut &cut, u64 number) {
    constexpr u64 GROUP = 8;
    u64 rows = (p.m + ROWS - 1) / ROWS, cols = (p.n + COLS - 1) / COLS;
    u64 tile = number % (rows * cols);
    number /= rows * cols;
    u64 split = number % cut.splits, batch = number / cut.splits;
    u64 first = tile / (GROUP * cols) * GROUP, within = tile % (GROUP * cols);
    u64 height = min(rows - first, GROUP);
    u64 batches = cut.blocks / (rows * cols) / cut.splits;
    u64 from = split * cut.part;
    return Place{batch,
                 (first + within % height) * ROWS,
                 within / height * COLS,
                 from,
                 min(from + cut.part, p.k),
                 (split * batches + batch) * p.m * p.n};
}

// True if rows of `ld` elements from `p` on can be accessed BYTES at a time.
template <typename T> __device__ __forceinline__ bool rows_aligned(const T *p, u64 ld, int bytes) {
    return (((u64)p | (ld * sizeof(T))) & (u64)(bytes - 1)) == 0;
}

// Drops the first of four elements and takes another as the last: a loop over them that is not unrolled needs no index.
template <typename T> __device__ __forceinline__ void shift(Few<T, 4> &few, T last) {
    few = {few.v[1], few.v[2], few.v[3], last};
}

// Bias and activation of up to four neighbouring results, and their way to memory. `v`: their sums in shared memory, 16
// bytes; `row` and `col`: where the first lies in C, which may be outside.
template <typename T>
__device__ __forceinline__ void write_four(const MatmulParams &p, const Place &at, const T *__restrict__ bias,
                                           T *__restrict__ c, float *__restrict__ parts, u64 row, u64 col, float *v,
                                           T *__restrict__ kept = nullptr, const T *__restrict__ slope_at = nullptr) {
    const bool vector = p.n % 4 == 0; // the allocations of all results start aligned
    if (row >= p.m || col >= p.n) return;
    int count = (int)min(p.n - col, (u64)4);
    u64 to = at.out + row * p.n + col;
    if (!parts && slope_at) {
        Few<T, 4> x = {};
        if (vector) x = *reinterpret_cast<const Few<T, 4> *>(slope_at + to);
#pragma unroll 1
        for (int e = 0; e < count; ++e) {
            T first = vector ? x.v[0] : slope_at[to + e];
            v[e] = activate_grad<T>(p.activation, to_acc(first), to_acc(from_acc<T>(v[e])));
            shift(x, first);
        }
    } else if (!parts && (bias || p.activation != ACTIVATION_NONE)) {
        Few<T, 4> x = {};
#pragma unroll 1
        for (int e = 0; e < count; ++e) {
            float sum = v[e] + (bias ? to_acc(bias[col + e]) : 0.0f);
            shift(x, from_acc<T>(sum));
            if (kept && !vector) kept[to + e] = x.v[3];
            v[e] = activate_sum<T>(p.activation, sum);
        }
        if (kept && vector) store_whole(kept + to, x);
    }
    if (parts) {
        if (vector) *reinterpret_cast<float4 *>(parts + to) = *reinterpret_cast<const float4 *>(v);
        else
            for (int e = 0; e < count; ++e) parts[to + e] = v[e];
    } else if (vector) {
        float4 x = *reinterpret_cast<const float4 *>(v);
        const Few<T, 4> rounded = {from_acc<T>(x.x), from_acc<T>(x.y), from_acc<T>(x.z), from_acc<T>(x.w)};
        store_whole(c + to, rounded);
    } else {
        for (int e = 0; e < count; ++e) c[to + e] = from_acc<T>(v[e]);
    }
}

// The same for a tile. `stage` [HEIGHT][STRIDE] in shared memory holds WIDTH columns of sums; row r of it is row
// `row_of(r)` of the tile. Going through shared memory makes whole rows of neighbouring addresses, whatever layout the
// sums had in registers, and keeps the activations' code in one place instead of one per register. The caller puts a
// __syncthreads() before and after.
template <typename T, int HEIGHT, int WIDTH, int STRIDE, int THREADS, typename RowOf>
__device__ __forceinline__ void drain(float *stage, const MatmulParams &p, const Place &at, const T *__restrict__ bias,
                                      T *__restrict__ kept, const T *__restrict__ slope_at, T *__restrict__ c,
                                      float *__restrict__ parts, RowOf row_of) {
#pragma unroll 1
    for (int i = threadIdx.x; i < HEIGHT * WIDTH / 4; i += THREADS) {
        int r = i / (WIDTH / 4), q = i % (WIDTH / 4) * 4;
        write_four(p, at, bias, c, parts, at.row + row_of(r), at.col + q, stage + r * STRIDE + q, kept,
                   slope_at);
    }
}

// V numbers of f32 if `wide`, else T.
template <typename T, int V> __device__ __forceinline__ void load_either(const void *from, u32 wide, u64 at, float (&x)[V]) {
    if (wide) load<V>((const float *)from + at, x);
    else load<V>((const T *)from + at, x);
}

// V elements of a norm, with the roundings of residual.cu.
template <typename T, int V>
__device__ __forceinline__ void norm_at(const RowNorm &norm, float mean, float rstd, u64 at, u64 col, T *__restrict__ kept) {
    float x[V], scale[V], shift[V];
    load_either<T, V>(norm.s, norm.wide_stream, at, x);
    load_either<T, V>(norm.scale, norm.wide, col, scale);
    load_either<T, V>(norm.shift, norm.wide, col, shift);
#pragma unroll
    for (int j = 0; j < V; ++j) x[j] = __fmaf_rn(__fmul_rn(__fsub_rn(x[j], mean), rstd), scale[j], shift[j]);
    store<V>(kept + at, x);
}

// Writes f of `slope_at`, or the norm, to `kept` for a tile of C. A block does so before its product: behind it, or in the epilogue, the code of f
// would cost the main loop ten instructions.
template <typename T, int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void write_values(const MatmulParams &p, const Place &at, const RowNorm &norm,
                                             const T *__restrict__ slope_at, T *__restrict__ kept) {
    if (at.from > 0) return; // of the blocks that share a tile, the first
    const bool vector = p.n % 4 == 0;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < ROWS * COLUMNS / 4; i += THREADS) {
        const u64 row = at.row + i / (COLUMNS / 4), col = at.col + i % (COLUMNS / 4) * 4;
        if (row >= p.m || col >= p.n) continue;
        const int count = (int)min(p.n - col, (u64)4);
        const u64 to = (at.batch * p.m + row) * p.n + col;
        if (norm.s) {
            const float mean = norm.mean[row], rstd = norm.rstd[row];
            if (vector) norm_at<T, 4>(norm, mean, rstd, to, col, kept);
            else
                for (int e = 0; e < count; ++e) norm_at<T, 1>(norm, mean, rstd, to + e, col + e, kept);
            continue;
        }
        Few<T, 4> x = {};
        if (vector) x = *reinterpret_cast<const Few<T, 4> *>(slope_at + to);
#pragma unroll 1
        for (int e = 0; e < count; ++e) {
            const T value = from_acc<T>(activate<T>(p.activation, to_acc(vector ? x.v[0] : slope_at[to + e])));
            if (!vector) kept[to + e] = value;
            shift(x, value);
        }
        if (vector) store_whole(kept + to, x);
    }
}

// The batches of C, of tiles of this size.
template <int ROWS, int COLUMNS> __device__ __forceinline__ u64 batches_of(const MatmulParams &p, const Cut &cut) {
    return cut.blocks / ((p.m + ROWS - 1) / ROWS * ((p.n + COLUMNS - 1) / COLUMNS)) / cut.splits;
}

// Adds up the parts of this block's tile of a product in parts, in their order, if it is one of the last `sharers` of the tile: each has
// a share of the elements. `memory`: 16 bytes of shared memory for each thread and 16 more, which nobody uses any longer.
// rest(place) adds up what else there is, by the blocks that have a place.
template <typename T, int ROWS, int COLUMNS, int THREADS, typename Rest>
__device__ __forceinline__ void add_parts(const MatmulParams &p, const Cut &cut, const T *__restrict__ bias,
                                          T *__restrict__ c, float *parts, float *memory, Rest rest,
                                          T *__restrict__ kept = nullptr, const T *__restrict__ slope_at = nullptr) {
    if (cut.sharers == 0) return;
    const u64 number = block_number_again(), batches = batches_of<ROWS, COLUMNS>(p, cut);
    Place at = place<ROWS, COLUMNS>(p, cut, number);
    const u64 tiles = cut.blocks / batches / cut.splits;
    const u32 turn = arrives((u32)(at.batch * tiles + number % tiles), cut.splits, cut.sharers, *reinterpret_cast<u32 *>(memory));
    if (turn == cut.sharers) return;
    rest(turn);
    const u64 apart = batches * p.m * p.n;
    const bool vector = p.n % 4 == 0;
    at.out = at.batch * p.m * p.n;
    float *v = memory + 4 + 4 * threadIdx.x;
#pragma unroll 1
    for (u32 i = turn * THREADS + threadIdx.x; i < ROWS * COLUMNS / 4; i += cut.sharers * THREADS) {
        const u64 row = at.row + i / (COLUMNS / 4), col = at.col + i % (COLUMNS / 4) * 4;
        if (row >= p.m || col >= p.n) continue;
        const float *from = parts + at.out + row * p.n + col;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (vector) {
#pragma unroll 4
            for (u32 s = 0; s < cut.splits; ++s, from += apart) {
                const float4 x = __ldcg(reinterpret_cast<const float4 *>(from));
                sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
            }
        } else {
            const u64 left = p.n - col;
#pragma unroll 4
            for (u32 s = 0; s < cut.splits; ++s, from += apart) {
                sum.x += __ldcg(from);
                if (left > 1) sum.y += __ldcg(from + 1);
                if (left > 2) sum.z += __ldcg(from + 2);
                if (left > 3) sum.w += __ldcg(from + 3);
            }
        }
        *reinterpret_cast<float4 *>(v) = sum;
        write_four(p, at, bias, c, (float *)nullptr, row, col, v, kept, slope_at);
    }
}
