// Attention on tensor cores (sm_80 and later), of bf16 and f16: attention.cuh has the formulas.
//
// Contract: widths of whole 16-byte chunks (a multiple of 8) up to WIDTH, and operands whose every vector begins on 16 bytes.
// Vectors of fewer elements than WIDTH are filled up with zeros in shared memory.
//
// A block has WARPS warps, of which each computes 16·MS queries. It walks along the keys, KEYS a step; those of the next step
// are on their way (cp.async, two stages) while one is computed. Scores, their weights and the sums of the result stay in
// registers: the fragment of C (common/mma.cuh) that the scores of 16 keys come in is that of A which the product with the values
// takes, rounded to two halves a register. Each row keeps a score that was its largest and the sum of weights so far, and what has been
// added up is scaled when a score turns up that is larger by much. Weights are 2^(s·scale·log2 e − m): one multiply-add and one ex2 each.
//
// Rows of shared memory are WIDTH elements; chunk j of row r lies at place j ^ (r mod 8) (j ^ (r/2 mod 4) if a row has four), so
// that ldmatrix reads eight rows without conflicts.
#pragma once

#include "attention_masks.cuh"
#include "common/cp_async.cuh"

#include <cfloat>

// 2^x to within two units in the last place, and 0 below 2^-126.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two floats, rounded, as a register of a fragment: the first in the low half.
template <typename T> __device__ __forceinline__ u32 pack(float a, float b);
template <> __device__ __forceinline__ u32 pack<bf16>(float a, float b) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(r) : "f"(a), "f"(b));
    return r;
}
template <> __device__ __forceinline__ u32 pack<f16>(float a, float b) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(r) : "f"(a), "f"(b));
    return r;
}

// Rows of WIDTH elements of 16 bits in shared memory.
template <int WIDTH> struct SharedRows {
    static constexpr int CHUNKS = WIDTH / 8, ROW = WIDTH * 2; // 16-byte chunks and bytes of a row

    static __device__ __forceinline__ int swizzle(int row) { return CHUNKS == 4 ? row / 2 % 4 : row % 8; }
    static __device__ __forceinline__ u32 place(int row, int chunk) {
        return (u32)(row * CHUNKS + (chunk ^ swizzle(row))) * 16;
    }

    // Where a lane reads the fragment of the first 16 rows and columns: A from rows of k, two B from [n][k], two B from [k][n].
    // Other columns are `^ 32·i` away, other rows `+ 16·ROW·i`.
    static __device__ __forceinline__ u32 lane_a() { return place(threadIdx.x % 16, threadIdx.x / 16 % 2); }
    static __device__ __forceinline__ u32 lane_b() {
        return place(threadIdx.x % 8 + threadIdx.x / 16 % 2 * 8, threadIdx.x / 8 % 2);
    }
    static __device__ __forceinline__ u32 lane_b_trans() { return lane_a(); }
};

// The copies of a thread: ROWS rows at a time, from rows of global memory `stride` elements apart to SharedRows at `to`, in an Order of
// keys (attention_masks.cuh).
template <typename T, int WIDTH, int ROWS, int THREADS, typename Order = KeyOrder<0>> struct RowCopies {
    using Rows = SharedRows<WIDTH>;
    static constexpr int APART = THREADS / Rows::CHUNKS, COPIES = (ROWS + APART - 1) / APART;
    static_assert((APART & (APART - 1)) == 0, "a thread's rows differ in other bits than those of different threads");

    const T *from; // of this thread's chunk in the first row
    i64 stride;
    u32 place, valid;
    int row;

    __device__ __forceinline__ RowCopies(const T *operand, i64 stride_, int width, u32 thread = threadIdx.x) {
        int chunk = (int)(thread % Rows::CHUNKS);
        row = (int)(thread / Rows::CHUNKS);
        stride = stride_;
        place = Rows::place(Order::row(row), chunk);
        valid = chunk * 8 < width ? 16 : 0;
        from = operand + row * stride + (valid ? chunk * 8 : 0);
    }

    // Moves on by `rows` rows.
    __device__ __forceinline__ void advance(i64 rows) { from += rows * stride; }

    // Queues the rows, of which the first `left` exist.
    __device__ __forceinline__ void copy(u32 to, int left) const {
        const T *at = from;
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            if (ROWS % APART == 0 || row + i * APART < ROWS) {
                // Order and swizzle are linear in the bits of a row's number.
                const int moved = Order::row(i * APART);
                cp_async<16>(to + (place ^ (u32)(Rows::swizzle(moved) * 16)) + moved * Rows::ROW, at, row + i * APART < left ? valid : 0);
            }
            at += APART * stride;
        }
    }
};

