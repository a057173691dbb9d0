// Direct convolution for few input channels (groups 1, C ≤ 4: the first layer of an image model). Gathered tiles would
// spend more on finding three channels than on multiplying them; here the weights lie in shared memory in f32 and the
// sums in registers.
//
//   forward        a thread: 2 positions × 16 output channels. One load of x makes 16 products; the 16 weights are read
//                  by all lanes at one address. taps·C ≤ 512.
//   data gradient  a thread: 1 position × 4 input channels; weights of some output channels at a time. taps ≤ 2048.
//   weight grad.   a block: 32 output channels (lanes) × all of taps·C ≤ 256 (shared out to 8 warps), over the
//                  positions of one split; the windows of 32 positions at a time lie in shared memory. The sum of
//                  split s goes to parts[s·|dw|]; the last `sharers` blocks add them in order (conv_parts.cuh), or conv_sum_parts
//                  if that is 0. Blocks from x = `tiles` on have the gradient of the bias.
//
// Contract: the bounds of conv_gather.cuh.
// Geometry: forward: 128 threads, x ⌈positions / 256⌉, y ⌈O / 16⌉. Data gradient: 128 threads, x ⌈positions / 128⌉.
// Weight gradient: 256 threads, x ⌈O / 32⌉, y splits, and so many more of x that there is a block for each channel if the gradient of a
// bias is wanted.
#include "conv_tile.cuh"
#include "conv_gather.cuh"
#include "conv_parts.cuh"

constexpr int OUTPUTS = 16;       // output channels of a thread (forward)
constexpr int FORWARD_DEPTH = 512; // taps·C
constexpr int DATA_WEIGHTS = 2048; // taps · output channels at a time
constexpr int WEIGHT_DEPTH = 256, WINDOWS = 32;

template <typename T>
__device__ __forceinline__ void shallow(const ConvParams &p, const T *__restrict__ x, const T *__restrict__ w,
                                        const T *__restrict__ bias, T *__restrict__ y) {
    __shared__ __align__(16) float ws[FORWARD_DEPTH][OUTPUTS];
    u32 first = blockIdx.y * OUTPUTS, channels = p.in_channels, depth = taps_of(p) * channels;
    for (u32 i = threadIdx.x; i < depth * OUTPUTS; i += blockDim.x) {
        u32 c = first + i % OUTPUTS, k = i / OUTPUTS;
        ws[k][i % OUTPUTS] = c < p.out_channels ? to_acc(w[(u64)c * depth + k]) : 0.0f;
    }
    __syncthreads();
    Gather<false> g(p, 0);
    u64 at[2];
    at[0] = (u64)blockIdx.x * 256 + threadIdx.x;
    at[1] = at[0] + 128;
    Row<T> rows[2] = {Row<T>(g, x, at[0]), Row<T>(g, x, at[1])};
    float sums[2][OUTPUTS] = {};
    const float *from = ws[0];
    Inner k(g, 0u);
    for (k.d = 0; k.d < g.d.taps; ++k.d)
        for (k.h = 0; k.h < g.h.taps; ++k.h)
            for (k.w = 0; k.w < g.w.taps; ++k.w) {
                const T *source[2] = {rows[0].at(g, k), rows[1].at(g, k)};
                for (u32 i = 0; i < channels; ++i, from += OUTPUTS) {
                    float a = source[0] != nullptr ? to_acc(source[0][i]) : 0.0f;
                    float b = source[1] != nullptr ? to_acc(source[1][i]) : 0.0f;
#pragma unroll
                    for (int c = 0; c < OUTPUTS; c += 4) {
                        float4 v = *reinterpret_cast<const float4 *>(from + c);
                        float weights[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                        for (int n = 0; n < 4; ++n) {
                            sums[0][c + n] = fmaf(a, weights[n], sums[0][c + n]);
                            sums[1][c + n] = fmaf(b, weights[n], sums[1][c + n]);
                        }
                    }
                }
            }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (!rows[r].valid) continue;
        T *to = y + at[r] * p.out_channels + first;
        if (p.out_channels % 4 == 0) {
#pragma unroll
            for (int c = 0; c < OUTPUTS; c += 4) {
                if (first + c >= p.out_channels) break;
                Few<T, 4> out;
#pragma unroll
                for (int n = 0; n < 4; ++n) out.v[n] = finish(p, bias, first + c + n, sums[r][c + n]);
                *reinterpret_cast<Few<T, 4> *>(to + c) = out;
            }
        } else {
#pragma unroll
            for (int c = 0; c < OUTPUTS; ++c)
                if (first + c < p.out_channels) to[c] = finish(p, bias, first + c, sums[r][c]);
        }
    }
}

