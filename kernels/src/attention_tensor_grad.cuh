// The gradient of attention on tensor cores, under the contract of attention_tensor.cuh: two kernels, one with a block for each
// tile of queries, the other with one for each tile of keys. Both compute the scores again, from a pair (lse·log2 e, delta) for every
// query. The kernel of queries, which comes first, makes the pairs of its rows and writes them for the other. With dropout delta is divided by
// `kept`: what is summed up is multiplied by that at the end.
//
// The kernel of keys computes the scores transposed, keys by queries, so that weights and slopes of 16 queries come out in the
// registers in which the products with g and with the queries take them. 16 queries (or keys) are computed at a time: with
// the sums of dk and dv and the operands of a warp's own rows in registers, no more would fit.
//
// PART is the number of columns of the gradient that a block computes: a head of 256 takes two blocks, which both compute the
// scores.
#pragma once

#include "attention_tensor.cuh"

// How a block of the gradient lies in shared memory: its own two operands, of which the first KEPT stay, and two stages of two
// operands with a pair of statistics for each row. What is held in registers leaves its place to the stages.
template <int WIDTH, int OWN, int STEP, int KEPT> struct GradMemory {
    static constexpr int ROW = SharedRows<WIDTH>::ROW, SIDE = STEP * ROW, STAGE = 2 * SIDE;
    static constexpr int SECOND = OWN * ROW, RING = KEPT * SECOND;
    static constexpr int STATISTICS = RING + 2 * STAGE > 2 * SECOND ? RING + 2 * STAGE : 2 * SECOND;
    static constexpr int PLACE = STATISTICS + 2 * STEP * 8, BYTES = PLACE + 96;
};

// p = 2^(s·factor − lse) and ds = p·(dp − delta) of one pair, in the places of s and dp.
__device__ __forceinline__ void slope(float &s, float &dp, float factor, float lse, float delta) {
    s = power_of_two(s * factor - lse);
    dp = s * (dp - delta);
}

// The same with dropout, both without the factor `kept`: p is 0 where the weight w is dropped, ds = p·dp − w·delta.
__device__ __forceinline__ void slope_dropped(float &s, float &dp, float factor, float lse, float delta, bool keep) {
    float w = power_of_two(s * factor - lse);
    s = keep ? w : 0.0f;
    dp = s * dp - w * delta;
}

// Four floats of shared memory.
__device__ __forceinline__ float4 shared_floats(u32 at) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(at) : "memory");
    return x;
}

