// Masks of keys and dropout of the kernels of attention on tensor cores.
//
// A mask that is the same for all queries of a head, such as one of padding, is read once by a block, before its loop: the keys from the
// first to the last that it leaves are those that the loop takes, and what comes before and after is neither copied nor computed. Only if
// it has holes between does the loop ask, for bits in shared memory; a tile of holes is skipped.
//
// Dropout is drawn before the scores of a tile are computed, when registers are free: each lane draws neighbouring keys of one query, so
// that a Philox block is drawn once, and the lanes that hold the scores get their bits by shuffles.
#pragma once

#include "attention.cuh"
#include "common/vector.cuh"
#include "common/warp.cuh"

// The keys that a mask leaves: from `begin` on, before `end`; `holes`: some between are masked.
struct SeenKeys {
    int begin, end;
    bool holes;
};

// What a mask of keys, `stride` apart, leaves of the first `keys`; `begin` is a multiple of STEP. For a block of 128 threads, by way of 12
// numbers of shared memory at `space`.
template <int STEP> __device__ __forceinline__ SeenKeys seen_keys(const u8 *mask, i64 stride, int keys, int *space) {
    int first = keys, last = -1, count = 0;
    int packs = stride == 1 && aligned16(mask) ? keys / 16 : 0;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < packs; i += 128) {
        uint4 w = reinterpret_cast<const uint4 *>(mask)[i];
        u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            // The highest bit of each byte that is not 0.
            u32 set = (((words[j] & 0x7f7f7f7fu) + 0x7f7f7f7fu) | words[j]) & 0x80808080u;
            if (set == 0) continue;
            first = min(first, 16 * i + 4 * j + (__ffs((int)set) - 1) / 8);
            last = 16 * i + 4 * j + (31 - __clz((int)set)) / 8;
            count += __popc(set);
        }
    }
#pragma unroll 1
    for (int key = packs * 16 + (int)threadIdx.x; key < keys; key += 128) {
        if (mask[key * stride] == 0) continue;
        first = min(first, key);
        last = key;
        ++count;
    }
#pragma unroll
    for (int lane = 1; lane < WARP; lane *= 2) {
        first = min(first, __shfl_xor_sync(FULL_WARP, first, lane));
        last = max(last, __shfl_xor_sync(FULL_WARP, last, lane));
        count += __shfl_xor_sync(FULL_WARP, count, lane);
    }
    if (threadIdx.x % WARP == 0) {
        int *own = space + threadIdx.x / WARP * 3;
        own[0] = first, own[1] = last, own[2] = count;
    }
    __syncthreads();
    count = 0;
#pragma unroll
    for (int warp = 0; warp < 4; ++warp) {
        first = min(first, space[3 * warp]);
        last = max(last, space[3 * warp + 1]);
        count += space[3 * warp + 2];
    }
    int begin = min(first, last + 1) / STEP * STEP;
    return SeenKeys{begin, last + 1, count != last + 1 - begin};
}

// Adds a bias and takes away what a mask does, for scores of this thread's fragments: its first query and key are `query` and `key`, its
// warp's first key is `tile`. Two neighbouring keys are read at once where the rows of bias and mask allow it and all keys of the tile
// exist. Scores of queries that do not exist get any value; those of keys that do not exist are left as they are.
template <int MS, int NS>
__device__ __forceinline__ void add_masks(float (&s)[MS][NS][4], const AttentionCall &p, const AttentionMask &masks, int query,
                                          int key, int tile) {
    const int last = (int)p.queries - 1;
    if (masks.in_pairs(p) && tile + 8 * NS <= (int)p.keys) {
        if (masks.bias) {
#pragma unroll
            for (int m = 0; m < MS; ++m)
#pragma unroll
                for (int half = 0; half < 4; half += 2) {
                    i64 row = min(query + 16 * m + 4 * half, last) * p.bias[2] + key;
                    const float2 *at = reinterpret_cast<const float2 *>(masks.bias + row);
#pragma unroll
                    for (int n = 0; n < NS; ++n) {
                        float2 two = at[4 * n];
                        s[m][n][half] += two.x * p.unscale;
                        s[m][n][half + 1] += two.y * p.unscale;
                    }
                }
        }
        if (masks.mask) {
#pragma unroll
            for (int m = 0; m < MS; ++m)
#pragma unroll
                for (int half = 0; half < 4; half += 2) {
                    i64 row = min(query + 16 * m + 4 * half, last) * p.mask[2] + key;
                    const unsigned short *at = reinterpret_cast<const unsigned short *>(masks.mask + row);
#pragma unroll
                    for (int n = 0; n < NS; ++n) {
                        u32 two = at[4 * n];
                        if ((two & 0xff) == 0) s[m][n][half] = -INFINITY;
                        if (two < 0x100) s[m][n][half + 1] = -INFINITY;
                    }
                }
        }
        return;
    }
#pragma unroll
    for (int m = 0; m < MS; ++m)
#pragma unroll
        for (int n = 0; n < NS; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int column = key + 8 * n + e % 2;
                if (column < (int)p.keys) s[m][n][e] = masks.of(p, s[m][n][e], min(query + 16 * m + e / 2 * 8, last), column);
            }
}

