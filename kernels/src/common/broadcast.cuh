// How ops under broadcasting find their operands.
#pragma once

#include "types.cuh"

struct BroadcastParams {
    u64 shape[8];
    i64 a[8], b[8], mask[8];
    u64 n;
    u32 rank, op;
};
static_assert(sizeof(BroadcastParams) == 272, "core::ops::BroadcastParams");

// Where element `i` of the result finds its operands.
struct Offsets {
    u64 a, b, mask;
};

__device__ __forceinline__ Offsets locate(const BroadcastParams &p, u64 i) {
    Offsets at = {0, 0, 0};
#pragma unroll 1
    for (int d = (int)p.rank - 1; d > 0; --d) {
        u64 q, r;
        divide(i, p.shape[d], q, r);
        at.a += r * p.a[d];
        at.b += r * p.b[d];
        at.mask += r * p.mask[d];
        i = q;
    }
    if (p.rank > 0) {
        at.a += i * p.a[0];
        at.b += i * p.b[0];
        at.mask += i * p.mask[0];
    }
    return at;
}

// The innermost stride of an operand.
__device__ __forceinline__ i64 innermost(const BroadcastParams &p, const i64 *strides) {
    return p.rank == 0 ? 0 : strides[p.rank - 1];
}

// True if packs of L elements never straddle the innermost dimension.
template <int L> __device__ __forceinline__ bool whole_packs(const BroadcastParams &p) {
    return p.rank < 2 || p.shape[p.rank - 1] % L == 0;
}

// L elements that are loaded and stored at once.
template <typename T, int L> struct alignas(L * sizeof(T)) Group {
    T v[L];

    // Takes the first element out and puts `last` at the end: when the loop around it is not unrolled, every register
    // index is a constant all the same.
    __device__ __forceinline__ void turn(T last) {
#pragma unroll
        for (int k = 0; k + 1 < L; ++k) v[k] = v[k + 1];
        v[L - 1] = last;
    }
};

// The elements from `at` on, or L times the one there.
template <typename T, int L>
__device__ __forceinline__ Group<T, L> load_group(const T *__restrict__ x, u64 at, bool one) {
    if (!one) return *reinterpret_cast<const Group<T, L> *>(x + at);
    Group<T, L> g;
    T v = x[at];
#pragma unroll
    for (int k = 0; k < L; ++k) g.v[k] = v;
    return g;
}