// dk and dv of 64·MS keys: STEP queries a stage.
template <typename T, int WIDTH, int PART, int MS, int STEP, int KEYS_HELD, int VALUES_HELD, bool MASKED, bool DROPPED>
__device__ __forceinline__ void attend_key_grad(const AttentionCall &p, const T *__restrict__ q, const T *__restrict__ k,
                                                const T *__restrict__ v, const T *__restrict__ g,
                                                const float2 *__restrict__ statistics, T *__restrict__ dk,
                                                T *__restrict__ dv, const u8 *__restrict__ mask,
                                                const float *__restrict__ bias, const i32 *__restrict__ step) {
    constexpr int THREADS = 128, KEYS = 64 * MS;
    // Queries whose dropout is drawn at a time.
    constexpr int GROUP = (MASKED || DROPPED) && STEP % 32 == 0 ? 32 : 16;
    using Rows = SharedRows<WIDTH>;
    constexpr int KEPT = (KEYS_HELD < WIDTH / 16) + (VALUES_HELD < WIDTH / 16);
    static_assert(KEYS_HELD >= VALUES_HELD, "values come first in shared memory");
    using Memory = GradMemory<WIDTH, KEYS, STEP, KEPT>;
    extern __shared__ __align__(1024) char memory[];
    u32 start = shared_address(memory), ring = start + Memory::RING;
    // Where the operands, the weights, and the bias and mask of a head of queries begin; the step of dropout.
    struct Place {
        const T *q, *g;
        const float2 *statistics;
        u64 weights;
        u32 step;
        AttentionMask masks;
    };
    static_assert(sizeof(Place) <= 88, "cuda::ops::attention::tiles");
    const bool drops = DROPPED || (MASKED && step != nullptr);
    Place *place = reinterpret_cast<Place *>(memory + Memory::PLACE);
    // The number of the head among those that share the keys: with dropout no register is left for it.
    int *member_place = reinterpret_cast<int *>(memory + Memory::PLACE + 88);

    u64 tiles = (p.keys + KEYS - 1) / KEYS, heads = p.heads / p.group;
    constexpr int PARTS = WIDTH / PART;
    auto tile = [&] {
        return attention_tile(block_again(), heads, gridDim.x / tiles / PARTS, p.keys, KEYS, PARTS, PART, false);
    };
    AttentionTile at = tile();
    int width = (int)p.width, lane = threadIdx.x % WARP, end = (int)p.queries;
    int first = (int)at.row + (int)(threadIdx.x / WARP) * 16 * MS;
    // Whether a mask of keys leaves key number `key`.
    auto is_seen = [&](u64 key) {
        return mask[(i64)at.batch * p.mask[0] + (i64)at.head * p.mask[1] + (i64)key * p.mask[3]] != 0;
    };
    int member = 0;
    if constexpr (!MASKED) {
        if (mask) {
            u64 key = at.row + threadIdx.x;
            // Of keys that are all masked nothing is computed.
            if (!__syncthreads_or(threadIdx.x < KEYS && key < p.keys && is_seen(key))) member = (int)p.group;
        }
    }

    Operand<WIDTH, MS, KEYS_HELD> keys;
    Operand<WIDTH, MS, VALUES_HELD> values;
    {
        int left = (int)min(p.keys - at.row, (u64)KEYS), warp_row = (int)(threadIdx.x / WARP) * 16 * MS;
        RowCopies<T, WIDTH, KEYS, THREADS> of_keys(k + p.k.at(at.batch, at.head) + (i64)at.row * p.k.row, p.k.row, width);
        RowCopies<T, WIDTH, KEYS, THREADS> of_values(v + p.v.at(at.batch, at.head) + (i64)at.row * p.v.row, p.v.row, width);
        of_values.copy(start, left);
        of_keys.copy(start + Memory::SECOND, left);
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        values.load(start + warp_row * Rows::ROW);
        keys.load(start + Memory::SECOND + warp_row * Rows::ROW);
        if (KEPT < 2) __syncthreads();
    }

    float key_sums[MS][PART / 8][4] = {}, value_sums[MS][PART / 8][4] = {};
#pragma unroll 1
    while (member < (int)p.group) {
        // Everyone has read the place and the stages of the head before.
        if (member > 0) __syncthreads();
        if (threadIdx.x == 0) {
            AttentionTile at = tile();
            u64 head = at.head * p.group + member;
            *place = {q + p.q.at(at.batch, head), g + p.y.at(at.batch, head),
                      statistics + (at.batch * p.heads + head) * p.queries, first_weight(p, at.batch, head), drops ? (u32)*step : 0, {}};
            if constexpr (MASKED) place->masks = AttentionMask(p, mask, bias, at.batch, head);
            if (DROPPED) *member_place = member;
        }
        __syncthreads();
        // Earlier queries do not attend to these keys.
        int begin = p.causal ? first / KEYS * KEYS : 0;
        auto copy = [&](u32 stage, int query) {
            if (query < end) {
                u32 thread = thread_again(), to = ring + stage * Memory::STAGE;
                Place from = *place;
                RowCopies<T, WIDTH, STEP, THREADS>(from.q + query * p.q.row, p.q.row, width, thread).copy(to, end - query);
                RowCopies<T, WIDTH, STEP, THREADS>(from.g + query * p.y.row, p.y.row, width, thread)
                    .copy(to + Memory::SIDE, end - query);
                if (thread < STEP) {
                    bool exists = query + (int)thread < end;
                    cp_async<8>(start + Memory::STATISTICS + (stage * STEP + thread) * 8,
                                from.statistics + (exists ? query + (int)thread : 0), exists ? 8 : 0);
                }
            }
            cp_async_commit();
        };
        copy(0, begin);
        u32 stage = 0;
#pragma unroll 1
        for (int query = begin; query < end; query += STEP) {
            cp_async_wait<0>();
            __syncthreads();
            copy(stage ^ 1, query + STEP);
            u32 now = ring + stage * Memory::STAGE;
            u32 pairs = start + Memory::STATISTICS + (stage * STEP + lane % 4 * 2) * 8;
            stage ^= 1;
            u32 rows = now + Rows::lane_b(), across = now + Rows::lane_b_trans();
#pragma unroll 1
            for (int group = 0; group < STEP; group += GROUP) {
                KeptAcross<MS, GROUP> kept;
                if (drops && !(p.causal && query + group + GROUP - 1 < first))
                    kept.draw(p, place->step, place->weights + (u64)(query + group) * p.keys + first);
#pragma unroll 1
                for (int sub = group; sub < group + GROUP; sub += 16, rows += 16 * Rows::ROW, across += 16 * Rows::ROW, pairs += 16 * 8) {
                    if (p.causal && query + sub + 15 < first) continue;
                    float s[MS][2][4], dp[MS][2][4];
                    multiply_rows<T, WIDTH, MS, 2>(s, keys, rows);
                    multiply_rows<T, WIDTH, MS, 2>(dp, values, rows + Memory::SIDE);
                    if constexpr (MASKED) {
                        AttentionMask masks = place->masks;
                        add_masks_across<MS, 2>(s, p, masks, first + lane / 4, query + sub + lane % 4 * 2);
                    }
                    if (p.causal && query + sub < first + 16 * MS - 1) {
                        int after = query + sub + lane % 4 * 2 - first - lane / 4;
#pragma unroll
                        for (int m = 0; m < MS; ++m)
#pragma unroll
                            for (int n = 0; n < 2; ++n)
#pragma unroll
                                for (int e = 0; e < 4; ++e) {
                                    if (after + 8 * n + e % 2 < 16 * m + e / 2 * 8) s[m][n][e] = -INFINITY;
                                }
                    }
#pragma unroll
                    for (int n = 0; n < 2; ++n) {
                        float4 two = shared_floats(pairs + 8 * n * 8);
                        if (drops) {
#pragma unroll
                            for (int e = 0; e < 2; ++e) {
                                u32 keep = kept.of(sub - group + 8 * n + lane % 4 * 2 + e);
                                float lse = e ? two.z : two.x, delta = e ? two.w : two.y;
#pragma unroll
                                for (int m = 0; m < MS; ++m)
#pragma unroll
                                    for (int half = 0; half < 2; ++half) {
                                        slope_dropped(s[m][n][2 * half + e], dp[m][n][2 * half + e], p.factor, lse, delta,
                                                      keep >> (4 * m + 2 * half) & 1);
                                    }
                            }
                        } else {
#pragma unroll
                            for (int m = 0; m < MS; ++m)
#pragma unroll
                                for (int half = 0; half < 4; half += 2) {
                                    slope(s[m][n][half], dp[m][n][half], p.factor, two.x, two.y);
                                    slope(s[m][n][half + 1], dp[m][n][half + 1], p.factor, two.z, two.w);
                                }
                        }
                    }
                    u32 a[MS][4];
#pragma unroll
                    for (int m = 0; m < MS; ++m) as_operand<T>(a[m], s[m][0], s[m][1]);
                    add_rows<T, WIDTH, PART, MS>(value_sums, a, across + Memory::SIDE, (u32)at.column);
#pragma unroll
                    for (int m = 0; m < MS; ++m) as_operand<T>(a[m], dp[m][0], dp[m][1]);
                    add_rows<T, WIDTH, PART, MS>(key_sums, a, across, (u32)at.column);
                }
            }
        }
        if (DROPPED) member = *member_place;
        ++member;
    }

    __syncthreads();
    at = tile();
    int warp_row = (int)(thread_again() / WARP) * 16 * MS, left = (int)min(p.keys - at.row, (u64)KEYS);
    if (!MASKED && mask) {
        // What the loop has added up for masked keys is of no key that a query attends to, and need not be finite.
#pragma unroll
        for (int m = 0; m < MS; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int row = warp_row + 16 * m + 8 * half + lane / 4;
                if (row >= left || is_seen(at.row + row)) continue;
#pragma unroll
                for (int n = 0; n < PART / 8; ++n)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) key_sums[m][n][e] = value_sums[m][n][e] = 0.0f;
            }
    }
    char *rows = memory + warp_row * PART * 2;
    i64 row = (i64)at.row + warp_row;
    int columns = min(width - (int)at.column, PART);
    store_rows<T, PART, MS>(key_sums, rows, dk + p.k.at(at.batch, at.head) + row * p.k.row + at.column, p.k.row,
                            left - warp_row, columns, [&](int, int) { return DROPPED || MASKED ? p.scale * p.kept : p.scale; });
    store_rows<T, PART, MS>(value_sums, rows, dv + p.v.at(at.batch, at.head) + row * p.v.row + at.column, p.v.row,
                            left - warp_row, columns, [&](int, int) { return DROPPED || MASKED ? p.kept : 1.0f; });
}

