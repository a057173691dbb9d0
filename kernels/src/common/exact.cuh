// f32 arithmetic in which every operation rounds once to nearest even, as in Rust: the compiler may contract a product
// and a sum of plain floats into one operation, but not these. Used where results must have the bits of the CPU.
#pragma once

#include "types.cuh"

struct Exact {
    float v;
    Exact() = default;
    __device__ __forceinline__ Exact(float x) : v(x) {}
};
__device__ __forceinline__ Exact operator+(Exact a, Exact b) { return __fadd_rn(a.v, b.v); }
__device__ __forceinline__ Exact operator-(Exact a, Exact b) { return __fsub_rn(a.v, b.v); }
__device__ __forceinline__ Exact operator*(Exact a, Exact b) { return __fmul_rn(a.v, b.v); }
__device__ __forceinline__ Exact operator/(Exact a, Exact b) { return __fdiv_rn(a.v, b.v); }
__device__ __forceinline__ Exact operator-(Exact a) { return -a.v; }
__device__ __forceinline__ Exact sqrt(Exact a) { return __fsqrt_rn(a.v); }
