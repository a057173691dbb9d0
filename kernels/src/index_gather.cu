// Reading by index. x is [outer, size, inner], y is [outer, count, inner].
//
//   gather:       y[o, j, i] = x[o, index[o, j, i], i]
//   index_select: y[o, j, i] = x[o, index[j], i]
//   one_hot:      y[r, c] = one where c = index[r], else 0; y is [outer, size]
//   index_check:  nothing but the check, for results that are empty
//
// Bits are moved, so there is one instance per size; index_select takes several elements as one, up to 16 bytes, where
// inner allows it. An index outside 0..size is reported and gives zeros.
//
// Geometry: 256 threads, a grid of any size striding over the elements of y.
#include "common/index.cuh"

template <typename T>
__device__ __forceinline__ void gather(const IndexParams &p, const T *__restrict__ x, const i32 *__restrict__ index,
                                       T *__restrict__ y, Fault *fault) {
    const u64 row = p.count * p.inner, n = p.outer * row;
    for (u64 e = global_thread(); e < n; e += global_threads()) {
        i32 at = index[e];
        if (!inside(p, at)) {
            report(fault, FAULT_GATHER, at, e, p.size);
            y[e] = T{};
            continue;
        }
        u64 o, rest, j, i;
        divide(e, row, o, rest);
        divide(rest, p.inner, j, i);
        y[e] = x[(o * p.size + at) * p.inner + i];
    }
}

template <typename T>
__device__ __forceinline__ void index_select(const IndexParams &p, const T *__restrict__ x,
                                             const i32 *__restrict__ index, T *__restrict__ y, Fault *fault) {
    const u64 n = p.outer * p.count * p.inner;
    for (u64 e = global_thread(); e < n; e += global_threads()) {
        u64 row, i, o, j;
        divide(e, p.inner, row, i);
        divide(row, p.count, o, j);
        i32 at = index[j];
        const bool good = inside(p, at);
        if (!good) report(fault, FAULT_INDEX_SELECT, at, j, p.size);
        y[e] = good ? x[(o * p.size + at) * p.inner + i] : T{};
    }
}

template <typename T>
__device__ __forceinline__ void one_hot(const IndexParams &p, const i32 *__restrict__ index, T *__restrict__ y, T one,
                                        Fault *fault) {
    const u64 n = p.outer * p.size;
    for (u64 e = global_thread(); e < n; e += global_threads()) {
        u64 r, c;
        divide(e, p.size, r, c);
        i32 at = index[r];
        if (c == 0 && !inside(p, at)) report(fault, FAULT_ONE_HOT, at, r, p.size);
        y[e] = at == (i64)c ? one : (T)0;
    }
}

// The `n` entries of index.
extern "C" __global__ void __launch_bounds__(256)
    index_check_b32(IndexParams p, const i32 *__restrict__ index, u64 n, u32 op, Fault *__restrict__ fault) {
    for (u64 j = global_thread(); j < n; j += global_threads())
        if (!inside(p, index[j])) report(fault, (FaultOp)op, index[j], j, p.size);
}

#define SELECT(suffix, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        index_select_##suffix(IndexParams p, const T *__restrict__ x, const i32 *__restrict__ index,                   \
                              T *__restrict__ y, Fault *__restrict__ fault) {                                          \
        index_select(p, x, index, y, fault);                                                                           \
    }
#define ENTRIES(suffix, T)                                                                                             \
    SELECT(suffix, T)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        gather_##suffix(IndexParams p, const T *__restrict__ x, const i32 *__restrict__ index, T *__restrict__ y,      \
                        Fault *__restrict__ fault) {                                                                   \
        gather(p, x, index, y, fault);                                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) one_hot_##suffix(                                                \
        IndexParams p, const i32 *__restrict__ index, T *__restrict__ y, u32 one, Fault *__restrict__ fault) {         \
        one_hot<T>(p, index, y, (T)one, fault);                                                                        \
    }
ENTRIES(b8, u8)
ENTRIES(b16, uint16_t)
ENTRIES(b32, u32)
SELECT(b64, uint2)
SELECT(b128, uint4)
