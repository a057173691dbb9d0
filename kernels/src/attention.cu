// Attention without tensor cores, for every dtype, width and alignment, and what both kinds of kernels share: attention.cuh has the
// formulas. The kernels of attention_tensor.cuh are compared with these.
//
// attention_plain, attention_key_grad_plain, attention_query_grad_plain: blocks of 256 threads, each with 64 rows by 64 columns of its
// result: grid = batches · heads · (64 columns each of the width) · (64 rows each of queries or of keys), the heads being those of the
// keys in attention_key_grad_plain. A block walks along the other positions 64 at a time. It computes their scores with its rows, 4×4
// a thread from slabs of both operands in shared memory, keeps the weights in shared memory, and multiplies them with 64 columns of
// the third operand. Widths above 64 compute the scores once for each 64 columns.
//
// attention_statistics: for every query (lse·log2 e, delta), which the plain gradients read; 8 neighbouring lanes a query, 32 queries a block.
#include "attention.cuh"
#include "common/warp.cuh"

constexpr int SIDE = 64, DEPTH = 16, THREADS = 256, STRIDE = SIDE + 4;

// Slabs of two operands [DEPTH][SIDE] and a tile of weights [SIDE][SIDE].
struct Shared {
    float a[DEPTH * STRIDE], b[DEPTH * STRIDE], weights[SIDE * (SIDE + 1)];
};

// c[i][j] += Σ_d a(row, d)·b(column, d) for d < depth, where row = 4·(thread / 16) + i and column = 4·(thread % 16) + j. Neighbouring
// threads ask for neighbouring d, of b for neighbouring columns if B_ACROSS.
template <bool B_ACROSS, typename A, typename B>
__device__ __forceinline__ void multiply(Shared &shared, float (&c)[4][4], int depth, A a, B b) {
    int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
#pragma unroll 1
    for (int from = 0; from < depth; from += DEPTH) {
        __syncthreads();
#pragma unroll
        for (int i = (int)threadIdx.x; i < SIDE * DEPTH; i += THREADS) {
            int d = i % DEPTH, at = i / DEPTH;
            shared.a[d * STRIDE + at] = from + d < depth ? a(at, from + d) : 0.0f;
            if (B_ACROSS) d = i / SIDE, at = i % SIDE;
            shared.b[d * STRIDE + at] = from + d < depth ? b(at, from + d) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            float4 x = *reinterpret_cast<const float4 *>(shared.a + d * STRIDE + row);
            float4 y = *reinterpret_cast<const float4 *>(shared.b + d * STRIDE + column);
            float left[4] = {x.x, x.y, x.z, x.w}, right[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) c[i][j] += left[i] * right[j];
        }
    }
}

// The element of vector `row` and column `column` of an operand, 0 where there is none.
template <typename T> struct Elements {
    const T *from;
    i64 stride;
    int rows, width;

    __device__ __forceinline__ Elements(const T *operand, const Vectors &at, u64 batch, u64 head, u64 rows_, u64 width_)
        : from(operand + at.at(batch, head)), stride(at.row), rows((int)rows_), width((int)width_) {}
    __device__ __forceinline__ float operator()(int row, int column) const {
        return row < rows && column < width ? to_acc(from[row * stride + column]) : 0.0f;
    }
};

__device__ __forceinline__ void keep_weights(Shared &shared, const float (&weights)[4][4]) {
    int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) shared.weights[(row + i) * (SIDE + 1) + column + j] = weights[i][j];
}

// result += weights · (rows from `first` on of `operand`, columns from `column` on).
template <typename T>
__device__ __forceinline__ void add_weighted(Shared &shared, float (&result)[4][4], const Elements<T> &operand, int first,
                                             int column) {
    multiply<true>(
        shared, result, min(operand.rows - first, SIDE),
        [&](int row, int d) { return shared.weights[row * (SIDE + 1) + d]; },
        [&](int c, int d) { return operand(first + d, column + c); });
}

// Writes 64 rows and columns of a result, times a factor for each row.
template <typename T>
__device__ __forceinline__ void store_tile(T *to, const Vectors &lie, const AttentionTile &at, u64 rows, u64 width,
                                           const float (&result)[4][4], const float (&factor)[4]) {
    u64 row = at.row + threadIdx.x / 16 * 4, column = at.column + threadIdx.x % 16 * 4;
    to += lie.at(at.batch, at.head);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (row + i < rows && column + j < width) {
                to[(i64)(row + i) * lie.row + (i64)(column + j)] = from_acc<T>(result[i][j] * factor[i]);
            }
        }
}

