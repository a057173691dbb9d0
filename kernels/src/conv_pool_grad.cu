// The gradients of a convolution and the max pooling of its result (conv_pool.cu) where both are small, in one launch: none needs another's
// result, and the gradient between the two ops, most of which is zeros, is not in memory.
//
//   d[n, index[n, v, o], o] = g[n, v, o] of window v, zero where y ≤ 0 if y, the result of a ReLU, is given
//   dx[n, q, i] = Σ_k Σ_o d[n, u, o] · w[o, k, i]     over the u with u·stride + k·dilation − padding = q
//   dw[o, k, i] = Σ_n Σ_v d of window v · x[n, u·stride + k·dilation − padding, i]  where u = index[n, v, o];   db[o] = Σ_n Σ_v of the same d
//
// Sums are in f32. Of dx: a block has the weight and the d of one image in shared memory, as conv_few.cu has them; four neighbouring lanes
// share an element, each with every fourth four of output channels. Of dw: a block has one output channel and 32 elements of its taps and
// channels, a lane for each; its warps share the windows, in their order, and are joined in theirs. Each lane reads one window for all. There
// are 1 / |window| of the terms of a convolution's gradient.
//
// Contract: one group, one depth; every window has chosen an element; elements of x are below 2³¹. With dx no two windows overlap,
//   taps·C·(4·⌈O/4⌉ + 4) <= WEIGHTS, and positions of the convolution's output · 4·⌈O/4⌉ <= GRADS.
// Geometry: 512 threads, x data_blocks + O·⌈taps·C / 32⌉; data_blocks = batch · ⌈elements of an input image / 128⌉, or 0 without dx. db may
//   be null.
#include "common/vector.cuh"
#include "common/warp.cuh"
#include "conv.cuh"
#include "pool.cuh"

constexpr u32 WEIGHTS = 4096, GRADS = 6144;
constexpr u32 THREADS = 512, WARPS = THREADS / WARP, SHARERS = 4;

// What a pooling gives back.
template <typename T> struct Pooled {
    const T *g, *y;
    const i32 *index;

    __device__ __forceinline__ float at(u64 i) const {
        const float d = to_acc(g[i]);
        return y && to_acc(y[i]) <= 0.0f ? 0.0f : d;
    }
};

template <typename T>
__device__ __forceinline__ void data_grad(const ConvParams &p, const PoolParams &pool, Pooled<T> of, const T *__restrict__ w,
                                          T *__restrict__ dx) {
    __shared__ __align__(16) float weight[WEIGHTS], grads[GRADS];
    const u32 channels = p.in_channels, outputs = p.out_channels, filled = (outputs + 3) / 4 * 4, row = filled + 4;
    const u32 depth = taps_of(p) * channels, inside = (u32)volume(p.input) * channels, places = (u32)volume(p.output);
    const u32 each = (inside + THREADS / SHARERS - 1) / (THREADS / SHARERS), image = blockIdx.x / each;
    const u32 pooled = (u32)volume(pool.output) * outputs;
    const u64 begin = (u64)image * pooled;
    // The first of the pooled gradient is under way while the rest is filled.
    float d = 0.0f;
    u32 to = ~0u;
    auto read = [&](u32 j) {
        d = of.at(begin + j);
        to = (u32)of.index[begin + j];
    };
    if (threadIdx.x < pooled) read(threadIdx.x);
#pragma unroll 4
    for (u32 j = threadIdx.x; j < depth * filled; j += THREADS) {
        const u32 c = j / depth, k = j % depth;
        weight[k * row + c] = c < outputs ? to_acc(w[j]) : 0.0f;
    }
    for (u32 j = threadIdx.x; j < places * filled; j += THREADS) grads[j] = 0.0f;
    __syncthreads();
    for (u32 j = threadIdx.x; j < pooled; j += THREADS) {
        if (j >= THREADS) read(j);
        if (to < places) grads[to * filled + j % outputs] = d;
    }
    __syncthreads();
    const u32 at = blockIdx.x % each * (THREADS / SHARERS) + threadIdx.x / SHARERS, i = at % channels;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (at < inside) {
        const Position q = position_of(at / channels, p.input);
        const Readers hs = readers(p, 1, q.at[1]), ws = readers(p, 2, q.at[2]);
        for (u32 h = hs.from; h < hs.to; h += hs.step) {
            const u32 line = reader(p, 1, q.at[1], h) * p.output[2];
            for (u32 k = ws.from; k < ws.to; k += ws.step) {
                const float *g = grads + (line + reader(p, 2, q.at[2], k)) * filled;
                const float *f = weight + ((h * p.kernel[2] + k) * channels + i) * row;
#pragma unroll 1
                for (u32 c = threadIdx.x % SHARERS * 4; c < filled; c += 4 * SHARERS) {
                    const float4 a = *reinterpret_cast<const float4 *>(g + c), b = *reinterpret_cast<const float4 *>(f + c);
                    sum.x = fmaf(a.x, b.x, sum.x);
                    sum.y = fmaf(a.y, b.y, sum.y);
                    sum.z = fmaf(a.z, b.z, sum.z);
                    sum.w = fmaf(a.w, b.w, sum.w);
                }
            }
        }
    }
    float all = (sum.x + sum.y) + (sum.z + sum.w);
#pragma unroll
    for (u32 lane = 1; lane < SHARERS; lane *= 2) all += __shfl_xor_sync(FULL_WARP, all, lane);
    if (at < inside && threadIdx.x % SHARERS == 0) dx[(u64)image * inside + at] = from_acc<T>(all);
}