template <typename T>
__device__ __forceinline__ void shallow_data_grad(const ConvParams &p, const T *__restrict__ grad,
                                                  const T *__restrict__ w, T *__restrict__ dx) {
    __shared__ __align__(16) float4 ws[DATA_WEIGHTS]; // [output channel][tap], 4 input channels
    u32 taps = taps_of(p), channels = p.in_channels;
    u32 share = min(max(DATA_WEIGHTS / taps, 1u), p.out_channels); // output channels at a time
    if (share >= 4) share -= share % 4;
    u64 at = (u64)blockIdx.x * 128 + threadIdx.x, total = p.batch * volume(p.input);
    bool valid = at < total;
    Position q = position_of(valid ? at : 0, p.input);
    const T *gs = grad + q.image * volume(p.output) * p.out_channels;
    Readers planes = readers(p, 0, q.at[0]), lines = readers(p, 1, q.at[1]), columns = readers(p, 2, q.at[2]);
    float sums[4] = {};
    for (u32 first = 0; first < p.out_channels; first += share) {
        u32 outputs = min(share, p.out_channels - first);
        __syncthreads();
        for (u32 i = threadIdx.x; i < outputs * taps; i += blockDim.x) {
            const T *from = w + ((u64)first * taps + i) * channels;
            float v[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) v[n] = n < (int)channels ? to_acc(from[n]) : 0.0f;
            ws[i] = make_float4(v[0], v[1], v[2], v[3]);
        }
        __syncthreads();
        if (!valid) continue;
        for (u32 d = planes.from; d < planes.to; d += planes.step) {
            for (u32 h = lines.from; h < lines.to; h += lines.step) {
                for (u32 k = columns.from; k < columns.to; k += columns.step) {
                    u64 o = flat(p.output, reader(p, 0, q.at[0], d), reader(p, 1, q.at[1], h), reader(p, 2, q.at[2], k));
                    u32 tap = (d * p.kernel[1] + h) * p.kernel[2] + k;
                    const T *from = gs + o * p.out_channels + first;
                    const float4 *weights = ws + tap;
                    auto add = [&](float g, const float4 &v) {
                        sums[0] = fmaf(g, v.x, sums[0]);
                        sums[1] = fmaf(g, v.y, sums[1]);
                        sums[2] = fmaf(g, v.z, sums[2]);
                        sums[3] = fmaf(g, v.w, sums[3]);
                    };
                    if (p.out_channels % 4 == 0 && share % 4 == 0) {
                        for (u32 c = 0; c < outputs; c += 4) {
                            float v[4];
                            fetch4(from + c, v);
#pragma unroll
                            for (int n = 0; n < 4; ++n) add(v[n], weights[(c + n) * taps]);
                        }
                    } else {
                        for (u32 c = 0; c < outputs; ++c) add(to_acc(from[c]), weights[c * taps]);
                    }
                }
            }
        }
    }
    if (valid)
        for (u32 n = 0; n < channels; ++n) dx[at * channels + n] = from_acc<T>(sums[n]);
}

