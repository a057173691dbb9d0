// Reductions of a tensor whose dimensions alternate between kept and reduced.
//
//   sum Σx, mean Σx/n, max, min (NaN if any is), sum of squares Σx²
//
// An output folds `count` elements. Seen from the last dimension there are two cases, which the launch tells apart:
// it is reduced (rows: an output's elements lie together) or kept (columns: neighbouring outputs lie together; c of
// them). The other dimensions are walked by division. Long folds are cut into segments of `segment` elements, whose
// results go to `y` as [segments, outputs] in f32; a second launch of these kernels folds them. All sizes come from the
// shape alone and additions are in a fixed order, so the same values give the same bits.
//
// Contract: x holds the product of p.shape elements; y holds outputs elements, or segments·outputs f32 where segments > 1.
// y = fold/divisor; the divisor is 1 but for means.
//
// sum_naive is the plainest variant: one thread adds everything, an element at a time and in order.
//
// Geometry: sum_naive: one thread.
//           reduce_warps: short rows; a warp per output, 8 a block of 256.
//           reduce_blocks: rows; a block of 256 per output and segment, grid outputs·segments, output-major.
//           reduce_columns: a block of 256 as tx = min(32, c rounded up to a power of 2) columns by 256/tx rows;
//                           grid = (blocks of kept dimensions)·ceil(c/tx)·segments, segments fastest.
#include "common/reduce.cuh"

// Where results go: their dtype is told at run time (0 f32, 1 bf16, 2 f16), because a second pass reads f32 and writes
// any. Mean and plain results differ by the divisor, which is 1 where there is nothing to divide.
struct Output {
    void *y;
    float divisor;
    u32 dtype;

    __device__ __forceinline__ void store(u64 at, float a) const {
        a = a / divisor;
        switch (dtype) {
        case 0: static_cast<f32 *>(y)[at] = a; break;
        case 1: static_cast<bf16 *>(y)[at] = from_acc<bf16>(a); break;
        default: static_cast<f16 *>(y)[at] = from_acc<f16>(a);
        }
    }
};

// The fold of elements `begin..end` of an output at `x`, a part of it per thread of `threads`.
template <typename F, typename X>
__device__ __forceinline__ float fold_row(const ReduceParams &p, const X *__restrict__ x, u64 begin, u64 end, u32 thread,
                                          u32 threads) {
    const u64 run = p.rank > 0 ? p.shape[p.rank - 1] : 1;
    float a = F::identity();
    if (run != p.count) {
        for (u64 i = begin + thread; i < end; i += threads) {
            u64 outer, j;
            divide(i, run, outer, j);
            a = F::join(a, F::load(to_acc(x[walk(p, 1, p.rank - 1, outer) + j])));
        }
        return a;
    }
    // One run: packs between a head and a tail of single elements.
    constexpr int L = LANES<X>;
    x += begin;
    u64 n = end - begin, packs = aligned16(x) ? n / L : 0;
    float lanes[L];
#pragma unroll
    for (int k = 0; k < L; ++k) lanes[k] = F::identity();
    for (u64 i = thread; i < packs; i += threads) {
        Pack<X> v = load16(x + i * L);
#pragma unroll
        for (int k = 0; k < L; ++k) lanes[k] = F::join(lanes[k], F::load(to_acc(v.v[k])));
    }
    for (u64 i = packs * L + thread; i < n; i += threads) a = F::join(a, F::load(to_acc(x[i])));
#pragma unroll
    for (int k = 0; k < L; ++k) a = F::join(a, lanes[k]);
    return a;
}

struct Warps {
    template <typename F, typename X>
    static __device__ __forceinline__ void of(const ReduceParams &p, const X *__restrict__ x, const Output &y,
                                              u64 segment) {
        u64 o = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
        if (o >= p.outputs) return;
        const X *from = x + walk(p, 0, p.rank > 0 ? p.rank - 1 : 0, o);
        float a = fold_row<F>(p, from, 0, p.count, threadIdx.x % WARP, WARP);
        a = warp_reduce<F>(a);
        if (threadIdx.x % WARP == 0) y.store(o, a);
    }
};

