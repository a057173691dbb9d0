// Masks of keys and dropout of the kernels of attention on tensor cores.
//
// A mask that is the same for all queries of a head, such as one of padding, is read once by a block, before its loop: the keys from the
// first to the last that it leaves are those that the loop takes, and what comes before and after is neither copied nor computed. Only if
// it has holes between does the loop ask, for bits in shared memory; a tile of holes is skipped.
//
// Dropout is drawn before the scores of a tile are computed, when registers are free, a bit for each weight. A Philox block is of eight
// neighbouring keys of a query, of which a lane has two in a fragment and its neighbours the others. So rows of keys and values change places
// on their way to shared memory (KeyOrder) until each lane has eight neighbours or more of each of its queries: it draws what it needs itself,
// and masks and biases are loads of up to 16 bytes. Sums over keys do not mind.
#pragma once

#include "attention.cuh"
#include "common/vector.cuh"
#include "common/warp.cuh"

// Which key of each KEYS (a power of two) is in which row of shared memory. Fragments of scores take the rows in their order: lane % 4 = t
// has of fragment n, 8 rows, numbers 2t + e, e = 0, 1. That is key first() + of(n, e), neighbours from n to n, for KEYS > 0; for 0, keys are in
// the order of rows.
template <int KEYS> struct KeyOrder {
    static constexpr int RUN = KEYS / 4;
    static __device__ __forceinline__ constexpr int row(int key) {
        return key / KEYS * KEYS + key % RUN / 2 * 8 + key % KEYS / RUN * 2 + key % 2;
    }
    static __device__ __forceinline__ int first() { return (int)(threadIdx.x % 4) * RUN; }
    static __device__ __forceinline__ constexpr int of(int n, int e) { return 2 * n + e; }
};
template <> struct KeyOrder<0> {
    static constexpr int RUN = 2;
    static __device__ __forceinline__ constexpr int row(int key) { return key; }
    static __device__ __forceinline__ int first() { return (int)(threadIdx.x % 4) * 2; }
    static __device__ __forceinline__ constexpr int of(int n, int e) { return 8 * n + e; }
};

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

// Sixteen bytes or fewer of a mask or a bias, of neighbouring keys.
template <int BYTES> struct Neighbours;
template <> struct Neighbours<16> { using Type = uint4; };
template <> struct Neighbours<8> { using Type = uint2; };
template <> struct Neighbours<4> { using Type = u32; };
template <> struct Neighbours<2> { using Type = unsigned short; };

// N neighbours at once.
template <int N, typename T> __device__ __forceinline__ void load_neighbours(const T *at, T (&v)[N]) {
    union {
        typename Neighbours<N * sizeof(T)>::Type packed;
        T v[N];
    } x;
    x.packed = __ldg(reinterpret_cast<const typename Neighbours<N * sizeof(T)>::Type *>(at));
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = x.v[i];
}

// add_masks where BIASES neighbours of a bias and BYTES of a mask can be read at once.
template <int BIASES, int BYTES, typename Order, int MS, int NS>
__device__ __forceinline__ void add_rows_of_masks(float (&s)[MS][NS][4], const AttentionCall &p, const AttentionMask &masks, int query,
                                                  int key) {
    const int last = (int)p.queries - 1;
    if (masks.bias) {
#pragma unroll
        for (int m = 0; m < MS; ++m)
#pragma unroll
            for (int half = 0; half < 4; half += 2) {
                const float *at = masks.bias + key + (i64)min(query + 16 * m + 4 * half, last) * (int)p.bias[2];
#pragma unroll
                for (int i = 0; i < 2 * NS; i += BIASES) {
                    float b[BIASES];
                    load_neighbours<BIASES>(at + Order::of(i / 2, 0), b);
#pragma unroll
                    for (int j = 0; j < BIASES; ++j) s[m][(i + j) / 2][half + j % 2] += b[j] * p.unscale;
                }
            }
    }
    if (masks.mask) {
#pragma unroll
        for (int m = 0; m < MS; ++m)
#pragma unroll
            for (int half = 0; half < 4; half += 2) {
                const u8 *at = masks.mask + key + (i64)min(query + 16 * m + 4 * half, last) * (int)p.mask[2];
#pragma unroll
                for (int i = 0; i < 2 * NS; i += BYTES) {
                    u8 b[BYTES];
                    load_neighbours<BYTES>(at + Order::of(i / 2, 0), b);
#pragma unroll
                    for (int j = 0; j < BYTES; ++j)
                        if (b[j] == 0) s[m][(i + j) / 2][half + j % 2] = -INFINITY;
                }
            }
    }
}

