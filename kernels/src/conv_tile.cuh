// Products in f32 by tiles in shared memory and registers, for any source of operands.
//
// A block of 256 threads computes a tile ROWS × COLUMNS of the result, DEPTH inner elements at a time. Each thread
// fetches four elements of either operand into registers while the block multiplies the four before, so the wait for
// global memory overlaps with arithmetic; two buffers in shared memory need one barrier a step. A thread then owns
// HIGH × WIDE sums in registers: every element read from shared memory takes part in HIGH or WIDE products.
#pragma once

#include "common/vector.cuh"

template <int ROWS_, int COLUMNS_, int DEPTH_> struct Tile {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, DEPTH = DEPTH_;
    static constexpr int HIGH = ROWS / 16, WIDE = COLUMNS / 16;
    // Four floats more a line: the transposed stores then spread over the banks.
    static constexpr int A_LINE = ROWS + 4, B_LINE = COLUMNS + 4;
    static_assert(ROWS * DEPTH == 1024 && COLUMNS * DEPTH == 1024, "four elements a thread");
};
using LargeTile = Tile<128, 128, 8>;
using SmallTile = Tile<64, 64, 16>;

// The row (or column) of sum `i` of a thread with coordinate `t` of 16: groups of four, so that reads are 16 bytes.
template <int N> __device__ __forceinline__ int owned(int t, int i) { return i / 4 * 64 + t * 4 + i % 4; }

// The four elements of an operand that a thread fetches, and where they go in shared memory. `AlongK`: four neighbouring k
// of one line (a row of A, a column of B); `AlongLine`: four neighbouring lines at one k. An operand takes the place whose
// four elements are neighbours in its memory.
template <int LINES, int DEPTH> struct AlongK {
    static __device__ __forceinline__ int line() { return threadIdx.x / (DEPTH / 4); }
    static __device__ __forceinline__ int k() { return threadIdx.x % (DEPTH / 4) * 4; }
    template <int LINE> static __device__ __forceinline__ void put(float (*to)[LINE], const float (&v)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[k() + i][line()] = v[i];
    }
};
template <int LINES, int DEPTH> struct AlongLine {
    static __device__ __forceinline__ int line() { return threadIdx.x % (LINES / 4) * 4; }
    static __device__ __forceinline__ int k() { return threadIdx.x / (LINES / 4); }
    template <int LINE> static __device__ __forceinline__ void put(float (*to)[LINE], const float (&v)[4]) {
        *reinterpret_cast<float4 *>(&to[k()][line()]) = make_float4(v[0], v[1], v[2], v[3]);
    }
};

// sums += A·B over `steps` steps. `fetch(v)` of an operand gives this thread's four elements of the next step, as its
// `Place` says. With a STRETCH, that many steps are summed separately and then added: long sums lose fewer digits.
template <typename Tile, int STRETCH = 0, typename A, typename B>
__device__ __forceinline__ void product(A &a, B &b, int steps, float (&sums)[Tile::HIGH][Tile::WIDE]) {
    __shared__ __align__(16) float as[2][Tile::DEPTH][Tile::A_LINE];
    __shared__ __align__(16) float bs[2][Tile::DEPTH][Tile::B_LINE];
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    float va[4], vb[4], stretch[Tile::HIGH][Tile::WIDE] = {};
    if (steps > 0) {
        a.fetch(va);
        b.fetch(vb);
    }
    for (int step = 0; step < steps; ++step) {
        int now = step % 2;
        A::Place::put(as[now], va);
        B::Place::put(bs[now], vb);
        __syncthreads();
        if (step + 1 < steps) {
            a.fetch(va);
            b.fetch(vb);
        }
        float (&into)[Tile::HIGH][Tile::WIDE] = STRETCH > 0 ? stretch : sums;
#pragma unroll
        for (int k = 0; k < Tile::DEPTH; ++k) {
            float ra[Tile::HIGH], rb[Tile::WIDE];
#pragma unroll
            for (int i = 0; i < Tile::HIGH; i += 4)
                *reinterpret_cast<float4 *>(&ra[i]) =
                    *reinterpret_cast<const float4 *>(&as[now][k][owned<Tile::HIGH>(ty, i)]);
#pragma unroll
            for (int j = 0; j < Tile::WIDE; j += 4)
                *reinterpret_cast<float4 *>(&rb[j]) =
                    *reinterpret_cast<const float4 *>(&bs[now][k][owned<Tile::WIDE>(tx, j)]);
#pragma unroll
            for (int i = 0; i < Tile::HIGH; ++i)
#pragma unroll
                for (int j = 0; j < Tile::WIDE; ++j) into[i][j] = fmaf(ra[i], rb[j], into[i][j]);
        }
        if constexpr (STRETCH > 0) {
            if ((step + 1) % STRETCH != 0 && step + 1 < steps) continue;
#pragma unroll
            for (int i = 0; i < Tile::HIGH; ++i)
#pragma unroll
                for (int j = 0; j < Tile::WIDE; ++j) {
                    sums[i][j] += stretch[i][j];
                    stretch[i][j] = 0.0f;
                }
        }
    }
}

// Four elements from one address.
template <typename T> __device__ __forceinline__ void fetch4(const T *__restrict__ p, float (&v)[4]) {
    Few<T, 4> x = *reinterpret_cast<const Few<T, 4> *>(p);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = to_acc(x.v[i]);
}
