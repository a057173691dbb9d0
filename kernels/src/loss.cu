// Softmax cross-entropy of logits x [rows, classes], p.stride apart, with labels t [rows]: the losses, and from the logits again their
// gradient weighted by g.
//
//   ℓ = log_softmax(x[r]);  loss[r] = −(1−ε)·w[t]·ℓ[t] − ε/C·Σ_c w[c]·ℓ[c];  weight[r] = w[t]
//   dx[r, c] = g[r]·(e^ℓ[c]·((1−ε)·w[t] + ε/C·Σ w) − ε/C·w[c] − (c = t)·(1−ε)·w[t])
//
//   the gradient's kernels write losses and weights too if their pointers are not null; g is 1 where its pointer is
//   mean = Σ loss / total, total = Σ weight, made by the last block if their pointers are not null
//
// w is 1 where the pointer is null; hard = 1 − ε and soft = ε/C. loss, weight and g are f32 whatever the logits are: a gradient that a
// half cannot hold may fit once g has scaled it. g is a factor for each row, or with `total` g[0] / total[0] is that of all. A row whose
// label is p.ignore_index gives zeros, whatever its g; one whose label is no class is reported and gives zeros. dx may be x: an element is
// read by the thread that writes it.
//
// Geometry: rows1, rows4, rows16: rows of at most 32·N classes in the registers of a warp, 8 rows a block of 256; one block at least.
//           blocks: a block of 256 per row. The losses read the row once (twice with smoothing), the gradient twice.
#include "common/arrive.cuh"
#include "common/fault.cuh"
#include "common/softmax.cuh"

struct CrossEntropyParams {
    u64 rows, classes, stride;
    double smoothing;
    i64 ignore_index;
};
static_assert(sizeof(CrossEntropyParams) == 40, "core::ops::CrossEntropyParams");

// The values that all rows of a call share, and the current row.
template <typename T> struct Row {
    const T *x, *w;
    u64 classes;
    i64 label;
    float hard, soft;

    __device__ __forceinline__ float weight(u64 c) const { return w ? to_acc(w[c]) : 1.0f; }
    // The part of class `c`'s gradient that is subtracted: the weight of its target.
    __device__ __forceinline__ float pull(u64 c) const {
        float a = soft > 0.0f ? soft * weight(c) : 0.0f;
        return c == (u64)label ? a + hard * weight(label) : a;
    }
    // True if the label is a class. A row without one counts nothing; `reporter` reports it unless it is to be ignored.
    __device__ __forceinline__ bool counts(const CrossEntropyParams &p, u64 r, Fault *fault, bool reporter) const {
        const bool ignored = label == p.ignore_index;
        if (!ignored && label >= 0 && (u64)label < p.classes) return true;
        if (!ignored && reporter) report(fault, FAULT_CROSS_ENTROPY, label, r, p.classes);
        return false;
    }
    // The loss from the logit of the label and the row's statistics, and with smoothing from Σ w·ℓ.
    __device__ __forceinline__ float loss(float at_label, float m, float log_sum, float all) const {
        float a = -(hard * weight(label) * (at_label - m - log_sum));
        return soft > 0.0f ? a - soft * all : a;
    }
    // The factor of e^(x − m), from Σ e^(x − m) and Σ w.
    __device__ __forceinline__ float scale(float sum, float total) const {
        float mass = hard * weight(label);
        return (soft > 0.0f ? mass + soft * total : mass) / sum;
    }
};

template <typename T>
__device__ __forceinline__ Row<T> row_of(const CrossEntropyParams &p, u64 r, const T *x, const i32 *labels, const T *w,
                                         float hard, float soft) {
    return {x + r * p.stride, w, p.classes, labels[r], hard, soft};
}

// Σ w·ℓ of a row, the same in all lanes.
template <int N, typename T>
__device__ __forceinline__ float all_of(const Row<T> &row, const WarpRow<N> &v, float m, float log_sum) {
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        int c = i * WARP + v.lane;
        if (c < v.n) all += row.weight(c) * (v.v[i] - m - log_sum);
    }
    return warp_sum(all);
}
// The same of a row that a block has read, in all threads.
template <typename T>
__device__ __forceinline__ float all_of(const Row<T> &row, float m, float log_sum, float *scratch) {
    float all = 0.0f;
    for (u64 c = threadIdx.x; c < row.classes; c += 256) all += row.weight(c) * (to_acc(row.x[c]) - m - log_sum);
    return block_sum<256>(all, scratch);
}

