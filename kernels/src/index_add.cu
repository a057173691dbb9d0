// Adding by index, in order of j: the result does not depend on how threads run, and no atomics are used.
//
//   scatter_add: y[o, index[o, j, i], i] += x[o, j, i];   index_add: y[o, index[j], i] += x[o, j, i]
//
// x is [outer, count, inner], y is [outer, size, inner]. Sums are in f32 from y on and rounded once. An index outside
// 0..size is reported and its element left out.
//
// Few entries (count ≤ 64) are added by heads: a thread per element of x looks whether an earlier j has its index; if not
// it owns that element of y and adds all that follow. The work is count² and does not depend on size.
//
// Many entries are added by owners: a block owns 32·G rows of y by S columns (S·G = 256, S the smallest power of 2 that
// covers inner), and each thread of it every G-th row of one column, with its 32 sums in shared memory. All owners read
// all indices; where they are alike for all columns (index_add) a block first packs those of its own rows, 256 at a time
// and in order. Only rows that were named are read and written.
// The gradient of an embedding, 8192 tokens × 768 into 50257 rows: 1571·3 blocks that read 32 KiB of indices each, from
// the L2 cache (154 MB in all), and x, y's named rows once.
//
// Geometry: add_heads: 256 threads, a grid of any size striding over x.
//           scatter_owners, index_owners: 256 threads, grid = outer·ceil(size/(32·G))·ceil(inner/S), columns fastest;
//           `columns` is S.
#include "common/index.cuh"
#include "common/warp.cuh"

constexpr u32 THREADS = 256, EACH = 32;

template <typename T>
__device__ __forceinline__ void add_heads(const IndexParams &p, const T *__restrict__ x, const i32 *__restrict__ index,
                                          T *__restrict__ y, u32 op, Fault *fault) {
    const u64 row = p.count * p.inner, n = p.outer * row;
    const bool own = op == FAULT_SCATTER_ADD;
    for (u64 e = global_thread(); e < n; e += global_threads()) {
        u64 o, rest, j, i;
        divide(e, row, o, rest);
        divide(rest, p.inner, j, i);
        // The indices of this column are `step` apart.
        const i32 *list = own ? index + o * row + i : index;
        const u64 step = own ? p.inner : 1;
        i32 at = list[j * step];
        if (!inside(p, at)) {
            report(fault, (FaultOp)op, at, own ? e : j, p.size);
            continue;
        }
        bool head = true;
        for (u64 l = 0; l < j && head; ++l) head = list[l * step] != at;
        if (!head) continue;
        const T *from = x + o * row + i;
        T *to = y + (o * p.size + at) * p.inner + i;
        float sum = to_acc(*to) + to_acc(from[j * p.inner]);
        for (u64 l = j + 1; l < p.count; ++l)
            if (list[l * step] == at) sum += to_acc(from[l * p.inner]);
        *to = from_acc<T>(sum);
    }
}

// The elements that a thread owns: rows first + k·groups, k < 32, of one column of slice o.
struct Owner {
    u64 o, first_row, column;
    u32 groups, group, touched;
    bool first_tile; // the first of its slice, which reports bad indices

    __device__ __forceinline__ Owner(const IndexParams &p, u32 columns) {
        u64 rest, range, tile;
        const u64 tiles = (p.inner + columns - 1) / columns;
        groups = THREADS / columns;
        group = threadIdx.x / columns;
        touched = 0;
        const u64 ranges = (p.size + EACH * groups - 1) / (EACH * groups);
        divide(blockIdx.x, tiles, rest, tile);
        divide(rest, ranges, o, range);
        column = tile * columns + threadIdx.x % columns;
        first_row = range * EACH * groups;
        first_tile = range == 0;
    }