// Fragments of A of MS·16 rows by WIDTH columns: those of the first HELD steps of 16 columns are kept in registers, the others read
// from shared memory each time.
template <int WIDTH, int MS, int HELD> struct Operand {
    u32 held[HELD > 0 ? HELD : 1][MS][4];
    u32 lane;

    // `rows` is the shared address of the warp's first row.
    __device__ __forceinline__ void load(u32 rows) {
        lane = rows + SharedRows<WIDTH>::lane_a();
#pragma unroll
        for (int step = 0; step < HELD; ++step)
#pragma unroll
            for (int m = 0; m < MS; ++m) read(held[step][m], step, m);
    }
    __device__ __forceinline__ void read(u32 (&a)[4], int step, int m) const {
        ldmatrix(a, (lane ^ (32 * step)) + m * 16 * SharedRows<WIDTH>::ROW);
    }
};

// sums [16·MS][8·NS] = A·Bᵀ over the WIDTH columns, B from rows of shared memory; `from` is the address of its first row + lane_b().
template <typename T, int WIDTH, int MS, int NS, int HELD>
__device__ __forceinline__ void multiply_rows(float (&sums)[MS][NS][4], const Operand<WIDTH, MS, HELD> &a, u32 from) {
#pragma unroll
    for (int m = 0; m < MS; ++m)
#pragma unroll
        for (int n = 0; n < NS; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[m][n][e] = 0.0f;
    auto step_of = [&](const u32 (&of)[MS][4], int step) {
#pragma unroll
        for (int n = 0; n < NS; n += 2) {
            u32 b[4];
            ldmatrix(b, (from ^ (32 * step)) + n * 8 * SharedRows<WIDTH>::ROW);
#pragma unroll
            for (int m = 0; m < MS; ++m) {
                mma<T>(sums[m][n], of[m], {b[0], b[1]});
                mma<T>(sums[m][n + 1], of[m], {b[2], b[3]});
            }
        }
    };
#pragma unroll
    for (int step = 0; step < HELD; ++step) step_of(a.held[step], step);
#pragma unroll
    for (int step = HELD; step < WIDTH / 16; ++step) {
        u32 read[MS][4];
#pragma unroll
        for (int m = 0; m < MS; ++m) a.read(read[m], step, m);
        step_of(read, step);
    }
}

// The fragments of A that the values c of two neighbouring fragments of C are, rounded.
template <typename T> __device__ __forceinline__ void as_operand(u32 (&a)[4], const float (&c)[4], const float (&next)[4]) {
    a[0] = pack<T>(c[0], c[1]);
    a[1] = pack<T>(c[2], c[3]);
    a[2] = pack<T>(next[0], next[1]);
    a[3] = pack<T>(next[2], next[3]);
}

// sums [16·MS][COLUMNS] += A·B for 16 rows of B; `from` is the address of the first of them + lane_b_trans(), its columns those from
// `first` on, a multiple of COLUMNS.
template <typename T, int WIDTH, int COLUMNS, int MS>
__device__ __forceinline__ void add_rows(float (&sums)[MS][COLUMNS / 8][4], const u32 (&a)[MS][4], u32 from, u32 first) {
    from ^= first * 2;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n += 2) {
        u32 b[4];
        ldmatrix_trans(b, from ^ (16 * n));
#pragma unroll
        for (int m = 0; m < MS; ++m) {
            mma<T>(sums[m][n], a[m], {b[0], b[1]});
            mma<T>(sums[m][n + 1], a[m], {b[2], b[3]});
        }
    }
}

