// Norms whose values are contiguous rows: layer and RMS norm, and group norm of a single position.
//
// x is [samples, groups, width]; every row of `width` is normalised, statistics are [samples, groups], scale and shift
// have a value per (group, column). Formulas: norm.cu.
//
// Rows of up to 1024 elements are held in the registers of a warp, up to 8192 in those of a block: memory is read once.
// Longer rows take a block that reads them again for each pass (the cache holds much of them).
//
// Contract: x, g, y and dx are aligned to 16 bytes; where 16 bytes divide the width, rows move by 16 bytes.
// Geometry: blocks of 256; *_warps: 8 rows a block; *_blocks and *_long: a row a block. The grid strides.
#include "norm.cuh"

constexpr int THREADS = 256;
// Elements of a row that a thread holds.
constexpr int HELD = 32;

// Sum over the TEAM threads that share a row.
template <int TEAM> __device__ __forceinline__ float team_sum(float v, float *scratch) {
    if constexpr (TEAM == WARP) return warp_sum(v);
    else return block_sum<TEAM>(v, scratch);
}

// f(first element, index of the pack) for each pack of V elements that a thread of the row has; HELD/V packs at most.
template <int V, int TEAM, typename F> __device__ __forceinline__ void packs(u32 n, F f) {
#pragma unroll
    for (int i = 0; i < HELD / V; ++i) {
        u32 at = (i * TEAM + threadIdx.x % TEAM) * V;
        if (at < n) f(at, i);
    }
}

// x̂·scale + shift of V elements
template <int V, typename T>
__device__ __forceinline__ void scaled(const T *__restrict__ scale, const T *__restrict__ shift, u64 at,
                                       float (&v)[V]) {
    float a[V];
    if (scale) {
        load<V>(scale + at, a);
#pragma unroll
        for (int j = 0; j < V; ++j) v[j] *= a[j];
    }
    if (shift) {
        load<V>(shift + at, a);
#pragma unroll
        for (int j = 0; j < V; ++j) v[j] += a[j];
    }
}

template <typename T, int V, int TEAM>
__device__ __forceinline__ void forward(const GroupNormParams &p, const T *__restrict__ x, const T *__restrict__ scale,
                                        const T *__restrict__ shift, T *__restrict__ y, float *__restrict__ mean,
                                        float *__restrict__ rstd) {
    __shared__ float scratch[THREADS / WARP];
    constexpr u32 ROWS = THREADS / TEAM;
    u64 rows = p.samples * p.groups;
    for (u64 row = (u64)blockIdx.x * ROWS + threadIdx.x / TEAM; row < rows; row += (u64)gridDim.x * ROWS) {
        const T *from = x + row * p.width;
        T *to = y + row * p.width;
        u64 channel = row % p.groups * p.width;
        float v[HELD / V][V], sum = 0.0f, squares = 0.0f, m = 0.0f;
        packs<V, TEAM>(p.width, [&](u32 at, int i) {
            load<V>(from + at, v[i]);
#pragma unroll
            for (int j = 0; j < V; ++j) sum += v[i][j];
        });
        if (!p.rms) m = team_sum<TEAM>(sum, scratch) / (float)p.width;
        packs<V, TEAM>(p.width, [&](u32, int i) {
#pragma unroll
            for (int j = 0; j < V; ++j) {
                v[i][j] -= m;
                squares += v[i][j] * v[i][j];
            }
        });
        float k = rstd_of(team_sum<TEAM>(squares, scratch) / (float)p.width, p.eps);
        packs<V, TEAM>(p.width, [&](u32 at, int i) {
#pragma unroll
            for (int j = 0; j < V; ++j) v[i][j] *= k;
            scaled<V>(scale, shift, channel + at, v[i]);
            store<V>(to + at, v[i]);
        });
        if (threadIdx.x % TEAM == 0) {
            mean[row] = m;
            rstd[row] = k;
        }
    }
}

// A row of any length, three times from memory.
template <typename T, int V>
__device__ __forceinline__ void forward_long(const GroupNormParams &p, const T *__restrict__ x,
                                             const T *__restrict__ scale, const T *__restrict__ shift,
                                             T *__restrict__ y, float *__restrict__ mean, float *__restrict__ rstd) {
    __shared__ float scratch[THREADS / WARP];
    u64 rows = p.samples * p.groups;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *from = x + row * p.width;
        u64 channel = row % p.groups * p.width;
        float v[V], sum = 0.0f, squares = 0.0f, m = 0.0f;
        if (!p.rms) {
#pragma unroll 4
            for (u64 at = threadIdx.x * V; at < p.width; at += THREADS * V) {
                load<V>(from + at, v);
#pragma unroll
                for (int j = 0; j < V; ++j) sum += v[j];
            }
            m = block_sum<THREADS>(sum, scratch) / (float)p.width;
        }
#pragma unroll 4
        for (u64 at = threadIdx.x * V; at < p.width; at += THREADS * V) {
            load<V>(from + at, v);
#pragma unroll
            for (int j = 0; j < V; ++j) squares += (v[j] - m) * (v[j] - m);
        }
        float k = rstd_of(block_sum<THREADS>(squares, scratch) / (float)p.width, p.eps);
        for (u64 at = threadIdx.x * V; at < p.width; at += THREADS * V) {
            load<V>(from + at, v);
#pragma unroll
            for (int j = 0; j < V; ++j) v[j] = (v[j] - m) * k;
            scaled<V>(scale, shift, channel + at, v);
            store<V>(y + row * p.width + at, v);
        }
        if (threadIdx.x == 0) {
            mean[row] = m;
            rstd[row] = k;
        }
    }
}