// Adds a bias and takes away what a mask does, for scores of this thread's fragments: its first query and key are `query` and `key`, the
// first of the keys that the fragments have is `tile`. Neighbouring keys are read at once where the rows of bias and mask allow it and all keys
// of `step` from there exist. Scores of queries that do not exist get any value; those of keys that do not exist are left as they are.
template <typename Order, int MS, int NS>
__device__ __forceinline__ void add_masks(float (&s)[MS][NS][4], const AttentionCall &p, const AttentionMask &masks, int query,
                                          int key, int tile, int step) {
    const int last = (int)p.queries - 1;
    if (tile + step <= (int)p.keys) {
        if constexpr (Order::RUN > 2) {
            constexpr int BYTES = 2 * NS < Order::RUN ? 2 * NS : Order::RUN;
            if (masks.at_once >= BYTES) return add_rows_of_masks<4, BYTES, Order>(s, p, masks, query, key);
        }
        if (masks.at_once >= 2) return add_rows_of_masks<2, 2, Order>(s, p, masks, query, key);
    }
#pragma unroll
    for (int m = 0; m < MS; ++m)
#pragma unroll
        for (int n = 0; n < NS; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int column = key + Order::of(n, e % 2);
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

// Scores of −∞ for the keys of a tile that a mask takes away; `key` is the first thread's first.
template <typename Order, int MS, int NS> __device__ __forceinline__ void mask_keys(float (&s)[MS][NS][4], const u32 *bits, int key) {
#pragma unroll
    for (int n = 0; n < NS; n += 2) {
        int from = key + (Order::RUN > 2 ? Order::first() : 0) + Order::of(n, 0);
        u32 seen = seen_bits(bits, from) >> (Order::RUN > 2 ? from % 16 : Order::first());
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            bool keep = seen >> (Order::of(i / 2, i % 2)) & 1;
#pragma unroll
            for (int m = 0; m < MS; ++m) {
                if (!keep) s[m][n + i / 2][i % 2] = s[m][n + i / 2][2 + i % 2] = -INFINITY;
            }
        }
    }
}

// Bits of dropout as they are gathered: those of neighbouring keys 2n and 2n + 1, n even, in bytes 0 and 2, and of the next two keys in bytes
// 1 and 3. A Philox block is two bits of each byte, the higher of its second four keys.
struct KeptBytes {
    u32 word = 0;

    // The highest N bits of each byte.
    template <int N> static constexpr u32 HIGHEST = (0x100u - (1u << (8 - N))) * 0x01010101u;

    // Takes in the highest N bits of each byte; those before move down.
    template <int N> __device__ __forceinline__ void push(u32 bits) {
        asm("lop3.b32 %0, %1, %2, %3, 0xd8;" : "=r"(word) : "r"(word >> N), "r"(bits), "r"(HIGHEST<N>));
    }
    __device__ __forceinline__ void push(const AttentionCall &p, const uint4 &w) {
        auto upper_bytes = [&](u32 a, u32 b) {
            u32 bytes;
            asm("prmt.b32 %0, %1, %2, 0x7351;" : "=r"(bytes) : "r"(kept_halves(p, a)), "r"(kept_halves(p, b)));
            return bytes;
        };
        push<1>(upper_bytes(w.x, w.y));
        push<1>(upper_bytes(w.z, w.w));
    }
    // Takes in RUN keys from any number on.
    template <int RUN> __device__ __forceinline__ void push(const AttentionCall &p, u32 step, u64 first) {
        u32 bits = kept_bits<RUN, true>(p, step, first), bytes = 0;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            u32 fourth = bits >> k & 0x1111;
            fourth = (fourth | fourth >> 3) & 0x0303;
            bytes |= ((fourth | fourth >> 6) & 15) << (k % 2 * 16 + k / 2 * 8);
        }
        push<RUN / 4>(bytes << (8 - RUN / 4));
    }
};