template <typename T>
__device__ __forceinline__ void weight_grad(const ConvParams &p, const PoolParams &pool, Pooled<T> of, const T *__restrict__ x,
                                            T *__restrict__ dw, T *__restrict__ db, u32 block) {
    constexpr u32 AHEAD = 8; // loads of x under way
    __shared__ float sums[WARPS][WARP], biases[WARPS];
    const u32 channels = p.in_channels, outputs = p.out_channels, depth = p.kernel[1] * p.kernel[2] * channels;
    const u32 o = block % outputs, first = block / outputs * WARP, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 k = first + lane, tap = k / channels;
    const int high = (int)(tap / p.kernel[2] * p.dilation[1]), wide = (int)(tap % p.kernel[2] * p.dilation[2]);
    const i64 offset = ((i64)high * p.input[2] + wide) * channels + k % channels;
    const u32 windows = (u32)volume(pool.output), all = p.batch * windows, share = (all + WARPS - 1) / WARPS;
    const u32 end = min((warp + 1) * share, all), places = (u32)volume(p.output);
    float sum = 0.0f, bias = 0.0f;
    for (u32 from = warp * share; from < end; from += WARP) {
        const u32 n = from + lane, few = min(end - from, (u32)WARP);
        float d = 0.0f;
        int h = 0, v = 0, line = 0;
        if (n < end) {
            const u64 at = (u64)n * outputs + o;
            const u32 chosen = min((u32)of.index[at], places - 1);
            d = of.at(at);
            h = (int)(chosen / p.output[2] * p.stride[1]) - (int)p.padding[1];
            v = (int)(chosen % p.output[2] * p.stride[2]) - (int)p.padding[2];
            line = (int)(n / windows * p.input[1]) + h; // of x, counted over all images
        }
        bias += d;
#pragma unroll 1
        for (u32 i = 0; i < few; i += AHEAD) {
            float a[AHEAD], b[AHEAD];
#pragma unroll
            for (u32 j = 0; j < AHEAD; ++j) {
                a[j] = __shfl_sync(FULL_WARP, d, i + j);
                const int y = __shfl_sync(FULL_WARP, h, i + j) + high, z = __shfl_sync(FULL_WARP, v, i + j);
                const i64 from_line = __shfl_sync(FULL_WARP, line, i + j);
                const bool in = i + j < few && k < depth && (u32)y < p.input[1] && (u32)(z + wide) < p.input[2];
                b[j] = in ? to_acc(x[(from_line * p.input[2] + z) * channels + offset]) : 0.0f;
                a[j] = in ? a[j] : 0.0f;
            }
#pragma unroll
            for (u32 j = 0; j < AHEAD; ++j) sum = fmaf(a[j], b[j], sum);
        }
    }
    bias = warp_sum(bias);
    sums[warp][lane] = sum;
    if (lane == 0) biases[warp] = bias;
    __syncthreads();
    if (warp != 0) return;
    sum = bias = 0.0f;
#pragma unroll
    for (u32 i = 0; i < WARPS; ++i) {
        sum += sums[i][lane];
        bias += biases[i];
    }
    if (k < depth) dw[(u64)o * depth + k] = from_acc<T>(sum);
    if (db && k == 0) db[o] = from_acc<T>(bias);
}

#define CONV_POOL_GRAD(suffix, T)                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_pool_grad_##suffix(                                  \
        ConvParams p, PoolParams pool, const T *__restrict__ g, const T *__restrict__ y, const i32 *__restrict__ index, \
        const T *__restrict__ x, const T *__restrict__ w, T *__restrict__ dx, T *__restrict__ dw, T *__restrict__ db,  \
        u32 data_blocks) {                                                                                             \
        const Pooled<T> of = {g, y, index};                                                                            \
        if (blockIdx.x < data_blocks) data_grad<T>(p, pool, of, w, dx);                                                \
        else weight_grad<T>(p, pool, of, x, dw, db, blockIdx.x - data_blocks);                                         \
    }
FOR_FLOATS(CONV_POOL_GRAD)