template <typename T>
__device__ __forceinline__ void attend_plain(const AttentionCall &p, const T *__restrict__ q, const T *__restrict__ k,
                                             const T *__restrict__ v, T *__restrict__ y, float *__restrict__ lse,
                                             const u8 *__restrict__ mask, const float *__restrict__ bias, const i32 *__restrict__ step) {
    __shared__ Shared shared;
    u64 tiles = (p.queries + SIDE - 1) / SIDE;
    int parts = (int)((p.width + SIDE - 1) / SIDE);
    AttentionTile at = attention_tile(blockIdx.x, p.heads, gridDim.x / tiles / parts, p.queries, SIDE, parts, SIDE, p.causal);
    Elements<T> queries(q, p.q, at.batch, at.head, p.queries, p.width);
    Elements<T> keys(k, p.k, at.batch, at.head / p.group, p.keys, p.width);
    Elements<T> values(v, p.v, at.batch, at.head / p.group, p.keys, p.width);
    int row = (int)at.row + (int)threadIdx.x / 16 * 4, end = (int)(p.causal ? min(p.keys, at.row + SIDE) : p.keys);
    u64 weights = first_weight(p, at.batch, at.head);
    float result[4][4] = {}, most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, total[4] = {};
#pragma unroll 1
    for (int first = 0; first < end; first += SIDE) {
        float s[4][4] = {};
        multiply<false>(
            shared, s, keys.width, [&](int r, int d) { return queries((int)at.row + r, d); },
            [&](int c, int d) { return keys(first + c, d); });
        if (mask || bias) {
            AttentionMask masks(p, mask, bias, at.batch, at.head);
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    int column = first + (int)threadIdx.x % 16 * 4 + j;
                    if (row + i < queries.rows && column < keys.rows) s[i][j] = masks.of(p, s[i][j], row + i, column);
                }
        }
        int key = first + (int)threadIdx.x % 16 * 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float now = most[i];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                bool seen = key + j < keys.rows && (!p.causal || key + j <= row + i);
                s[i][j] = seen ? s[i][j] * p.scale : -INFINITY;
                now = fmaxf(now, s[i][j]);
            }
#pragma unroll
            for (int lane = 1; lane < 16; lane *= 2) now = fmaxf(now, __shfl_xor_sync(FULL_WARP, now, lane));
            // Nothing but −∞ so far: weights of 0, not of −∞ − (−∞).
            float base = now == -INFINITY ? 0.0f : now, shrink = expf(most[i] - base), sum = 0.0f;
            most[i] = now;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                s[i][j] = expf(s[i][j] - base);
                sum += s[i][j];
                result[i][j] *= shrink;
            }
            total[i] = total[i] * shrink + sum;
            if (step) {
                u32 bits = kept_bits<4>(p, (u32)*step, weights + (u64)(row + i) * p.keys + key);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (!(bits >> j & 1)) s[i][j] = 0.0f;
                }
            }
        }
        keep_weights(shared, s);
        add_weighted(shared, result, values, first, (int)at.column);
    }
    float factor[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int lane = 1; lane < 16; lane *= 2) total[i] += __shfl_xor_sync(FULL_WARP, total[i], lane);
        // Without mask and bias a row of nothing but −∞ is NaN, as the formula says.
        bool nothing = (mask || bias) && total[i] == 0.0f;
        factor[i] = nothing ? 0.0f : p.kept / total[i];
        if (at.column == 0 && threadIdx.x % 16 == 0 && row + i < queries.rows) {
            lse[(at.batch * p.heads + at.head) * p.queries + row + i] = nothing ? 0.0f : most[i] + logf(total[i]);
        }
    }
    store_tile(y, p.y, at, p.queries, p.width, result, factor);
}

// e^(s − lse) of a score that is not scaled yet.
__device__ __forceinline__ float weight(const AttentionCall &p, const AttentionMask &masks, float s, int query, int key,
                                        const float2 &statistics) {
    bool seen = query < (int)p.queries && key < (int)p.keys && (!p.causal || key <= query);
    return seen ? exp2f(masks.of(p, s, query, key) * p.factor - statistics.x) : 0.0f;
}

