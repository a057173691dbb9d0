// Optimizer updates: one launch for every parameter of a group.
//
// A record of the list of tensors (common/tensors.cuh) is [param, grad, state × N, elements, first chunk]. Formulas: core/src/ops/optim.rs.
//
// Where `halves` is 1 a record has one more word: the address of the parameter's copy in half precision, with 1 (bf16) or 2 (f16) in
// its lowest bits, or 0. A parameter of f32 and its copy are written in one pass: the forward pass of mixed precision reads the copy.
//
// scalars = [lr, c1, c2, scale] lies on the device, since it changes from step to step; gradients are multiplied by scale, and
// a scale of NaN leaves parameters and state as they are. unscale multiplies gradients in place and looks for infinities and NaN:
// records [grad, elements, first chunk], which grad_squares reads too: the sum of squares of every chunk. grad_norm adds those,
// norm = √Σg², and gives the factor min(1, max_norm/(norm + 1e-6)) that clips gradients.
//
// Every operation rounds once (Exact): parameters and state have the bits that the CPU computes. Memory is what limits
// these kernels, so the products and sums that are not contracted cost nothing.
//
// Contract: pointers at multiples of 16 bytes; params and grads of T, state of f32; no tensor without elements.
// Geometry: 256 threads, a block per chunk; a thread moves 16 bytes of the parameter at a time.
#include "common/exact.cuh"
#include "common/tensors.cuh"
#include "common/warp.cuh"

struct SgdParams {
    double momentum, dampening, weight_decay;
    u32 nesterov, pad;
};
static_assert(sizeof(SgdParams) == 32, "core::ops::SgdParams");

struct AdamParams {
    double beta1, beta2, eps, weight_decay;
    u32 decoupled, amsgrad;
};
static_assert(sizeof(AdamParams) == 40, "core::ops::AdamParams");

struct RmspropParams {
    double alpha, eps, weight_decay, momentum;
    u32 centered, pad;
};
static_assert(sizeof(RmspropParams) == 40, "core::ops::RmspropParams");

struct AdagradParams {
    double eps, weight_decay;
};
static_assert(sizeof(AdagradParams) == 16, "core::ops::AdagradParams");

constexpr int THREADS = 256;

// Writes V elements from `at` on of a copy in half precision, if there is one. The branch is the same in all of a block.
template <int V> __device__ __forceinline__ void store_half(u64 half, u64 at, const float (&w)[V]) {
    u64 address = half & ~15ull;
    if (half & 1) store<V>(reinterpret_cast<bf16 *>(address) + at, w);
    else if (half & 2) store<V>(reinterpret_cast<f16 *>(address) + at, w);
}

// N optimizer states of one element; never of size 0.
template <int N> using States = Exact[N > 0 ? N : 1];

// w = update(w, g, state) for every element of this block's chunk.
template <typename T, int N, typename Update>
__device__ __forceinline__ void each(const Tensors &tensors, const Update &update) {
    constexpr int V = LANES<T>;
    constexpr bool WIDE = sizeof(T) == 4;
    const u64 *record = find<N + 3>(tensors, N + 4 + tensors.halves);
    u64 begin = (blockIdx.x - record[N + 3]) * CHUNK;
    u64 left = record[N + 2] - begin;
    u32 n = left < CHUNK ? (u32)left : CHUNK;
    T *__restrict__ param = reinterpret_cast<T *>(record[0]) + begin;
    const T *__restrict__ grad = reinterpret_cast<const T *>(record[1]) + begin;
    u64 half = WIDE && tensors.halves ? record[N + 4] : 0;
    float *state[N > 0 ? N : 1];
#pragma unroll
    for (int k = 0; k < N; ++k) state[k] = reinterpret_cast<float *>(record[2 + k]) + begin;

    for (u32 i = threadIdx.x * V; i < n; i += THREADS * V) {
        if (i + V <= n) {
            float w[V], g[V], s[N > 0 ? N : 1][V];
            load<V>(param + i, w);
            load<V>(grad + i, g);
#pragma unroll
            for (int k = 0; k < N; ++k) load<V>(state[k] + i, s[k]);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                States<N> one;
#pragma unroll
                for (int k = 0; k < N; ++k) one[k] = s[k][j];
                w[j] = update(Exact(w[j]), Exact(g[j]), one).v;
#pragma unroll
                for (int k = 0; k < N; ++k) s[k][j] = one[k].v;
            }
            store<V>(param + i, w);
            if constexpr (WIDE) store_half<V>(half, begin + i, w);
#pragma unroll
            for (int k = 0; k < N; ++k) store<V>(state[k] + i, s[k]);
        } else {
#pragma unroll 1
            for (u32 j = i; j < n; ++j) {
                States<N> one;
#pragma unroll
                for (int k = 0; k < N; ++k) one[k] = state[k][j];
                float w[1] = {update(Exact(to_acc(param[j])), Exact(to_acc(grad[j])), one).v};
                param[j] = from_acc<T>(w[0]);
                if constexpr (WIDE) store_half<1>(half, begin + j, w);
#pragma unroll
                for (int k = 0; k < N; ++k) state[k][j] = one[k].v;
            }
        }
    }
}

