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
// all indices; where they are alike for all columns (index_add) a block first packs those of its own rows, 1024 at a time
// and in order. Only rows that were named are read and written.
// The gradient of an embedding, 8192 tokens × 768 into 50257 rows: 1571·3 blocks that read 32 KiB of indices each, from
// the L2 cache (154 MB in all), and x, y's named rows once.
//
// Where many entries have one index, as the commonest words of a text and all characters do, its owner would add them one
// after the other while the rest of the device waits. So from 512 entries on (kiln_cuda's `SUMMED`) index_sums first adds up, for every
// 256 entries, those of the same index, in order, and leaves the sums where the first of them stands: owners then add
// these.
//
// Geometry: add_heads: 256 threads, a grid of any size striding over x.
//           scatter_owners, index_owners: 256 threads, grid = outer·ceil(size/(32·G))·ceil(inner/S), columns fastest;
//           `columns` is S.
//           index_sums: 256 threads, grid = outer·ceil(count/256)·ceil(inner/S), columns fastest. first [count] gets the
//           index of each sum, and NO_INDEX where an entry is in another's; sums [outer, count, inner] in f32.
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

// In the place of an index whose entry is part of an earlier sum, or was reported.
constexpr i32 NO_INDEX = -0x7fffffff - 1;

template <typename T>
__device__ __forceinline__ void index_sums(const IndexParams &p, const T *__restrict__ x, const i32 *__restrict__ index,
                                           i32 *__restrict__ first, float *__restrict__ sums, u32 columns, Fault *fault) {
    // Entries in the order of their sums: where the first of a sum stands, and the entry itself, counted within the 256.
    __shared__ i32 named[THREADS];
    __shared__ u32 heads[THREADS], order[THREADS];
    u64 rest, chunk, tile, o;
    const u64 tiles = (p.inner + columns - 1) / columns, chunks = (p.count + THREADS - 1) / THREADS;
    divide(blockIdx.x, tiles, rest, tile);
    divide(rest, chunks, o, chunk);
    const u32 t = threadIdx.x, count = (u32)min(p.count - chunk * THREADS, (u64)THREADS);
    const bool tells = o == 0 && tile == 0;
    const u64 j = chunk * THREADS + t;
    const i32 at = t < count ? index[j] : 0;
    const bool there = t < count && inside(p, at);
    if (t < count && !there && tells) report(fault, FAULT_INDEX_ADD, at, j, p.size);
    named[t] = there ? at : NO_INDEX;
    __syncthreads();
    u32 head = t;
    for (u32 u = t; u-- > 0;)
        if (named[u] == named[t]) head = u;
    heads[t] = there ? head : THREADS; // behind all others
    __syncthreads();
    u32 rank = 0;
    for (u32 u = 0; u < THREADS; ++u) rank += heads[u] < heads[t] || (heads[u] == heads[t] && u < t);
    order[rank] = heads[t] << 8 | t;
    if (tells && t < count) first[j] = there && head == t ? at : NO_INDEX;
    const u32 all = __syncthreads_count(there);
    const u32 groups = THREADS / columns, group = t / columns;
    const u64 column = tile * columns + t % columns;
    if (column >= p.inner) return;
    const u64 base = (o * p.count + chunk * THREADS) * p.inner + column;
    constexpr u32 AHEAD = 8; // elements whose loads are under way together
    float sum = 0.0f;
    u32 sum_number = 0; // each group of threads takes every groups-th sum
    for (u32 from = 0; from < all; from += AHEAD) {
        float v[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) v[i] = to_acc(x[base + (order[min(from + i, all - 1)] & 255) * p.inner]);
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            const u32 m = from + i;
            if (m >= all) break;
            const u32 of = order[m] >> 8;
            const bool begins = (order[m] & 255) == of;
            sum = begins ? v[i] : sum + v[i];
            sum_number += begins;
            const bool ends = m + 1 == all || order[m + 1] >> 8 != of;
            if (ends && sum_number % groups == group) sums[base + of * p.inner] = sum;
        }
    }
}

// x is T's elements, or with SUMS index_sums' sums, and index what it left in its place.
template <typename T, typename X, bool SUMS>
__device__ __forceinline__ void index_owners(const IndexParams &p, const X *__restrict__ x,
                                             const i32 *__restrict__ index, T *__restrict__ y, u32 columns,
                                             Fault *fault) {
    constexpr u32 READ = 4; // indices of a thread
    __shared__ float sums[EACH * THREADS];
    __shared__ u32 list[READ * THREADS], found[THREADS / WARP];
    Owner own(p, columns);
    const u64 rows = EACH * own.groups;
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (u64 first = 0; first < p.count; first += READ * THREADS) {
        // The entries of this block's rows, in order: (row, entry).
        const u64 j = first + READ * threadIdx.x;
        i32 at[READ];
        u32 mine = 0, before = 0, of_warp = 0;
#pragma unroll
        for (u32 q = 0; q < READ; ++q) at[q] = j + q < p.count ? index[j + q] : 0;
#pragma unroll
        for (u32 q = 0; q < READ; ++q) {
            const bool there = j + q < p.count, known = there && inside(p, at[q]);
            const bool is_mine = known && (u64)at[q] - own.first_row < rows;
            if (!SUMS && there && !known && own.first_tile) report(fault, FAULT_INDEX_ADD, at[q], j + q, p.size);
            const u32 votes = __ballot_sync(FULL_WARP, is_mine);
            mine |= (u32)is_mine << q;
            before += __popc(votes & ((1u << lane) - 1));
            of_warp += __popc(votes);
        }
        if (lane == 0) found[warp] = of_warp;
        __syncthreads();
        u32 all = 0;
#pragma unroll
        for (u32 w = 0; w < THREADS / WARP; ++w) {
            if (w < warp) before += found[w];
            all += found[w];
        }
#pragma unroll
        for (u32 q = 0; q < READ; ++q)
            if (mine >> q & 1) list[before++] = (u32)(at[q] - own.first_row) << 10 | (READ * threadIdx.x + q);
        __syncthreads();
        if (own.column < p.inner) {
#pragma unroll 4
            for (u32 m = 0; m < all; ++m) {
                u32 entry = list[m];
                u64 e = (own.o * p.count + first + (entry & 1023)) * p.inner + own.column;
                own.add(p, sums, y, entry >> 10, to_acc(x[e]));
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
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        index_owners_##suffix(IndexParams p, const T *__restrict__ x, const i32 *__restrict__ index,                   \
                              T *__restrict__ y, u32 columns, Fault *__restrict__ fault) {                             \
        index_owners<T, T, false>(p, x, index, y, columns, fault);                                                     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        index_sums_##suffix(IndexParams p, const T *__restrict__ x, const i32 *__restrict__ index,                     \
                            i32 *__restrict__ first, float *__restrict__ sums, u32 columns, Fault *__restrict__ fault) { \
        index_sums(p, x, index, first, sums, columns, fault);                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        index_sum_owners_##suffix(IndexParams p, const float *__restrict__ sums, const i32 *__restrict__ first,        \
                                  T *__restrict__ y, u32 columns, Fault *__restrict__ fault) {                         \
        index_owners<T, float, true>(p, sums, first, y, columns, fault);                                               \
    }
FOR_FLOATS(ENTRIES)
