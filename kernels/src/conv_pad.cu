// Convolutions of few input channels on tensor cores: rows of channels are copied to rows of 16 bytes, zeros behind them, on
// which the kernels of conv_tensor.cuh run; the channels of the weight gradient are cut back where its parts are added.
//
// Geometry: 256 threads, a grid of one dimension with a stride over the rows, or the elements of dw.
#include "common/vector.cuh"

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

// dw [rows][channels] = the sums over `splits` of parts [splits][rows][16 bytes of T, in f32], in order.
template <typename T>
__device__ __forceinline__ void sum_padded(u64 rows, u32 channels, u32 splits, const f32 *__restrict__ parts,
                                           T *__restrict__ dw) {
    for (u64 i = global_thread(); i < rows * channels; i += global_threads()) {
        u64 row = i / channels, at = row * LANES<T> + (i - row * channels);
        f32 sum = 0.0f;
        for (u32 s = 0; s < splits; ++s) sum += parts[s * rows * LANES<T> + at];
        dw[i] = from_acc<T>(sum);
    }
}

#define PADDED(suffix, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        conv_pad_channels_##suffix(u64 rows, u32 channels, const T *__restrict__ src, T *__restrict__ dst) {           \
        pad_channels<T>(rows, channels, src, dst);                                                                     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        conv_sum_padded_##suffix(u64 rows, u32 channels, u32 splits, const f32 *__restrict__ parts,                    \
                                 T *__restrict__ dw) {                                                                 \
        sum_padded<T>(rows, channels, splits, parts, dw);                                                              \
    }
FOR_FLOATS(PADDED)