// Writes a warp's sums [16·MS][COLUMNS], times `factor` of the row's half in fragment m, to rows of y `stride` elements apart, of
// which `left` exist and `width` columns. They pass through shared memory at `rows`, of this warp alone, for stores of 16 bytes.
template <typename T, int COLUMNS, int MS, typename Factor>
__device__ __forceinline__ void store_rows(const float (&sums)[MS][COLUMNS / 8][4], char *rows, T *y, i64 stride, i64 left,
                                           int width, Factor factor) {
    using Rows = SharedRows<COLUMNS>;
    int lane = threadIdx.x % WARP;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MS; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float f = factor(m, half);
            int row = m * 16 + half * 8 + lane / 4;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; ++n) {
                *reinterpret_cast<u32 *>(rows + Rows::place(row, n) + lane % 4 * 4) =
                    pack<T>(sums[m][n][2 * half] * f, sums[m][n][2 * half + 1] * f);
            }
        }
    __syncwarp();
    int chunk = lane % Rows::CHUNKS;
#pragma unroll 1
    for (int row = lane / Rows::CHUNKS; row < 16 * MS && row < left; row += WARP / Rows::CHUNKS) {
        if (chunk * 8 < width) {
            store16(y + row * stride + chunk * 8, *reinterpret_cast<const Pack<T> *>(rows + Rows::place(row, chunk)));
        }
    }
}

// The numbers of this block and of this thread, read again: they are not worth registers between two uses.
__device__ __forceinline__ u32 block_again() {
    u32 x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}
