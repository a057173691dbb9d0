// Softmax cross-entropy of logits x [rows, classes] with labels t [rows]: loss, weight and gradient in one launch.
//
//   ℓ = log_softmax(x[r]);  loss[r] = −(1−ε)·w[t]·ℓ[t] − ε/C·Σ_c w[c]·ℓ[c];  weight[r] = w[t]
//   dx[r, c] = e^ℓ[c]·((1−ε)·w[t] + ε/C·Σ w) − ε/C·w[c] − (c = t)·(1−ε)·w[t]
//
// w is 1 where the pointer is null; hard = 1 − ε and soft = ε/C. A row whose label is p.ignore_index gives zeros; one
// whose label is no class is reported and gives zeros.
//
// Geometry: cross_entropy_rows<N>: rows of at most 32·N classes in the registers of a warp, 8 rows a block of 256.
//           cross_entropy_blocks: a block of 256 per row, which reads the row twice (three times with smoothing).
#include "common/fault.cuh"
#include "common/softmax.cuh"

struct CrossEntropyParams {
    u64 rows, classes;
    double smoothing;
    i64 ignore_index;
};
static_assert(sizeof(CrossEntropyParams) == 32, "core::ops::CrossEntropyParams");

// What one call shares among its rows, and the row at hand.
template <typename T> struct Row {
    const T *x, *w;
    T *dx;
    u64 classes;
    i64 label;
    float hard, soft;

    __device__ __forceinline__ float weight(u64 c) const { return w ? wide(w[c]) : 1.0f; }
    // How much of the gradient pulls class `c` up.
    __device__ __forceinline__ float pull(u64 c) const {
        float a = soft > 0.0f ? soft * weight(c) : 0.0f;
        return c == (u64)label ? a + hard * weight(label) : a;
    }
};

// Whether row `r` has a class for a label. If not it counts nothing: its results are zeros, and a label that is neither a
// class nor to be ignored is reported. `part` and `parts` say which columns are this thread's.
template <typename T>
__device__ __forceinline__ bool usable(const CrossEntropyParams &p, u64 r, const Row<T> &row, T *loss, T *weight,
                                       Fault *fault, u32 part, u32 parts) {
    const bool ignored = row.label == p.ignore_index;
    if (!ignored && row.label >= 0 && (u64)row.label < p.classes) return true;
    if (!ignored && part == 0) report(fault, FAULT_CROSS_ENTROPY, row.label, r, p.classes);
    for (u64 c = part; c < p.classes; c += parts) row.dx[c] = narrow<T>(0.0f);
    if (part == 0) loss[r] = weight[r] = narrow<T>(0.0f);
    return false;
}

template <int N, typename T>
__device__ __forceinline__ void rows(const CrossEntropyParams &p, const T *x, const i32 *labels, const T *w, T *loss,
                                     T *weight, T *dx, float hard, float soft, Fault *fault) {
    u64 r = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    if (r >= p.rows) return;
    const Row<T> row = {x + r * p.classes, w, dx + r * p.classes, p.classes, labels[r], hard, soft};
    if (!usable(p, r, row, loss, weight, fault, threadIdx.x % WARP, WARP)) return;
    WarpRow<N> v;
    v.load(row.x, (int)p.classes);
    float m, sum, all = 0.0f, total = 0.0f;
    v.statistics(m, sum);
    const float log_sum = logf(sum), label = hard * row.weight(row.label);
    if (soft > 0.0f) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            int c = i * WARP + v.lane;
            if (c < v.n) {
                float wc = row.weight(c);
                all += wc * (v.v[i] - m - log_sum);
                total += wc;
            }
        }
        all = warp_sum(all);
        total = warp_sum(total);
    }
    if (v.lane == 0) {
        float a = -(label * (wide(row.x[row.label]) - m - log_sum));
        loss[r] = narrow<T>(soft > 0.0f ? a - soft * all : a);
        weight[r] = narrow<T>(row.weight(row.label));
    }
    const float scale = (soft > 0.0f ? label + soft * total : label) / sum;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        int c = i * WARP + v.lane;
        if (c < v.n) row.dx[c] = narrow<T>(expf(v.v[i] - m) * scale - row.pull(c));
    }
}

template <typename T>
__device__ __forceinline__ void blocks(const CrossEntropyParams &p, const T *x, const i32 *labels, const T *w, T *loss,
                                       T *weight, T *dx, float hard, float soft, Fault *fault) {
    __shared__ float scratch[256 / WARP];
    const u64 r = blockIdx.x;
    const Row<T> row = {x + r * p.classes, w, dx + r * p.classes, p.classes, labels[r], hard, soft};
    if (!usable(p, r, row, loss, weight, fault, threadIdx.x, 256)) return;
    float m, sum, all = 0.0f, total = 0.0f;
    block_statistics(row.x, p.classes, m, sum, scratch);
    const float log_sum = logf(sum), label = hard * row.weight(row.label);
    if (soft > 0.0f) {
        for (u64 c = threadIdx.x; c < p.classes; c += 256) {
            float wc = row.weight(c);
            all += wc * (wide(row.x[c]) - m - log_sum);
            total += wc;
        }
        all = block_sum<256>(all, scratch);
        total = block_sum<256>(total, scratch);
    }
    if (threadIdx.x == 0) {
        float a = -(label * (wide(row.x[row.label]) - m - log_sum));
        loss[r] = narrow<T>(soft > 0.0f ? a - soft * all : a);
        weight[r] = narrow<T>(row.weight(row.label));
    }
    const float scale = (soft > 0.0f ? label + soft * total : label) / sum;
    map_row(row.x, row.dx, p.classes, [&](float v, u64 c) { return expf(v - m) * scale - row.pull(c); });
}

#define ENTRY(name, body, suffix, T)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 2) cross_entropy_##name##_##suffix(                              \
        CrossEntropyParams p, const T *__restrict__ x, const i32 *__restrict__ labels, const T *__restrict__ w,        \
        T *__restrict__ loss, T *__restrict__ weight, T *__restrict__ dx, float hard, float soft,                      \
        Fault *__restrict__ fault) {                                                                                   \
        body(p, x, labels, w, loss, weight, dx, hard, soft, fault);                                                    \
    }
#define ENTRIES(suffix, T)                                                                                             \
    ENTRY(rows1, rows<1>, suffix, T)                                                                                   \
    ENTRY(rows4, rows<4>, suffix, T)                                                                                   \
    ENTRY(rows16, rows<16>, suffix, T)                                                                                 \
    ENTRY(blocks, blocks, suffix, T)
FOR_FLOATS(ENTRIES)
