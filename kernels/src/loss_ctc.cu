// The CTC loss of log-probabilities x [T, N, C] with labels [N, labels], and its gradient.
//
//   α[t, s] = ln of the probability of all beginnings of alignments that are in state s at step t
//   β[t, s] = ln of that of all ends behind step t from state s, without step t itself
//   loss[n] = −ln Σ e^α at the last step and its last blank and label;  γ[t, s] = e^(α + β + loss)
//   dx[t, n, c] = g[n]·(e^x[t, n, c] − Σ γ[t, s] over the states s of class c)
//
// A step has labels + 1 blanks, and behind them the labels: blank k lies before label k. A blank is reached from itself and the label
// before, a label from itself, the blank before, and the label before if that is another one. alpha and shares (γ) are [N, T, 2·labels + 1],
// beta [N, 2, 2·labels + 1]: two steps in turns. Places beyond the lengths of a sequence are neither written nor read. A sequence without an
// alignment has the loss ∞ and the gradient NaN, or 0 and 0 with zero_infinity; steps beyond a length have the gradient 0. Lengths and labels
// that do not fit are reported by the loss, and give the loss 0 and the gradient 0.
//
// Geometry: loss, shares: a block of 256 per sequence, a thread for each state, with a barrier for each step. grad: a warp per row of x,
//           8 rows a block of 256. Equal labels are added by the lane of the first of them, in their order.
#include "common/fault.cuh"
#include "common/warp.cuh"

struct CtcParams {
    u64 time, batch, classes, labels, blank;
    u32 zero_infinity, pad;
};
static_assert(sizeof(CtcParams) == 48, "core::ops::CtcParams");

// ln(eᵃ + eᵇ), also of −∞.
__device__ __forceinline__ float log_add(float a, float b) {
    const float m = fmaxf(a, b);
    return m == -INFINITY ? m : m + logf(expf(a - m) + expf(b - m));
}
__device__ __forceinline__ float log_add(float a, float b, float c) {
    const float m = fmaxf(fmaxf(a, b), c);
    return m == -INFINITY ? m : m + logf(expf(a - m) + expf(b - m) + expf(c - m));
}

// One sequence.
template <typename T> struct Sequence {
    const T *x; // of its first step
    const i32 *labels;
    u64 step;    // from one step to the next in x
    i64 time, count;
    u64 states, first_label, blank;

    __device__ __forceinline__ Sequence(const CtcParams &p, u64 n, const T *x, const i32 *labels, const i32 *times,
                                        const i32 *lengths)
        : x(x + n * p.classes), labels(labels + n * p.labels), step(p.batch * p.classes), time(times[n]), count(lengths[n]),
          states(2 * p.labels + 1), first_label(p.labels + 1), blank(p.blank) {}

    // True if lengths and labels fit; `fault` is told of those that do not, unless it is null. All threads of a block of 256 call.
    __device__ __forceinline__ bool fits(const CtcParams &p, u64 n, Fault *fault) const {
        if (time < 0 || (u64)time > p.time) {
            if (fault && threadIdx.x == 0) report(fault, FAULT_CTC_INPUT_LENGTH, time, n, p.time);
            return false;
        }
        if (count < 0 || (u64)count > p.labels) {
            if (fault && threadIdx.x == 0) report(fault, FAULT_CTC_TARGET_LENGTH, count, n, p.labels);
            return false;
        }
        int wrong = 0;
        for (i64 k = threadIdx.x; k < count; k += 256) {
            const i64 label = labels[k];
            const bool outside = label < 0 || (u64)label >= p.classes;
            if (!outside && (u64)label != p.blank) continue;
            wrong = 1;
            if (fault) report(fault, outside ? FAULT_CTC_LABEL : FAULT_CTC_BLANK, label, n * p.labels + k, p.classes);
        }
        return !__syncthreads_or(wrong);
    }
    __device__ __forceinline__ float at(i64 t, u64 c) const { return to_acc(x[t * step + c]); }
    __device__ __forceinline__ float of_blank(i64 t) const { return at(t, blank); }
    __device__ __forceinline__ float of_label(i64 t, i64 k) const { return at(t, (u64)labels[k]); }

    // ln of the probability of the labels, from the last step's states.
    __device__ __forceinline__ float total(const float *alpha) const {
        if (time == 0) return count == 0 ? 0.0f : -INFINITY;
        const float *last = alpha + (time - 1) * states;
        return count == 0 ? last[0] : log_add(last[count], last[first_label + count - 1]);
    }
};

