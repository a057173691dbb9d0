// The data gradient of a small convolution (one group): all of the weight, and the gradient of one image, lie in shared memory in f32.
// Tiles would be mostly empty there (6 input channels fill a tenth of 64 columns), and walk along taps·O a few numbers at a time, each
// step waiting for memory; here a thread has one element of dx and waits once.
//
//   dx[n, q, i] = Σ_k Σ_c g[n, o, c] · w[c, k, i]   over the o with o·stride + k·dilation − padding = q
//
// Sums are in f32, of every fourth output channel, joined at the end. Rows of output channels are filled up to fours with zeros, and those
// of the weight lie 4 further apart, so that neighbouring threads, which have neighbouring channels, read other banks.
//
// Contract: groups 1; taps·C·(4·⌈O/4⌉ + 4) <= WEIGHTS; positions of an output · 4·⌈O/4⌉ <= GRADS.
// Geometry: 256 threads, x batch · ⌈elements of an input image / 256⌉.
#include "common/vector.cuh"
#include "conv.cuh"

constexpr u32 WEIGHTS = 4096, GRADS = 6144;

template <typename T>
__device__ __forceinline__ void few_data_grad(const ConvParams &p, const T *__restrict__ grad, const T *__restrict__ w,
                                              T *__restrict__ dx) {
    __shared__ __align__(16) float weight[WEIGHTS], grads[GRADS];
    const u32 channels = p.in_channels, outputs = p.out_channels, filled = (outputs + 3) / 4 * 4, row = filled + 4;
    const u32 depth = taps_of(p) * channels, inside = (u32)volume(p.input) * channels, places = (u32)volume(p.output);
    const u32 each = (inside + 255) / 256, image = blockIdx.x / each;
    for (u32 j = threadIdx.x; j < depth * filled; j += 256) {
        const u32 c = j / depth, k = j % depth;
        weight[k * row + c] = c < outputs ? to_acc(w[j]) : 0.0f;
    }
    grad += (u64)image * places * outputs;
    for (u32 j = threadIdx.x; j < places * filled; j += 256) {
        const u32 c = j % filled;
        grads[j] = c < outputs ? to_acc(grad[j / filled * outputs + c]) : 0.0f;
    }
    __syncthreads();
    const u32 at = blockIdx.x % each * 256 + threadIdx.x;
    if (at >= inside) return;
    const u32 i = at % channels;
    const Position q = position_of(at / channels, p.input);
    const Readers ds = readers(p, 0, q.at[0]), hs = readers(p, 1, q.at[1]), ws = readers(p, 2, q.at[2]);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (u32 d = ds.from; d < ds.to; d += ds.step)
        for (u32 h = hs.from; h < hs.to; h += hs.step)
            for (u32 k = ws.from; k < ws.to; k += ws.step) {
                const u32 o = (u32)flat(p.output, reader(p, 0, q.at[0], d), reader(p, 1, q.at[1], h), reader(p, 2, q.at[2], k));
                const float *g = grads + o * filled, *f = weight + ((u32)flat(p.kernel, d, h, k) * channels + i) * row;
#pragma unroll 4
                for (u32 c = 0; c < filled; c += 4) {
                    const float4 a = *reinterpret_cast<const float4 *>(g + c), b = *reinterpret_cast<const float4 *>(f + c);
                    sum.x = fmaf(a.x, b.x, sum.x);
                    sum.y = fmaf(a.y, b.y, sum.y);
                    sum.z = fmaf(a.z, b.z, sum.z);
                    sum.w = fmaf(a.w, b.w, sum.w);
                }
            }
    dx[(u64)image * inside + at] = from_acc<T>((sum.x + sum.y) + (sum.z + sum.w));
}

#define FEW(suffix, T)                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                               \
        conv_few_data_grad_##suffix(ConvParams p, const T *__restrict__ g, const T *__restrict__ w,                    \
                                    T *__restrict__ dx) {                                                              \
        few_data_grad<T>(p, g, w, dx);                                                                                 \
    }
FOR_FLOATS(FEW)
