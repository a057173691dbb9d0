// Max pooling, channels-last: x [N, D, H, W, C], y and index [N, D', H', W', C].
//
//   y[o] = max of x over the taps of window o inside the input; a NaN wins, the first among equals (and the first NaN)
//   index[o] = its position in the image, (d·H + h)·W + w;   a window that sees nothing: −∞ and −1
//   dx[q] = Σ g[o] over the windows o that cover q with index[o] = q      (each input visits its windows: no atomics)
//     where g counts as zero if y ≤ 0, for a y, the result of a ReLU, that is not null
//   gather: y[o] = x[index[o]], 0 where the index is −1
//
// A thread takes V neighbouring channels of one position: V = 1, or in the `_packed` kernels V = 4 (f32) or 8 (bf16,
// f16), 16-byte accesses, when V divides the channels. Neighbouring threads read neighbouring channels.
//
// Geometry: 256 threads, a grid of one dimension with a stride over positions·(channels / V).
#include "pool.cuh"

template <typename T, int V>
__device__ __forceinline__ void max_pool(const PoolParams &p, const T *__restrict__ x, T *__restrict__ y,
                                         i32 *__restrict__ index) {
    u64 in_positions = (u64)p.input[0] * p.input[1] * p.input[2];
    u32 lanes = p.channels / V;
    u64 total = (u64)p.batch * p.output[0] * p.output[1] * p.output[2] * lanes;
    for (u64 at = global_thread(); at < total; at += global_threads()) {
        u32 lane;
        Position o = position_of(split(at, lanes, lane), p.output);
        Span span[3];
#pragma unroll
        for (int n = 0; n < 3; ++n) span[n] = inside(p, n, o.at[n]);
        const T *xs = x + o.image * in_positions * p.channels + lane * V;
        Lane<T, V> best;
        Lane<i32, V> found;
#pragma unroll
        for (int v = 0; v < V; ++v) {
            best.v[v] = from_acc<T>(-INFINITY);
            found.v[v] = -1;
        }
        u32 first[3]; // of tap 0; below 0 it wraps, and so does the sum with a tap that is inside
#pragma unroll
        for (int n = 0; n < 3; ++n) first[n] = (u32)((u64)o.at[n] * p.stride[n]) - p.padding[n];
        for (u32 d = span[0].from; d < span[0].to; ++d)
            for (u32 h = span[1].from; h < span[1].to; ++h)
                for (u32 w = span[2].from; w < span[2].to; ++w) {
                    u64 q = flat(p.input, first[0] + d * p.dilation[0], first[1] + h * p.dilation[1],
                                 first[2] + w * p.dilation[2]);
                    Lane<T, V> from = load<T, V>(xs + q * p.channels);
#pragma unroll
                    for (int v = 0; v < V; ++v) {
                        float a = to_acc(from.v[v]), b = to_acc(best.v[v]);
                        bool wins = a > b || (a != a && b == b) || found.v[v] < 0;
                        best.v[v] = wins ? from.v[v] : best.v[v];
                        found.v[v] = wins ? (i32)q : found.v[v];
                    }
                }
        store<T, V>(y + at * V, best);
        store<i32, V>(index + at * V, found);
    }
}

// The windows that may cover an input in one dimension, in the order of their taps: by window where taps lie next to
// each other, by tap where a dilation spreads them.
struct Windows {
    u32 count, first;
    bool dilated;
};

__device__ __forceinline__ Windows windows(const PoolParams &p, int n, u32 at) {
    if (p.dilation[n] == 1) {
        Span s = windows_over(p, n, at);
        return {s.to > s.from ? s.to - s.from : 0, s.to - 1, false};
    }
    Span s = taps_reading(p, n, at);
    return {s.to > s.from ? s.to - s.from : 0, s.from, true};
}

// Window `i` of them, or −1.
__device__ __forceinline__ i64 window_at(const PoolParams &p, int n, u32 at, const Windows &w, u32 i) {
    if (!w.dilated) return (i64)w.first - i;
    return window_reading(p, n, at, w.first + i);
}