// Σ g·y of a row, by four neighbouring lanes, each of which gets the sum.
template <typename T> __device__ __forceinline__ float row_product(const T *__restrict__ y, const T *__restrict__ g, int width) {
    float sum = 0.0f;
#pragma unroll 1
    for (int c = (int)(threadIdx.x % 4) * LANES<T>; c < width; c += 4 * LANES<T>) {
        Pack<T> a = load16(y + c), b = load16(g + c);
#pragma unroll
        for (int e = 0; e < LANES<T>; ++e) sum += to_acc(a.v[e]) * to_acc(b.v[e]);
    }
    sum += __shfl_xor_sync(FULL_WARP, sum, 1);
    return sum + __shfl_xor_sync(FULL_WARP, sum, 2);
}

// dq of 64·MS queries: STEP keys a stage.
template <typename T, int WIDTH, int PART, int MS, int STEP, int HELD, bool MASKED, bool DROPPED>
__device__ __forceinline__ void attend_query_grad(const AttentionCall &p, const T *__restrict__ q, const T *__restrict__ k,
                                                  const T *__restrict__ v, const T *__restrict__ g,
                                                  const T *__restrict__ y, const float *__restrict__ lses,
                                                  float2 *__restrict__ statistics, T *__restrict__ dq,
                                                  const u8 *__restrict__ mask, const float *__restrict__ bias,
                                                  const i32 *__restrict__ step) {
    constexpr int THREADS = 128, QUERIES = 64 * MS;
    // Keys whose dropout is drawn at a time, in an order of their own.
    constexpr int GROUP = (MASKED || DROPPED) && STEP % 32 == 0 ? 32 : 16;
    using Rows = SharedRows<WIDTH>;
    using Order = KeyOrder<MASKED || DROPPED ? GROUP : 0>;
    constexpr int KEPT = HELD < WIDTH / 16 ? 2 : 0;
    using Memory = GradMemory<WIDTH, QUERIES, STEP, KEPT>;
    extern __shared__ __align__(1024) char memory[];
    u32 start = shared_address(memory), ring = start + Memory::RING;

    u64 tiles = (p.queries + QUERIES - 1) / QUERIES;
    constexpr int PARTS = WIDTH / PART;
    AttentionTile at =
        attention_tile(blockIdx.x, p.heads, gridDim.x / tiles / PARTS, p.queries, QUERIES, PARTS, PART, p.causal);
    int width = (int)p.width, lane = threadIdx.x % WARP, warp_row = (int)(threadIdx.x / WARP) * 16 * MS;
    int left = (int)min(p.queries - at.row, (u64)QUERIES), first = (int)at.row + warp_row, last = first + 16 * MS - 1;
    int end = (int)(p.causal ? min(p.keys, at.row + left) : p.keys), begin = 0;
    // Where the weights of the head begin; the step of dropout.
    struct Place {
        union {
            int space[12];       // of seen_keys
            AttentionMask masks; // if MASKED
        };
        u64 weights;
        u32 step;
    };
    static_assert(sizeof(Place) <= 96, "cuda::ops::attention::tiles");
    Place *place = reinterpret_cast<Place *>(memory + Memory::PLACE);
    u32 *bits = reinterpret_cast<u32 *>(place) + 96 / 4;
    bool holes = false;
    const bool drops = DROPPED || (MASKED && step != nullptr);
    if (drops && threadIdx.x == 0) place->weights = first_weight(p, at.batch, at.head), place->step = (u32)*step;
    if (MASKED && threadIdx.x == 0) place->masks = AttentionMask(p, mask, bias, at.batch, at.head);

    Operand<WIDTH, MS, HELD> queries, slopes;
    float lse[MS][2], delta[MS][2];
    {
        RowCopies<T, WIDTH, QUERIES, THREADS> of_queries(q + p.q.at(at.batch, at.head) + (i64)at.row * p.q.row, p.q.row,
                                                         width);
        RowCopies<T, WIDTH, QUERIES, THREADS> of_slopes(g + p.y.at(at.batch, at.head) + (i64)at.row * p.y.row, p.y.row,
                                                        width);
        of_queries.copy(start, left);
        of_slopes.copy(start + Memory::SECOND, left);
        cp_async_commit();
        u64 number = (at.batch * p.heads + at.head) * p.queries + at.row;
        i64 lines = p.y.at(at.batch, at.head) + (i64)at.row * p.y.row;
#pragma unroll
        for (int m = 0; m < MS; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int row = warp_row + 16 * m + 8 * half + lane / 4;
                // A row that does not exist takes no part, but its lanes do in the sum.
                i64 from = lines + row * p.y.row;
                delta[m][half] = row_product(y + from, g + from, row < left ? width : 0);
                if (DROPPED || MASKED) delta[m][half] *= p.kept > 0.0f ? 1.0f / p.kept : 0.0f;
                lse[m][half] = row < left ? lses[number + row] * LOG2_E : 0.0f;
                if (row < left && lane % 4 == 0 && at.column == 0)
                    statistics[number + row] = make_float2(lse[m][half], delta[m][half]);
            }
        cp_async_wait<0>();
        __syncthreads();
        queries.load(start + warp_row * Rows::ROW);
        slopes.load(start + Memory::SECOND + warp_row * Rows::ROW);
        if (KEPT < 2) __syncthreads();
        if constexpr (!MASKED) {
            if (mask) {
                const u8 *own = mask + (i64)at.batch * p.mask[0] + (i64)at.head * p.mask[1];
                SeenKeys seen = seen_keys<STEP>(own, p.mask[3], end, place->space);
                begin = seen.begin;
                end = seen.end;
                holes = seen.holes;
                if (holes) keep_seen(bits, own, p.mask[3], end);
            }
        }
    }

    u64 shared_head = at.head / p.group;
    RowCopies<T, WIDTH, STEP, THREADS, Order> of_keys(k + p.k.at(at.batch, shared_head), p.k.row, width);
    RowCopies<T, WIDTH, STEP, THREADS, Order> of_values(v + p.v.at(at.batch, shared_head), p.v.row, width);
    auto copy = [&](u32 stage, int key) {
        if (key < end) {
            of_keys.copy(ring + stage * Memory::STAGE, end - key);
            of_values.copy(ring + stage * Memory::STAGE + Memory::SIDE, end - key);
            of_keys.advance(STEP);
            of_values.advance(STEP);
        }
        cp_async_commit();
    };
    of_keys.advance(begin);
    of_values.advance(begin);
    copy(0, begin);
    float sums[MS][PART / 8][4] = {};
    u32 stage = 0;
#pragma unroll 1
    for (int key = begin; key < end; key += STEP) {
        cp_async_wait<0>();
        __syncthreads();
        copy(stage ^ 1, key + STEP);
        u32 now = ring + stage * Memory::STAGE;
        stage ^= 1;
        u32 rows = now + Rows::lane_b(), across = now + Rows::lane_b_trans();
#pragma unroll 1
        for (int group = 0; group < STEP; group += GROUP, rows += GROUP * Rows::ROW, across += GROUP * Rows::ROW) {
            int from = key + group;
            if (from >= end || (p.causal && from > last)) break;
            if constexpr (!MASKED) {
                if (holes && !any_seen<GROUP>(bits, from)) continue;
            }
            Kept<MS, MASKED || DROPPED ? GROUP : 32> kept;
            if (drops) kept.draw(p, place->step, place->weights + (u64)first * p.keys + from);
#pragma unroll 1
            for (u32 sub = 0; sub < GROUP * Rows::ROW; sub += 16 * Rows::ROW, kept.advance()) {
                // The first thread's first key.
                const int own = from + (int)sub / (4 * Rows::ROW);
                float s[MS][2][4], dp[MS][2][4];
                multiply_rows<T, WIDTH, MS, 2, HELD>(s, queries, rows + sub);
                multiply_rows<T, WIDTH, MS, 2, HELD>(dp, slopes, rows + sub + Memory::SIDE);
                if constexpr (MASKED) {
                    add_masks<Order, MS, 2>(s, p, place->masks, first + lane / 4, own + Order::first(), from, GROUP);
                }
                if constexpr (!MASKED) {
                    if (holes) mask_keys<Order, MS, 2>(s, bits, own);
                }
                if (from + GROUP > end || (p.causal && from + GROUP - 1 > first)) {
#pragma unroll
                    for (int m = 0; m < MS; ++m)
#pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            int row = first + 16 * m + e / 2 * 8 + lane / 4;
                            int seen = (p.causal ? min(end, row + 1) : end) - own - Order::first();
#pragma unroll
                            for (int n = 0; n < 2; ++n) {
                                if (Order::of(n, e % 2) >= seen) s[m][n][e] = -INFINITY;
                            }
                        }
                }
#pragma unroll
                for (int m = 0; m < MS; ++m)
#pragma unroll
                    for (int n = 0; n < 2; ++n)
#pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            float lse_of = lse[m][e / 2], delta_of = delta[m][e / 2];
                            if (drops) slope_dropped(s[m][n][e], dp[m][n][e], p.factor, lse_of, delta_of, kept.of(2 * m + e / 2, n, e % 2));
                            else slope(s[m][n][e], dp[m][n][e], p.factor, lse_of, delta_of);
                        }
                u32 a[MS][4];
#pragma unroll
                for (int m = 0; m < MS; ++m) as_operand<T>(a[m], dp[m][0], dp[m][1]);
                add_rows<T, WIDTH, PART, MS>(sums, a, across + sub, (u32)at.column);
            }
        }
    }

    __syncthreads();
    i64 row = (i64)at.row + warp_row;
    store_rows<T, PART, MS>(sums, memory + warp_row * PART * 2, dq + p.q.at(at.batch, at.head) + row * p.q.row + at.column,
                            p.q.row, left - warp_row, min(width - (int)at.column, PART),
                            [&](int, int) { return DROPPED || MASKED ? p.scale * p.kept : p.scale; });
}

