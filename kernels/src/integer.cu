// Arithmetic of integers, which wraps around: functions of two tensors under broadcasting, reductions, and joining to
// elements that indices name. Running sums are in reduce_axis.cu.
//
// Joins (sum, largest, smallest) do not depend on an order, so parts are joined in memory by atomics, and the same values
// give the same bits on every device.
//
//   integer_binary:         y[i] = f(a[i·sa], b[i·sb])
//   integer_reduce_rows:    the last dimension is reduced: an output's elements lie together.
//   integer_reduce_columns: the last dimension is kept: neighbouring outputs lie together.
//   integer_scatter:        y[o, index[o, j, i], i] joins x[o, j, i]; an index outside 0..size is reported.
//
// Contract: before a reduction, y holds the fold's identity; `segment` elements of an output are one block's or thread's.
//
// Geometry: integer_binary, integer_scatter: 256 threads, a grid of any size striding over the elements.
//           integer_reduce_rows: a block of 256 per output and segment, segments fastest.
//           integer_reduce_columns: 256 threads, one for each output and segment, outputs fastest.
#include "common/broadcast.cuh"
#include "common/index.cuh"
#include "common/reduce.cuh"

// Moves a quotient or a remainder that is rounded towards zero to that of the floor, where they differ.
__device__ __forceinline__ i32 floored(i32 rest, i32 b, i32 truncated, i32 moved) {
    return rest != 0 && (rest < 0) != (b < 0) ? moved : truncated;
}

// Unsigned arithmetic wraps around; that of signed numbers must not overflow.
template <u32 OP> struct Function {
    __device__ __forceinline__ i32 operator()(i32 a, i32 b) const {
        const u32 x = (u32)a, y = (u32)b;
        if constexpr (OP == INTEGER_ADD) return (i32)(x + y);
        if constexpr (OP == INTEGER_SUB) return (i32)(x - y);
        if constexpr (OP == INTEGER_MUL) return (i32)(x * y);
        if constexpr (OP == INTEGER_FLOOR_DIVIDE || OP == INTEGER_REMAINDER) {
            if (b == 0) return 0;
            if (b == -1) return OP == INTEGER_REMAINDER ? 0 : (i32)(0u - x);
            i32 quotient = a / b, rest = a - quotient * b;
            return OP == INTEGER_REMAINDER ? floored(rest, b, rest, rest + b) : floored(rest, b, quotient, quotient - 1);
        }
        if constexpr (OP == INTEGER_MAXIMUM) return a > b ? a : b;
        if constexpr (OP == INTEGER_MINIMUM) return a < b ? a : b;
        if constexpr (OP == INTEGER_BITWISE_AND) return a & b;
        if constexpr (OP == INTEGER_BITWISE_OR) return a | b;
        if constexpr (OP == INTEGER_BITWISE_XOR) return a ^ b;
        if constexpr (OP == INTEGER_LEFT_SHIFT) return y < 32 ? (i32)(x << y) : 0;
        if constexpr (OP == INTEGER_RIGHT_SHIFT) return a >> (y < 32 ? y : 31);
    }
    __device__ __forceinline__ u8 operator()(u8 a, u8 b) const { return (u8)(*this)((i32)a, (i32)b); }
    static constexpr bool LIGHT = OP != INTEGER_FLOOR_DIVIDE && OP != INTEGER_REMAINDER;
};

#define CASE(code)                                                                                                     \
    case INTEGER_##code: return zip(p, Function<INTEGER_##code>(), a, b, y);

extern "C" __global__ void __launch_bounds__(256)
    integer_binary_i32(BroadcastParams p, const i32 *__restrict__ a, const i32 *__restrict__ b, i32 *__restrict__ y) {
    switch (p.op) { INTEGER_CODES(CASE) }
}

extern "C" __global__ void __launch_bounds__(256)
    integer_binary_u8(BroadcastParams p, const u8 *__restrict__ a, const u8 *__restrict__ b, u8 *__restrict__ y) {
    switch (p.op) {
        CASE(BITWISE_AND)
        CASE(BITWISE_OR)
        CASE(BITWISE_XOR)
    }
}

