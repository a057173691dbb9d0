// The first two variants of the matrix product, and the sum of partial products. Formula and parameters: matmul.cuh.
//
// matmul_naive: a thread per element of C. Every product of two numbers reads both from memory (or, with luck, from a
//   cache): 8 bytes for 2 flops in f32.
//   Geometry: 256 threads, grid ceil(batches·m·n / 256) in x and y.
// matmul_tiled: a block of 32×32 threads per 32×32 elements of C. It copies 32×32 tiles of A and B to shared memory and
//   uses each number 32 times: 8 bytes of global memory for 64 flops. Shared memory limits it: two reads a
//   product.
//   Geometry: 1024 threads, grid cut.blocks = batches·ceil(m/32)·ceil(n/32) in x and y.
// matmul_reduce: C = f(Σ parts + bias), the parts added in their order; bits do not depend on which block came first.
//   Geometry: 256 threads, grid ceil(batches·m·n / 256) in x and y.
//
// Geometry "in x and y": the number of a block is blockIdx.y·gridDim.x + blockIdx.x; numbers past the last are idle.
// By ptxas (CUDA 13.0), sm_80 / sm_90, of 65,536 registers and 64 warps a multiprocessor:
//   kernel         registers  shared   blocks  warps
//   matmul_naive   38 / 40    0        6       48, 75 %
//   matmul_tiled   55 / 56    8.25 KiB 1       32, 50 %: two blocks of 1024 threads would have to do with 32 registers
//   matmul_reduce  32         0        8       64, 100 %
#include "matmul.cuh"

// The fused end of a product: the result that is element `i` of C.
template <typename T>
__device__ __forceinline__ T finish(const MatmulParams &p, const T *__restrict__ bias, T *__restrict__ kept,
                                    const T *__restrict__ slope_at, u64 i, u64 col, float sum) {
    if (slope_at) {
        const float x = to_acc(slope_at[i]);
        if (kept) kept[i] = from_acc<T>(activate<T>(p.activation, x));
        return from_acc<T>(activate_grad<T>(p.activation, x, to_acc(from_acc<T>(sum))));
    }
    if (bias) sum += to_acc(bias[col]);
    if (kept) kept[i] = from_acc<T>(sum);
    return from_acc<T>(activate_sum<T>(p.activation, sum));
}

template <typename T>
__device__ __forceinline__ void naive(const MatmulParams &p, const T *__restrict__ a, const T *__restrict__ b,
                                      const T *__restrict__ bias, T *__restrict__ kept,
                                      const T *__restrict__ slope_at, T *__restrict__ c, u64 len) {
    u64 i = block_number() * blockDim.x + threadIdx.x;
    if (i >= len) return;
    u64 col = i % p.n, row = i / p.n % p.m, batch = i / p.n / p.m;
    a += batch_offset(p, p.a_batch, batch) + (p.trans_a ? row : row * p.k);
    b += batch_offset(p, p.b_batch, batch) + (p.trans_b ? col * p.k : col);
    u64 a_step = p.trans_a ? p.m : 1, b_step = p.trans_b ? 1 : p.n;
    float sum = 0.0f;
    for (u64 l = 0; l < p.k; ++l) sum += to_acc(a[l * a_step]) * to_acc(b[l * b_step]);
    c[i] = finish(p, bias, kept, slope_at, i, col, sum);
}

// Side of a tile. A row of it is a warp, and 33 floats of shared memory, so that a column of it lies in 32 banks too.
constexpr int TILE = 32;

