// Depthwise convolution, one input channel a group: groups = C, O = m·C, output channel o reads input channel o / m.
// There is nothing to multiply as matrices: every product is used once, and the work is to read neighbouring channels
// by neighbouring lanes, with the weights of the block's channels in shared memory.
//
//   forward        a thread: V output channels × 4 positions in a row of numbers, so that a weight is read once for 4
//   data gradient  a thread: V input channels × 1 position
//   weight grad.   a block: 32·V output channels, one tap, the positions of one split: warp w takes positions w, w + 8,
//                  … and the eight sums are added in order. Split s writes parts[s·|dw|], which the last `sharers` blocks of a tap and
//                  its channels add in order (conv_parts.cuh), or conv_sum_parts if that is 0.
//
// V = 1, or 2 in the `_packed` kernels when m = 1 and C is even.
// Contract: taps ≤ 128 forward, taps·m ≤ 128 for the data gradient; the bounds of conv_gather.cuh.
// Geometry: 256 threads (8 warps, a warp covers 32·V channels). Forward: x ⌈positions / 32⌉, y ⌈O / 32V⌉.
// Data gradient: x any number of blocks (with a stride over positions / 8), y ⌈C / 32V⌉.
// Weight gradient: x ⌈O / 32V⌉, y taps, z splits.
#include "conv_tile.cuh"
#include "conv_tiled.cuh"

constexpr int MAX_TAPS = 128;

template <typename T, int V> __device__ __forceinline__ void widen(const T *__restrict__ from, float (&v)[V]) {
    Few<T, V> x = *reinterpret_cast<const Few<T, V> *>(from);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = to_acc(x.v[i]);
}

template <typename T, int V>
__device__ __forceinline__ void depthwise(const ConvParams &p, const T *__restrict__ x, const T *__restrict__ w,
                                          const T *__restrict__ bias, T *__restrict__ y) {
    __shared__ float ws[MAX_TAPS][32 * V];
    u32 taps = taps_of(p), first = blockIdx.y * (32 * V), lane = threadIdx.x % 32;
    for (u32 i = threadIdx.x; i < taps * 32 * V; i += blockDim.x) {
        u32 c = first + i / taps, k = i % taps;
        ws[k][i / taps] = c < p.out_channels ? to_acc(w[(u64)c * taps + k]) : 0.0f;
    }
    __syncthreads();
    u32 channel = first + lane * V;
    if (channel >= p.out_channels) return;
    Gather<false> g(p, 0);
    u64 at = ((u64)blockIdx.x * 8 + threadIdx.x / 32) * 4;
    // `per` is 1: the row starts at channel 0 of its image.
    Row<T> rows[4] = {Row<T>(g, x, at), Row<T>(g, x, at + 1), Row<T>(g, x, at + 2), Row<T>(g, x, at + 3)};
    u32 from = channel / (p.out_channels / p.in_channels);
    float sums[4][V] = {};
    Inner k(g, 0u);
    int tap = 0;
    for (k.d = 0; k.d < g.d.taps; ++k.d)
        for (k.h = 0; k.h < g.h.taps; ++k.h)
            for (k.w = 0; k.w < g.w.taps; ++k.w, ++tap) {
                float weight[V];
#pragma unroll
                for (int v = 0; v < V; ++v) weight[v] = ws[tap][lane * V + v];
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    const T *source = rows[r].at(g, k);
                    if (source == nullptr) continue;
                    float values[V];
                    widen<T, V>(source + from, values);
#pragma unroll
                    for (int v = 0; v < V; ++v) sums[r][v] = fmaf(values[v], weight[v], sums[r][v]);
                }
            }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        if (!rows[r].valid) continue;
        Few<T, V> out;
#pragma unroll
        for (int v = 0; v < V; ++v) out.v[v] = finish(p, bias, channel + v, sums[r][v]);
        *reinterpret_cast<Few<T, V> *>(y + (at + r) * p.out_channels + channel) = out;
    }
}