// The kernels NAME_WIDTH_dtype: attention_tensor and attention_key_grad, attention_query_grad; the same with dropout, attention_dropped_…; and
// with a bias or a mask that is not one of keys, with or without dropout, attention_masked_…. Blocks have 128 threads; the first numbers of a
// row are tabulated in cuda/src/ops/attention/tiles.rs, which sizes grids and shared memory by them:
//   forward    columns; 16-row fragments of a warp, keys of a step; steps of the queries in registers
//   key_grad   columns, those of a block; fragments, queries of a step; steps of keys and of values in registers
//   query_grad columns, those of a block; fragments, keys of a step; steps of queries and of g in registers
#define ATTENTION_TENSOR(name, width, suffix, T, ms, keys, held, masked, dropped)                                               \
    extern "C" __global__ void __launch_bounds__(128, 2) attention_##name##_##width##_##suffix(                                 \
        AttentionCall p, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, T *__restrict__ y,          \
        float *__restrict__ lse, const u8 *__restrict__ mask, const float *__restrict__ bias, const i32 *__restrict__ step) {   \
        attend<T, width, ms, keys, held, masked, dropped>(p, q, k, v, y, lse, mask, bias, step);                                \
    }
#define ATTENTION_KEY_GRAD(name, width, suffix, T, part, ms, steps, keys_held, values_held, masked, dropped)                    \
    extern "C" __global__ void __launch_bounds__(128, 2) attention_##name##key_grad_##width##_##suffix(                         \
        AttentionCall p, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, const T *__restrict__ g,    \
        const float2 *__restrict__ statistics, T *__restrict__ dk, T *__restrict__ dv, const u8 *__restrict__ mask,             \
        const float *__restrict__ bias, const i32 *__restrict__ step) {                                                         \
        attend_key_grad<T, width, part, ms, steps, keys_held, values_held, masked, dropped>(p, q, k, v, g, statistics, dk, dv,  \
                                                                                            mask, bias, step);                  \
    }
#define ATTENTION_QUERY_GRAD(name, width, suffix, T, part, ms, steps, held, masked, dropped)                                    \
    extern "C" __global__ void __launch_bounds__(128, 2) attention_##name##query_grad_##width##_##suffix(                       \
        AttentionCall p, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, const T *__restrict__ g,    \
        const T *__restrict__ y, const float *__restrict__ lse, float2 *__restrict__ statistics, T *__restrict__ dq,            \
        const u8 *__restrict__ mask, const float *__restrict__ bias, const i32 *__restrict__ step) {                            \
        attend_query_grad<T, width, part, ms, steps, held, masked, dropped>(p, q, k, v, g, y, lse, statistics, dq, mask, bias,  \
                                                                            step);                                              \
    }