template <typename T>
__device__ __forceinline__ void loss_of(const CtcParams &p, const T *x, const i32 *labels, const i32 *times,
                                        const i32 *lengths, float *loss, float *alpha, Fault *fault) {
    const u64 n = blockIdx.x;
    const Sequence<T> q(p, n, x, labels, times, lengths);
    if (!q.fits(p, n, fault)) {
        if (threadIdx.x == 0) loss[n] = 0.0f;
        return;
    }
    alpha += n * p.time * q.states;
    for (i64 t = 0; t < q.time; ++t) {
        const float *old = alpha + (t - 1) * q.states, *old_labels = old + q.first_label;
        float *row = alpha + t * q.states, *row_labels = row + q.first_label;
        for (i64 i = threadIdx.x; i <= 2 * q.count; i += 256) {
            const i64 k = i - (q.count + 1);
            if (k < 0) {
                float a = i == 0 ? 0.0f : -INFINITY;
                if (t > 0) a = i == 0 ? old[0] : log_add(old[i], old_labels[i - 1]);
                row[i] = q.of_blank(t) + a;
            } else {
                float a = k == 0 ? 0.0f : -INFINITY;
                if (t > 0) {
                    const bool skips = k > 0 && q.labels[k] != q.labels[k - 1];
                    a = log_add(old_labels[k], old[k], skips ? old_labels[k - 1] : -INFINITY);
                }
                row_labels[k] = q.of_label(t, k) + a;
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        const float total = q.total(alpha);
        loss[n] = total != -INFINITY ? -total : p.zero_infinity ? 0.0f : INFINITY;
    }
}

// `totals` is ln of the probability of each sequence's labels, and ∞ of one that does not fit.
template <typename T>
__device__ __forceinline__ void shares_of(const CtcParams &p, const T *x, const i32 *labels, const i32 *times,
                                          const i32 *lengths, const float *alpha, float *beta, float *shares, float *totals) {
    const u64 n = blockIdx.x;
    const Sequence<T> q(p, n, x, labels, times, lengths);
    if (!q.fits(p, n, nullptr)) {
        if (threadIdx.x == 0) totals[n] = INFINITY;
        return;
    }
    alpha += n * p.time * q.states;
    shares += n * p.time * q.states;
    beta += n * 2 * q.states;
    const float total = q.total(alpha);
    if (threadIdx.x == 0) totals[n] = total;
    if (total == -INFINITY) return;
    for (i64 t = q.time - 1; t >= 0; --t) {
        const float *next = beta + (t + 1) % 2 * q.states, *next_labels = next + q.first_label;
        const bool last = t == q.time - 1;
        const float blank = last ? 0.0f : q.of_blank(t + 1);
        for (i64 i = threadIdx.x; i <= 2 * q.count; i += 256) {
            const i64 k = i - (q.count + 1);
            const u64 state = k < 0 ? (u64)i : q.first_label + k;
            float b;
            if (k < 0) {
                b = i == q.count ? 0.0f : -INFINITY;
                if (!last) {
                    b = next[i] + blank;
                    if (i < q.count) b = log_add(b, next_labels[i] + q.of_label(t + 1, i));
                }
            } else {
                b = k == q.count - 1 ? 0.0f : -INFINITY;
                if (!last) {
                    const bool skips = k < q.count - 1 && q.labels[k] != q.labels[k + 1];
                    b = log_add(next_labels[k] + q.of_label(t + 1, k), next[k + 1] + blank,
                                skips ? next_labels[k + 1] + q.of_label(t + 1, k + 1) : -INFINITY);
                }
            }
            beta[t % 2 * q.states + state] = b;
            shares[t * q.states + state] = expf(alpha[t * q.states + state] + b - total);
        }
        __syncthreads();
    }
}

template <typename T>
__device__ __forceinline__ void grad_of(const CtcParams &p, const T *x, const i32 *labels, const i32 *times,
                                        const i32 *lengths, const float *shares, const float *totals, const float *g, T *dx) {
    const u64 r = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    if (r >= p.time * p.batch) return;
    u64 t, n;
    divide(r, p.batch, t, n);
    const int lane = threadIdx.x % WARP;
    const Sequence<T> q(p, n, x, labels, times, lengths);
    x += r * p.classes;
    dx += r * p.classes;
    const float total = totals[n];
    if (total == INFINITY || (i64)t >= q.time || total == -INFINITY) {
        const bool zero = total == INFINITY || (i64)t >= q.time || p.zero_infinity;
        for (u64 c = lane; c < p.classes; c += WARP) dx[c] = from_acc<T>(zero ? 0.0f : NAN);
        return;
    }
    const float gr = g[n];
    for (u64 c = lane; c < p.classes; c += WARP) dx[c] = from_acc<T>(expf(to_acc(x[c])) * gr);
    shares += (n * p.time + t) * q.states;
    float blank = 0.0f;
    for (i64 k = lane; k <= q.count; k += WARP) blank += shares[k];
    blank = warp_sum(blank);
    __syncwarp();
    if (lane == 0) dx[p.blank] = from_acc<T>((expf(to_acc(x[p.blank])) - blank) * gr);
    const float *of_labels = shares + q.first_label;
    for (i64 k = lane; k < q.count; k += WARP) {
        const i32 label = q.labels[k];
        bool first = true;
        for (i64 j = 0; j < k && first; ++j) first = q.labels[j] != label;
        if (!first) continue;
        float sum = 0.0f;
        for (i64 j = k; j < q.count; ++j) sum += q.labels[j] == label ? of_labels[j] : 0.0f;
        dx[label] = from_acc<T>((expf(to_acc(x[label])) - sum) * gr);
    }
}

#define ENTRIES(suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) ctc_loss_##suffix(                                               \
        CtcParams p, const T *__restrict__ x, const i32 *__restrict__ labels, const i32 *__restrict__ times,           \
        const i32 *__restrict__ lengths, float *__restrict__ loss, float *alpha, Fault *__restrict__ fault) {          \
        loss_of(p, x, labels, times, lengths, loss, alpha, fault);                                                     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) ctc_shares_##suffix(                                             \
        CtcParams p, const T *__restrict__ x, const i32 *__restrict__ labels, const i32 *__restrict__ times,           \
        const i32 *__restrict__ lengths, const float *__restrict__ alpha, float *beta, float *__restrict__ shares,     \
        float *__restrict__ totals) {                                                                                  \
        shares_of(p, x, labels, times, lengths, alpha, beta, shares, totals);                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) ctc_grad_##suffix(                                               \
        CtcParams p, const T *__restrict__ x, const i32 *__restrict__ labels, const i32 *__restrict__ times,           \
        const i32 *__restrict__ lengths, const float *__restrict__ shares, const float *__restrict__ totals,           \
        const float *__restrict__ g, T *__restrict__ dx) {                                                             \
        grad_of(p, x, labels, times, lengths, shares, totals, g, dx);                                                  \
    }
FOR_FLOATS(ENTRIES)