template <typename T>
__device__ __forceinline__ void shallow_weight_parts(const ConvParams &p, const T *__restrict__ grad,
                                                     const T *__restrict__ x, f32 *parts, u32 splits,
                                                     T *__restrict__ dw, u32 sharers, const BiasGrad<T> &bias, u32 tiles) {
    __shared__ __align__(16) float window[WINDOWS][WEIGHT_DEPTH];
    __shared__ int4 column[WEIGHT_DEPTH]; // source of window 0 and channel
    __shared__ float scratch[256 / WARP];
    __shared__ u32 place;
    if (blockIdx.x >= tiles) { // the whole block
        bias.sum((blockIdx.x - tiles) * gridDim.y + blockIdx.y, scratch);
        return;
    }
    u32 channels = p.in_channels, depth = taps_of(p) * channels;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 per = (depth + 31) / 32 * 4; // columns of a warp: a multiple of 4, at most 32
    for (u32 j = threadIdx.x; j < per * 8; j += blockDim.x) {
        u32 c;
        Position tap = position_of(split(j < depth ? j : 0, channels, c), p.kernel);
        column[j] = make_int4((int)(tap.at[0] * p.dilation[0]) - (int)p.padding[0],
                              (int)(tap.at[1] * p.dilation[1]) - (int)p.padding[1],
                              (int)(tap.at[2] * p.dilation[2]) - (int)p.padding[2], j < depth ? (int)c : -1);
    }
    u64 positions = p.batch * volume(p.output), share = (positions + splits - 1) / splits;
    u64 from = min(blockIdx.y * share, positions), to = min(from + share, positions);
    u32 output = blockIdx.x * 32 + lane;
    bool valid = output < p.out_channels;
    float sums[32] = {};
    for (u64 first = from; first < to; first += WINDOWS) {
        __syncthreads();
        for (int r = warp; r < WINDOWS; r += 8) {
            bool inside = first + r < to;
            Position o = position_of(inside ? first + r : first, p.output);
            const T *image = x + o.image * volume(p.input) * channels;
            int d = (int)(o.at[0] * p.stride[0]), h = (int)(o.at[1] * p.stride[1]), k = (int)(o.at[2] * p.stride[2]);
            for (u32 j = lane; j < per * 8; j += 32) {
                int4 c = column[j];
                bool met = inside && c.w >= 0 && (u32)(d + c.x) < p.input[0] && (u32)(h + c.y) < p.input[1] &&
                           (u32)(k + c.z) < p.input[2];
                u64 q = ((u64)(u32)(d + c.x) * p.input[1] + (u32)(h + c.y)) * p.input[2] + (u32)(k + c.z);
                window[r][j] = met ? to_acc(image[q * channels + c.w]) : 0.0f;
            }
        }
        __syncthreads();
        int rows = (int)min(to - first, (u64)WINDOWS);
        for (int r = 0; r < rows; ++r) {
            float g = valid ? to_acc(grad[(first + r) * p.out_channels + output]) : 0.0f;
            const float *line = &window[r][warp * per];
#pragma unroll
            for (int j = 0; j < 32; j += 4) {
                if (j >= (int)per) break;
                float4 v = *reinterpret_cast<const float4 *>(line + j);
                sums[j] = fmaf(g, v.x, sums[j]);
                sums[j + 1] = fmaf(g, v.y, sums[j + 1]);
                sums[j + 2] = fmaf(g, v.z, sums[j + 2]);
                sums[j + 3] = fmaf(g, v.w, sums[j + 3]);
            }
        }
    }
    f32 *here = parts + ((u64)blockIdx.y * p.out_channels + output) * depth;
#pragma unroll
    for (int j = 0; j < 32; ++j)
        if (valid && j < (int)per && warp * per + j < depth) here[warp * per + j] = sums[j];
    // Whole rows, one behind the other.
    const u32 first = blockIdx.x * 32, rows = min(p.out_channels - first, 32u);
    add_splits<T>(blockIdx.x, splits, sharers, place, Patch{first, rows, 0, depth, depth}, (u64)p.out_channels * depth, parts, dw);
}

#define SHALLOW(suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(128, 3)                                                               \
        conv_shallow_##suffix(ConvParams p, const T *__restrict__ x, const T *__restrict__ w,                          \
                              const T *__restrict__ bias, T *__restrict__ y) {                                         \
        shallow<T>(p, x, w, bias, y);                                                                                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128, 3) conv_shallow_data_grad_##suffix(                              \
        ConvParams p, const T *__restrict__ g, const T *__restrict__ w, T *__restrict__ dx) {                          \
        shallow_data_grad<T>(p, g, w, dx);                                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2) conv_shallow_weight_parts_##suffix(                           \
        ConvParams p, const T *__restrict__ g, const T *__restrict__ x, f32 *__restrict__ parts, u32 splits,           \
        T *__restrict__ dw, u32 sharers, const T *__restrict__ bias_g, const T *__restrict__ bias_y,                   \
        T *__restrict__ db, u64 positions, u32 tiles) {                                                                \
        shallow_weight_parts<T>(p, g, x, parts, splits, dw, sharers,                                                   \
                                BiasGrad<T>{bias_g, bias_y, db, positions, p.out_channels}, tiles);                    \
    }
FOR_FLOATS(SHALLOW)
