// Shared by the kernels of norms whose values lie in columns: how blocks cover them, how their elements are read, and which block ends.
#pragma once

#include "common/arrive.cuh"
#include "norm.cuh"

// `outer` times `rows` rows, each outer part cut into `chunks` of `step` rows.
struct Cut {
    u64 outer, rows, step, chunks;
};
static_assert(sizeof(Cut) == 32, "cuda::ops::norm::Cut");

// V elements as they lie in memory: half the registers of their floats, where loads of several rows are under way.
template <typename T, int V> struct Packed {
    typename WordOf<V * sizeof(T)>::Word word;

    __device__ __forceinline__ void load(const T *p) {
        word = *reinterpret_cast<const typename WordOf<V * sizeof(T)>::Word *>(p);
    }
    __device__ __forceinline__ void get(float (&x)[V]) const {
        T v[V];
        memcpy(v, &word, sizeof word);
#pragma unroll
        for (int j = 0; j < V; ++j) x[j] = to_acc(v[j]);
    }
};

constexpr int TILED = 256;

template <int N> struct Count {
    static constexpr int VALUE = N;
};

// The columns and rows of a block's thread: V columns from `column`, rows begin + threadIdx.y, + blockDim.y, … < end.
template <int V> struct Place {
    u64 channels, column, begin, end;
    u32 chunk, outer, tile;

    __device__ __forceinline__ Place(const GroupNormParams &p, const Cut &cut) {
        channels = p.groups * p.width;
        // A grid has fewer than 2^31 blocks: its parts fit 32 bits.
        u32 tiles = ((u32)channels - 1) / (blockDim.x * V) + 1, chunks = (u32)cut.chunks;
        chunk = blockIdx.x / tiles;
        tile = blockIdx.x % tiles;
        outer = chunk / chunks;
        column = ((u64)tile * blockDim.x + threadIdx.x) * V;
        u64 first = (chunk % chunks) * cut.step, size = cut.rows - first;
        begin = outer * cut.rows + first;
        end = begin + (size < cut.step ? size : cut.step);
    }
    __device__ __forceinline__ bool inside() const { return column < channels; }
    // f(number of rows, first row) for all rows of this thread: `ROWS` at a time, whose loads are then under way together,
    // and the rest one by one.
    template <int ROWS, typename F> __device__ __forceinline__ void visit(F f) const {
        u64 row = begin + threadIdx.y;
        for (; row + (ROWS - 1) * blockDim.y < end; row += ROWS * blockDim.y) f(Count<ROWS>(), row);
        for (; row < end; row += blockDim.y) f(Count<1>(), row);
    }
    // Where V columns of the r-th row from `row` lie.
    __device__ __forceinline__ u64 index(u64 row, int r) const { return (row + r * blockDim.y) * channels + column; }
};

// The groups of V columns.
template <int V> struct Groups {
    u32 of[V];

    __device__ __forceinline__ Groups(const GroupNormParams &p, u64 column) {
        u32 width = (u32)p.width, group = (u32)column / width, rest = (u32)column % width;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            of[j] = group;
            if (++rest == width) {
                rest = 0;
                ++group;
            }
        }
    }
    // v[j] = stats[sample, group of column j]
    __device__ __forceinline__ void load(const GroupNormParams &p, const float *__restrict__ stats, u64 sample,
                                         float (&v)[V]) const {
#pragma unroll
        for (int j = 0; j < V; ++j) v[j] = stats[sample * p.groups + of[j]];
    }
};

// A scale or a shift, of x's dtype or of f32.
template <typename T>
__device__ __forceinline__ float of_channel(const GroupNormParams &p, const T *__restrict__ vector, u64 column) {
    return p.flags & NORM_WIDE ? reinterpret_cast<const float *>(vector)[column] : to_acc(vector[column]);
}

// v[j] = vector[column + j], or `otherwise` where there is no vector
template <int V, typename T>
__device__ __forceinline__ void of_channels(const GroupNormParams &p, const T *__restrict__ vector, u64 column,
                                            float otherwise, float (&v)[V]) {
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = vector ? of_channel(p, vector, column + j) : otherwise;
}

// The gradients of scale and shift, of x's dtype or of f32, and for batch norm the factors of dx, from the sums of a channel.
template <typename T> struct Totals {
    T *dscale, *dshift;
    const T *scale; // null if there is none
    float *factors; // [{Σ g·scale / n, Σ g·scale·x̂ / n}, channel], null if they are not wanted

    __device__ __forceinline__ void put(const GroupNormParams &p, u64 channels, u64 column, float dot,
                                        float total) const {
        if (p.flags & NORM_WIDE_GRADS) {
            reinterpret_cast<float *>(dscale)[column] = dot;
            reinterpret_cast<float *>(dshift)[column] = total;
        } else {
            dscale[column] = from_acc<T>(dot);
            dshift[column] = from_acc<T>(total);
        }
        if (factors) {
            float share = (scale ? of_channel(p, scale, column) : 1.0f) / (float)p.positions;
            factors[column] = total * share;
            factors[channels + column] = dot * share;
        }
    }
};
