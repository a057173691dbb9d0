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

// y = f(a, b), packs of 16 bytes of y at a time where they do not straddle the innermost dimension.
template <typename F, typename T, typename Y>
__device__ __forceinline__ void zip(const BroadcastParams &p, const F &f, const T *__restrict__ a, const T *__restrict__ b,
                                    Y *__restrict__ y) {
    constexpr int L = LANES<T>;
    const bool one_a = innermost(p, p.a) == 0, one_b = innermost(p, p.b) == 0;
    const u64 packs = whole_packs<L>(p) && aligned16(a) && aligned16(b) && aligned16(y) ? p.n / L : 0;
    for (u64 i = global_thread(); i < packs; i += global_threads()) {
        Offsets at = locate(p, i * L);
        Group<T, L> x = load_group<T, L>(a, at.a, one_a), z = load_group<T, L>(b, at.b, one_b);
        Group<Y, L> r;
        // Long functions run lane by lane over packs that turn, so that there is one copy of their code.
        constexpr int STEPS = F::LIGHT ? L : 1;
#pragma unroll STEPS
        for (int k = 0; k < L; ++k) {
            Y v = f(x.v[0], z.v[0]);
            x.turn(x.v[0]);
            z.turn(z.v[0]);
            r.turn(v);
        }
        *reinterpret_cast<Group<Y, L> *>(y + i * L) = r;
    }
    for (u64 i = packs * L + global_thread(); i < p.n; i += global_threads()) {
        Offsets at = locate(p, i);
        y[i] = f(a[at.a], b[at.b]);
    }
}
