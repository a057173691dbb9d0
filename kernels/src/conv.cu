// Convolution and its gradients as their definition reads: x [N, D, H, W, C], w [O, kD, kH, kW, C/groups],
// y [N, D', H', W', O], one to three spatial dimensions (those that do not exist have one position).
//
//   y[n, o, c]  = f(bias[c] + Σ_k Σ_i x[n, o·stride + k·dilation − padding, i] · w[c, k, i])
//   dx[n, q, i] = Σ_k Σ_c g[n, o, c] · w[c, k, i]   over the o with o·stride + k·dilation − padding = q
//   dw[c, k, i] = Σ_n Σ_o g[n, o, c] · x[n, o·stride + k·dilation − padding, i]
//
// The plainest variant, the definition that the others are compared with, and what runs where no other variant
// fits: any groups, any sizes, any padding. A thread computes one element and reads everything from global memory;
// neighbours share most of what they read through the caches alone. Sums are in f32, in the order of the loops; the
// weight gradient, whose sums are the longest, adds up lines of the image first.
// `conv_sum_parts` adds the sums of the splits of the other variants in order, where their own last blocks do not (conv_parts.cuh). A single
// split in f32 is written to dw directly.
//
// Geometry: 256 threads, a grid of one dimension with a stride over the elements of the result.
#include "conv.cuh"

template <typename T>
__device__ __forceinline__ void forward(const ConvParams &p, const T *__restrict__ x, const T *__restrict__ w,
                                        const T *__restrict__ bias, T *__restrict__ y) {
    u64 total = p.batch * volume(p.output) * p.out_channels;
    u32 per_in = group_in(p), per_out = group_out(p), taps = taps_of(p);
    for (u64 at = global_thread(); at < total; at += global_threads()) {
        u32 c;
        Position o = position_of(split(at, p.out_channels, c), p.output);
        Span ds = inside(p, 0, o.at[0]), hs = inside(p, 1, o.at[1]), ws = inside(p, 2, o.at[2]);
        const T *xs = x + o.image * volume(p.input) * p.in_channels + c / per_out * per_in;
        const T *wc = w + (u64)c * taps * per_in;
        float sum = 0.0f;
        for (u32 d = ds.from; d < ds.to; ++d)
            for (u32 h = hs.from; h < hs.to; ++h)
                for (u32 k = ws.from; k < ws.to; ++k) {
                    u64 q = flat(p.input, source(p, 0, o.at[0], d), source(p, 1, o.at[1], h), source(p, 2, o.at[2], k));
                    const T *xq = xs + q * p.in_channels;
                    const T *wk = wc + flat(p.kernel, d, h, k) * per_in;
                    for (u32 i = 0; i < per_in; ++i) sum += to_acc(xq[i]) * to_acc(wk[i]);
                }
        y[at] = finish(p, bias, c, sum);
    }
}

template <typename T>
__device__ __forceinline__ void data_grad(const ConvParams &p, const T *__restrict__ g, const T *__restrict__ w,
                                          T *__restrict__ dx) {
    u64 total = p.batch * volume(p.input) * p.in_channels;
    u32 per_in = group_in(p), per_out = group_out(p);
    u64 row = (u64)taps_of(p) * per_in; // elements of w for one output channel
    for (u64 at = global_thread(); at < total; at += global_threads()) {
        u32 channel;
        Position q = position_of(split(at, p.in_channels, channel), p.input);
        u32 group = channel / per_in, i = channel % per_in;
        const T *gs = g + q.image * volume(p.output) * p.out_channels + group * per_out;
        const T *wi = w + group * per_out * row + i;
        Readers ds = readers(p, 0, q.at[0]), hs = readers(p, 1, q.at[1]), ws = readers(p, 2, q.at[2]);
        float sum = 0.0f;
        for (u32 d = ds.from; d < ds.to; d += ds.step)
            for (u32 h = hs.from; h < hs.to; h += hs.step)
                for (u32 k = ws.from; k < ws.to; k += ws.step) {
                    u64 o = flat(p.output, reader(p, 0, q.at[0], d), reader(p, 1, q.at[1], h), reader(p, 2, q.at[2], k));
                    const T *go = gs + o * p.out_channels;
                    const T *wk = wi + flat(p.kernel, d, h, k) * per_in;
                    for (u32 c = 0; c < per_out; ++c) sum += to_acc(go[c]) * to_acc(wk[c * row]);
                }
        dx[at] = from_acc<T>(sum);
    }
}