// state: [v] with momentum
template <typename T, bool MOMENTUM>
__device__ __forceinline__ void sgd(const SgdParams &p, const Tensors &tensors, const float *__restrict__ scalars) {
    Exact lr = scalars[0], decay = (float)p.weight_decay, momentum = (float)p.momentum;
    Exact fresh = (float)(1.0 - p.dampening), scale = scalars[3];
    bool first = scalars[1] == 1.0f, nesterov = p.nesterov;
    each<T, MOMENTUM>(tensors, [=](Exact w, Exact g, States<MOMENTUM> &s) {
        g = scale * g + decay * w;
        if constexpr (!MOMENTUM) return w - lr * g;
        s[0] = first ? g : momentum * s[0] + fresh * g;
        return w - lr * (nesterov ? g + momentum * s[0] : s[0]);
    });
}

// state: [m, v], and the largest v with AMSGrad
template <typename T, int N>
__device__ __forceinline__ void adam(const AdamParams &p, const Tensors &tensors, const float *__restrict__ scalars) {
    Exact lr = scalars[0], rate = lr / scalars[1], c2 = scalars[2], scale = scalars[3];
    Exact beta1 = (float)p.beta1, fresh1 = (float)(1.0 - p.beta1);
    Exact beta2 = (float)p.beta2, fresh2 = (float)(1.0 - p.beta2);
    Exact eps = (float)p.eps, decay = (float)p.weight_decay;
    Exact shrink = p.decoupled ? 1.0f - lr * decay : Exact(1.0f), penalty = p.decoupled ? Exact(0.0f) : decay;
    each<T, N>(tensors, [=](Exact w, Exact g, States<N> &s) {
        g = scale * g + penalty * w;
        s[0] = beta1 * s[0] + fresh1 * g;
        s[1] = beta2 * s[1] + fresh2 * (g * g);
        if constexpr (N == 3) s[2] = s[1].v <= s[2].v ? s[2] : s[1];
        return shrink * w - rate * (s[0] / (sqrt(s[N - 1]) / c2 + eps));
    });
}

// state: [s], then [b] with momentum, then the mean gradient [a] when centered
template <typename T, bool MOMENTUM, bool CENTERED>
__device__ __forceinline__ void rmsprop(const RmspropParams &p, const Tensors &tensors,
                                        const float *__restrict__ scalars) {
    constexpr int N = 1 + MOMENTUM + CENTERED;
    Exact lr = scalars[0], scale = scalars[3], alpha = (float)p.alpha, fresh = (float)(1.0 - p.alpha);
    Exact eps = (float)p.eps, decay = (float)p.weight_decay, momentum = (float)p.momentum;
    each<T, N>(tensors, [=](Exact w, Exact g, States<N> &s) {
        g = scale * g + decay * w;
        s[0] = alpha * s[0] + fresh * (g * g);
        Exact variance = s[0];
        if constexpr (CENTERED) {
            Exact mean = s[N - 1] = alpha * s[N - 1] + fresh * g;
            variance = variance - mean * mean;
            // Rounding can put it below zero; NaN fails the comparison and stays.
            if (variance.v < 0.0f) variance = 0.0f;
        }
        Exact step = g / (sqrt(variance) + eps);
        if constexpr (MOMENTUM) step = s[1] = momentum * s[1] + step;
        return w - lr * step;
    });
}

// state: [s]
template <typename T>
__device__ __forceinline__ void adagrad(const AdagradParams &p, const Tensors &tensors,
                                        const float *__restrict__ scalars) {
    Exact lr = scalars[0], scale = scalars[3], eps = (float)p.eps, decay = (float)p.weight_decay;
    each<T, 1>(tensors, [=](Exact w, Exact g, States<1> &s) {
        g = scale * g + decay * w;
        s[0] = s[0] + g * g;
        return w - lr * (g / (sqrt(s[0]) + eps));
    });
}

#define UPDATE(name, Params, body)                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        name(Params p, Tensors tensors, const float *__restrict__ scalars) {                                           \
        if (!isnan(scalars[3])) body(p, tensors, scalars);                                                             \
    }
