// A pack as four words of 4 bytes, for loops that keep one copy of a long function: the words rotate, so that every
// register index is a constant although the loop is not unrolled.
#pragma once

#include "types.cuh"

template <typename T> struct alignas(4) Word {
    T v[4 / sizeof(T)];
};
template <typename T> struct alignas(16) Words {
    Word<T> w[4];

    // Takes the first word out and puts `last` at the end.
    __device__ __forceinline__ void turn(const Word<T> &last) {
        w[0] = w[1];
        w[1] = w[2];
        w[2] = w[3];
        w[3] = last;
    }
};
template <typename T> constexpr int WORD = 4 / sizeof(T);

template <typename T> __device__ __forceinline__ Words<T> load_words(const T *__restrict__ p, u64 pack) {
    return reinterpret_cast<const Words<T> *>(p)[pack];
}
template <typename T> __device__ __forceinline__ void store_words(T *__restrict__ p, u64 pack, const Words<T> &x) {
    reinterpret_cast<Words<T> *>(p)[pack] = x;
}