// The windows whose tap `k` lies inside the input.
__device__ __forceinline__ Span windows_inside(const ConvParams &p, int i, u32 k) {
    i64 reach = (i64)k * p.dilation[i] - p.padding[i]; // of window 0
    i64 last = (i64)p.input[i] - 1 - reach;
    if (last < 0) return {0, 0};
    i64 from = reach < 0 ? (-reach + p.stride[i] - 1) / p.stride[i] : 0;
    return {(u32)min(from, (i64)p.output[i]), (u32)min(last / p.stride[i] + 1, (i64)p.output[i])};
}

template <typename T>
__device__ __forceinline__ void weight_grad(const ConvParams &p, const T *__restrict__ g, const T *__restrict__ x,
                                            T *__restrict__ dw) {
    u32 per_in = group_in(p), per_out = group_out(p);
    u64 total = (u64)p.out_channels * taps_of(p) * per_in;
    for (u64 at = global_thread(); at < total; at += global_threads()) {
        u32 i;
        Position k = position_of(split(at, per_in, i), p.kernel); // its image is the output channel
        u32 c = (u32)k.image;
        Span ds = windows_inside(p, 0, k.at[0]), hs = windows_inside(p, 1, k.at[1]), ws = windows_inside(p, 2, k.at[2]);
        const T *xi = x + c / per_out * per_in + i;
        float sum = 0.0f;
        for (u32 n = 0; n < p.batch; ++n) {
            float image = 0.0f;
            for (u32 d = ds.from; d < ds.to; ++d)
                for (u32 h = hs.from; h < hs.to; ++h) {
                    u32 sd = source(p, 0, d, k.at[0]), sh = source(p, 1, h, k.at[1]);
                    float line = 0.0f;
                    for (u32 o = ws.from; o < ws.to; ++o) {
                        u64 to = n * volume(p.output) + flat(p.output, d, h, o);
                        u64 from = n * volume(p.input) + flat(p.input, sd, sh, source(p, 2, o, k.at[2]));
                        line += to_acc(g[to * p.out_channels + c]) * to_acc(xi[from * p.in_channels]);
                    }
                    image += line;
                }
            sum += image;
        }
        dw[at] = from_acc<T>(sum);
    }
}

// dw = Σ_s parts[s, ·], the splits of a weight gradient in their order.
template <typename T>
__device__ __forceinline__ void sum_parts(u64 n, u32 splits, const f32 *__restrict__ parts, T *__restrict__ dw) {
    for (u64 at = global_thread(); at < n; at += global_threads()) {
        float sum = parts[at];
        for (u32 s = 1; s < splits; ++s) sum += parts[s * n + at];
        dw[at] = from_acc<T>(sum);
    }
}

#define NAIVE(suffix, T)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                               \
        conv_naive_##suffix(ConvParams p, const T *__restrict__ x, const T *__restrict__ w,                            \
                            const T *__restrict__ bias, T *__restrict__ y) {                                           \
        forward<T>(p, x, w, bias, y);                                                                                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2) conv_naive_data_grad_##suffix(                                \
        ConvParams p, const T *__restrict__ g, const T *__restrict__ w, T *__restrict__ dx) {                          \
        data_grad<T>(p, g, w, dx);                                                                                     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2) conv_naive_weight_grad_##suffix(                              \
        ConvParams p, const T *__restrict__ g, const T *__restrict__ x, T *__restrict__ dw) {                          \
        weight_grad<T>(p, g, x, dw);                                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        conv_sum_parts_##suffix(u64 n, u32 splits, const f32 *__restrict__ parts, T *__restrict__ dw) {                \
        sum_parts<T>(n, splits, parts, dw);                                                                            \
    }
FOR_FLOATS(NAIVE)