template <typename T>
__device__ __forceinline__ void
attend_key_grad_plain(const AttentionCall &p, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v,
                      const T *__restrict__ g, const float2 *__restrict__ statistics, T *__restrict__ dk, T *__restrict__ dv,
                      const u8 *__restrict__ mask, const float *__restrict__ bias, const i32 *__restrict__ step) {
    __shared__ Shared shared;
    u64 tiles = (p.keys + SIDE - 1) / SIDE, heads = p.heads / p.group;
    int parts = (int)((p.width + SIDE - 1) / SIDE);
    AttentionTile at = attention_tile(blockIdx.x, heads, gridDim.x / tiles / parts, p.keys, SIDE, parts, SIDE, false);
    Elements<T> keys(k, p.k, at.batch, at.head, p.keys, p.width), values(v, p.v, at.batch, at.head, p.keys, p.width);
    int key = (int)at.row + (int)threadIdx.x / 16 * 4;
    float key_sums[4][4] = {}, value_sums[4][4] = {};
#pragma unroll 1
    for (u64 head = at.head * p.group; head < (at.head + 1) * p.group; ++head) {
        Elements<T> queries(q, p.q, at.batch, head, p.queries, p.width), slopes(g, p.y, at.batch, head, p.queries, p.width);
        const float2 *pairs = statistics + (at.batch * p.heads + head) * p.queries;
        AttentionMask masks(p, mask, bias, at.batch, head);
        u64 weights = first_weight(p, at.batch, head);
#pragma unroll 1
        for (int first = p.causal ? (int)at.row : 0; first < (int)p.queries; first += SIDE) {
            float s[4][4] = {}, ds[4][4] = {};
            multiply<false>(
                shared, s, keys.width, [&](int r, int d) { return keys((int)at.row + r, d); },
                [&](int c, int d) { return queries(first + c, d); });
            multiply<false>(
                shared, ds, keys.width, [&](int r, int d) { return values((int)at.row + r, d); },
                [&](int c, int d) { return slopes(first + c, d); });
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                int query = first + (int)threadIdx.x % 16 * 4 + j;
                float2 pair = query < queries.rows ? pairs[query] : make_float2(0.0f, 0.0f);
                u32 bits = step ? kept_bits<4>(p, (u32)*step, weights + (u64)query * p.keys + key) : ~0u;
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float w = weight(p, masks, s[i][j], query, key + i, pair), dp = bits >> i & 1 ? ds[i][j] * p.kept : 0.0f;
                    s[i][j] = bits >> i & 1 ? w : 0.0f;
                    ds[i][j] = w == 0.0f ? 0.0f : w * (dp - pair.y);
                }
            }
            keep_weights(shared, s);
            add_weighted(shared, value_sums, slopes, first, (int)at.column);
            keep_weights(shared, ds);
            add_weighted(shared, key_sums, queries, first, (int)at.column);
        }
    }
    store_tile(dk, p.k, at, p.keys, p.width, key_sums, {p.scale, p.scale, p.scale, p.scale});
    store_tile(dv, p.v, at, p.keys, p.width, value_sums, {p.kept, p.kept, p.kept, p.kept});
}

template <typename T>
__device__ __forceinline__ void attend_query_grad_plain(const AttentionCall &p, const T *__restrict__ q, const T *__restrict__ k,
                                                        const T *__restrict__ v, const T *__restrict__ g,
                                                        const float2 *__restrict__ statistics, T *__restrict__ dq,
                                                        const u8 *__restrict__ mask, const float *__restrict__ bias, const i32 *__restrict__ step) {
    __shared__ Shared shared;
    u64 tiles = (p.queries + SIDE - 1) / SIDE;
    int parts = (int)((p.width + SIDE - 1) / SIDE);
    AttentionTile at = attention_tile(blockIdx.x, p.heads, gridDim.x / tiles / parts, p.queries, SIDE, parts, SIDE, p.causal);
    Elements<T> queries(q, p.q, at.batch, at.head, p.queries, p.width), slopes(g, p.y, at.batch, at.head, p.queries, p.width);
    Elements<T> keys(k, p.k, at.batch, at.head / p.group, p.keys, p.width);
    Elements<T> values(v, p.v, at.batch, at.head / p.group, p.keys, p.width);
    u64 line = (at.batch * p.heads + at.head) * p.queries;
    AttentionMask masks(p, mask, bias, at.batch, at.head);
    int query = (int)at.row + (int)threadIdx.x / 16 * 4, end = (int)(p.causal ? min(p.keys, at.row + SIDE) : p.keys);
    float sums[4][4] = {};
#pragma unroll 1
    for (int first = 0; first < end; first += SIDE) {
        int key = first + (int)threadIdx.x % 16 * 4;
        // A bit for each weight of the thread, drawn before the products need registers.
        u32 kept = ~0u;
        if (step) {
            kept = 0;
#pragma unroll 1
            for (int i = 0; i < 4; ++i) kept |= (kept_bits<4>(p, (u32)*step, (line + query + i) * p.keys + key) & 15) << 4 * i;
        }
        float s[4][4] = {}, ds[4][4] = {};
        multiply<false>(
            shared, s, keys.width, [&](int r, int d) { return queries((int)at.row + r, d); },
            [&](int c, int d) { return keys(first + c, d); });
        multiply<false>(
            shared, ds, keys.width, [&](int r, int d) { return slopes((int)at.row + r, d); },
            [&](int c, int d) { return values(first + c, d); });
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float2 pair = query + i < queries.rows ? statistics[line + query + i] : make_float2(0.0f, 0.0f);
            u32 bits = kept >> 4 * i;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float w = weight(p, masks, s[i][j], query + i, key + j, pair), dp = bits >> j & 1 ? ds[i][j] * p.kept : 0.0f;
                ds[i][j] = w == 0.0f ? 0.0f : w * (dp - pair.y);
            }
        }
        keep_weights(shared, ds);
        add_weighted(shared, sums, keys, first, (int)at.column);
    }
    store_tile(dq, p.q, at, p.queries, p.width, sums, {p.scale, p.scale, p.scale, p.scale});
}

