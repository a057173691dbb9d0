// The linear layer of a few rows, m ≤ 8, where a tile of the result would be mostly empty and the sum along k is all there is to wait
// for: y = f(x·Wᵀ + bias) with x [m, k], W [n, k], and its gradients in one launch.
//
// linear_few: a warp has a column of y, a row of W. Its lanes go along k by 16 bytes, multiply by the same elements of all m rows of x,
//   which other warps have brought to the caches, and join their sums by shuffles. W is read once, and no sum is in parts. `kept`
//   [m, n] gets the inputs of f.
//   Geometry: 256 threads, grid ceil(n / 8).
// linear_grad_few: dW = gᵀ·x, db = Σ g and dx = g·W, where g is zero where y ≤ 0 if y, the result of a ReLU, is given. The first
//   `weight_blocks` blocks have a row of dW a warp; the others have 128 columns of dx (64 for 8 rows), of which each warp adds
//   up every eighth row of W, and the sums of the eight warps are joined in their order. If `slope_at` [m, k] is given, dx is
//   rounded and multiplied by the slope there of the activation `slope`, of which x is the result (matmul.cuh).
//   Geometry: 256 threads, grid weight_blocks + ceil(k / 128) (64 for 8 rows); weight_blocks is ceil(n / 8), or 0 if dW and db are null; the rest is
//   left out if dx is null.
//
// Contract: 1 ≤ m ≤ ROWS of the kernel's name, no batch, trans_a 0, trans_b 1. bias, kept, y, slope_at, dx, dw and db may be null.
#include "common/vector.cuh"
#include "common/warp.cuh"
#include "matmul.cuh"

constexpr int WARPS = 8;

template <int V, typename T, int ROWS>
__device__ __forceinline__ void forward(const MatmulParams &p, const T *__restrict__ x, const T *__restrict__ w,
                                        const T *__restrict__ bias, T *__restrict__ kept, T *__restrict__ y) {
    const int lane = threadIdx.x % WARP;
    const u64 column = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (column >= p.n) return;
    const int m = (int)p.m;
    w += column * p.k;
    float sums[ROWS] = {};
#pragma unroll 2
    for (u64 at = (u64)lane * V; at < p.k; at += WARP * V) {
        float a[V];
        load<V>(w + at, a);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (r < m) {
                float b[V];
                load<V>(x + r * p.k + at, b);
#pragma unroll
                for (int j = 0; j < V; ++j) sums[r] += a[j] * b[j];
            }
        }
    }
    // Lane r ends row r.
    float mine = 0.0f;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        float sum = warp_sum(sums[r]);
        mine = lane == r ? sum : mine;
    }
    if (lane >= m) return;
    if (bias) mine += to_acc(bias[column]);
    if (kept) kept[lane * p.n + column] = from_acc<T>(mine);
    y[lane * p.n + column] = from_acc<T>(activate_sum<T>(p.activation, mine));
}

// g of row r and column n, before the ReLU.
template <typename T>
__device__ __forceinline__ float gradient(const MatmulParams &p, const T *__restrict__ g, const T *__restrict__ y,
                                          int r, u64 column) {
    const u64 at = r * p.n + column;
    float d = to_acc(g[at]);
    return y && to_acc(y[at]) <= 0.0f ? 0.0f : d;
}

template <int V, typename T, int ROWS>
__device__ __forceinline__ void weight_gradient(const MatmulParams &p, const T *__restrict__ x,
                                                const T *__restrict__ y, const T *__restrict__ g, T *__restrict__ dw,
                                                T *__restrict__ db) {
    const int lane = threadIdx.x % WARP;
    const u64 column = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (column >= p.n) return;
    const int m = (int)p.m;
    float d[ROWS], total = 0.0f;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        d[r] = r < m ? gradient(p, g, y, r, column) : 0.0f;
        total += d[r];
    }
    if (db && lane == 0) db[column] = from_acc<T>(total);
    if (!dw) return;
    dw += column * p.k;
    for (u64 at = (u64)lane * V; at < p.k; at += WARP * V) {
        float sums[V] = {};
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (r < m) {
                float b[V];
                load<V>(x + r * p.k + at, b);
#pragma unroll
                for (int j = 0; j < V; ++j) sums[j] += d[r] * b[j];
            }
        }
        store<V>(dw + at, sums);
    }
}

