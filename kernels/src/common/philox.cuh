// Philox4x32-10 (Salmon et al., SC 2011), bit for bit what core/src/philox.rs computes: a draw is a function of
// (seed, stream, step, element), element i taking word i % 4 of block i / 4.
#pragma once

#include "types.cuh"

struct PhiloxKey {
    u64 seed;
    u32 stream;
    u32 step;
};

// The four words of elements 4·block .. 4·block + 4.
__device__ __forceinline__ uint4 philox_block(const PhiloxKey &key, u64 block) {
    uint4 c = make_uint4((u32)block, (u32)(block >> 32), key.step, key.stream);
    u32 k0 = (u32)key.seed, k1 = (u32)(key.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        if (round > 0) {
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        u32 high_a = __umulhi(0xD2511F53u, c.x), low_a = 0xD2511F53u * c.x;
        u32 high_b = __umulhi(0xCD9E8D57u, c.z), low_b = 0xCD9E8D57u * c.z;
        c = make_uint4(high_b ^ c.y ^ k0, low_b, high_a ^ c.w ^ k1, low_a);
    }
    return c;
}

// The keys of a seed's ten rounds, two each, as parameters of a kernel: core's `rounds`. A round takes them from where they are, and a loop
// that draws has neither registers for them nor additions that make them.
struct PhiloxRounds {
    u32 keys[20];
};

// The same block. Products of 64 bits are one instruction each.
__device__ __forceinline__ uint4 philox_block(const PhiloxRounds &rounds, u32 stream, u32 step, u64 block) {
    uint4 c = make_uint4((u32)block, (u32)(block >> 32), step, stream);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 a = (u64)0xD2511F53u * c.x, b = (u64)0xCD9E8D57u * c.z;
        c = make_uint4((u32)(b >> 32) ^ c.y ^ rounds.keys[2 * round], (u32)b, (u32)(a >> 32) ^ c.w ^ rounds.keys[2 * round + 1], (u32)a);
    }
    return c;
}

// Number `i` of the eight of 16 bits that a block has for dropout, the lower half of each word first.
__device__ __forceinline__ u32 philox_half(const uint4 &w, int i) {
    u32 words[4] = {w.x, w.y, w.z, w.w};
    return i % 2 ? words[i / 2] >> 16 : words[i / 2] & 0xffffu;
}

// Dropout with probability p drops the numbers below this: core's drop_below.
__device__ __forceinline__ u32 drop_below(double p) { return (u32)(p * 65536.0 + 0.5); }

// Uniform on [0, 1) with 24 bits.
__device__ __forceinline__ float philox_uniform(u32 word) { return __uint2float_rn(word >> 8) * (1.0f / 16777216.0f); }