// `rows` = batches · queries · heads, in which order they are taken: neighbours of y are neighbours here.
template <typename T>
__device__ __forceinline__ void statistics_of(const AttentionCall &p, u64 rows, const T *__restrict__ y, const T *__restrict__ g,
                                              const float *__restrict__ lse, float2 *__restrict__ statistics) {
    u64 row = (u64)blockIdx.x * (THREADS / 8) + threadIdx.x / 8, batch, query, head;
    int lane = threadIdx.x % 8;
    divide(min(row, rows - 1), p.heads, query, head);
    divide(query, p.queries, batch, query);
    i64 at = p.y.at(batch, head) + (i64)query * p.y.row;
    y += at;
    g += at;
    constexpr int L = LANES<T>;
    u64 packs = aligned16(y) && aligned16(g) ? p.width / L : 0;
    float sum = 0.0f;
    for (u64 i = lane; i < packs; i += 8) {
        Pack<T> a = load16(y + i * L), b = load16(g + i * L);
#pragma unroll
        for (int e = 0; e < L; ++e) sum += to_acc(a.v[e]) * to_acc(b.v[e]);
    }
    for (u64 i = packs * L + lane; i < p.width; i += 8) sum += to_acc(y[i]) * to_acc(g[i]);
#pragma unroll
    for (int other = 1; other < 8; other *= 2) sum += __shfl_xor_sync(FULL_WARP, sum, other);
    u64 to = (batch * p.heads + head) * p.queries + query;
    if (lane == 0 && row < rows) statistics[to] = make_float2(lse[to] * LOG2_E, sum);
}

#define ATTENTION(suffix, T) \
    extern "C" __global__ void __launch_bounds__(256, 2) \
        attention_plain_##suffix(AttentionCall p, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, \
                                 T *__restrict__ y, float *__restrict__ lse, const u8 *__restrict__ mask, const float *__restrict__ bias, const i32 *__restrict__ step) { \
        attend_plain<T>(p, q, k, v, y, lse, mask, bias, step); \
    } \
    extern "C" __global__ void __launch_bounds__(256, 1) \
        attention_key_grad_plain_##suffix(AttentionCall p, const T *__restrict__ q, const T *__restrict__ k, \
                                          const T *__restrict__ v, const T *__restrict__ g, \
                                          const float2 *__restrict__ statistics, T *__restrict__ dk, T *__restrict__ dv, const u8 *__restrict__ mask, const float *__restrict__ bias, const i32 *__restrict__ step) { \
        attend_key_grad_plain<T>(p, q, k, v, g, statistics, dk, dv, mask, bias, step); \
    } \
    extern "C" __global__ void __launch_bounds__(256, 2) \
        attention_query_grad_plain_##suffix(AttentionCall p, const T *__restrict__ q, const T *__restrict__ k, \
                                            const T *__restrict__ v, const T *__restrict__ g, \
                                            const float2 *__restrict__ statistics, T *__restrict__ dq, const u8 *__restrict__ mask, const float *__restrict__ bias, const i32 *__restrict__ step) { \
        attend_query_grad_plain<T>(p, q, k, v, g, statistics, dq, mask, bias, step); \
    } \
    extern "C" __global__ void __launch_bounds__(256) \
        attention_statistics_##suffix(AttentionCall p, u64 rows, const T *__restrict__ y, const T *__restrict__ g, \
                                      const float *__restrict__ lse, float2 *__restrict__ statistics) { \
        statistics_of<T>(p, rows, y, g, lse, statistics); \
    }
FOR_FLOATS(ATTENTION)
