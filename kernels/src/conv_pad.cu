// Convolutions of few input channels on tensor cores: rows of channels are copied to rows of 16 bytes, zeros behind them, on
// which the kernels of conv_tensor.cuh run; what was padded is cut from the weight gradient where its parts are added.
//
// Where windows move by two positions of a row at a time, and the channels of both fit 16 bytes, both are copied there, 8 bytes each:
// a row of taps is half as many, and of windows that begin two positions apart none begins within such a pair. Positions of the padding
// are copied too, as zeros. Of an odd number of taps the last one is alone in its pair; its neighbour is not read (`half` of conv.cuh), since
// zero times infinity is none.
//
// Geometry: 256 threads, a grid of one dimension with a stride over the rows, the pairs, or the elements of dw.
#include "common/vector.cuh"
#include "common/window.cuh"
#include "conv_parts.cuh"

// dst [rows][16 bytes] = src [rows][channels] with zeros behind each row.
template <typename T>
__device__ __forceinline__ void pad_channels(u64 rows, u32 channels, const T *__restrict__ src, T *__restrict__ dst) {
    for (u64 row = global_thread(); row < rows; row += global_threads()) {
        Few<T, LANES<T>> x;
#pragma unroll
        for (int i = 0; i < LANES<T>; ++i)
            x.v[i] = i < (int)channels ? src[row * channels + i] : from_acc<T>(0.0f);
        *reinterpret_cast<Few<T, LANES<T>> *>(dst + row * LANES<T>) = x;
    }
}

// dst [rows][pairs][2][8 bytes] = src [rows][width][channels] from position −before on, zeros where there is nothing.
template <typename T>
__device__ __forceinline__ void pad_pairs(u64 rows, u32 channels, u32 width, u32 before, u32 pairs, const T *__restrict__ src,
                                          T *__restrict__ dst) {
    constexpr int HALF = LANES<T> / 2;
    for (u64 i = global_thread(); i < rows * pairs; i += global_threads()) {
        u32 pair;
        const u64 row = split(i, pairs, pair);
        Few<T, LANES<T>> x;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const u32 at = 2 * pair + n - before; // of a position before the first, larger than any width
            const T *from = src + (row * width + (at < width ? at : 0)) * channels;
#pragma unroll
            for (int c = 0; c < HALF; ++c)
                x.v[n * HALF + c] = at < width && c < (int)channels ? from[c] : from_acc<T>(0.0f);
        }
        *reinterpret_cast<Few<T, LANES<T>> *>(dst + i * LANES<T>) = x;
    }
}

// dw = the sums over `splits` of parts [splits][n] in f32, in order, of the elements that are kept.
template <typename T>
__device__ __forceinline__ void sum_padded(u64 n, Kept kept, u32 splits, const f32 *__restrict__ parts, T *__restrict__ dw) {
    for (u64 i = global_thread(); i < n; i += global_threads()) {
        u64 to = i;
        if (!kept.place(to)) continue;
        f32 sum = 0.0f;
        for (u32 s = 0; s < splits; ++s) sum += parts[s * n + i];
        dw[to] = from_acc<T>(sum);
    }
}

#define PADDED(suffix, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        conv_pad_channels_##suffix(u64 rows, u32 channels, const T *__restrict__ src, T *__restrict__ dst) {           \
        pad_channels<T>(rows, channels, src, dst);                                                                     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        conv_pad_pairs_##suffix(u64 rows, u32 channels, u32 width, u32 before, u32 pairs, const T *__restrict__ src,   \
                                T *__restrict__ dst) {                                                                 \
        pad_pairs<T>(rows, channels, width, before, pairs, src, dst);                                                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        conv_sum_padded_##suffix(u64 n, Kept kept, u32 splits, const f32 *__restrict__ parts, T *__restrict__ dw) {    \
        sum_padded<T>(n, kept, splits, parts, dw);                                                                     \
    }
FOR_FLOATS(PADDED)
