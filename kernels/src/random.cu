// Random numbers, dropout and the counters they draw from.
//
//   random:   y[i] of a distribution with parameters a, b
//   dropout:  y[i] = h[i] < below ? 0 : x[i]·scale, scale = 1/(1 − a), h numbers of 16 bits
//   tick:     ticket = counter; counter += 1 (wrapping); tick_each: the same for a list of counters
//
// Element i takes word i % 4 of Philox block i / 4 under the key (seed, stream, *step), in dropout and what it keeps half i % 2 of word
// i / 2 % 4 of block i / 8: the bits do not depend on the grid, and are those of the CPU.
//
// Contract: x and y have p.n elements and start at a multiple of 16 bytes; step, counter and ticket are one i32 each.
// Geometry: a thread per Philox block, of four elements or in dropout eight, 256 threads, any grid (it strides); tick_each: one block; tick: one block of 32 threads,
//           of which the first works.
#include "common/normal.cuh"
#include "common/philox.cuh"
#include "common/tensors.cuh"
#include "common/vector.cuh"

struct RandomParams {
    u64 n, seed;
    double a, b;
    u32 stream, distribution;
};
static_assert(sizeof(RandomParams) == 40, "core::ops::RandomParams");

// Codes of core's Distribution.
enum Distribution : u32 { UNIFORM, NORMAL, TRUNCATED_NORMAL, BERNOULLI, KEPT };

__device__ __forceinline__ PhiloxKey key_of(const RandomParams &p, const i32 *__restrict__ step) {
    return PhiloxKey{p.seed, p.stream, (u32)*step};
}

// a + b·v
__device__ __forceinline__ float affine(Exact a, Exact b, float v) { return (a + b * v).v; }

// Uniform on a ≤ x < b; the sum may round up to the excluded bound.
__device__ __forceinline__ float uniform_between(float a, float b, u32 word) {
    float v = affine(a, Exact(b) - a, philox_uniform(word));
    return v < b ? v : a;
}

// The four numbers of one Philox block.
__device__ __forceinline__ void draw(u32 distribution, float a, float b, uint4 w, float (&v)[4]) {
    u32 words[4] = {w.x, w.y, w.z, w.w};
    if (distribution == NORMAL) {
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            float2 pair = normal_pair(words[j], words[j + 1]);
            v[j] = affine(a, b, pair.x);
            v[j + 1] = affine(a, b, pair.y);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        switch (distribution) {
        case UNIFORM: v[j] = uniform_between(a, b, words[j]); break;
        case TRUNCATED_NORMAL: v[j] = affine(a, b, truncated_normal(words[j])); break;
        default: v[j] = philox_uniform(words[j]) < a ? 1.0f : 0.0f; break;
        }
    }
}

// y[0 .. V], or what is left of it.
template <typename T, int V> __device__ __forceinline__ void put(T *__restrict__ y, u64 left, const float (&v)[V]) {
    if (left >= V) {
        store<V>(y, v);
        return;
    }
#pragma unroll
    for (int j = 0; j < V - 1; ++j)
        if (j < left) y[j] = from_acc<T>(v[j]);
}

template <typename T>
__device__ __forceinline__ void fill(const RandomParams &p, const i32 *__restrict__ step, T *__restrict__ y) {
    PhiloxKey key = key_of(p, step);
    float a = (float)p.a, b = (float)p.b;
    for (u64 block = global_thread(); block * 4 < p.n; block += global_threads()) {
        float v[4];
        if (p.distribution == KEPT) {
            uint4 w = philox_block(key, block / 2);
            const u32 below = drop_below(p.a);
#pragma unroll
            for (int j = 0; j < 4; ++j) v[j] = (block % 2 ? philox_half(w, 4 + j) : philox_half(w, j)) < below ? 0.0f : 1.0f;
        } else {
            draw(p.distribution, a, b, philox_block(key, block), v);
        }
        put(y + block * 4, p.n - block * 4, v);
    }
}

template <typename T>
__device__ __forceinline__ void drop(const RandomParams &p, const i32 *__restrict__ step, const T *__restrict__ x,
                                     T *__restrict__ y, float scale, u32 below) {
    PhiloxKey key = key_of(p, step);
    for (u64 block = global_thread(); block * 8 < p.n; block += global_threads()) {
        u64 at = block * 8, left = p.n - at;
        uint4 w = philox_block(key, block);
        float v[8] = {};
        if (left >= 8) {
            load<8>(x + at, v);
        } else {
#pragma unroll
            for (int j = 0; j < 7; ++j)
                if (j < left) v[j] = to_acc(x[at + j]);
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = philox_half(w, j) < below ? 0.0f : v[j] * scale;
        put(y + at, left, v);
    }
}

#define RANDOM(suffix, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256) random_##suffix(RandomParams p, const i32 *__restrict__ step,    \
                                                                      T *__restrict__ y) {                             \
        fill<T>(p, step, y);                                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) dropout_##suffix(RandomParams p, const i32 *__restrict__ step,   \
                                                                       const T *__restrict__ x, T *__restrict__ y,     \
                                                                       float scale, u32 below) {                       \
        drop<T>(p, step, x, y, scale, below);                                                                          \
    }
FOR_FLOATS(RANDOM)

// Records of the list (common/tensors.cuh) are [counter, ticket, 1, number].
extern "C" __global__ void __launch_bounds__(256) tick_each(Tensors tensors) {
    for (u32 i = threadIdx.x; i < tensors.count; i += 256) {
        i32 *counter = reinterpret_cast<i32 *>(tensors.words[i * 4]), *ticket = reinterpret_cast<i32 *>(tensors.words[i * 4 + 1]);
        u32 now = (u32)*counter;
        *ticket = (i32)now;
        *counter = (i32)(now + 1);
    }
}

extern "C" __global__ void __launch_bounds__(32) tick(i32 *__restrict__ counter, i32 *__restrict__ ticket) {
    if (global_thread() != 0) return;
    u32 now = (u32)*counter;
    *ticket = (i32)now;
    *counter = (i32)(now + 1);
}
