// Neighbouring elements as floats, moved by accesses of up to 16 bytes.
#pragma once

#include "types.cuh"

// V neighbouring elements, moved at once.
template <typename T, int V> struct alignas(sizeof(T) * V) Few {
    T v[V];
};

// The word that holds BYTES bytes, and its store. The compiler splits a store of several elements into stores in the order
// in which they are computed; inline PTX keeps it whole. Loads may be moved before it, so that a loop can have several
// under way: a kernel does not read again what it has stored.
template <int BYTES> struct WordOf;
template <> struct WordOf<2> {
    using Word = unsigned short;
    static __device__ __forceinline__ void store(void *p, Word w) { *reinterpret_cast<Word *>(p) = w; }
};
template <> struct WordOf<4> {
    using Word = u32;
    static __device__ __forceinline__ void store(void *p, Word w) { *reinterpret_cast<Word *>(p) = w; }
};
template <> struct WordOf<8> {
    using Word = uint2;
    static __device__ __forceinline__ void store(void *p, Word w) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(w.x), "r"(w.y));
    }
};
template <> struct WordOf<16> {
    using Word = uint4;
    static __device__ __forceinline__ void store(void *p, Word w) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(w.x), "r"(w.y),
                     "r"(w.z), "r"(w.w));
    }
};

// *p = x by one store; x has 2, 4, 8 or 16 bytes, and p is in global memory.
template <typename X> __device__ __forceinline__ void store_whole(void *p, const X &x) {
    typename WordOf<sizeof(X)>::Word word;
    memcpy(&word, &x, sizeof word);
    WordOf<sizeof(X)>::store(p, word);
}

// A load that stays where it is written: the compiler would move others to where their values are used, one behind the other. Of
// memory that the kernel does not write.
template <int BYTES> struct LoadOf;
template <> struct LoadOf<8> {
    static __device__ __forceinline__ uint2 load(const void *p) {
        uint2 w;
        asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "l"(__cvta_generic_to_global(p)));
        return w;
    }
};
template <> struct LoadOf<16> {
    static __device__ __forceinline__ uint4 load(const void *p) {
        uint4 w;
        asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                     : "l"(__cvta_generic_to_global(p)));
        return w;
    }
};

// Four elements of memory that the kernel does not write, whose load stays where it is written.
template <typename T> __device__ __forceinline__ Few<T, 4> load_now(const T *p) {
    auto word = LoadOf<4 * sizeof(T)>::load(p);
    Few<T, 4> few;
    memcpy(&few, &word, sizeof few);
    return few;
}

// Elements of T that one access moves when V are wanted.
template <typename T, int V> constexpr int ACCESS = V < LANES<T> ? V : LANES<T>;

// x = p[0 .. V], V a power of two and p aligned to the smaller of V elements and 16 bytes.
template <int V, typename T> __device__ __forceinline__ void load(const T *__restrict__ p, float (&x)[V]) {
    constexpr int N = ACCESS<T, V>;
    using Word = typename WordOf<N * sizeof(T)>::Word;
#pragma unroll
    for (int i = 0; i < V; i += N) {
        Word word = *reinterpret_cast<const Word *>(p + i);
        T v[N];
        memcpy(v, &word, sizeof word);
#pragma unroll
        for (int j = 0; j < N; ++j) x[i + j] = to_acc(v[j]);
    }
}

// p[0 .. V] = x rounded, under the same contract; p in global memory.
template <int V, typename T> __device__ __forceinline__ void store(T *__restrict__ p, const float (&x)[V]) {
    constexpr int N = ACCESS<T, V>;
    using Bytes = WordOf<N * sizeof(T)>;
#pragma unroll
    for (int i = 0; i < V; i += N) {
        T v[N];
#pragma unroll
        for (int j = 0; j < N; ++j) v[j] = from_acc<T>(x[i + j]);
        typename Bytes::Word word;
        memcpy(&word, v, sizeof word);
        Bytes::store(p + i, word);
    }
}
