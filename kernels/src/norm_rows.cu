// Norms whose values are contiguous rows: layer and RMS norm, and group norm of a single position.
//
// x is [samples, groups, width]; every row of `width` is normalised, statistics are [samples, groups], scale and shift
// have a value per (group, column). Formulas: norm.cu.
//
// The variants: *_naive gives each row to a thread, so that the 32 threads of a warp read 32 places a row apart. *_long
// gives it to a block, whose threads read neighbours, and reads it again for each pass. *_warps holds rows of up to 1024
// elements in the registers of a warp, *_blocks up to 8192 in those of a block: memory is read once.
//
// Contract: x, g, y and dx are aligned to 16 bytes; where 16 bytes divide the width, rows move by 16 bytes.
// Geometry: blocks of 256; *_naive: 256 rows a block; *_warps: 8; *_blocks and *_long: one. The grid strides.
#include "norm.cuh"

constexpr int THREADS = 256;
// Elements of a row that a thread holds.
constexpr int HELD = 32;

template <typename T>
__device__ __forceinline__ void forward_naive(const GroupNormParams &p, const T *__restrict__ x,
                                              const T *__restrict__ scale, const T *__restrict__ shift,
                                              T *__restrict__ y, float *__restrict__ mean, float *__restrict__ rstd) {
    u64 rows = p.samples * p.groups;
    for (u64 row = global_thread(); row < rows; row += global_threads()) {
        u64 first = row * p.width, channel = row % p.groups * p.width;
        float n = (float)p.width, m = 0.0f, var = 0.0f;
        for (u64 i = 0; !p.rms && i < p.width; ++i) m += to_acc(x[first + i]) / n;
        for (u64 i = 0; i < p.width; ++i) var += (to_acc(x[first + i]) - m) * (to_acc(x[first + i]) - m) / n;
        float k = rstd_of(var, p.eps);
        for (u64 i = 0; i < p.width; ++i) {
            float v = (to_acc(x[first + i]) - m) * k;
            if (scale) v *= to_acc(scale[channel + i]);
            if (shift) v += to_acc(shift[channel + i]);
            y[first + i] = from_acc<T>(v);
        }
        mean[row] = m;
        rstd[row] = k;
    }
}

template <typename T>
__device__ __forceinline__ void backward_naive(const GroupNormParams &p, const T *__restrict__ x,
                                               const T *__restrict__ scale, const float *__restrict__ mean,
                                               const float *__restrict__ rstd, const T *__restrict__ g,
                                               T *__restrict__ dx) {
    u64 rows = p.samples * p.groups;
    for (u64 row = global_thread(); row < rows; row += global_threads()) {
        u64 first = row * p.width, channel = row % p.groups * p.width;
        float n = (float)p.width, m = mean[row], k = rstd[row], total = 0.0f, dot = 0.0f;
        auto scaled_g = [&](u64 i) { return to_acc(g[first + i]) * (scale ? to_acc(scale[channel + i]) : 1.0f); };
        for (u64 i = 0; i < p.width; ++i) {
            if (!p.rms) total += scaled_g(i) / n;
            dot += scaled_g(i) * (to_acc(x[first + i]) - m) * k / n;
        }
        for (u64 i = 0; i < p.width; ++i)
            dx[first + i] = from_acc<T>(k * (scaled_g(i) - total - (to_acc(x[first + i]) - m) * k * dot));
    }
}

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

// A body by 16-byte accesses where they divide the rows, else by single elements.
#define BY_WIDTH(body, T, ...)                                                                                         \
    if (p.width % LANES<T> == 0) body(T, LANES<T>)(__VA_ARGS__);                                                       \
    else body(T, 1)(__VA_ARGS__);
#define NAIVE(T, V) forward_naive<T>
#define WARPS(T, V) forward<T, V, WARP>
#define BLOCKS(T, V) forward<T, V, THREADS>
#define LONG(T, V) forward_long<T, V>
#define GRAD_NAIVE(T, V) backward_naive<T>
#define GRAD_WARPS(T, V) backward<T, V, WARP>
#define GRAD_BLOCKS(T, V) backward<T, V, THREADS>
#define GRAD_LONG(T, V) backward_long<T, V>

#define FORWARD(name, T, body)                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        name(GroupNormParams p, const T *__restrict__ x, const T *__restrict__ scale, const T *__restrict__ shift,     \
             T *__restrict__ y, float *__restrict__ mean, float *__restrict__ rstd) {                                  \
        BY_WIDTH(body, T, p, x, scale, shift, y, mean, rstd)                                                           \
    }
#define BACKWARD(name, T, body)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        name(GroupNormParams p, const T *__restrict__ x, const T *__restrict__ scale, const float *__restrict__ mean,  \
             const float *__restrict__ rstd, const T *__restrict__ g, T *__restrict__ dx) {                            \
        BY_WIDTH(body, T, p, x, scale, mean, rstd, g, dx)                                                              \
    }
#define ROWS(suffix, T)                                                                                                \
    FORWARD(norm_naive_##suffix, T, NAIVE)                                                                             \
    FORWARD(norm_warps_##suffix, T, WARPS)                                                                             \
    FORWARD(norm_blocks_##suffix, T, BLOCKS)                                                                           \
    FORWARD(norm_long_##suffix, T, LONG)                                                                               \
    BACKWARD(norm_grad_naive_##suffix, T, GRAD_NAIVE)                                                                  \
    BACKWARD(norm_grad_warps_##suffix, T, GRAD_WARPS)                                                                  \
    BACKWARD(norm_grad_blocks_##suffix, T, GRAD_BLOCKS)                                                                \
    BACKWARD(norm_grad_long_##suffix, T, GRAD_LONG)
FOR_FLOATS(ROWS)
