// Parameters of poolings.
#pragma once

#include "common/window.cuh"

struct PoolParams : WindowParams {
    u32 batch, channels;
    u32 count_include_pad, pad;
};
static_assert(sizeof(PoolParams) == 88, "core::ops::PoolParams");

struct AdaptivePoolParams {
    u32 batch, channels;
    u32 input[3], output[3];
};
static_assert(sizeof(AdaptivePoolParams) == 32, "core::ops::AdaptivePoolParams");

// V neighbouring elements, moved at once.
template <typename T, int V> struct alignas(sizeof(T) * V) Lane {
    T v[V];
};
template <typename T, int V> __device__ __forceinline__ Lane<T, V> load(const T *__restrict__ p) {
    return *reinterpret_cast<const Lane<T, V> *>(p);
}
template <typename T, int V> __device__ __forceinline__ void store(T *__restrict__ p, const Lane<T, V> &x) {
    *reinterpret_cast<Lane<T, V> *>(p) = x;
}