// The factor of a row's gradient.
__device__ __forceinline__ float upstream(const float *g, const float *divisor, u64 r) {
    return !g ? 1.0f : divisor ? g[0] / divisor[0] : g[r];
}

template <int N, typename T>
__device__ __forceinline__ void loss_rows(const CrossEntropyParams &p, const T *x, const i32 *labels, const T *w,
                                          float *loss, float *weight, float hard, float soft, Fault *fault) {
    u64 r = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    if (r >= p.rows) return;
    const bool first = threadIdx.x % WARP == 0;
    const Row<T> row = row_of(p, r, x, labels, w, hard, soft);
    if (!row.counts(p, r, fault, first)) {
        if (first) loss[r] = weight[r] = 0.0f;
        return;
    }
    WarpRow<N> v;
    v.load(row.x, (int)p.classes);
    float m, sum, all = 0.0f;
    v.statistics(m, sum);
    const float log_sum = logf(sum);
    if (soft > 0.0f) all = all_of(row, v, m, log_sum);
    if (first) {
        loss[r] = row.loss(to_acc(row.x[row.label]), m, log_sum, all);
        weight[r] = row.weight(row.label);
    }
}

template <int N, typename T>
__device__ __forceinline__ void grad_rows(const CrossEntropyParams &p, const T *x, const i32 *labels, const T *w,
                                          const float *g, const float *divisor, T *dx, float *loss, float *weight, float hard,
                                          float soft, Fault *fault) {
    u64 r = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    if (r >= p.rows) return;
    const int lane = threadIdx.x % WARP;
    const Row<T> row = row_of(p, r, x, labels, w, hard, soft);
    dx += r * p.stride;
    if (!row.counts(p, r, fault, lane == 0)) {
        for (u64 c = lane; c < p.classes; c += WARP) dx[c] = from_acc<T>(0.0f);
        if (loss && lane == 0) loss[r] = weight[r] = 0.0f;
        return;
    }
    WarpRow<N> v;
    v.load(row.x, (int)p.classes);
    // Before its element may be overwritten.
    const float at_label = loss ? to_acc(row.x[row.label]) : 0.0f;
    float m, sum, total = 0.0f;
    v.statistics(m, sum);
    if (soft > 0.0f) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            int c = i * WARP + v.lane;
            if (c < v.n) total += row.weight(c);
        }
        total = warp_sum(total);
    }
    if (loss) {
        const float log_sum = logf(sum);
        const float all = soft > 0.0f ? all_of(row, v, m, log_sum) : 0.0f;
        if (lane == 0) {
            loss[r] = row.loss(at_label, m, log_sum, all);
            weight[r] = row.weight(row.label);
        }
    }
    const float scale = row.scale(sum, total), gr = upstream(g, divisor, r);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        int c = i * WARP + v.lane;
        if (c < v.n) dx[c] = from_acc<T>((expf(v.v[i] - m) * scale - row.pull(c)) * gr);
    }
}

template <typename T>
__device__ __forceinline__ void loss_blocks(const CrossEntropyParams &p, const T *x, const i32 *labels, const T *w,
                                            float *loss, float *weight, float hard, float soft, Fault *fault) {
    __shared__ float scratch[256 / WARP];
    const u64 r = blockIdx.x;
    if (r >= p.rows) return;
    const bool first = threadIdx.x == 0;
    const Row<T> row = row_of(p, r, x, labels, w, hard, soft);
    if (!row.counts(p, r, fault, first)) {
        if (first) loss[r] = weight[r] = 0.0f;
        return;
    }
    float m, sum, all = 0.0f;
    block_statistics(row.x, p.classes, m, sum, scratch);
    const float log_sum = logf(sum);
    if (soft > 0.0f) all = all_of(row, m, log_sum, scratch);
    if (first) {
        loss[r] = row.loss(to_acc(row.x[row.label]), m, log_sum, all);
        weight[r] = row.weight(row.label);
    }
}

