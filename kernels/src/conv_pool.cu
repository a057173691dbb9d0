// A convolution and the max pooling of its result where both are small: windows of 2×2 that lie inside of what they pool, and a weight
// that fits shared memory. The convolution's result never reaches memory.
//
//   conv_pool:     y[n, h, w, o], index = the largest of f(conv(x, w) + bias) over the window of (h, w), and its place in the
//                  convolution's result, as conv and max_pool give them: a NaN wins, the first among equals
//   conv_pool_sum: the last step of the gradients: dw = Σ_s parts[s, ·] in order, and db[o] = Σ g[·, o], where g counts as zero where
//                  y ≤ 0 if y, the result of a ReLU, is given
//
// Contract: conv_pool: one group, one depth, at most WEIGHTS weights; the pooling has kernel 1×2×2, no padding, and its windows end
//   inside. conv_pool_sum: parts and dw, or g and db, are not used where there are no blocks for them.
// Geometry: conv_pool: 256 threads, a grid of one dimension with a stride over the elements of y; neighbouring threads have
//   neighbouring channels. Each block has the weight in shared memory, transposed: [tap·channel][o].
//   conv_pool_sum: 256 threads; the first `sum_blocks` blocks stride over dw, and then comes a block for each channel of g.
#include "common/warp.cuh"
#include "conv.cuh"
#include "conv_parts.cuh"
#include "pool.cuh"

constexpr u32 WEIGHTS = 4096;

template <typename T>
__device__ __forceinline__ void conv_pool(const ConvParams &p, const PoolParams &pool, const T *__restrict__ x,
                                          const T *__restrict__ w, const T *__restrict__ bias, T *__restrict__ y,
                                          i32 *__restrict__ index) {
    __shared__ float weight[WEIGHTS];
    const u32 outputs = p.out_channels, channels = p.in_channels, depth = p.kernel[1] * p.kernel[2] * channels;
    for (u32 i = threadIdx.x; i < depth * outputs; i += 256) weight[i % depth * outputs + i / depth] = to_acc(w[i]);
    __syncthreads();
    const u64 total = (u64)p.batch * pool.output[1] * pool.output[2] * outputs;
    for (u64 at = global_thread(); at < total; at += global_threads()) {
        u32 o;
        Position to = position_of(split(at, outputs, o), pool.output);
        const u32 row = to.at[1] * pool.stride[1], column = to.at[2] * pool.stride[2];
        const T *image = x + to.image * p.input[1] * p.input[2] * channels;
        float sums[4] = {};
        u32 k = 0;
        for (u32 kh = 0; kh < p.kernel[1]; ++kh) {
            for (u32 kw = 0; kw < p.kernel[2]; ++kw, k += channels) {
                const T *from[4];
                bool in[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    u32 h = source(p, 1, row + j / 2, kh), v = source(p, 2, column + j % 2, kw);
                    in[j] = h < p.input[1] && v < p.input[2];
                    from[j] = image + ((u64)h * p.input[2] + v) * channels;
                }
#pragma unroll 4
                for (u32 c = 0; c < channels; ++c) {
                    const float f = weight[(k + c) * outputs + o];
#pragma unroll
                    for (int j = 0; j < 4; ++j) sums[j] += in[j] ? to_acc(from[j][c]) * f : 0.0f;
                }
            }
        }
        T best = from_acc<T>(0.0f);
        int chosen = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const T value = finish(p, bias, o, sums[j]);
            const float a = to_acc(value), b = to_acc(best);
            const bool wins = j == 0 || a > b || (a != a && b == b);
            best = wins ? value : best;
            chosen = wins ? j : chosen;
        }
        y[at] = best;
        index[at] = (i32)((row + chosen / 2) * p.output[2] + column + chosen % 2);
    }
}

template <typename T>
__device__ __forceinline__ void sum(u64 n, u32 splits, const f32 *__restrict__ parts, T *__restrict__ dw, u64 positions,
                                    u32 channels, const T *__restrict__ g, const T *__restrict__ y,
                                    T *__restrict__ db, u32 sum_blocks) {
    __shared__ float scratch[256 / WARP];
    if (blockIdx.x < sum_blocks) {
        for (u64 at = global_thread(); at < n; at += (u64)sum_blocks * 256) {
            float total = parts[at];
            for (u32 s = 1; s < splits; ++s) total += parts[s * n + at];
            dw[at] = from_acc<T>(total);
        }
        return;
    }
    BiasGrad<T>{g, y, db, positions, channels}.sum(blockIdx.x - sum_blocks, scratch);
}

#define ENTRIES(suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                               \
        conv_pool_##suffix(ConvParams p, PoolParams pool, const T *__restrict__ x, const T *__restrict__ w,            \
                           const T *__restrict__ bias, T *__restrict__ y, i32 *__restrict__ index) {                   \
        conv_pool<T>(p, pool, x, w, bias, y, index);                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                               \
        conv_pool_sum_##suffix(u64 n, u32 splits, const f32 *__restrict__ parts, T *__restrict__ dw, u64 positions,    \
                               u32 channels, const T *__restrict__ g, const T *__restrict__ y, T *__restrict__ db,     \
                               u32 sum_blocks) {                                                                       \
        sum<T>(n, splits, parts, dw, positions, channels, g, y, db, sum_blocks);                                       \
    }
FOR_FLOATS(ENTRIES)