template <bool WHOLE, int COLUMNS, typename T, int ROWS>
__device__ __forceinline__ void data_gradient(const MatmulParams &p, u64 block, const T *__restrict__ w,
                                              const T *__restrict__ y, const T *__restrict__ slope_at, u32 slope,
                                              const T *__restrict__ g, T *__restrict__ dx) {
    __shared__ float joined[WARPS][WARP * COLUMNS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int m = (int)p.m;
    const u64 first = (block * WARP + lane) * COLUMNS;
    float sums[ROWS][COLUMNS] = {};
#pragma unroll(ROWS > 4 ? 2 : 4)
    for (u64 row = warp; row < p.n; row += WARPS) {
        float a[COLUMNS] = {};
        if (WHOLE) {
            if (first < p.k) load<COLUMNS>(w + row * p.k + first, a);
        } else {
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
                if (first + j < p.k) a[j] = to_acc(w[row * p.k + first + j]);
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (r < m) {
                const float d = gradient(p, g, y, r, row);
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j) sums[r][j] += d * a[j];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        __syncthreads();
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) joined[warp][lane * COLUMNS + j] = sums[r][j];
        __syncthreads();
        const u64 column = block * WARP * COLUMNS + threadIdx.x;
        if (r < m && threadIdx.x < WARP * COLUMNS && column < p.k) {
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < WARPS; ++i) sum += joined[i][threadIdx.x];
            const u64 at = r * p.k + column;
            if (slope_at) sum = activate_grad<T>(slope, to_acc(slope_at[at]), to_acc(from_acc<T>(sum)));
            dx[at] = from_acc<T>(sum);
        }
    }
}

template <typename T, int ROWS>
__device__ __forceinline__ void gradients(const MatmulParams &p, const T *__restrict__ x, const T *__restrict__ w,
                                          const T *__restrict__ y, const T *__restrict__ slope_at, u32 slope,
                                          const T *__restrict__ g, T *__restrict__ dx, T *__restrict__ dw,
                                          T *__restrict__ db, u32 weight_blocks) {
    if (blockIdx.x < weight_blocks) {
        if (p.k % LANES<T> == 0) weight_gradient<LANES<T>, T, ROWS>(p, x, y, g, dw, db);
        else weight_gradient<1, T, ROWS>(p, x, y, g, dw, db);
        return;
    }
    const u64 block = blockIdx.x - weight_blocks;
    // Columns of dx of a lane.
    constexpr int COLUMNS = ROWS > 4 ? 2 : 4;
    if (p.k % COLUMNS == 0) data_gradient<true, COLUMNS, T, ROWS>(p, block, w, y, slope_at, slope, g, dx);
    else data_gradient<false, COLUMNS, T, ROWS>(p, block, w, y, slope_at, slope, g, dx);
}

#define FEW(rows, suffix, T)                                                                                           \
    extern "C" __global__ void __launch_bounds__(WARPS *WARP, 2) \
        linear_few##rows##_##suffix(MatmulParams p, const T *__restrict__ x, const T *__restrict__ w,                  \
                                    const T *__restrict__ bias, T *__restrict__ kept, T *__restrict__ y) {             \
        if (p.k % LANES<T> == 0) forward<LANES<T>, T, rows>(p, x, w, bias, kept, y);                                   \
        else forward<1, T, rows>(p, x, w, bias, kept, y);                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(WARPS *WARP, 2) linear_grad_few##rows##_##suffix(                        \
        MatmulParams p, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ y,                     \
        const T *__restrict__ slope_at, u32 slope, const T *__restrict__ g, T *__restrict__ dx, T *__restrict__ dw,    \
        T *__restrict__ db, u32 weight_blocks) {                                                                       \
        gradients<T, rows>(p, x, w, y, slope_at, slope, g, dx, dw, db, weight_blocks);                                 \
    }
#define ENTRIES(suffix, T)                                                                                             \
    FEW(4, suffix, T)                                                                                                  \
    FEW(8, suffix, T) 
FOR_FLOATS(ENTRIES)
