// Shared by the kernels of attention: what a call computes, and the tile of it that a block takes.
//
//   s[i, j] = scale·Σ_c q[i, c]·k[j, c] + bias[i, j]   (−∞ for j > i where causal, and where the mask is 0)
//   lse[i]  = ln Σ_j e^s[i, j],  p[i, j] = e^(s[i, j] − lse[i]),  y[i] = Σ_j p[i, j]·v[j]
//
// With the gradient g of y:
//
//   delta[i] = Σ_c g[i, c]·y[i, c],  ds[i, j] = p[i, j]·(Σ_c g[i, c]·v[j, c] − delta[i])
//   dv[j] = Σ_i p[i, j]·g[i],  dk[j] = scale·Σ_i ds[i, j]·q[i],  dq[i] = scale·Σ_j ds[i, j]·k[j]
//
// With dropout a weight p of y and of dv, and the Σ g·v of ds, is 0 or times `kept` = 1/(1 − drop): dropped is the weight of query i and
// key j of head h of sequence n if its 16 bits, half w % 2 of word w / 2 % 4 of Philox block w / 8, are below drop·2^16,
// w = ((n·heads + h)·queries + i)·keys + j, as random.cu drops elements of an array of all weights. Numbers are drawn again by each kernel that asks for them.
//
// No kernel stores s or p: each computes the tiles that it needs (Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2",
// 2023). No two blocks add to one number, so the same call gives the same bits.
#pragma once

#include "common/philox.cuh"

// Where the vectors of an operand lie, in elements: those of batch number n, position t, head h begin at
// first + n·batch + t·row + h·head. A gradient lies as its operand does.
struct Vectors {
    i64 first, batch, row, head;

    __device__ __forceinline__ i64 at(u64 n, u64 h) const { return first + (i64)n * batch + (i64)h * head; }
};

// `group` neighbouring heads of the queries share a head of keys and values. y and g lie as `y` says; lse and the
// statistics are [batch, heads, queries].
struct AttentionCall {
    Vectors q, k, v, y;
    u64 batch, heads, group, queries, keys, width;
    i64 mask[4], bias[4]; // strides over [batch, heads, queries, keys]
    float scale, factor, unscale; // factor = scale·log2 e, unscale = 1/scale
    u32 causal;
    u32 stream, below; // of dropout: 16 bits drop if they are below either half of `below`, which are the same
    u32 rest;          // `below` without the highest bits of its halves
    float kept;        // 1 without dropout
    PhiloxRounds rounds;
};
static_assert(sizeof(AttentionCall) == 352, "cuda::ops::attention::AttentionCall");

// Where the mask and the bias of a head of the queries begin; null where there is none.
struct AttentionMask {
    const u8 *mask;
    const float *bias;
    int at_once; // neighbouring keys that can be read at once, from multiples on: 1 to 16 of the mask; of the bias as many, 4 at most

    AttentionMask() = default;
    __device__ __forceinline__ AttentionMask(const AttentionCall &p, const u8 *mask_, const float *bias_, u64 n, u64 h) {
        mask = mask_ ? mask_ + (i64)n * p.mask[0] + (i64)h * p.mask[1] : nullptr;
        bias = bias_ ? bias_ + (i64)n * p.bias[0] + (i64)h * p.bias[1] : nullptr;
        u32 bytes = mask ? (u32)(u64)mask | (u32)p.mask[2] | (p.mask[3] == 1 ? 16 : 1) : 16;
        u32 floats = bias ? ((u32)(u64)bias | (u32)p.bias[2] * 4 | (p.bias[3] == 1 ? 16 : 4)) : 16;
        at_once = (int)(bytes & -bytes);
        if (floats % 16 != 0) at_once = floats % 8 == 0 ? min(at_once, 2) : 1;
        // Rows are found in 32 bits.
        if (p.bias[2] != (int)p.bias[2] || p.mask[2] != (int)p.mask[2]) at_once = 1;
    }
    // The score s of a query and a key that exist, before it is scaled.
    __device__ __forceinline__ float of(const AttentionCall &p, float s, int query, int key) const {
        if (bias) s += __ldg(bias + (query * p.bias[2] + key * p.bias[3])) * p.unscale;
        if (mask && __ldg(mask + (query * p.mask[2] + key * p.mask[3])) == 0) s = -INFINITY;
        return s;
    }
};

// Where the weights of a head of the queries begin among all.
__device__ __forceinline__ u64 first_weight(const AttentionCall &p, u64 n, u64 h) { return (n * p.heads + h) * p.queries * p.keys; }

// The highest bits of the halves of a word, 15 and 31.
constexpr u32 TOPS = 0x80008000u;

// Both halves of a word of a Philox block in one: bits 15 and 31 are set where dropout keeps the weight. Others are anything.
__device__ __forceinline__ u32 kept_halves(const AttentionCall &p, u32 word) {
    // What lies below the highest bits is compared by a subtraction that cannot borrow from the other half.
    u32 above = (word | TOPS) - p.rest, kept;
    // word & ~below | ~(word ^ below) & above, in one instruction.
    asm("lop3.b32 %0, %1, %2, %3, 0xb2;" : "=r"(kept) : "r"(word), "r"(p.below), "r"(above));
    return kept;
}

// RUN weights from number `first` on, 32 at most, a bit each: set where dropout keeps it. Bits beyond are anything. Keys of rounds are made
// in the loop if not READ, where reading them would take registers.
template <int RUN, bool READ = false> __device__ __forceinline__ u32 kept_bits(const AttentionCall &p, u32 step, u64 first) {
    PhiloxKey key{p.rounds.keys[0] | (u64)p.rounds.keys[1] << 32, p.stream, step};
    u32 bits = 0;
    u64 block = first / 8;
    int at = -(int)(first % 8);
#pragma unroll 1
    do {
        uint4 w = READ ? philox_block(p.rounds, p.stream, step, block) : philox_block(key, block);
        ++block;
        u32 eight = 0;
        auto halves = [&](u32 word, int i) {
            u32 kept = kept_halves(p, word);
            eight |= (kept >> 15 & 1) << i | (kept >> 31) << (i + 1);
        };
        halves(w.x, 0), halves(w.y, 2), halves(w.z, 4), halves(w.w, 6);
        bits |= at < 0 ? eight >> -at : eight << at;
        at += 8;
    } while (at < RUN);
    return bits;
}

constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// A tile of a call: of `rows` queries or keys, the SIDE from `row` on; for the columns, the part of the width from `column` on.
struct AttentionTile {
    u64 batch, head, row, column;
};

// The tile of block `number` of `sequences` (batches times heads) · parts · tiles, sequences innermost: tiles from the last to
// the first if `backwards`, so that the longest rows of a causal call begin first and the short ones fill the gaps.
__device__ __forceinline__ AttentionTile attention_tile(u64 number, u64 heads, u64 sequences, u64 rows, int side, int parts,
                                                        int width, bool backwards) {
    u64 sequence, tile, part, batch, head, tiles = (rows + side - 1) / side;
    divide(number, sequences, number, sequence);
    divide(number, (u64)parts, tile, part);
    divide(sequence, heads, batch, head);
    return AttentionTile{batch, head, (backwards ? tiles - 1 - tile : tile) * side, part * width};
}