// v = x̂ and d = g·scale of V elements
template <int V, typename T>
__device__ __forceinline__ void load_pair(const T *__restrict__ x, const T *__restrict__ g,
                                          const T *__restrict__ scale, u64 channel, float m, float k, float (&v)[V],
                                          float (&d)[V]) {
    load<V>(x, v);
    load<V>(g, d);
    scaled<V, T>(scale, nullptr, channel, d);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = (v[j] - m) * k;
}

// dx of V elements: k·(d − total − v·dot)
template <int V, typename T>
__device__ __forceinline__ void store_gradient(T *__restrict__ dx, float k, float total, float dot,
                                               const float (&v)[V], float (&d)[V]) {
#pragma unroll
    for (int j = 0; j < V; ++j) d[j] = k * (d[j] - total - v[j] * dot);
    store<V>(dx, d);
}

template <typename T, int V, int TEAM>
__device__ __forceinline__ void backward(const GroupNormParams &p, const T *__restrict__ x,
                                         const T *__restrict__ scale, const float *__restrict__ mean,
                                         const float *__restrict__ rstd, const T *__restrict__ g,
                                         T *__restrict__ dx) {
    __shared__ float scratch[THREADS / WARP];
    constexpr u32 ROWS = THREADS / TEAM;
    u64 rows = p.samples * p.groups;
    for (u64 row = (u64)blockIdx.x * ROWS + threadIdx.x / TEAM; row < rows; row += (u64)gridDim.x * ROWS) {
        u64 first = row * p.width, channel = row % p.groups * p.width;
        float v[HELD / V][V], d[HELD / V][V], total = 0.0f, dot = 0.0f, m = mean[row], k = rstd[row];
        packs<V, TEAM>(p.width, [&](u32 at, int i) {
            load_pair<V>(x + first + at, g + first + at, scale, channel + at, m, k, v[i], d[i]);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                total += d[i][j];
                dot += d[i][j] * v[i][j];
            }
        });
        total = p.rms ? 0.0f : team_sum<TEAM>(total, scratch) / (float)p.width;
        dot = team_sum<TEAM>(dot, scratch) / (float)p.width;
        packs<V, TEAM>(p.width,
                       [&](u32 at, int i) { store_gradient<V>(dx + first + at, k, total, dot, v[i], d[i]); });
    }
}

// A row of any length, twice from memory.
template <typename T, int V>
__device__ __forceinline__ void backward_long(const GroupNormParams &p, const T *__restrict__ x,
                                              const T *__restrict__ scale, const float *__restrict__ mean,
                                              const float *__restrict__ rstd, const T *__restrict__ g,
                                              T *__restrict__ dx) {
    __shared__ float scratch[THREADS / WARP];
    u64 rows = p.samples * p.groups;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        u64 first = row * p.width, channel = row % p.groups * p.width;
        float v[V], d[V], total = 0.0f, dot = 0.0f, m = mean[row], k = rstd[row];
        for (u64 at = threadIdx.x * V; at < p.width; at += THREADS * V) {
            load_pair<V>(x + first + at, g + first + at, scale, channel + at, m, k, v, d);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                total += d[j];
                dot += d[j] * v[j];
            }
        }
        total = p.rms ? 0.0f : block_sum<THREADS>(total, scratch) / (float)p.width;
        dot = block_sum<THREADS>(dot, scratch) / (float)p.width;
        for (u64 at = threadIdx.x * V; at < p.width; at += THREADS * V) {
            load_pair<V>(x + first + at, g + first + at, scale, channel + at, m, k, v, d);
            store_gradient<V>(dx + first + at, k, total, dot, v, d);
        }
    }
}

// Bodies with 16-byte accesses where they divide the rows, else with single elements.
#define FORWARD(name, type, body, ...)                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        name(GroupNormParams p, const type *__restrict__ x, const type *__restrict__ scale,                            \
             const type *__restrict__ shift, type *__restrict__ y, float *__restrict__ mean,                           \
             float *__restrict__ rstd) {                                                                               \
        if (p.width % LANES<type> == 0)                                                                                \
            body<type, LANES<type> __VA_ARGS__>(p, x, scale, shift, y, mean, rstd);                                    \
        else body<type, 1 __VA_ARGS__>(p, x, scale, shift, y, mean, rstd);                                             \
    }
#define BACKWARD(name, type, body, ...)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        name(GroupNormParams p, const type *__restrict__ x, const type *__restrict__ scale,                            \
             const float *__restrict__ mean, const float *__restrict__ rstd, const type *__restrict__ g,               \
             type *__restrict__ dx) {                                                                                  \
        if (p.width % LANES<type> == 0)                                                                                \
            body<type, LANES<type> __VA_ARGS__>(p, x, scale, mean, rstd, g, dx);                                       \
        else body<type, 1 __VA_ARGS__>(p, x, scale, mean, rstd, g, dx);                                                \
    }
#define ROWS(suffix, type)                                                                                             \
    FORWARD(norm_warps_##suffix, type, forward, , WARP)                                                                \
    FORWARD(norm_blocks_##suffix, type, forward, , THREADS)                                                            \
    FORWARD(norm_long_##suffix, type, forward_long)                                                                    \
    BACKWARD(norm_grad_warps_##suffix, type, backward, , WARP)                                                         \
    BACKWARD(norm_grad_blocks_##suffix, type, backward, , THREADS)                                                     \
    BACKWARD(norm_grad_long_##suffix, type, backward_long)
FOR_FLOATS(ROWS)
