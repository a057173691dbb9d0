// Normal numbers from Philox words, bit for bit what core/src/philox/normal.rs computes, and step for step.
#pragma once

#include "exact.cuh"

// c0·x^n + c1·x^(n−1) + … by Horner's rule.
__device__ __forceinline__ Exact horner(Exact, Exact y) { return y; }
template <typename... C> __device__ __forceinline__ Exact horner(Exact x, Exact y, float c, C... rest) {
    return horner(x, y * x + c, rest...);
}

// ln x for positive normal x (Cephes `logf`).
__device__ __forceinline__ Exact ln(Exact x) {
    // x = m·2^e with m in [√½, √2).
    constexpr u32 SQRT_HALF = 0x3f3504f3u;
    u32 shifted = __float_as_uint(x.v) - SQRT_HALF;
    Exact exponent(__int2float_rn((i32)shifted >> 23));
    Exact f = Exact(__uint_as_float((shifted & 0x007fffffu) + SQRT_HALF)) - 1.0f;
    Exact z = f * f;
    Exact p = horner(f, 7.0376836e-2f, -1.151461e-1f, 1.1676999e-1f, -1.2420141e-1f, 1.4249323e-1f,
                     -1.6668057e-1f, 2.0000715e-1f, -2.4999994e-1f, 3.333333e-1f);
    Exact y = p * f * z;
    y = y + exponent * -2.1219444e-4f;
    y = y + z * -0.5f;
    return f + y + exponent * 0.6933594f;
}

// (cos, sin) of turn/2^32 of a full turn.
__device__ __forceinline__ float2 cos_sin(u32 turn) {
    u32 quadrant = (turn + (1u << 29)) >> 30;
    i32 rest = (i32)(turn - (quadrant << 30));
    // π/2 · 2^−30
    Exact x = Exact(__int2float_rn(rest)) * 1.462918e-9f;
    Exact z = x * x;
    Exact sin = horner(z, -1.9515296e-4f, 8.332161e-3f, -1.6666655e-1f) * z * x + x;
    Exact cos = horner(z, 2.4433157e-5f, -1.3887316e-3f, 4.1666646e-2f) * z * z + z * -0.5f + 1.0f;
    switch (quadrant & 3) {
    case 0: return make_float2(cos.v, sin.v);
    case 1: return make_float2(-sin.v, cos.v);
    case 2: return make_float2(-cos.v, -sin.v);
    default: return make_float2(sin.v, -cos.v);
    }
}

// Two independent standard normal numbers from two words (Box & Muller 1958).
__device__ __forceinline__ float2 normal_pair(u32 first, u32 second) {
    Exact u = Exact(__uint2float_rn(first)) * (1.0f / 4294967296.0f) + 1.0f / 8589934592.0f;
    // fmaxf catches a logarithm that rounds above 0 beside u = 1.
    Exact radius = sqrt(Exact(fmaxf((ln(u) * -2.0f).v, 0.0f)));
    float2 angle = cos_sin(second);
    return make_float2((radius * angle.x).v, (radius * angle.y).v);
}

// A standard normal number conditioned on lying within two deviations, by inverting the distribution function (Giles,
// "Approximating the erfinv function", 2011: its central branch).
__device__ __forceinline__ float truncated_normal(u32 word) {
    // v uniform on ±erf(√2)
    Exact v = Exact(__int2float_rn((i32)word)) * (1.0f / 2147483648.0f) * 0.9544997f;
    Exact w = -ln((1.0f - v) * (1.0f + v)) - 2.5f;
    Exact p = horner(w, 2.8102264e-8f, 3.4327394e-7f, -3.5233877e-6f, -4.3915065e-6f, 2.1858087e-4f,
                     -1.253725e-3f, -4.1776816e-3f, 2.4664073e-1f, 1.5014094f);
    return fminf(fmaxf((p * v * 1.41421356237309504880f).v, -2.0f), 2.0f);
}