__device__ __forceinline__ u32 thread_again() {
    u32 x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

// The forward pass. HELD: how many steps of 16 columns of the queries stay in registers.
// MASKED: with a bias, or a mask of any kind, null where there is none; else a mask is one of keys. DROPPED: with dropout; if MASKED, `step`
// is null without.
template <typename T, int WIDTH, int MS, int KEYS, int HELD, bool MASKED, bool DROPPED>
__device__ __forceinline__ void attend(const AttentionCall &p, const T *__restrict__ q, const T *__restrict__ k,
                                       const T *__restrict__ v, T *__restrict__ y, float *__restrict__ lse,
                                       const u8 *__restrict__ mask, const float *__restrict__ bias,
                                       const i32 *__restrict__ step) {
    constexpr int WARPS = 4, THREADS = WARPS * WARP, QUERIES = WARPS * 16 * MS, NS = KEYS / 8;
    using Rows = SharedRows<WIDTH>;
    using Order = KeyOrder<MASKED || DROPPED ? KEYS : 0>;
    constexpr int STAGE = KEYS * Rows::ROW; // bytes of keys or of values
    extern __shared__ __align__(1024) char memory[];
    u32 queries = shared_address(memory), ring = queries + QUERIES * Rows::ROW;

    u64 tiles = (p.queries + QUERIES - 1) / QUERIES;
    auto tile = [&] {
        return attention_tile(block_again(), p.heads, gridDim.x / tiles, p.queries, QUERIES, 1, WIDTH, p.causal);
    };
    AttentionTile at = tile();
    int width = (int)p.width, lane = threadIdx.x % WARP;
    // Queries and keys count from the first of the sequence.
    int last = (int)at.row + (int)(threadIdx.x / WARP + 1) * 16 * MS - 1;
    int end = (int)(p.causal ? min(p.keys, at.row + QUERIES) : p.keys);
    // Where the keys and values of the head begin, and its weights; the step of dropout, and whether a mask of keys has holes.
    struct Place {
        union {
            int space[12];       // of seen_keys
            AttentionMask masks; // if MASKED
        };
        const T *k, *v;
        u64 weights;
        u32 step, holes;
    };
    static_assert(sizeof(Place) <= 96, "cuda::ops::attention::tiles");
    const bool drops = DROPPED || (MASKED && step != nullptr);
    Place *place = reinterpret_cast<Place *>(memory + QUERIES * Rows::ROW + 4 * STAGE);
    u32 *bits = reinterpret_cast<u32 *>(place) + 96 / 4;
    if (threadIdx.x == 0) {
        place->k = k + p.k.at(at.batch, at.head / p.group);
        place->v = v + p.v.at(at.batch, at.head / p.group);
        place->holes = 0;
        if (MASKED) place->masks = AttentionMask(p, mask, bias, at.batch, at.head);
        if (drops) place->weights = first_weight(p, at.batch, at.head), place->step = (u32)*step;
    }
    RowCopies<T, WIDTH, QUERIES, THREADS>(q + p.q.at(at.batch, at.head) + (i64)at.row * p.q.row, p.q.row, width)
        .copy(queries, (int)min(p.queries - at.row, (u64)QUERIES));
    cp_async_commit();
    __syncthreads();
    int begin = 0;
    bool holes = false;
    // At 128 columns no register is left for it.
    auto has_holes = [&] { return WIDTH == 128 ? place->holes != 0 : holes; };
    if constexpr (!MASKED) {
        if (mask) {
            const u8 *own = mask + (i64)at.batch * p.mask[0] + (i64)at.head * p.mask[1];
            SeenKeys seen = seen_keys<KEYS>(own, p.mask[3], end, place->space);
            begin = seen.begin;
            end = seen.end;
            if (seen.holes) {
                keep_seen(bits, own, p.mask[3], end);
                holes = true;
                if (threadIdx.x == 0) place->holes = 1;
            }
        }
    }
    auto copy = [&](u32 to, int key) {
        if (key < end) {
            u32 thread = thread_again();
            Place from = *place;
            RowCopies<T, WIDTH, KEYS, THREADS, Order>(from.k + key * p.k.row, p.k.row, width, thread).copy(to, end - key);
            RowCopies<T, WIDTH, KEYS, THREADS, Order>(from.v + key * p.v.row, p.v.row, width, thread).copy(to + STAGE, end - key);
        }
        cp_async_commit();
    };
    copy(ring, begin);
    cp_async_wait<1>();
    __syncthreads();
    Operand<WIDTH, MS, HELD> a;
    a.load(queries + threadIdx.x / WARP * 16 * MS * Rows::ROW);

    // What weights are relative to, and their sums.
    float sums[MS][WIDTH / 8][4] = {}, base[MS][2], total[MS][2] = {};
#pragma unroll
    for (int m = 0; m < MS; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) base[m][half] = -FLT_MAX;
    u32 stage = 0;
#pragma unroll 1
    for (int key = begin; key < end; key += KEYS) {
        cp_async_wait<0>();
        __syncthreads();
        copy(ring + (stage ^ (2 * STAGE)), key + KEYS);
        u32 now = ring + stage;
        stage ^= 2 * STAGE;
        // A warp whose rows all come before these keys has nothing to add.
        // One of nothing but holes has nothing either.
        if ((int)(p.causal != 0) | (int)(!MASKED && has_holes())) {
            if (p.causal && key > last) continue;
            if constexpr (!MASKED) {
                if (has_holes() && !any_seen<KEYS>(bits, key)) continue;
            }
        }
        Kept<MS, MASKED || DROPPED ? KEYS : 32> kept;
        if (drops) kept.draw(p, place->step, place->weights + (u64)(last - 16 * MS + 1) * p.keys + key);

        float s[MS][NS][4];
        multiply_rows<T, WIDTH, MS, NS, HELD>(s, a, now + Rows::lane_b());
        if constexpr (MASKED) {
            AttentionMask masks = place->masks;
            add_masks<Order, MS, NS>(s, p, masks, last - 16 * MS + 1 + (int)(thread_again() % WARP / 4), key + Order::first(), key, KEYS);
        }
        int whole = p.causal ? min(end, last - 16 * MS + 2) : end;
        if ((int)(key + KEYS > whole) | (int)(!MASKED && has_holes())) {
            if constexpr (!MASKED) {
                if (has_holes()) mask_keys<Order, MS, NS>(s, bits, key);
            }
#pragma unroll
            for (int m = 0; m < MS; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    int row = last - 16 * MS + 1 + 16 * m + 8 * half + lane / 4;
                    int seen = (p.causal ? min(end, row + 1) : end) - key - Order::first();
#pragma unroll
                    for (int n = 0; n < NS; ++n)
#pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            if (Order::of(n, e) >= seen) s[m][n][2 * half + e] = -INFINITY;
                        }
                }
        }
        // A row's weights are relative to its largest score at some time. They become so to a later one only if that is larger by more than
        // LEAP powers of two: until then they are at most 2^LEAP, which loses nothing in floats, and sums need not be scaled. Whether a
        // row's do depends on its own scores alone.
        constexpr float LEAP = 8.0f;
        float own_most[MS][2];
#pragma unroll
        for (int n = 0; n < NS; ++n)
#pragma unroll
            for (int m = 0; m < MS; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float most = fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]);
                    own_most[m][half] = n == 0 ? most : fmaxf(own_most[m][half], most);
                }
        bool leaps = false;
