// The largest element of a row and Σ e^(x − m), which softmax and cross-entropy share.
#pragma once

#include "types.cuh"
#include "warp.cuh"

// Both in one pass (Milakov & Gimelshein 2018): the sum so far is scaled when a larger element turns up. NaN wins, an
// infinity gives NaN, and nothing but −∞ gives a sum of 0, so that every result of the row is NaN, as e^(x − m) says.
struct Running {
    float m = -INFINITY, sum = 0.0f;

    __device__ __forceinline__ void add(float x) {
        float now = max_nan(m, x);
        // Two −∞ have a difference of NaN: they add nothing.
        if (now == -INFINITY) return;
        sum = sum * expf(m - now) + expf(x - now);
        m = now;
    }
};

// Largest element and sum for a block of 256 over the `n` elements at x, the same in every thread.
template <typename T>
__device__ __forceinline__ void block_statistics(const T *__restrict__ x, u64 n, float &m, float &sum, float *scratch) {
    Running r;
    constexpr int L = LANES<T>;
    u64 packs = aligned16(x) ? n / L : 0;
    for (u64 i = threadIdx.x; i < packs; i += 256) {
        Pack<T> v = load16(x + i * L);
        // The sum is scaled once for the whole pack.
        float now = r.m, part = 0.0f;
#pragma unroll
        for (int k = 0; k < L; ++k) now = max_nan(now, to_acc(v.v[k]));
        if (now == -INFINITY) continue;
#pragma unroll
        for (int k = 0; k < L; ++k) part += expf(to_acc(v.v[k]) - now);
        r.sum = r.sum * expf(r.m - now) + part;
        r.m = now;
    }
    for (u64 i = packs * L + threadIdx.x; i < n; i += 256) r.add(to_acc(x[i]));
    m = block_max<256>(r.m, scratch);
    sum = block_sum<256>(r.sum == 0.0f ? 0.0f : r.sum * expf(r.m - m), scratch);
}

// y[i] = f(x[i], i) for a block of 256.
template <typename T, typename F>
__device__ __forceinline__ void map_row(const T *__restrict__ x, T *__restrict__ y, u64 n, const F &f) {
    constexpr int L = LANES<T>;
    u64 packs = aligned16(x) && aligned16(y) ? n / L : 0;
    for (u64 i = threadIdx.x; i < packs; i += 256) {
        Pack<T> v = load16(x + i * L);
#pragma unroll
        for (int k = 0; k < L; ++k) v.v[k] = from_acc<T>(f(to_acc(v.v[k]), i * L + k));
        store16(y + i * L, v);
    }
    for (u64 i = packs * L + threadIdx.x; i < n; i += 256) y[i] = from_acc<T>(f(to_acc(x[i]), i));
}

// A row of at most 32·N elements in the registers of a warp: element i·32 + lane is v[i].
template <int N> struct WarpRow {
    float v[N];
    int n, lane;

    template <typename T> __device__ __forceinline__ void load(const T *__restrict__ x, int count) {
        n = count;
        lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = i * WARP + lane < n ? to_acc(x[i * WARP + lane]) : -INFINITY;
    }

    __device__ __forceinline__ void statistics(float &m, float &sum) const {
        m = -INFINITY;
        sum = 0.0f;
#pragma unroll
        for (int i = 0; i < N; ++i) m = max_nan(m, v[i]);
        m = warp_max(m);
#pragma unroll
        for (int i = 0; i < N; ++i) sum += i * WARP + lane < n ? expf(v[i] - m) : 0.0f;
        sum = warp_sum(sum);
    }
};
