// Average pooling over windows, and adaptive average pooling over the cells of an even division, channels-last:
// x [N, D, H, W, C], y [N, D', H', W', C].
//
//   y[o] = Σ x over box o / count(o)            dx[q] = Σ g[o] / count(o) over the boxes o that contain q
//
// A box is the product of one span per dimension. Window o spans the taps o·stride − padding + 0 … kernel − 1 inside
// the input, counted as the product of the spans clipped to the padded input with `count_include_pad`, to the input
// without. Cell o spans ⌊o·I/O⌋ … ⌈(o+1)·I/O⌉. Sums are in f32 in the order d, h, w; a division by the count, then one
// rounding.
//
// A thread takes V neighbouring channels of one position: V = 1, or in the `_packed` kernels 4 (f32) or 8 (bf16, f16)
// when V divides the channels. Where boxes are large and few (a global mean) the `_block` kernels share a box between
// eight warps: lane l of each takes channel l of 32, warp w the elements w, w + 8, …, and the eight sums are added in
// their order.
//
// Geometry: 256 threads; one dimension with a stride over positions·(channels / V); `_block`: x: boxes of all images
//           (with a stride), y: ⌈channels / 32⌉ (with a stride).
#include "pool.cuh"

struct Counted {
    Span inside;
    u32 count;
};

__device__ __forceinline__ u32 length(Span s) { return s.to > s.from ? s.to - s.from : 0; }

struct WindowBoxes {
    const PoolParams &p;
    __device__ __forceinline__ u32 batch() const { return p.batch; }
    __device__ __forceinline__ u32 channels() const { return p.channels; }
    __device__ __forceinline__ const u32 (&input() const)[3] { return p.input; }
    __device__ __forceinline__ const u32 (&output() const)[3] { return p.output; }
    __device__ __forceinline__ Counted span(int n, u32 o) const {
        u64 from = (u64)o * p.stride[n], padding = p.padding[n], size = p.input[n];
        u64 to = min(from + p.kernel[n], size + 2 * padding);
        u32 first = (u32)(from > padding ? from - padding : 0);
        u32 last = (u32)(to > padding ? min(to - padding, size) : 0);
        Span inside = {first, last};
        return {inside, p.count_include_pad ? (u32)(to > from ? to - from : 0) : length(inside)};
    }
    __device__ __forceinline__ Span owners(int n, u32 at) const {
        return windows_over(p, n, at);
    }
};

struct AdaptiveBoxes {
    const AdaptivePoolParams &p;
    __device__ __forceinline__ u32 batch() const { return p.batch; }
    __device__ __forceinline__ u32 channels() const { return p.channels; }
    __device__ __forceinline__ const u32 (&input() const)[3] { return p.input; }
    __device__ __forceinline__ const u32 (&output() const)[3] { return p.output; }
    // ⌊a·b / c⌋ … ⌈(a+1)·b / c⌉
    static __device__ __forceinline__ Span cells(u32 a, u32 b, u32 c) {
        u32 rest;
        u64 from = split((u64)a * b, c, rest);
        u64 to = split((u64)(a + 1) * b, c, rest);
        return {(u32)from, (u32)to + (rest != 0)};
    }
    __device__ __forceinline__ Counted span(int n, u32 o) const {
        Span s = cells(o, p.input[n], p.output[n]);
        return {s, length(s)};
    }
    __device__ __forceinline__ Span owners(int n, u32 at) const { return cells(at, p.output[n], p.input[n]); }
};

__device__ __forceinline__ float divisor(const Counted &d, const Counted &h, const Counted &w) {
    u64 count = (u64)d.count * h.count * w.count;
    return (float)(count > 0 ? count : 1);
}

template <typename T, int V, typename Boxes>
__device__ __forceinline__ void average(const Boxes &boxes, const T *__restrict__ x, T *__restrict__ y) {
    const auto &input = boxes.input(), &output = boxes.output();
    u32 channels = boxes.channels(), lanes = channels / V;
    u64 total = (u64)boxes.batch() * output[0] * output[1] * output[2] * lanes;
    for (u64 at = global_thread(); at < total; at += global_threads()) {
        u32 lane;
        Position o = position_of(split(at, lanes, lane), output);
        Counted ds = boxes.span(0, o.at[0]), hs = boxes.span(1, o.at[1]), ws = boxes.span(2, o.at[2]);
        const T *xs = x + o.image * input[0] * input[1] * input[2] * channels + lane * V;
        float sum[V] = {};
        for (u32 d = ds.inside.from; d < ds.inside.to; ++d)
            for (u32 h = hs.inside.from; h < hs.inside.to; ++h)
                for (u32 w = ws.inside.from; w < ws.inside.to; ++w) {
                    Lane<T, V> from = load<T, V>(xs + flat(input, d, h, w) * channels);
#pragma unroll
                    for (int v = 0; v < V; ++v) sum[v] += to_acc(from.v[v]);
                }
        float count = divisor(ds, hs, ws);
        Lane<T, V> out;
#pragma unroll
        for (int v = 0; v < V; ++v) out.v[v] = from_acc<T>(sum[v] / count);
        store<T, V>(y + at * V, out);
    }
}