template <typename T>
__device__ __forceinline__ void tiled(const MatmulParams &p, const T *__restrict__ a, const T *__restrict__ b,
                                      const T *__restrict__ bias, T *__restrict__ kept,
                                      const T *__restrict__ slope_at, T *__restrict__ c, const Cut &cut) {
    __shared__ float as[TILE][TILE + 1]; // [row][k]
    __shared__ float bs[TILE][TILE + 1]; // [k][column]
    u64 number = block_number();
    if (number >= cut.blocks) return; // the whole block
    Place at = place<TILE, TILE>(p, cut, number);
    a += batch_offset(p, p.a_batch, at.batch);
    b += batch_offset(p, p.b_batch, at.batch);
    int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    // x runs along the rows of memory, so that a warp reads neighbouring addresses, transposed or not.
    u32 a_row = p.trans_a ? x : y, a_k = p.trans_a ? y : x;
    u32 b_col = p.trans_b ? y : x, b_k = p.trans_b ? x : y;
    bool a_in = at.row + a_row < p.m, b_in = at.col + b_col < p.n;
    a += p.trans_a ? a_k * p.m + at.row + a_row : (at.row + a_row) * p.k + a_k;
    b += p.trans_b ? (at.col + b_col) * p.k + b_k : b_k * p.n + at.col + b_col;
    u64 a_step = p.trans_a ? TILE * p.m : TILE, b_step = p.trans_b ? TILE : TILE * p.n;
    float sum = 0.0f;
    for (u64 l = 0; l < p.k; l += TILE, a += a_step, b += b_step) {
        as[a_row][a_k] = a_in && l + a_k < p.k ? to_acc(*a) : 0.0f;
        bs[b_k][b_col] = b_in && l + b_k < p.k ? to_acc(*b) : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) sum += as[y][i] * bs[i][x];
        __syncthreads();
    }
    u64 row = at.row + y, col = at.col + x;
    u64 i = at.out + row * p.n + col;
    if (row < p.m && col < p.n) c[i] = finish(p, bias, kept, slope_at, i, col, sum);
}

template <typename T>
__device__ __forceinline__ void reduce(const MatmulParams &p, const float *__restrict__ parts,
                                       const T *__restrict__ bias, T *__restrict__ kept,
                                       const T *__restrict__ slope_at, T *__restrict__ c, u64 len, u32 splits) {
    u64 i = block_number() * blockDim.x + threadIdx.x;
    if (i >= len) return;
    float sum = 0.0f;
    for (u32 s = 0; s < splits; ++s) sum += parts[s * len + i];
    c[i] = finish(p, bias, kept, slope_at, i, i % p.n, sum);
}

// The sums of the parts of linear_weight_grad: `len` elements of dw, then those of db [m].
template <typename T>
__device__ __forceinline__ void weight_grad_reduce(const float *__restrict__ parts, const float *__restrict__ bias_parts,
                                                   T *__restrict__ dw, T *__restrict__ db, u64 len, u64 m, u32 splits) {
    u64 i = block_number() * blockDim.x + threadIdx.x;
    bool bias = i >= len;
    if (bias) {
        i -= len;
        if (i >= m) return;
        parts = bias_parts, dw = db, len = m;
    }
    float sum = 0.0f;
    for (u32 s = 0; s < splits; ++s) sum += parts[s * len + i];
    dw[i] = from_acc<T>(sum);
}

#define MATMUL(suffix, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        matmul_naive_##suffix(MatmulParams p, const T *__restrict__ a, const T *__restrict__ b,                        \
                              const T *__restrict__ bias, T *__restrict__ kept, const T *__restrict__ slope_at,        \
                              T *__restrict__ c, u64 len) {                                                            \
        naive<T>(p, a, b, bias, kept, slope_at, c, len);                                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                                 \
        matmul_tiled_##suffix(MatmulParams p, const T *__restrict__ a, const T *__restrict__ b,                        \
                              const T *__restrict__ bias, T *__restrict__ kept, const T *__restrict__ slope_at,        \
                              T *__restrict__ c, Cut cut) {                                                            \
        tiled<T>(p, a, b, bias, kept, slope_at, c, cut);                                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        matmul_reduce_##suffix(MatmulParams p, const float *__restrict__ parts, const T *__restrict__ bias,            \
                               T *__restrict__ kept, const T *__restrict__ slope_at, T *__restrict__ c, u64 len,       \
                               u32 splits) {                                                                           \
        reduce<T>(p, parts, bias, kept, slope_at, c, len, splits);                                                     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        linear_weight_grad_reduce_##suffix(const float *__restrict__ parts, const float *__restrict__ bias_parts,      \
                                           T *__restrict__ dw, T *__restrict__ db, u64 len, u64 m, u32 splits) {       \
        weight_grad_reduce<T>(parts, bias_parts, dw, db, len, m, splits);                                              \
    }
FOR_FLOATS(MATMUL)