#pragma unroll
        for (int m = 0; m < MS; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) leaps |= __fmaf_rn(own_most[m][half], p.factor, -base[m][half]) > LEAP;
        if (__any_sync(FULL_WARP, leaps)) {
#pragma unroll
            for (int m = 0; m < MS; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float now_most = own_most[m][half];
                    now_most = fmaxf(now_most, __shfl_xor_sync(FULL_WARP, now_most, 1));
                    now_most = fmaxf(now_most, __shfl_xor_sync(FULL_WARP, now_most, 2));
                    float before = base[m][half];
                    if (__fmaf_rn(now_most, p.factor, -before) > LEAP) {
                        base[m][half] = now_most * p.factor;
                        float shrink = power_of_two(before - base[m][half]);
                        total[m][half] *= shrink;
#pragma unroll
                        for (int n = 0; n < WIDTH / 8; ++n) {
                            sums[m][n][2 * half] *= shrink;
                            sums[m][n][2 * half + 1] *= shrink;
                        }
                    }
                }
        }
        float sum[MS][2] = {};
#pragma unroll
        for (int n = 0; n < NS; ++n)
#pragma unroll
            for (int m = 0; m < MS; ++m)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    float w = power_of_two(s[m][n][e] * p.factor - base[m][e / 2]);
                    s[m][n][e] = w;
                    sum[m][e / 2] += w;
                }
#pragma unroll
        for (int m = 0; m < MS; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) total[m][half] += sum[m][half];
        u32 weights[NS / 2][MS][4];
#pragma unroll
        for (int step = 0; step < NS / 2; ++step)
#pragma unroll
            for (int m = 0; m < MS; ++m) as_operand<T>(weights[step][m], s[m][2 * step], s[m][2 * step + 1]);
        if (drops) {
#pragma unroll
            for (int n = 0; n < NS; ++n)
#pragma unroll
                for (int r = 0; r < 2 * MS; ++r) {
                    u32 &two = weights[n / 2][r / 2][n % 2 * 2 + r % 2];
                    two = kept.of(two, r, n);
                }
        }
#pragma unroll
        for (int step = 0; step < NS / 2; ++step)
            add_rows<T, WIDTH, WIDTH, MS>(sums, weights[step], now + STAGE + Rows::lane_b_trans() + step * 16 * Rows::ROW, 0);
    }

    at = tile();
    int warp_row = (int)(thread_again() / WARP) * 16 * MS, left = (int)min(p.queries - at.row, (u64)QUERIES);
    u64 row = at.row + warp_row;
    float *out = lse + (at.batch * p.heads + at.head) * p.queries + row;
#pragma unroll
    for (int m = 0; m < MS; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = total[m][half];
            sum += __shfl_xor_sync(FULL_WARP, sum, 1);
            sum += __shfl_xor_sync(FULL_WARP, sum, 2);
            // Without mask and bias a row of nothing but −∞ is NaN, as the formula says.
            bool nothing = (MASKED || mask) && sum == 0.0f;
            total[m][half] = nothing ? 0.0f : (DROPPED || MASKED ? p.kept : 1.0f) / sum;
            int r = 16 * m + 8 * half + lane / 4;
            if (lane % 4 == 0 && r + warp_row < left) out[r] = nothing ? 0.0f : base[m][half] * LN_2 + logf(sum);
        }
    __syncthreads();
    store_rows<T, WIDTH, MS>(sums, memory + warp_row * Rows::ROW,
                             y + p.y.at(at.batch, at.head) + (i64)row * p.y.row, p.y.row, left - warp_row, width,
                             [&](int m, int half) { return total[m][half]; });
}