template <typename T, int V>
__device__ __forceinline__ void max_pool_grad(const PoolParams &p, const T *__restrict__ g, const T *__restrict__ y,
                                              const i32 *__restrict__ index, T *__restrict__ dx) {
    u64 out_positions = (u64)p.output[0] * p.output[1] * p.output[2];
    u32 lanes = p.channels / V;
    u64 total = (u64)p.batch * p.input[0] * p.input[1] * p.input[2] * lanes;
    for (u64 at = global_thread(); at < total; at += global_threads()) {
        u32 lane;
        Position q = position_of(split(at, lanes, lane), p.input);
        i32 here = (i32)flat(p.input, q.at[0], q.at[1], q.at[2]);
        u64 base = q.image * out_positions;
        Windows wd = windows(p, 0, q.at[0]), wh = windows(p, 1, q.at[1]), ww = windows(p, 2, q.at[2]);
        float sum[V] = {};
        for (u32 a = 0; a < wd.count; ++a) {
            i64 d = window_at(p, 0, q.at[0], wd, a);
            if (d < 0) continue;
            for (u32 b = 0; b < wh.count; ++b) {
                i64 h = window_at(p, 1, q.at[1], wh, b);
                if (h < 0) continue;
                for (u32 c = 0; c < ww.count; ++c) {
                    i64 w = window_at(p, 2, q.at[2], ww, c);
                    if (w < 0) continue;
                    u64 o = (base + flat(p.output, (u32)d, (u32)h, (u32)w)) * p.channels + lane * V;
                    Lane<i32, V> from = load<i32, V>(index + o);
                    Lane<T, V> grad = load<T, V>(g + o);
                    if (y) {
                        Lane<T, V> result = load<T, V>(y + o);
#pragma unroll
                        for (int v = 0; v < V; ++v) from.v[v] = to_acc(result.v[v]) <= 0.0f ? -1 : from.v[v];
                    }
#pragma unroll
                    for (int v = 0; v < V; ++v) sum[v] += from.v[v] == here ? to_acc(grad.v[v]) : 0.0f;
                }
            }
        }
        Lane<T, V> out;
#pragma unroll
        for (int v = 0; v < V; ++v) out.v[v] = from_acc<T>(sum[v]);
        store<T, V>(dx + at * V, out);
    }
}

template <typename T, int V>
__device__ __forceinline__ void max_pool_gather(const PoolParams &p, const T *__restrict__ x,
                                                const i32 *__restrict__ index, T *__restrict__ y) {
    u64 in_positions = (u64)p.input[0] * p.input[1] * p.input[2];
    u32 lanes = p.channels / V;
    u64 total = (u64)p.batch * p.output[0] * p.output[1] * p.output[2] * lanes;
    for (u64 at = global_thread(); at < total; at += global_threads()) {
        u32 lane;
        u64 image = position_of(split(at, lanes, lane), p.output).image;
        Lane<i32, V> from = load<i32, V>(index + at * V);
        Lane<T, V> out;
#pragma unroll
        for (int v = 0; v < V; ++v) {
            bool inside = from.v[v] >= 0 && from.v[v] < in_positions;
            u64 q = image * in_positions + (inside ? from.v[v] : 0);
            out.v[v] = inside ? x[q * p.channels + lane * V + v] : from_acc<T>(0.0f);
        }
        store<T, V>(y + at * V, out);
    }
}

#define MAX_POOL(suffix, T, V)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 2) max_pool##suffix(                                             \
        PoolParams p, const T *__restrict__ x, T *__restrict__ y, i32 *__restrict__ index) {                           \
        max_pool<T, V>(p, x, y, index);                                                                                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2) max_pool_grad##suffix(                                        \
        PoolParams p, const T *__restrict__ g, const T *__restrict__ y, const i32 *__restrict__ index,                 \
        T *__restrict__ dx) {                                                                                          \
        max_pool_grad<T, V>(p, g, y, index, dx);                                                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2) max_pool_gather##suffix(                                      \
        PoolParams p, const T *__restrict__ x, const i32 *__restrict__ index, T *__restrict__ y) {                     \
        max_pool_gather<T, V>(p, x, index, y);                                                                         \
    }
#define EACH(suffix, T) MAX_POOL(_##suffix, T, 1) MAX_POOL(_packed_##suffix, T, LANES<T>)
FOR_FLOATS(EACH)