struct Blocks {
    template <typename F, typename X>
    static __device__ __forceinline__ void of(const ReduceParams &p, const X *__restrict__ x, const Output &y,
                                              u64 segment) {
        __shared__ float scratch[256 / WARP];
        u64 segments = (p.count + segment - 1) / segment, o, s;
        divide(blockIdx.x, segments, o, s);
        const X *from = x + walk(p, 0, p.rank > 0 ? p.rank - 1 : 0, o);
        u64 begin = s * segment, end = begin + segment < p.count ? begin + segment : p.count;
        float a = fold_row<F>(p, from, begin, end, threadIdx.x, 256);
        a = block_reduce<F, 256>(a, scratch);
        if (threadIdx.x == 0) y.store(s * p.outputs + o, a);
    }
};

struct Columns {
    template <typename F, typename X>
    static __device__ __forceinline__ void of(const ReduceParams &p, const X *__restrict__ x, const Output &y,
                                              u64 segment) {
        __shared__ float scratch[256];
        const u64 c = p.shape[p.rank - 1], run = p.rank > 1 ? p.shape[p.rank - 2] : 1;
        u32 width = 32;
        while (width > 1 && width / 2 >= c) width /= 2;
        const u32 tx = threadIdx.x % width, ty = threadIdx.x / width, height = 256 / width;
        u64 segments = (p.count + segment - 1) / segment, tiles = (c + width - 1) / width, rest, block, s, tile;
        divide(blockIdx.x, segments, rest, s);
        divide(rest, tiles, block, tile);
        const u64 column = tile * width + tx;
        u64 begin = s * segment, end = begin + segment < p.count ? begin + segment : p.count;
        float a = F::identity();
        if (column < c) {
            const u32 first = p.rank > 1 ? p.rank - 2 : 0;
            const X *from = x + walk(p, 0, first, block) + column;
            if (run == p.count) {
                const X *at = from + (begin + ty) * c;
                const u64 step = height * c;
#pragma unroll 4
                for (u64 i = begin + ty; i < end; i += height, at += step) a = F::join(a, F::load(to_acc(*at)));
            } else {
                for (u64 i = begin + ty; i < end; i += height) {
                    u64 outer, j;
                    divide(i, run, outer, j);
                    a = F::join(a, F::load(to_acc(from[walk(p, 1, first, outer) + j * c])));
                }
            }
        }
        scratch[threadIdx.x] = a;
        for (u32 half = height / 2; half > 0; half /= 2) {
            __syncthreads();
            if (ty < half) scratch[threadIdx.x] = F::join(scratch[threadIdx.x], scratch[threadIdx.x + half * width]);
        }
        if (ty == 0 && column < c) y.store(s * p.outputs + block * c + column, scratch[tx]);
    }
};

template <typename K, typename X>
__device__ __forceinline__ void reduce(const ReduceParams &p, const X *__restrict__ x, const Output &y, u64 segment) {
    switch (p.op) {
    case REDUCE_SUM:
    case REDUCE_MEAN: return K::template of<SumFold>(p, x, y, segment);
    case REDUCE_MAX: return K::template of<MaxFold>(p, x, y, segment);
    case REDUCE_MIN: return K::template of<MinFold>(p, x, y, segment);
    case REDUCE_SUM_SQUARES: return K::template of<SumSquaresFold>(p, x, y, segment);
    }
}

#define ENTRY(kind, name, suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                               \
        reduce_##name##_##suffix(ReduceParams p, const T *__restrict__ x, void *__restrict__ y, u64 segment,           \
                                 float divisor, u32 dtype) {                                                           \
        reduce<kind>(p, x, Output{y, divisor, dtype}, segment);                                                        \
    }
#define ENTRIES(suffix, T)                                                                                             \
    ENTRY(Warps, warps, suffix, T)                                                                                     \
    ENTRY(Blocks, blocks, suffix, T)                                                                                   \
    ENTRY(Columns, columns, suffix, T)
FOR_FLOATS(ENTRIES)

template <typename T> __device__ __forceinline__ void sum_naive(u64 n, const T *__restrict__ x, T *__restrict__ y) {
    float sum = 0.0f;
    for (u64 i = 0; i < n; ++i) sum += to_acc(x[i]);
    *y = from_acc<T>(sum);
}

#define NAIVE(suffix, T)                                                                                               \
    extern "C" __global__ void __launch_bounds__(1)                                                                    \
        sum_naive_##suffix(u64 n, const T *__restrict__ x, T *__restrict__ y) {                                        \
        sum_naive(n, x, y);                                                                                            \
    }
FOR_FLOATS(NAIVE)