// Which weights of a warp's tile dropout keeps: 16·MS queries by KEYS keys in KeyOrder<KEYS>, so that each lane draws its own. Those of keys
// 2n and 2n + 1 of its run for query number r = 2·m + half are bits place(r, n) and place(r, n) + 16 of a word.
template <int MS, int KEYS> struct Kept {
    static constexpr int RUN = KEYS / 4, PAIRS = RUN / 2, SLOTS = 2 * MS * PAIRS, WORDS = (SLOTS + 15) / 16;
    static_assert(RUN == 8 || RUN == 16 || (RUN == 4 && MS == 1), "Philox blocks of a lane, or of two");
    u32 words[WORDS];

    // `first` is the number of the weight of the warp's first query and of the first key.
    __device__ __forceinline__ void draw(const AttentionCall &p, u32 step, u64 first) {
        first += (u64)(threadIdx.x % WARP / 4) * p.keys + threadIdx.x % 4 * RUN;
        KeptBytes bytes;
        if constexpr (RUN == 4) {
            if (p.keys % 8 == 0) {
                // A block is of this lane's keys and its neighbour's: each draws that of a query for both.
                u64 block = first / 8 + (threadIdx.x % 2) * p.keys;
                bytes.push(p, philox_block(p.rounds, p.stream, step, block));
                u32 own = bytes.word >> 6, other = __shfl_xor_sync(FULL_WARP, own, 1);
                own = threadIdx.x % 2 ? (other >> 1 & 0x01010101) | (own & 0x02020202) : (own & 0x01010101) | (other & 0x01010101) << 1;
                bytes.word = own << 6;
            } else {
                bytes.push<RUN>(p, step, first);
                bytes.push<RUN>(p, step, first + 8 * p.keys);
            }
        } else {
            auto full = [&](int pairs) {
                if (WORDS == 2 && pairs == 16) words[0] = bytes.word;
            };
            if (p.keys % 8 == 0) {
                // Two Philox blocks a turn: of a query, or of two.
                u64 block = first / 8;
#pragma unroll 1
                for (int pairs = 8; pairs <= SLOTS; pairs += 8) {
                    uint4 a = philox_block(p.rounds, p.stream, step, block);
                    block += RUN == 16 ? 1 : p.keys;
                    uint4 b = philox_block(p.rounds, p.stream, step, block);
                    block += RUN == 16 ? p.keys - 1 : p.keys;
                    bytes.push(p, a);
                    bytes.push(p, b);
                    full(pairs);
                }
            } else {
#pragma unroll 1
                for (int pairs = PAIRS; pairs <= SLOTS; pairs += PAIRS, first += 8 * p.keys) {
                    bytes.push<RUN>(p, step, first);
                    full(pairs);
                }
            }
        }
        words[WORDS - 1] = SLOTS % 16 == 0 ? bytes.word : bytes.word >> (8 - SLOTS / 2);
    }
    static __device__ __forceinline__ constexpr int place(int r, int n) { return n % 2 * 8 + (r * PAIRS + n) % 16 / 2; }
    // Whether a weight of fragment n is kept; e is 0 or 1.
    __device__ __forceinline__ bool of(int r, int n, int e) const {
        return words[(r * PAIRS + n) / 16] >> (place(r, n) + 16 * e) & 1;
    }
    // The two weights of fragment n in a register of halves, or zeros.
    __device__ __forceinline__ u32 of(u32 two, int r, int n) const {
        // Each bit as the highest of a byte, whose sign fills a half.
        u32 signs = words[(r * PAIRS + n) / 16] << (7 - place(r, n) % 8), mask;
        asm("prmt.b32 %0, %1, %1, %2;" : "=r"(mask) : "r"(signs), "r"(n % 2 == 0 ? 0xaa88 : 0xbb99));
        return two & mask;
    }
    // Moves on by two fragments.
    __device__ __forceinline__ void advance() {
        if (WORDS == 1) words[0] >>= 1;
    }
};

// The same of a tile the other way round, 16·MS keys by QUERIES queries, 16 or 32: a lane draws keys of one query.
template <int MS, int QUERIES> struct KeptAcross {
    static constexpr int PARTS = WARP / QUERIES, BLOCKS = 2 * MS / PARTS;
    u32 word;

    __device__ __forceinline__ void draw(const AttentionCall &p, u32 step, u64 first) {
        u32 lane = threadIdx.x % WARP;
        first += lane % QUERIES * p.keys + lane / QUERIES * 8 * BLOCKS;
        KeptBytes bytes;
        if (p.keys % 8 != 0) {
#pragma unroll 1
            for (int i = 0; i < BLOCKS; ++i, first += 8) bytes.push<8>(p, step, first);
        } else {
            u64 block = first / 8;
#pragma unroll 1
            for (int i = 0; i < BLOCKS; i += 2) {
                uint4 a = philox_block(p.rounds, p.stream, step, block++), b;
                if (BLOCKS > 1) b = philox_block(p.rounds, p.stream, step, block++);
                bytes.push(p, a);
                if (BLOCKS > 1) bytes.push(p, b);
            }
        }
        word = bytes.word >> (8 - 2 * BLOCKS);
        if (PARTS == 2) word |= __shfl_xor_sync(FULL_WARP, word, 16) << 2 * BLOCKS;
    }
    // Those of query number `query`: a bit for this thread's key in each 8, bits 0, 2, ….
    __device__ __forceinline__ u32 of(int query) const {
        int key = (int)(threadIdx.x % WARP / 4);
        return __shfl_sync(FULL_WARP, word, query) >> (key / 2 % 2 * 8 + key % 2 * 16 + key / 4);
    }
};