#define UPDATES(suffix, T)                                                                                             \
    UPDATE(sgd_##suffix, SgdParams, (sgd<T, false>))                                                                   \
    UPDATE(sgd_momentum_##suffix, SgdParams, (sgd<T, true>))                                                           \
    UPDATE(adam_##suffix, AdamParams, (adam<T, 2>))                                                                    \
    UPDATE(adam_amsgrad_##suffix, AdamParams, (adam<T, 3>))                                                            \
    UPDATE(rmsprop_##suffix, RmspropParams, (rmsprop<T, false, false>))                                                \
    UPDATE(rmsprop_momentum_##suffix, RmspropParams, (rmsprop<T, true, false>))                                        \
    UPDATE(rmsprop_centered_##suffix, RmspropParams, (rmsprop<T, false, true>))                                        \
    UPDATE(rmsprop_momentum_centered_##suffix, RmspropParams, (rmsprop<T, true, true>))                                \
    UPDATE(adagrad_##suffix, AdagradParams, (adagrad<T>))
FOR_FLOATS(UPDATES)

// g *= inverse where that is not 1; found = 1 if a product is not finite
template <typename T>
__device__ __forceinline__ void unscale(const Tensors &tensors, const float *__restrict__ inverse, i32 *__restrict__ found) {
    constexpr int V = LANES<T>;
    const u64 *record = find<2>(tensors, 3);
    u64 begin = (blockIdx.x - record[2]) * CHUNK;
    u64 left = record[1] - begin;
    u32 n = left < CHUNK ? (u32)left : CHUNK;
    T *__restrict__ grad = reinterpret_cast<T *>(record[0]) + begin;
    float factor = inverse[0];
    bool finite = true;
    for (u32 i = threadIdx.x * V; i < n; i += THREADS * V) {
        if (i + V <= n) {
            Pack<T> g = load16(grad + i);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                g.v[j] = from_acc<T>(__fmul_rn(to_acc(g.v[j]), factor));
                finite &= isfinite(to_acc(g.v[j]));
            }
            if (factor != 1.0f) store16(grad + i, g);
        } else {
#pragma unroll 1
            for (u32 j = i; j < n; ++j) {
                T g = from_acc<T>(__fmul_rn(to_acc(grad[j]), factor));
                finite &= isfinite(to_acc(g));
                if (factor != 1.0f) grad[j] = g;
            }
        }
    }
    if (!finite) atomicOr(found, 1);
}
#define UNSCALE(suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        unscale_##suffix(Tensors tensors, const float *__restrict__ inverse, i32 *__restrict__ found) {                \
        unscale<T>(tensors, inverse, found);                                                                           \
    }
FOR_FLOATS(UNSCALE)

// partial[first + block] = Σ g² of the block's chunk
template <typename T>
__device__ __forceinline__ void grad_squares(const Tensors &tensors, float *__restrict__ partial, u64 first) {
    __shared__ float scratch[THREADS / WARP];
    constexpr int V = LANES<T>;
    const u64 *record = find<2>(tensors, 3);
    u64 begin = (blockIdx.x - record[2]) * CHUNK;
    u64 left = record[1] - begin;
    u32 n = left < CHUNK ? (u32)left : CHUNK;
    const T *__restrict__ grad = reinterpret_cast<const T *>(record[0]) + begin;
    float sum = 0.0f;
    for (u32 i = threadIdx.x * V; i < n; i += THREADS * V) {
        if (i + V <= n) {
            float g[V];
            load<V>(grad + i, g);
#pragma unroll
            for (int j = 0; j < V; ++j) sum += g[j] * g[j];
        } else {
#pragma unroll 1
            for (u32 j = i; j < n; ++j) sum += to_acc(grad[j]) * to_acc(grad[j]);
        }
    }
    sum = block_sum<THREADS>(sum, scratch);
    if (threadIdx.x == 0) partial[first + blockIdx.x] = sum;
}
#define GRAD_SQUARES(suffix, T)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        grad_squares_##suffix(Tensors tensors, float *__restrict__ partial, u64 first) {                               \
        grad_squares<T>(tensors, partial, first);                                                                      \
    }
FOR_FLOATS(GRAD_SQUARES)

struct GradNormParams {
    double max_norm;
};
static_assert(sizeof(GradNormParams) == 8, "core::ops::GradNormParams");

// Geometry: one block of 1024.
extern "C" __global__ void __launch_bounds__(1024)
    grad_norm(GradNormParams p, const float *__restrict__ partial, u64 parts, float *__restrict__ norm,
              float *__restrict__ factor) {
    __shared__ float scratch[1024 / WARP];
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < parts; i += 1024) sum += partial[i];
    sum = block_sum<1024>(sum, scratch);
    if (threadIdx.x > 0) return;
    float root = sqrtf(sum);
    float limit = (float)p.max_norm / (root + 1e-6f);
    *norm = root;
    *factor = limit > 1.0f ? 1.0f : limit;
}