// The same for fragments the other way round, whose first key and query are `key` and `query`. Scores of keys that do not exist get any
// value as well.
template <int MS, int NS>
__device__ __forceinline__ void add_masks_across(float (&s)[MS][NS][4], const AttentionCall &p, const AttentionMask &masks, int key,
                                                 int query) {
    const int last = (int)p.queries - 1, end = (int)p.keys - 1;
    if (masks.bias) {
#pragma unroll
        for (int m = 0; m < 2 * MS; ++m) {
            const float *at = masks.bias + min(key + 8 * m, end) * p.bias[3];
#pragma unroll
            for (int i = 0; i < 2 * NS; ++i)
                s[m / 2][i / 2][m % 2 * 2 + i % 2] += __ldg(at + min(query + i / 2 * 8 + i % 2, last) * p.bias[2]) * p.unscale;
        }
    }
    if (masks.mask) {
#pragma unroll
        for (int m = 0; m < 2 * MS; ++m) {
            const u8 *at = masks.mask + min(key + 8 * m, end) * p.mask[3];
#pragma unroll
            for (int i = 0; i < 2 * NS; ++i) {
                bool seen = __ldg(at + min(query + i / 2 * 8 + i % 2, last) * p.mask[2]) != 0;
                if (!seen) s[m / 2][i / 2][m % 2 * 2 + i % 2] = -INFINITY;
            }
        }
    }
}

// Which keys a mask with holes leaves, a bit each: in shared memory, of up to MOST_KEYS keys.
constexpr int MOST_KEYS = 4096;

// Writes them for a block of 128 threads, in pieces of 32, and zeros for the rest of a tile: MOST_KEYS/32 + 2 words at most.
__device__ __forceinline__ void keep_seen(u32 *bits, const u8 *mask, i64 stride, int keys) {
    int lane = (int)(threadIdx.x % WARP);
#pragma unroll 1
    for (int word = (int)(threadIdx.x / WARP); word < (keys + 95) / 32; word += 4) {
        int key = 32 * word + lane;
        u32 seen = __ballot_sync(FULL_WARP, key < keys && mask[key * stride] != 0);
        if (lane == 0) bits[word] = seen;
    }
}

// The 16 keys from `key` on, a multiple of 16.
__device__ __forceinline__ u32 seen_bits(const u32 *bits, int key) { return reinterpret_cast<const unsigned short *>(bits)[key / 16]; }

// True if a mask leaves any of COLUMNS keys.
template <int COLUMNS> __device__ __forceinline__ bool any_seen(const u32 *bits, int key) {
    u32 any = 0;
#pragma unroll
    for (int at = 0; at < COLUMNS; at += 16) any |= seen_bits(bits, key + at);
    return any != 0;
}

// Scores of −∞ for the keys of a tile that a mask takes away.
template <int MS, int NS> __device__ __forceinline__ void mask_keys(float (&s)[MS][NS][4], const u32 *bits, int key) {
#pragma unroll
    for (int n = 0; n < NS; n += 2) {
        u32 seen = seen_bits(bits, key + 8 * n) >> threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            bool keep = seen >> (i / 2 * 8 + i % 2) & 1;
#pragma unroll
            for (int m = 0; m < MS; ++m) {
                if (!keep) s[m][n + i / 2][i % 2] = s[m][n + i / 2][2 + i % 2] = -INFINITY;
            }
        }
    }
}

// Which weights of a warp's tile dropout keeps: 16·MS queries by COLUMNS keys. A lane has RUN neighbouring keys of a query.
template <int MS, int COLUMNS> struct Kept {
    static constexpr int ROWS = 16 * MS, PARTS = WARP / ROWS, RUN = COLUMNS / PARTS, WORDS = (RUN + 31) / 32;
    u32 words[WORDS];

    // `first` is the number of the weight of the warp's first query and key.
    __device__ __forceinline__ void draw(const AttentionCall &p, u32 step, u64 first) {
        u32 lane = threadIdx.x % WARP;
        first += lane % ROWS * p.keys + lane / ROWS * RUN;
        words[0] = kept_bits<(RUN < 32 ? RUN : 32)>(p, step, first);
        if constexpr (WORDS == 2) words[1] = kept_bits<RUN - 32>(p, step, first + 32);
    }
    // Calls f(n, e, kept) for this thread's two weights of each fragment n of 8 keys, of the query that it has in fragment m and `half`.
    template <typename F> __device__ __forceinline__ void each(int m, int half, F f) const {
        int lane = (int)(threadIdx.x % WARP);
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
            for (int w = 0; w < WORDS; ++w) {
                u32 bits = __shfl_sync(FULL_WARP, words[w], part * ROWS + 16 * m + 8 * half + lane / 4) >> lane % 4 * 2;
#pragma unroll
                for (int c = 32 * w; c < RUN && c < 32 * w + 32; c += 8)
#pragma unroll
                    for (int e = 0; e < 2; ++e) f((part * RUN + c) / 8, e, (bits >> (c % 32 + e) & 1) != 0);
            }
    }
};

// The same of a tile the other way round, 16·MS keys by 16 queries: a lane has 8·MS keys of a query.
template <int MS> struct KeptAcross {
    u32 bits;

    __device__ __forceinline__ void draw(const AttentionCall &p, u32 step, u64 first) {
        u32 lane = threadIdx.x % WARP;
        bits = kept_bits<8 * MS>(p, step, first + lane % 16 * p.keys + lane / 16 * 8 * MS);
    }
    // The keys of query 8·n + lane % 4·2 + e that this thread has in fragment m: those of the two halves are bits 0 and 8.
    __device__ __forceinline__ u32 of(int n, int e, int m) const {
        int lane = (int)(threadIdx.x % WARP), from = 8 * n + lane % 4 * 2 + e;
        if constexpr (MS == 2) return __shfl_sync(FULL_WARP, bits, from + 16 * m) >> lane / 4;
        u32 low = __shfl_sync(FULL_WARP, bits, from), high = __shfl_sync(FULL_WARP, bits, from + 16);
        return (low & 0xff) >> lane / 4 | (high & 0xff) >> lane / 4 << 8;
    }
};