    // Adds `value` to local row `row` if it is this thread's.
    template <typename T>
    __device__ __forceinline__ void add(const IndexParams &p, float *sums, const T *y, u32 row, float value) {
        u32 k = row / groups;
        if (row % groups != group) return;
        float &sum = sums[k * THREADS + threadIdx.x];
        float old = touched >> k & 1 ? sum : to_acc(y[(o * p.size + first_row + row) * p.inner + column]);
        touched |= 1u << k;
        sum = old + value;
    }

    template <typename T> __device__ __forceinline__ void write(const IndexParams &p, const float *sums, T *y) const {
        for (u32 k = 0; k < EACH; ++k) {
            u64 row = first_row + k * groups + group;
            if (touched >> k & 1) y[(o * p.size + row) * p.inner + column] = from_acc<T>(sums[k * THREADS + threadIdx.x]);
        }
    }
};

template <typename T>
__device__ __forceinline__ void scatter_owners(const IndexParams &p, const T *__restrict__ x,
                                               const i32 *__restrict__ index, T *__restrict__ y, u32 columns,
                                               Fault *fault) {
    __shared__ float sums[EACH * THREADS];
    Owner own(p, columns);
    if (own.column >= p.inner) return;
    const u64 row = p.count * p.inner, rows = EACH * own.groups;
    for (u64 j = 0; j < p.count; ++j) {
        u64 e = own.o * row + j * p.inner + own.column;
        i32 at = index[e];
        if (!inside(p, at)) {
            if (own.first_tile && own.group == 0) report(fault, FAULT_SCATTER_ADD, at, e, p.size);
        } else if ((u64)at - own.first_row < rows) {
            own.add(p, sums, y, (u32)(at - own.first_row), to_acc(x[e]));
        }
    }
    own.write(p, sums, y);
}

template <typename T>
__device__ __forceinline__ void index_owners(const IndexParams &p, const T *__restrict__ x,
                                             const i32 *__restrict__ index, T *__restrict__ y, u32 columns,
                                             Fault *fault) {
    __shared__ float sums[EACH * THREADS];
    __shared__ u32 list[THREADS], found[THREADS / WARP];
    Owner own(p, columns);
    const u64 rows = EACH * own.groups;
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (u64 first = 0; first < p.count; first += THREADS) {
        // The entries of this block's rows, in order: (row, thread that read it).
        u64 j = first + threadIdx.x;
        i32 at = j < p.count ? index[j] : 0;
        bool mine = j < p.count && inside(p, at) && (u64)at - own.first_row < rows;
        if (j < p.count && !inside(p, at) && own.first_tile) report(fault, FAULT_INDEX_ADD, at, j, p.size);
        u32 votes = __ballot_sync(FULL_WARP, mine);
        if (lane == 0) found[warp] = __popc(votes);
        __syncthreads();
        u32 before = 0, all = 0;
#pragma unroll
        for (u32 w = 0; w < THREADS / WARP; ++w) {
            if (w == warp) before = all;
            all += found[w];
        }
        if (mine) list[before + __popc(votes & ((1u << lane) - 1))] = (u32)(at - own.first_row) << 8 | threadIdx.x;
        __syncthreads();
        if (own.column < p.inner) {
#pragma unroll 4
            for (u32 m = 0; m < all; ++m) {
                u32 entry = list[m];
                u64 e = (own.o * p.count + first + (entry & 255)) * p.inner + own.column;
                own.add(p, sums, y, entry >> 8, to_acc(x[e]));
            }
        }
    }
    own.write(p, sums, y);
}

#define ENTRY(name, body, suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        name##_##suffix(IndexParams p, const T *__restrict__ x, const i32 *__restrict__ index, T *__restrict__ y,      \
                        u32 extra, Fault *__restrict__ fault) {                                                        \
        body(p, x, index, y, extra, fault);                                                                            \
    }
#define ENTRIES(suffix, T)                                                                                             \
    ENTRY(add_heads, add_heads, suffix, T)                                                                             \
    ENTRY(scatter_owners, scatter_owners, suffix, T)                                                                   \
    ENTRY(index_owners, index_owners, suffix, T)
FOR_FLOATS(ENTRIES)
