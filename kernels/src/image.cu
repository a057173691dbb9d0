// Windows of images of bytes.
//
//   y[i, r, k, c] = values[c, x[index, top + r, left + k, c]], k from the right where mirrored, values[c, 256] outside of the
//   image, where (index, top, left, mirrored) = windows[i]
//
// Values are moved as bits, so there is one instance per size. An index of an image that there is not is reported and gives
// zeros.
//
// Layout: x [images, height, width, channels] bytes, values [channels, 257], y [batch, rows, columns, channels]. An image and a
// window have fewer than 2^31 elements each, so that places in them fit 32 bits.
// Geometry: 256 threads, a grid of any size striding over the elements of y, or over packs of 16 bytes of it, which are stored at
// once (`_packs`, where a line of a window is a whole number of them): neighbouring threads read neighbouring bytes.
#include "common/fault.cuh"
#include "common/types.cuh"

struct CropImagesParams {
    u64 images, height, width, channels, batch, rows, columns;
};
static_assert(sizeof(CropImagesParams) == 56, "core::ops::CropImagesParams");

// Elements that are stored at once.
template <typename T, int N> struct alignas(N * sizeof(T)) Stored {
    T v[N];
};

template <typename T, int N>
__device__ __forceinline__ void crop_images(const CropImagesParams &p, const u8 *__restrict__ x,
                                            const i32 *__restrict__ windows, const T *__restrict__ values,
                                            T *__restrict__ y, Fault *fault) {
    const u32 channels = (u32)p.channels, columns = (u32)p.columns, width = (u32)p.width;
    const u32 line = columns * channels;
    const u64 window = p.rows * line, n = p.batch * window;
    for (u64 first = global_thread() * N; first < n; first += global_threads() * N) {
        u64 i, rest;
        divide(first, window, i, rest);
        const u32 r = (u32)rest / line, in_line = (u32)rest - r * line;
        u32 k = in_line / channels, c = in_line - k * channels;
        const i32 index = windows[4 * i];
        const bool good = index >= 0 && (u64)index < p.images;
        if (!good) report(fault, FAULT_CROP_IMAGES, index, 4 * i, p.images);
        // Offsets wrap around: as unsigned numbers, those outside of the image are not below its sides.
        const u32 row = (u32)windows[4 * i + 1] + r, left = (u32)windows[4 * i + 2];
        const bool mirrored = windows[4 * i + 3] != 0, inside = good && row < (u32)p.height;
        const u8 *pixels = x + (inside ? ((u64)index * p.height + row) * (width * channels) : 0);
        Stored<T, N> out;
#pragma unroll
        for (int e = 0; e < N; ++e) {
            const u32 column = left + (mirrored ? columns - 1 - k : k);
            const u32 byte = inside && column < width ? pixels[column * channels + c] : 256u;
            out.v[e] = good ? values[c * 257 + byte] : (T)0;
            if (++c == channels) {
                c = 0;
                ++k;
            }
        }
        *reinterpret_cast<Stored<T, N> *>(y + first) = out;
    }
}

#define CROP_IMAGES(name, T, N)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        name(CropImagesParams p, const u8 *__restrict__ x, const i32 *__restrict__ windows,                            \
             const T *__restrict__ values, T *__restrict__ y, Fault *__restrict__ fault) {                             \
        crop_images<T, N>(p, x, windows, values, y, fault);                                                            \
    }
CROP_IMAGES(crop_images_b16, uint16_t, 1)
CROP_IMAGES(crop_images_b32, u32, 1)
CROP_IMAGES(crop_images_packs_b16, uint16_t, 8)
CROP_IMAGES(crop_images_packs_b32, u32, 4)