template <typename T, int V>
__device__ __forceinline__ void depthwise_data_grad(const ConvParams &p, const T *__restrict__ grad,
                                                    const T *__restrict__ w, T *__restrict__ dx) {
    __shared__ float ws[MAX_TAPS][32 * V]; // [tap·m + j]: the weight of output channel c·m + j
    u32 m = p.out_channels / p.in_channels, size = taps_of(p), each = size * m;
    u32 first = blockIdx.y * (32 * V), lane = threadIdx.x % 32;
    for (u32 i = threadIdx.x; i < each * 32 * V; i += blockDim.x) {
        u32 c = first + i / each, j = i % each / size, k = i % size;
        ws[k * m + j][i / each] = c < p.in_channels ? to_acc(w[((u64)c * m + j) * size + k]) : 0.0f;
    }
    __syncthreads();
    u32 channel = first + lane * V;
    if (channel >= p.in_channels) return;
    TapStep steps[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) steps[i] = tap_step(p.stride[i], p.dilation[i]);
    u64 total = p.batch * volume(p.input);
    for (u64 at = (u64)blockIdx.x * 8 + threadIdx.x / 32; at < total; at += (u64)gridDim.x * 8) {
        Position q = position_of(at, p.input);
        const T *gs = grad + q.image * volume(p.output) * p.out_channels + channel * m;
        float sums[V] = {};
        Readers taps[3];
#pragma unroll
        for (int i = 0; i < 3; ++i)
            taps[i] = readers(steps[i], p, i, q.at[i]);
        for (u32 d = taps[0].from; d < taps[0].to; d += taps[0].step) {
            for (u32 h = taps[1].from; h < taps[1].to; h += taps[1].step) {
                for (u32 k = taps[2].from; k < taps[2].to; k += taps[2].step) {
                    u64 o = flat(p.output, reader(p, 0, q.at[0], d), reader(p, 1, q.at[1], h), reader(p, 2, q.at[2], k));
                    u32 tap = (d * p.kernel[1] + h) * p.kernel[2] + k;
                    const T *from = gs + o * p.out_channels;
                    for (u32 j = 0; j < m; ++j) {
                        float values[V];
                        widen<T, V>(from + j, values); // V = 2: m = 1
#pragma unroll
                        for (int v = 0; v < V; ++v)
                            sums[v] = fmaf(values[v], ws[tap * m + j][lane * V + v], sums[v]);
                    }
                }
            }
        }
        Few<T, V> out;
#pragma unroll
        for (int v = 0; v < V; ++v) out.v[v] = from_acc<T>(sums[v]);
        *reinterpret_cast<Few<T, V> *>(dx + at * p.in_channels + channel) = out;
    }
}

template <typename T, int V>
__device__ __forceinline__ void depthwise_weight_parts(const ConvParams &p, const T *__restrict__ grad,
                                                       const T *__restrict__ x, f32 *parts, u32 splits,
                                                       T *__restrict__ dw, u32 sharers) {
    __shared__ float shared[8][32 * V];
    __shared__ u32 place;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, taps = taps_of(p);
    u32 channel = (blockIdx.x * 32 + lane) * V, m = p.out_channels / p.in_channels;
    Position tap = position_of(blockIdx.y, p.kernel);
    int d = (int)(tap.at[0] * p.dilation[0]) - (int)p.padding[0];
    int h = (int)(tap.at[1] * p.dilation[1]) - (int)p.padding[1];
    int k = (int)(tap.at[2] * p.dilation[2]) - (int)p.padding[2];
    u64 positions = p.batch * volume(p.output), share = (positions + splits - 1) / splits;
    u64 from = min(blockIdx.z * share, positions), to = min(from + share, positions);
    float sums[V] = {};
    if (channel < p.out_channels) {
        const T *gs = grad + channel, *xs = x + channel / m;
        Positions o(p, from + warp);
        for (u64 at = from + warp; at < to; at += 8) {
            int sd = o.d * (int)p.stride[0] + d, sh = o.h * (int)p.stride[1] + h, sw = o.w * (int)p.stride[2] + k;
            if ((u32)sd < p.input[0] && (u32)sh < p.input[1] && (u32)sw < p.input[2]) {
                u64 q = o.image * volume(p.input) + ((u32)sd * p.input[1] + (u32)sh) * p.input[2] + (u32)sw;
                float a[V], b[V];
                widen<T, V>(gs + at * p.out_channels, a);
                widen<T, V>(xs + q * p.in_channels, b);
#pragma unroll
                for (int v = 0; v < V; ++v) sums[v] = fmaf(a[v], b[v], sums[v]);
            }
            o.advance(p, 8);
        }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) shared[warp][lane * V + v] = sums[v];
    __syncthreads();
    if (warp == 0 && channel < p.out_channels) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
#pragma unroll
            for (int i = 1; i < 8; ++i) sums[v] += shared[i][lane * V + v];
            parts[((u64)blockIdx.z * p.out_channels + channel + v) * taps + blockIdx.y] = sums[v];
        }
    }
    const u32 first = blockIdx.x * 32 * V, rows = min(p.out_channels - first, 32u * V);
    add_splits<T>(blockIdx.y * gridDim.x + blockIdx.x, splits, sharers, place, Patch{first, rows, blockIdx.y, 1, taps},
                  (u64)p.out_channels * taps, parts, dw);
}

#define DEPTHWISE(suffix, T, V)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                               \
        conv_depthwise##suffix(ConvParams p, const T *__restrict__ x, const T *__restrict__ w,                         \
                               const T *__restrict__ bias, T *__restrict__ y) {                                        \
        depthwise<T, V>(p, x, w, bias, y);                                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 3) conv_depthwise_data_grad##suffix(                             \
        ConvParams p, const T *__restrict__ g, const T *__restrict__ w, T *__restrict__ dx) {                          \
        depthwise_data_grad<T, V>(p, g, w, dx);                                                                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 3) conv_depthwise_weight_parts##suffix(                          \
        ConvParams p, const T *__restrict__ g, const T *__restrict__ x, f32 *__restrict__ parts, u32 splits,           \
        T *__restrict__ dw, u32 sharers) {                                                                             \
        depthwise_weight_parts<T, V>(p, g, x, parts, splits, dw, sharers);                                             \
    }
#define EACH(suffix, T) DEPTHWISE(_##suffix, T, 1) DEPTHWISE(_packed_##suffix, T, 2)
FOR_FLOATS(EACH)
