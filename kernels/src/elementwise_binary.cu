// Functions and comparisons of two tensors, and selection, under broadcasting: y[i] = f(a[i·sa], b[i·sb]).
//
// y is contiguous of shape p.shape (rank dimensions, adjacent ones merged by core); an operand has a stride per dimension,
// 0 where it is broadcast. Operands are contiguous, so that the innermost stride is 1 or 0 and every other one is 0 or a
// multiple of the innermost dimension. Hence packs of 16 bytes of y read a pack or one repeated value of each operand
// whenever the innermost dimension is a whole number of packs; with rank 0 or 1 (equal shapes, or a scalar) for any size.
// The rest goes element by element.
//
// Geometry: 256 threads, a grid of any size striding over the packs.
#include "common/broadcast.cuh"
#include <codes.cuh>

// The remainder of a division has the divisor's sign (C's `fmod`, moved by b where the signs differ).
__device__ __forceinline__ float remainder_of(float a, float b) {
    float rest = fmodf(a, b);
    return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}

template <u32 OP> struct Binary {
    template <typename T> __device__ __forceinline__ T operator()(T x, T y) const {
        float a = to_acc(x), b = to_acc(y);
        if constexpr (OP == BINARY_ADD) return from_acc<T>(a + b);
        if constexpr (OP == BINARY_SUB) return from_acc<T>(a - b);
        if constexpr (OP == BINARY_MUL) return from_acc<T>(a * b);
        if constexpr (OP == BINARY_DIV) return from_acc<T>(a / b);
        if constexpr (OP == BINARY_POW) return from_acc<T>(powf(a, b));
        // A NaN in `a` is kept by the self-comparison, one in `b` because the comparison fails.
        if constexpr (OP == BINARY_MAXIMUM) return a > b || a != a ? x : y;
        if constexpr (OP == BINARY_MINIMUM) return a < b || a != a ? x : y;
        if constexpr (OP == BINARY_ATAN2) return from_acc<T>(atan2f(a, b));
        if constexpr (OP == BINARY_REMAINDER) return from_acc<T>(remainder_of(a, b));
    }
    static constexpr bool LIGHT = OP < BINARY_DIV || OP == BINARY_MAXIMUM || OP == BINARY_MINIMUM;
};

__device__ __forceinline__ i32 to_acc(i32 x) { return x; }
__device__ __forceinline__ i32 to_acc(u8 x) { return x; }

// A comparison as the set of relations it holds for, so that all six share one loop.
struct Compare {
    enum : u32 { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };
    u32 holds;

    __device__ __forceinline__ explicit Compare(u32 op)
        : holds(op == COMPARE_EQ   ? EQUAL
                : op == COMPARE_NE ? LESS | GREATER | UNORDERED
                : op == COMPARE_LT ? LESS
                : op == COMPARE_LE ? LESS | EQUAL
                : op == COMPARE_GT ? GREATER
                                   : GREATER | EQUAL) {}

    template <typename T> __device__ __forceinline__ u8 operator()(T x, T y) const {
        auto a = to_acc(x), b = to_acc(y);
        u32 relation = a < b ? LESS : a == b ? EQUAL : a > b ? GREATER : UNORDERED;
        return (holds & relation) != 0;
    }
    static constexpr bool LIGHT = true;
};

#define BINARY_CASE(code)                                                                                              \
    case BINARY_##code: return zip(p, Binary<BINARY_##code>(), a, b, y);

template <typename T>
__device__ __forceinline__ void binary(const BroadcastParams &p, const T *__restrict__ a, const T *__restrict__ b,
                                       T *__restrict__ y) {
    switch (p.op) {
        BINARY_CODES(BINARY_CASE)
    }
}

// y = mask ? a : b. Moves bits, so one instance per element size.
template <typename T>
__device__ __forceinline__ void select(const BroadcastParams &p, const u8 *__restrict__ mask, const T *__restrict__ a,
                                       const T *__restrict__ b, T *__restrict__ y) {
    constexpr int L = LANES<T>;
    const bool one_a = innermost(p, p.a) == 0, one_b = innermost(p, p.b) == 0, one_m = innermost(p, p.mask) == 0;
    const bool aligned = aligned16(mask) && aligned16(a) && aligned16(b) && aligned16(y);
    const u64 packs = whole_packs<L>(p) && aligned ? p.n / L : 0;
    for (u64 i = global_thread(); i < packs; i += global_threads()) {
        Offsets at = locate(p, i * L);
        Group<u8, L> m = load_group<u8, L>(mask, at.mask, one_m);
        Group<T, L> x = load_group<T, L>(a, at.a, one_a), z = load_group<T, L>(b, at.b, one_b);
#pragma unroll
        for (int k = 0; k < L; ++k) x.v[k] = m.v[k] ? x.v[k] : z.v[k];
        *reinterpret_cast<Group<T, L> *>(y + i * L) = x;
    }
    for (u64 i = packs * L + global_thread(); i < p.n; i += global_threads()) {
        Offsets at = locate(p, i);
        y[i] = mask[at.mask] ? a[at.a] : b[at.b];
    }
}

#define BINARY(suffix, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        binary_##suffix(BroadcastParams p, const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ y) {      \
        binary<T>(p, a, b, y);                                                                                         \
    }
FOR_FLOATS(BINARY)

#define COMPARE(suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        compare_##suffix(BroadcastParams p, const T *__restrict__ a, const T *__restrict__ b, u8 *__restrict__ mask) { \
        zip(p, Compare(p.op), a, b, mask);                                                                                     \
    }
FOR_FLOATS(COMPARE)
COMPARE(i32, i32)
COMPARE(u8, u8)

#define SELECT(suffix, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        select_##suffix(BroadcastParams p, const u8 *__restrict__ mask, const T *__restrict__ a,                       \
                        const T *__restrict__ b, T *__restrict__ y) {                                                  \
        select<T>(p, mask, a, b, y);                                                                                   \
    }
SELECT(b8, u8)
SELECT(b16, uint16_t)
SELECT(b32, u32)
