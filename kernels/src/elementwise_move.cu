// Conversion, filling and accumulation of n contiguous elements.
//
//   cast: y[i] = x[i] in another dtype: floats round to nearest even, float to integer truncates and saturates, NaN is 0;
//   cast_each: the same for a list of tensors (common/tensors.cuh), whose records are [x, y, elements, first chunk];
//   fill: the bytes of y repeat a word of 4;   accumulate: y[i] += x[i], in f32, rounded once.
//
// Every value is rounded once, whatever the pair. Accesses are of up to 16 bytes where the pointers allow it.
//
// Geometry: 256 threads, a grid of any size striding over the packs; cast_each: a block per chunk.
#include "common/broadcast.cuh"
#include "common/tensors.cuh"
#include "common/vector.cuh"

// x as the f32 that rounds to every narrower float as x itself would: exact, but for integers of more than 24 bits, which
// are rounded to odd.
__device__ __forceinline__ float carrier(f32 x) { return x; }
__device__ __forceinline__ float carrier(bf16 x) { return to_acc(x); }
__device__ __forceinline__ float carrier(f16 x) { return to_acc(x); }
__device__ __forceinline__ float carrier(u8 x) { return (float)x; }
__device__ __forceinline__ float carrier(i32 x) {
    float down = __int2float_rz(x);
    return __float2int_rz(down) == x ? down : __uint_as_float(__float_as_uint(down) | 1u);
}

template <typename Y> struct Into {
    template <typename X> static __device__ __forceinline__ Y of(X x) { return from_acc<Y>(carrier(x)); }
    // Straight to f32: round to nearest even, not to odd.
    static __device__ __forceinline__ Y of(i32 x) {
        if constexpr (sizeof(Y) == 4) return from_acc<Y>(__int2float_rn(x));
        return from_acc<Y>(carrier(x));
    }
};
template <> struct Into<i32> {
    template <typename X> static __device__ __forceinline__ i32 of(X x) { return __float2int_rz(to_acc(x)); }
    static __device__ __forceinline__ i32 of(u8 x) { return x; }
};
template <> struct Into<u8> {
    static __device__ __forceinline__ u8 of(i32 x) { return (u8)min(max(x, 0), 255); }
    template <typename X> static __device__ __forceinline__ u8 of(X x) { return of(__float2int_rz(to_acc(x))); }
};

template <typename X, typename Y>
__device__ __forceinline__ void cast(u64 n, const X *__restrict__ x, Y *__restrict__ y) {
    constexpr int L = 16 / (sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y));
    const u64 packs = aligned16(x) && aligned16(y) ? n / L : 0;
    for (u64 i = global_thread(); i < packs; i += global_threads()) {
        Group<X, L> v = load_group<X, L>(x, i * L, false);
        Group<Y, L> r;
#pragma unroll
        for (int k = 0; k < L; ++k) r.v[k] = Into<Y>::of(v.v[k]);
        *reinterpret_cast<Group<Y, L> *>(y + i * L) = r;
    }
    for (u64 i = packs * L + global_thread(); i < n; i += global_threads()) y[i] = Into<Y>::of(x[i]);
}

#define CAST(from, X, to, Y)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) cast_##from##_##to(u64 n, const X *__restrict__ x,               \
                                                                         Y *__restrict__ y) {                          \
        cast<X, Y>(n, x, y);                                                                                           \
    }
// clang-format off
CAST(f32, f32, bf16, bf16)  CAST(f32, f32, f16, f16)    CAST(f32, f32, i32, i32)    CAST(f32, f32, u8, u8)
CAST(bf16, bf16, f32, f32)  CAST(bf16, bf16, f16, f16)  CAST(bf16, bf16, i32, i32)  CAST(bf16, bf16, u8, u8)
CAST(f16, f16, f32, f32)    CAST(f16, f16, bf16, bf16)  CAST(f16, f16, i32, i32)    CAST(f16, f16, u8, u8)
CAST(i32, i32, f32, f32)    CAST(i32, i32, bf16, bf16)  CAST(i32, i32, f16, f16)    CAST(i32, i32, u8, u8)
CAST(u8, u8, f32, f32)      CAST(u8, u8, bf16, bf16)    CAST(u8, u8, f16, f16)      CAST(u8, u8, i32, i32)
// clang-format on

// Tensors begin at multiples of 16 bytes.
template <typename X, typename Y> __device__ __forceinline__ void cast_each(const Tensors &tensors) {
    constexpr u32 L = 16 / (sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y));
    const u64 *record = find<3>(tensors, 4);
    u64 begin = (blockIdx.x - record[3]) * CHUNK;
    u64 left = record[2] - begin;
    u32 n = left < CHUNK ? (u32)left : CHUNK, packs = n / L;
    const X *__restrict__ x = reinterpret_cast<const X *>(record[0]) + begin;
    Y *__restrict__ y = reinterpret_cast<Y *>(record[1]) + begin;
    for (u32 i = threadIdx.x; i < packs; i += 256) {
        Group<X, L> v = load_group<X, L>(x, i * L, false);
        Group<Y, L> r;
#pragma unroll
        for (int k = 0; k < L; ++k) r.v[k] = Into<Y>::of(v.v[k]);
        store_whole(y + i * L, r);
    }
    for (u32 i = packs * L + threadIdx.x; i < n; i += 256) y[i] = Into<Y>::of(x[i]);
}

#define CAST_EACH(from, X, to, Y)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) cast_each_##from##_##to(Tensors tensors) {                       \
        cast_each<X, Y>(tensors);                                                                                      \
    }
CAST_EACH(bf16, bf16, f32, f32)
CAST_EACH(f16, f16, f32, f32)

// `bytes` of y, a multiple of the element's size, become copies of `word`, itself 4/size elements.
extern "C" __global__ void __launch_bounds__(256) fill_b32(u64 bytes, u32 word, u8 *__restrict__ y) {
    const u64 packs = aligned16(y) ? bytes / 16 : 0;
    for (u64 i = global_thread(); i < packs; i += global_threads())
        reinterpret_cast<uint4 *>(y)[i] = make_uint4(word, word, word, word);
    for (u64 i = packs * 16 + global_thread(); i < bytes; i += global_threads()) y[i] = (u8)(word >> 8 * (i % 4));
}

template <typename T> __device__ __forceinline__ void accumulate(u64 n, const T *__restrict__ x, T *__restrict__ y) {
    const u64 packs = aligned16(x) && aligned16(y) ? n / LANES<T> : 0;
    for (u64 i = global_thread(); i < packs; i += global_threads()) {
        Pack<T> a = load16(x + i * LANES<T>), b = load16(y + i * LANES<T>);
#pragma unroll
        for (int k = 0; k < LANES<T>; ++k) b.v[k] = from_acc<T>(to_acc(b.v[k]) + to_acc(a.v[k]));
        store16(y + i * LANES<T>, b);
    }
    for (u64 i = packs * LANES<T> + global_thread(); i < n; i += global_threads())
        y[i] = from_acc<T>(to_acc(y[i]) + to_acc(x[i]));
}

#define ACCUMULATE(suffix, T)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) accumulate_##suffix(u64 n, const T *__restrict__ x,              \
                                                                          T *__restrict__ y) {                         \
        accumulate<T>(n, x, y);                                                                                        \
    }
FOR_FLOATS(ACCUMULATE)