// A box for eight warps.
template <typename T, typename Boxes>
__device__ __forceinline__ void average_block(const Boxes &boxes, const T *__restrict__ x, T *__restrict__ y) {
    __shared__ float sums[8][32];
    const auto &input = boxes.input(), &output = boxes.output();
    u32 channels = boxes.channels(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 total = (u64)boxes.batch() * output[0] * output[1] * output[2];
    for (u64 at = blockIdx.x; at < total; at += gridDim.x) {
        Position o = position_of(at, output);
        Counted ds = boxes.span(0, o.at[0]), hs = boxes.span(1, o.at[1]), ws = boxes.span(2, o.at[2]);
        const T *xs = x + o.image * input[0] * input[1] * input[2] * channels;
        u32 size[3] = {length(ds.inside), length(hs.inside), length(ws.inside)};
        u64 elements = (u64)size[0] * size[1] * size[2];
        for (u64 tile = blockIdx.y; tile * 32 < channels; tile += gridDim.y) {
            u32 c = (u32)tile * 32 + lane;
            float sum = 0.0f;
            if (c < channels)
                for (u64 i = warp; i < elements; i += 8) {
                    Position q = position_of(i, size);
                    sum += to_acc(xs[flat(input, ds.inside.from + q.at[0], hs.inside.from + q.at[1],
                                        ws.inside.from + q.at[2]) * channels + c]);
                }
            sums[warp][lane] = sum;
            __syncthreads();
            if (warp == 0 && c < channels) {
#pragma unroll
                for (int i = 1; i < 8; ++i) sum += sums[i][lane];
                y[at * channels + c] = from_acc<T>(sum / divisor(ds, hs, ws));
            }
            __syncthreads();
        }
    }
}

template <typename T, int V, typename Boxes>
__device__ __forceinline__ void average_grad(const Boxes &boxes, const T *__restrict__ g, T *__restrict__ dx) {
    const auto &input = boxes.input(), &output = boxes.output();
    u32 channels = boxes.channels(), lanes = channels / V;
    u64 total = (u64)boxes.batch() * input[0] * input[1] * input[2] * lanes;
    for (u64 at = global_thread(); at < total; at += global_threads()) {
        u32 lane;
        Position q = position_of(split(at, lanes, lane), input);
        Span ds = boxes.owners(0, q.at[0]), hs = boxes.owners(1, q.at[1]), ws = boxes.owners(2, q.at[2]);
        const T *gs = g + q.image * output[0] * output[1] * output[2] * channels + lane * V;
        float sum[V] = {};
        for (u32 d = ds.from; d < ds.to; ++d) {
            Counted dn = boxes.span(0, d);
            for (u32 h = hs.from; h < hs.to; ++h) {
                Counted hn = boxes.span(1, h);
                for (u32 w = ws.from; w < ws.to; ++w) {
                    float scale = 1.0f / divisor(dn, hn, boxes.span(2, w));
                    Lane<T, V> from = load<T, V>(gs + flat(output, d, h, w) * channels);
#pragma unroll
                    for (int v = 0; v < V; ++v) sum[v] += to_acc(from.v[v]) * scale;
                }
            }
        }
        Lane<T, V> out;
#pragma unroll
        for (int v = 0; v < V; ++v) out.v[v] = from_acc<T>(sum[v]);
        store<T, V>(dx + at * V, out);
    }
}

#define AVERAGE(name, Params, Boxes, suffix, T, V)                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                               \
        name##suffix(Params p, const T *__restrict__ x, T *__restrict__ y) {                                           \
        average<T, V>(Boxes{p}, x, y);                                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                               \
        name##_grad##suffix(Params p, const T *__restrict__ g, T *__restrict__ dx) {                                   \
        average_grad<T, V>(Boxes{p}, g, dx);                                                                           \
    }
#define AVERAGE_BLOCK(name, Params, Boxes, suffix, T)                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                               \
        name##_block_##suffix(Params p, const T *__restrict__ x, T *__restrict__ y) {                                  \
        average_block<T>(Boxes{p}, x, y);                                                                              \
    }
#define EACH(suffix, T)                                                                                                \
    AVERAGE(avg_pool, PoolParams, WindowBoxes, _##suffix, T, 1)                                                        \
    AVERAGE(avg_pool, PoolParams, WindowBoxes, _packed_##suffix, T, LANES<T>)                                          \
    AVERAGE_BLOCK(avg_pool, PoolParams, WindowBoxes, suffix, T)                                                        \
    AVERAGE(adaptive_avg_pool, AdaptivePoolParams, AdaptiveBoxes, _##suffix, T, 1)                                     \
    AVERAGE(adaptive_avg_pool, AdaptivePoolParams, AdaptiveBoxes, _packed_##suffix, T, LANES<T>)                       \
    AVERAGE_BLOCK(adaptive_avg_pool, AdaptivePoolParams, AdaptiveBoxes, suffix, T)
FOR_FLOATS(EACH)
