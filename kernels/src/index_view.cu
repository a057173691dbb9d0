// Strided views: view_read copies a view of x into the contiguous y, view_write the contiguous x through a view of y.
//
//   element i = (i₀, …) of the view is at offset + Σ i_d·strides_d; strides may be negative (flips) or 0 (expansion).
//
// Bits are moved, so there is one instance per size. An element here may be several of the tensor's: the launch widens
// them, up to 16 bytes, where the innermost dimension is contiguous and everything divides. A view whose last two
// dimensions are a transpose goes through 32 × 32 tiles in shared memory, so that both sides are read and written along
// their rows.
//
// copy_each copies a list of stretches (common/tensors.cuh), whose records are [from, to, bytes, first chunk]: of 16 bytes at a time where
// both addresses allow it.
//
// Geometry: copy_each: 256 threads, a block per chunk.
//           view_read, view_write: 256 threads, a grid of any size striding over the elements.
//           view_read_tiles, view_write_tiles: 256 threads a tile, grid = matrices·ceil(h/32)·ceil(w/32), columns fastest.
#include "common/tensors.cuh"
#include "common/types.cuh"

struct ViewParams {
    u64 shape[8];
    i64 strides[8];
    u64 offset, n;
    u32 rank, pad;
};
static_assert(sizeof(ViewParams) == 152, "core::ops::ViewParams");

// Where position `i` among the first `rank` dimensions lies.
__device__ __forceinline__ u64 locate(const ViewParams &p, u32 rank, u64 i) {
    u64 at = p.offset;
#pragma unroll 1
    for (int d = (int)rank - 1; d > 0; --d) {
        u64 q, r;
        divide(i, p.shape[d], q, r);
        at += r * p.strides[d];
        i = q;
    }
    return rank > 0 ? at + i * p.strides[0] : at;
}

template <bool READ, typename T>
__device__ __forceinline__ void copy(const ViewParams &p, const T *__restrict__ x, T *__restrict__ y) {
    for (u64 i = global_thread(); i < p.n; i += global_threads()) {
        u64 at = locate(p, p.rank, i);
        if constexpr (READ)
            y[i] = x[at];
        else
            y[at] = x[i];
    }
}

// The view's matrix is h × w with strides 1 and `far`: seen from the other side it is w × h with rows of h.
template <bool READ, typename T>
__device__ __forceinline__ void tiles(const ViewParams &p, const T *__restrict__ x, T *__restrict__ y) {
    constexpr u32 SIDE = 32;
    __shared__ T tile[SIDE][SIDE + 1];
    const u64 h = p.shape[p.rank - 2], w = p.shape[p.rank - 1], far = p.strides[p.rank - 1];
    const u64 down = (h + SIDE - 1) / SIDE, across = (w + SIDE - 1) / SIDE;
    u64 rest, matrix, a, b;
    divide(blockIdx.x, across, rest, b);
    divide(rest, down, matrix, a);
    const u64 strided = locate(p, p.rank - 2, matrix), dense = matrix * h * w;
    const u32 fast = threadIdx.x % SIDE, slow = threadIdx.x / SIDE;
    for (u32 k = slow; k < SIDE; k += 256 / SIDE) {
        if constexpr (READ) {
            u64 row = a * SIDE + fast, column = b * SIDE + k;
            if (row < h && column < w) tile[k][fast] = x[strided + row + column * far];
        } else {
            u64 row = a * SIDE + k, column = b * SIDE + fast;
            if (row < h && column < w) tile[k][fast] = x[dense + row * w + column];
        }
    }
    __syncthreads();
    for (u32 k = slow; k < SIDE; k += 256 / SIDE) {
        if constexpr (READ) {
            u64 row = a * SIDE + k, column = b * SIDE + fast;
            if (row < h && column < w) y[dense + row * w + column] = tile[fast][k];
        } else {
            u64 row = a * SIDE + fast, column = b * SIDE + k;
            if (row < h && column < w) y[strided + row + column * far] = tile[fast][k];
        }
    }
}

#define ENTRY(name, body, suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        view_##name##_##suffix(ViewParams p, const T *__restrict__ x, T *__restrict__ y) {                             \
        body(p, x, y);                                                                                                 \
    }
#define COPIES(suffix, T) ENTRY(read, copy<true>, suffix, T) ENTRY(write, copy<false>, suffix, T)
#define TILES(suffix, T) ENTRY(read_tiles, tiles<true>, suffix, T) ENTRY(write_tiles, tiles<false>, suffix, T)
COPIES(b8, u8)
COPIES(b16, uint16_t)
COPIES(b32, u32)
COPIES(b64, uint2)
COPIES(b128, uint4)
TILES(b8, u8)
TILES(b16, uint16_t)
TILES(b32, u32)

template <typename T> __device__ __forceinline__ void copy_words(const u8 *from, u8 *to, u32 bytes) {
    for (u32 i = threadIdx.x; i < bytes / sizeof(T); i += 256)
        reinterpret_cast<T *>(to)[i] = reinterpret_cast<const T *>(from)[i];
}

extern "C" __global__ void __launch_bounds__(256) copy_each(Tensors tensors) {
    const u64 *record = find<3>(tensors, 4);
    u64 begin = (blockIdx.x - record[3]) * CHUNK;
    u64 left = record[2] - begin;
    u32 n = left < CHUNK ? (u32)left : CHUNK, done = 0;
    const u8 *from = reinterpret_cast<const u8 *>(record[0]) + begin;
    u8 *to = reinterpret_cast<u8 *>(record[1]) + begin;
    u64 both = record[0] | record[1];
    if (both % 16 == 0) {
        copy_words<uint4>(from, to, n);
        done = n / 16 * 16;
    } else if (both % 4 == 0) {
        copy_words<u32>(from, to, n);
        done = n / 4 * 4;
    }
    copy_words<u8>(from + done, to + done, n - done);
}