__device__ __forceinline__ i32 join(u32 fold, i32 a, i32 b) {
    switch (fold) {
    case INTEGERFOLD_SUM: return (i32)((u32)a + (u32)b);
    case INTEGERFOLD_MAX: return a > b ? a : b;
    default: return a < b ? a : b;
    }
}

__device__ __forceinline__ i32 identity(u32 fold) {
    switch (fold) {
    case INTEGERFOLD_SUM: return 0;
    case INTEGERFOLD_MAX: return (i32)0x80000000;
    default: return 0x7fffffff;
    }
}

__device__ __forceinline__ void join_at(u32 fold, i32 *y, i32 value) {
    switch (fold) {
    case INTEGERFOLD_SUM: atomicAdd(y, value); break;
    case INTEGERFOLD_MAX: atomicMax(y, value); break;
    default: atomicMin(y, value);
    }
}

// The join of elements begin, begin + step, … of an output whose elements start at `x`: runs of p.shape[last] elements
// that lie `stride` apart.
__device__ __forceinline__ i32 fold_part(const ReduceParams &p, u32 fold, const i32 *__restrict__ x, u32 last, u64 stride,
                                         u64 begin, u64 end, u64 step) {
    i32 a = identity(fold);
    const u64 run = p.shape[last];
    for (u64 i = begin; i < end; i += step) {
        u64 outer = 0, j = i;
        if (run != p.count) divide(i, run, outer, j);
        a = join(fold, a, x[walk(p, 1, last, outer) + j * stride]);
    }
    return a;
}

extern "C" __global__ void __launch_bounds__(256)
    integer_reduce_rows(ReduceParams p, const i32 *__restrict__ x, i32 *__restrict__ y, u64 segment, u32 fold) {
    __shared__ i32 scratch[256 / WARP];
    const u64 segments = (p.count + segment - 1) / segment;
    u64 o, s;
    divide(blockIdx.x, segments, o, s);
    const u64 begin = s * segment, end = begin + segment < p.count ? begin + segment : p.count;
    const u32 last = p.rank > 0 ? p.rank - 1 : 0;
    i32 a = fold_part(p, fold, x + walk(p, 0, last, o), last, 1, begin + threadIdx.x, end, 256);
#pragma unroll
    for (int lane = WARP / 2; lane > 0; lane /= 2) a = join(fold, a, __shfl_xor_sync(FULL_WARP, a, lane));
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = a;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < 256 / WARP; ++w) a = join(fold, a, scratch[w]);
    join_at(fold, y + o, a);
}

extern "C" __global__ void __launch_bounds__(256)
    integer_reduce_columns(ReduceParams p, const i32 *__restrict__ x, i32 *__restrict__ y, u64 segment, u32 fold) {
    const u64 segments = (p.count + segment - 1) / segment, thread = global_thread();
    if (thread >= p.outputs * segments) return;
    u64 o, s, block, column;
    divide(thread, p.outputs, s, o);
    const u32 kept = p.rank - 1, last = p.rank > 1 ? p.rank - 2 : 0;
    const u64 c = p.shape[kept];
    divide(o, c, block, column);
    const u64 begin = s * segment, end = begin + segment < p.count ? begin + segment : p.count;
    i32 a = identity(fold);
    if (p.rank > 1) a = fold_part(p, fold, x + walk(p, 0, last, block) + column, last, c, begin, end, 1);
    else a = x[column];
    join_at(fold, y + o, a);
}

extern "C" __global__ void __launch_bounds__(256)
    integer_scatter(IndexParams p, const i32 *__restrict__ x, const i32 *__restrict__ index, i32 *__restrict__ y, u32 fold,
                    Fault *__restrict__ fault) {
    const u64 row = p.count * p.inner, n = p.outer * row;
    for (u64 e = global_thread(); e < n; e += global_threads()) {
        u64 o, rest, j, i;
        divide(e, row, o, rest);
        divide(rest, p.inner, j, i);
        i32 at = index[e];
        if (inside(p, at)) join_at(fold, y + (o * p.size + at) * p.inner + i, x[e]);
        else report(fault, FAULT_INTEGER_SCATTER, at, e, p.size);
    }
}