template <typename T>
__device__ __forceinline__ void grad_blocks(const CrossEntropyParams &p, const T *x, const i32 *labels, const T *w,
                                            const float *g, const float *divisor, T *dx, float *loss, float *weight, float hard,
                                            float soft, Fault *fault) {
    __shared__ float scratch[256 / WARP];
    const u64 r = blockIdx.x;
    if (r >= p.rows) return;
    const Row<T> row = row_of(p, r, x, labels, w, hard, soft);
    dx += r * p.stride;
    if (!row.counts(p, r, fault, threadIdx.x == 0)) {
        for (u64 c = threadIdx.x; c < p.classes; c += 256) dx[c] = from_acc<T>(0.0f);
        if (loss && threadIdx.x == 0) loss[r] = weight[r] = 0.0f;
        return;
    }
    // Before the sums, behind which its element may be overwritten.
    const float at_label = loss && threadIdx.x == 0 ? to_acc(row.x[row.label]) : 0.0f;
    float m, sum, total = 0.0f;
    block_statistics(row.x, p.classes, m, sum, scratch);
    if (soft > 0.0f) {
        for (u64 c = threadIdx.x; c < p.classes; c += 256) total += row.weight(c);
        total = block_sum<256>(total, scratch);
    }
    if (loss) {
        const float log_sum = logf(sum);
        const float all = soft > 0.0f ? all_of(row, m, log_sum, scratch) : 0.0f;
        if (threadIdx.x == 0) {
            loss[r] = row.loss(at_label, m, log_sum, all);
            weight[r] = row.weight(row.label);
        }
    }
    const float scale = row.scale(sum, total), gr = upstream(g, divisor, r);
    map_row(row.x, dx, p.classes, [&](float v, u64 c) { return (expf(v - m) * scale - row.pull(c)) * gr; });
}

// The mean of the losses of all rows, by the last block: all threads of the launch call.
__device__ __forceinline__ void mean_of(const CrossEntropyParams &p, const float *losses, const float *weights,
                                        float *__restrict__ mean, float *__restrict__ total) {
    __shared__ float sums[256 / WARP];
    __shared__ bool last;
    if (!mean || !arrives_last(0, gridDim.x, last)) return;
    float loss = 0.0f, weight = 0.0f;
#pragma unroll 8
    for (u64 r = threadIdx.x; r < p.rows; r += 256) {
        loss += __ldcg(losses + r);
        weight += __ldcg(weights + r);
    }
    loss = block_sum<256>(loss, sums);
    weight = block_sum<256>(weight, sums);
    if (threadIdx.x > 0) return;
    *mean = loss / weight;
    *total = weight;
}

#define ENTRY(name, body, suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 2) cross_entropy_##name##_##suffix(                              \
        CrossEntropyParams p, const T *__restrict__ x, const i32 *__restrict__ labels, const T *__restrict__ w,        \
        float *loss, float *weight, float *__restrict__ mean, float *__restrict__ total, float hard, float soft,       \
        Fault *__restrict__ fault) {                                                                                   \
        loss_##body(p, x, labels, w, loss, weight, hard, soft, fault);                                                 \
        mean_of(p, loss, weight, mean, total);                                                                         \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2) cross_entropy_grad_##name##_##suffix(                         \
        CrossEntropyParams p, const T *x, const i32 *__restrict__ labels, const T *__restrict__ w,                     \
        const float *__restrict__ g, const float *__restrict__ total, T *dx, float *__restrict__ loss,                 \
        float *__restrict__ weight, float hard, float soft, Fault *__restrict__ fault) {                               \
        grad_##body(p, x, labels, w, g, total, dx, loss, weight, hard, soft, fault);                                                 \
    }
#define ENTRIES(suffix, T)                                                                                             \
    ENTRY(rows1, rows<1>, suffix, T)                                                                                   \
    ENTRY(rows4, rows<4>, suffix, T)                                                                                   \
    ENTRY(rows16, rows<16>, suffix, T)                                                                                 \
    ENTRY(blocks, blocks, suffix, T)
FOR_FLOATS(ENTRIES)
