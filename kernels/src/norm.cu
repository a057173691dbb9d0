// Norms whose values lie in columns: batch norm, and group and instance norm over several positions.
//
//   mean, var over a sample's positions and a group's channels; rstd = 1/√(var + eps); x̂ = (x − mean)·rstd
//   y  = x̂·scale + shift
//   dx = rstd·(g·scale − Σ(g·scale)/n − x̂·Σ(g·scale·x̂)/n);   dscale = Σ g·x̂;   dshift = Σ g
//   RMS norm: mean = 0, rstd = 1/√(mean(x²) + eps), no second term in dx
//   batch norm with a residual and a ReLU: y = relu(x̂·scale + shift + r), and g becomes dr = g + more, zero where y ≤ 0; without a
//   residual x says where that is
//
// x is [samples, positions, channels], channels = groups·width, statistics [samples, groups]. Batch norm is one sample
// with a group per channel. Rows of layer norm (positions = 1) have kernels of their own in norm_rows.cu; their dscale
// and dshift are made here.
//
// Sums go in two stages, in an order that only the sizes decide. Stage 1 gives every block a tile of columns and a stretch of rows
// (struct Cut) and writes a partial result per column; stage 2 combines them in order. Stage 2 of batch norm, where all that is
// combined lies in one tile, is done by the block of the tile that arrives last, whichever it is; otherwise it is a kernel.
//
// Contract: x, g, y and dx are aligned to 16 bytes; scale and shift have a value per channel, or are null; fewer than
//   2^32 channels.
// Geometry of tiled kernels: blocks of (tx, 256/tx), tx a power of two up to 32; grid tiles·outer·chunks, tiles =
//   ⌈channels / (tx·V)⌉, where V is the elements of 16 bytes if they divide the channels, else 1.
#include "norm_columns.cuh"

constexpr int REDUCE = 128;

// The statistics of each (sample, group), and what a batch norm in training keeps of them.
struct Statistics {
    float *mean, *rstd;
    float *running_mean, *running_var; // a value per group; may be null
    i32 *batches;                                    // one number, null if they are
    double momentum;

    // Writes those of group `to`. Running statistics move, running = (1 − momentum)·running + momentum·batch with the unbiased
    // variance, and the batch is counted.
    __device__ __forceinline__ void put(const GroupNormParams &p, u64 to, const Moments &m) const {
        float var = m.m2 / m.count;
        mean[to] = p.rms ? 0.0f : m.mean;
        rstd[to] = p.flags & NORM_M2 ? m.m2 : rstd_of(p.rms ? var + m.mean * m.mean : var, p.eps);
        if (running_mean) {
            float keep = (float)(1.0 - momentum), rate = (float)momentum;
            running_mean[to] = keep * running_mean[to] + rate * m.mean;
            running_var[to] = keep * running_var[to] + rate * (m.m2 / (m.count - 1.0f));
            if (to == 0) *batches = (i32)((u32)*batches + 1);
        }
    }
};

// Stage 1: partial[chunk, {mean, m2}, channel] of the rows of each chunk; for batch norm, if `to.mean` is not null, stage 2 too.
template <typename T, int V>
__device__ __forceinline__ void moments(const GroupNormParams &p, const Cut &cut, const T *__restrict__ x,
                                        float *__restrict__ partial, const Statistics &to) {
    constexpr int ROWS = 4;
    __shared__ float counts[TILED], means[V * TILED], squares[V * TILED];
    __shared__ bool last;
    Place<V> at(p, cut);
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    Moments m[V] = {};
    for (u64 row = at.begin + threadIdx.y; at.inside() && row < at.end; row += ROWS * blockDim.y) {
        // Several rows in registers: their mean first, then the deviations from it.
        float v[ROWS][V];
        int n = 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            u64 here = row + r * blockDim.y;
            if (here < at.end) {
                load<V>(x + here * at.channels + at.column, v[r]);
                n = r + 1;
            }
        }
        float inverse = 1.0f / n;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            Moments b = {(float)n, 0.0f, 0.0f};
#pragma unroll
            for (int r = 0; r < ROWS; ++r) b.mean += r < n ? v[r][j] : 0.0f;
            b.mean *= inverse;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) b.m2 += r < n ? (v[r][j] - b.mean) * (v[r][j] - b.mean) : 0.0f;
            m[j].add(b);
        }
    }
    auto put = [&] {
        counts[thread] = m[0].count;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            means[j * TILED + thread] = m[j].mean;
            squares[j * TILED + thread] = m[j].m2;
        }
    };
    // m of the threads with row 0 is that of all rows.
    auto join = [&] {
        put();
        for (int half = blockDim.y / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.y >= half) continue;
            int other = thread + half * blockDim.x;
#pragma unroll
            for (int j = 0; j < V; ++j)
                m[j].add(Moments{counts[other], means[j * TILED + other], squares[j * TILED + other]});
            put();
        }
    };
    join();
    if (threadIdx.y == 0 && at.inside()) {
        float *to_chunk = partial + at.chunk * 2 * at.channels + at.column;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            to_chunk[j] = m[j].mean;
            to_chunk[at.channels + j] = m[j].m2;
        }
    }
    if (!to.mean || !arrives_last(at.tile, (u32)cut.chunks, last)) return;
#pragma unroll
    for (int j = 0; j < V; ++j) m[j] = {};
    if (at.inside()) {
#pragma unroll 2
        for (u32 chunk = threadIdx.y; chunk < cut.chunks; chunk += blockDim.y) {
            const float *from = partial + chunk * 2 * at.channels + at.column;
            const u64 left = cut.rows - chunk * cut.step;
            const float count = (float)(left < cut.step ? left : cut.step);
#pragma unroll
            for (int j = 0; j < V; ++j) m[j].add(Moments{count, __ldcg(from + j), __ldcg(from + at.channels + j)});
        }
    }
    join();
    if (threadIdx.y > 0 || !at.inside()) return;
#pragma unroll
    for (int j = 0; j < V; ++j) to.put(p, at.column + j, m[j]);
}

// Stage 2: the statistics of each (sample, group) from the partial results of its chunks and channels.
// Geometry: a block of 128 per (sample, group), the grid strides.
extern "C" __global__ void __launch_bounds__(REDUCE)
    norm_stats(GroupNormParams p, Cut cut, const float *__restrict__ partial, float *__restrict__ mean,
               float *__restrict__ rstd, float *__restrict__ running_mean, float *__restrict__ running_var,
               i32 *__restrict__ batches, double momentum) {
    float *second = p.flags & NORM_M2 ? mean + p.groups : rstd;
    const Statistics to = {mean, second, running_mean, running_var, batches, momentum};
    __shared__ Moments warps[REDUCE / WARP];
    u64 channels = p.groups * p.width;
    for (Walk at(blockIdx.x, gridDim.x, p.groups); at.quotient < p.samples; at.next()) {
        Moments m = {};
        for (Walk i(threadIdx.x, REDUCE, p.width); i.quotient < cut.chunks; i.next()) {
            u64 part = at.quotient * cut.chunks + i.quotient, left = cut.rows - i.quotient * cut.step;
            const float *from = partial + part * 2 * channels + at.remainder * p.width + i.remainder;
            m.add(Moments{(float)(left < cut.step ? left : cut.step), from[0], from[channels]});
        }
        m = warp_moments(m);
        if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = m;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < REDUCE / WARP; ++w) m.add(warps[w]);
            to.put(p, at.quotient * p.groups + at.remainder, m);
        }
        __syncthreads();
    }
}

// Where a batch norm has its statistics from: the mean and rstd; the mean and the variance; the mean and the sum of squared deviations
// from it, of a batch.
enum class From { RSTD, VARIANCE, MOMENTS };

// y = (x − mean)·rstd·scale + shift, plus a residual where there is one, and behind a ReLU if p says so; `rstd` is what FROM says. Of
// moments, the blocks of the first rows write the statistics.
template <typename T, int V, From FROM>
__device__ __forceinline__ void apply(const GroupNormParams &p, const Cut &cut, const T *__restrict__ x,
                                      const T *__restrict__ residual, const T *__restrict__ scale, const T *__restrict__ shift,
                                      const float *__restrict__ mean, const float *__restrict__ rstd,
                                      T *__restrict__ y, const Statistics &to = {}) {
    Place<V> at(p, cut);
    if (!at.inside()) return;
    Groups<V> groups(p, at.column);
    float m[V], a[V], b[V], s[V];
    groups.load(p, mean, at.outer, m);
    groups.load(p, rstd, at.outer, a);
    if (FROM == From::MOMENTS) {
        const float count = (float)p.positions;
        if (at.chunk == 0 && threadIdx.y == 0) {
#pragma unroll
            for (int j = 0; j < V; ++j) to.put(p, at.column + j, Moments{count, m[j], a[j]});
        }
#pragma unroll
        for (int j = 0; j < V; ++j) a[j] /= count;
    }
    of_channels(p, scale, at.column, 1.0f, s);
    of_channels(p, shift, at.column, 0.0f, b);
#pragma unroll
    for (int j = 0; j < V; ++j) a[j] = (FROM == From::RSTD ? a[j] : rstd_of(a[j], p.eps)) * s[j];
    auto put = [&](u64 row, int r, float (&v)[V]) {
        if (p.flags & NORM_RELU) {
#pragma unroll
            for (int j = 0; j < V; ++j) v[j] = v[j] < 0.0f ? 0.0f : v[j];
        }
        store<V>(y + at.index(row, r), v);
    };
    if (residual) {
        at.template visit<2>([&](auto count, u64 row) {
            constexpr int ROWS = decltype(count)::VALUE;
            Packed<T, V> packed[ROWS], more[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                packed[r].load(x + at.index(row, r));
                more[r].load(residual + at.index(row, r));
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                float v[V], other[V];
                packed[r].get(v);
                more[r].get(other);
#pragma unroll
                for (int j = 0; j < V; ++j) v[j] = normalised(v[j], m[j], a[j], b[j]) + other[j];
                put(row, r, v);
            }
        });
        return;
    }
    at.template visit<4>([&](auto count, u64 row) {
        constexpr int ROWS = decltype(count)::VALUE;
        Packed<T, V> packed[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) packed[r].load(x + at.index(row, r));
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float v[V];
            packed[r].get(v);
#pragma unroll
            for (int j = 0; j < V; ++j) v[j] = normalised(v[j], m[j], a[j], b[j]);
            put(row, r, v);
        }
    });
}

// Stage 1 of gradients: partial[chunk, {Σ g·x̂, Σ g}, channel], and for batch norm, if `to.dscale` is not null, stage 2. The statistics
// are those of the sample `outer`, or of the row itself where every row is a sample (positions = 1). g is first made the gradient before
// the residual and the ReLU, the sum of g and `more`, if given, zero where the ReLU's result y, if given, is not positive; with AGAIN, for
// batch norm, where what x gives is not. It is written to `dr`, if given.
template <typename T, int V, bool AGAIN>
__device__ __forceinline__ void sums(const GroupNormParams &p, const Cut &cut, const T *__restrict__ x,
                                     const float *__restrict__ mean, const float *__restrict__ rstd,
                                     const T *__restrict__ g, float *__restrict__ partial, const T *__restrict__ more,
                                     const T *__restrict__ y, T *__restrict__ dr, const T *__restrict__ shift,
                                     const Totals<T> &to) {
    __shared__ float dots[V * TILED], totals[V * TILED];
    __shared__ bool last;
    Place<V> at(p, cut);
    Groups<V> groups(p, at.column);
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    float dot[V] = {}, total[V] = {}, m[V] = {}, k[V] = {};
    if (at.inside() && p.positions > 1) {
        groups.load(p, mean, at.outer, m);
        groups.load(p, rstd, at.outer, k);
    }
    float a[AGAIN ? V : 1], b[AGAIN ? V : 1];
    if (AGAIN && at.inside()) {
        of_channels(p, to.scale, at.column, 1.0f, a);
        of_channels(p, shift, at.column, 0.0f, b);
#pragma unroll
        for (int j = 0; j < V; ++j) a[j % (AGAIN ? V : 1)] *= k[j];
    }
    auto add = [&](auto count, u64 row) {
        constexpr int ROWS = decltype(count)::VALUE;
        Packed<T, V> packed[ROWS], grads[ROWS], others[ROWS], results[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            packed[r].load(x + at.index(row, r));
            grads[r].load(g + at.index(row, r));
            if (more) others[r].load(more + at.index(row, r));
            if (!AGAIN && y) results[r].load(y + at.index(row, r));
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float v[V], d[V], other[V];
            packed[r].get(v);
            grads[r].get(d);
            if (more) {
                others[r].get(other);
                // What is summed is what the gradient of x is made of.
#pragma unroll
                for (int j = 0; j < V; ++j) d[j] = to_acc(from_acc<T>(d[j] + other[j]));
            }
            if (AGAIN) {
#pragma unroll
                for (int j = 0; j < V; ++j) {
                    const int i = j % (AGAIN ? V : 1);
                    d[j] = relu_blocks<T>(v[j], m[j], a[i], b[i]) ? 0.0f : d[j];
                }
            } else if (y) {
                results[r].get(other);
#pragma unroll
                for (int j = 0; j < V; ++j) d[j] = other[j] <= 0.0f ? 0.0f : d[j];
            }
            if (dr) store<V>(dr + at.index(row, r), d);
            if (p.positions == 1) {
                groups.load(p, mean, row + r * blockDim.y, m);
                groups.load(p, rstd, row + r * blockDim.y, k);
            }
#pragma unroll
            for (int j = 0; j < V; ++j) {
                dot[j] += d[j] * ((v[j] - m[j]) * k[j]);
                total[j] += d[j];
            }
        }
    };
    if (at.inside()) at.template visit<2>(add);
    auto put = [&] {
#pragma unroll
        for (int j = 0; j < V; ++j) {
            dots[j * TILED + thread] = dot[j];
            totals[j * TILED + thread] = total[j];
        }
    };
    // The sums of the threads with row 0 are those of all rows.
    auto join = [&] {
        put();
        for (int half = blockDim.y / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.y >= half) continue;
            int other = thread + half * blockDim.x;
#pragma unroll
            for (int j = 0; j < V; ++j) {
                dot[j] += dots[j * TILED + other];
                total[j] += totals[j * TILED + other];
            }
            put();
        }
    };
    join();
    if (threadIdx.y == 0 && at.inside()) {
        float *to_chunk = partial + at.chunk * 2 * at.channels + at.column;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            to_chunk[j] = dot[j];
            to_chunk[at.channels + j] = total[j];
        }
    }
    if (!to.dscale || !arrives_last(at.tile, (u32)cut.chunks, last)) return;
#pragma unroll
    for (int j = 0; j < V; ++j) dot[j] = total[j] = 0.0f;
    if (at.inside()) {
#pragma unroll 4
        for (u32 chunk = threadIdx.y; chunk < cut.chunks; chunk += blockDim.y) {
            const float *from = partial + chunk * 2 * at.channels + at.column;
#pragma unroll
            for (int j = 0; j < V; ++j) {
                dot[j] += __ldcg(from + j);
                total[j] += __ldcg(from + at.channels + j);
            }
        }
    }
    join();
    if (threadIdx.y > 0 || !at.inside()) return;
#pragma unroll
    for (int j = 0; j < V; ++j) to.put(p, at.channels, at.column + j, dot[j], total[j]);
}

// Stage 2 for dx: factors[{Σ g·scale / n, Σ g·scale·x̂ / n}, sample, group].
// Geometry: a block of 128 per (sample, group), the grid strides.
template <typename T>
__device__ __forceinline__ void factors_of(const GroupNormParams &p, const Cut &cut, const float *__restrict__ partial,
                                           const T *__restrict__ scale, float *__restrict__ factors) {
    __shared__ float scratch[REDUCE / WARP];
    u64 channels = p.groups * p.width, all = p.samples * p.groups;
    float n = (float)(p.positions * p.width);
    for (Walk at(blockIdx.x, gridDim.x, p.groups); at.quotient < p.samples; at.next()) {
        float dot = 0.0f, total = 0.0f;
        for (Walk i(threadIdx.x, REDUCE, p.width); i.quotient < cut.chunks; i.next()) {
            u64 part = at.quotient * cut.chunks + i.quotient, column = at.remainder * p.width + i.remainder;
            const float *from = partial + part * 2 * channels + column;
            float s = scale ? of_channel(p, scale, column) : 1.0f;
            dot += s * from[0];
            total += s * from[channels];
        }
        dot = block_sum<REDUCE>(dot, scratch);
        total = block_sum<REDUCE>(total, scratch);
        if (threadIdx.x == 0) {
            u64 to = at.quotient * p.groups + at.remainder;
            factors[to] = p.rms ? 0.0f : total / n;
            factors[all + to] = dot / n;
        }
    }
}

// Stage 2 for dscale and dshift: the sums of `parts` partial results, zero if there are none. With factors, for batch norm, also
// what norm_factors gives, because a channel is a group there.
// Geometry: blocks of (32, 8), 32 channels each.
template <typename T>
__device__ __forceinline__ void totals_of(const GroupNormParams &p, u64 parts, const float *__restrict__ partial,
                                          const Totals<T> &to) {
    u64 channels = p.groups * p.width;
    __shared__ float dots[8][WARP], totals[8][WARP];
    u64 column = (u64)blockIdx.x * WARP + threadIdx.x;
    float dot = 0.0f, total = 0.0f;
    for (u64 i = threadIdx.y; column < channels && i < parts; i += 8) {
        dot += partial[i * 2 * channels + column];
        total += partial[i * 2 * channels + channels + column];
    }
    dots[threadIdx.y][threadIdx.x] = dot;
    totals[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y > 0 || column >= channels) return;
    for (int y = 1; y < 8; ++y) {
        dot += dots[y][threadIdx.x];
        total += totals[y][threadIdx.x];
    }
    to.put(p, channels, column, dot, total);
}

// dx = rstd·(g·scale − factors₀ − x̂·factors₁). g may lie where dx is written: a thread reads an element of it before it writes it. With
// AGAIN, g counts where the ReLU of what x gives is positive. Of batch norm, the sums {Σ g·x̂, Σ g} may be given in place of the factors.
template <typename T, int V, bool AGAIN, bool SUMS = false>
__device__ __forceinline__ void input_gradient(const GroupNormParams &p, const Cut &cut, const T *__restrict__ x,
                                               const T *__restrict__ scale, const T *__restrict__ shift,
                                               const float *__restrict__ mean, const float *__restrict__ rstd,
                                               const T *g, const float *__restrict__ factors, T *dx,
                                               const float *__restrict__ dshift = nullptr) {
    Place<V> at(p, cut);
    if (!at.inside()) return;
    Groups<V> groups(p, at.column);
    float m[V], k[V], s[V], b[V], total[V], dot[V];
    groups.load(p, mean, at.outer, m);
    groups.load(p, rstd, at.outer, k);
    groups.load(p, SUMS ? dshift : factors, at.outer, total);
    groups.load(p, SUMS ? factors : factors + p.samples * p.groups, at.outer, dot);
    of_channels(p, scale, at.column, 1.0f, s);
    if (SUMS) {
        // As Totals makes the factors.
#pragma unroll
        for (int j = 0; j < V; ++j) {
            const float share = s[j] / (float)p.positions;
            total[j] *= share;
            dot[j] *= share;
        }
    }
    if (AGAIN) of_channels(p, shift, at.column, 0.0f, b);
    at.template visit<2>([&](auto count, u64 row) {
        constexpr int ROWS = decltype(count)::VALUE;
        float v[ROWS][V], d[ROWS][V];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            load<V>(x + at.index(row, r), v[r]);
            load<V>(g + at.index(row, r), d[r]);
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (AGAIN) {
#pragma unroll
                for (int j = 0; j < V; ++j)
                    d[r][j] = relu_blocks<T>(v[r][j], m[j], k[j] * s[j], b[j]) ? 0.0f : d[r][j];
            }
#pragma unroll
            for (int j = 0; j < V; ++j)
                d[r][j] = k[j] * (d[r][j] * s[j] - total[j] - (v[r][j] - m[j]) * k[j] * dot[j]);
            store<V>(dx + at.index(row, r), d[r]);
        }
    });
}

// A body with 16-byte accesses where they divide the channels, else with single elements.
#define BY_WIDTH(body, ...)                                                                                            \
    if (p.groups * p.width % LANES<T> == 0) body<T, LANES<T>>(__VA_ARGS__);                                            \
    else body<T, 1>(__VA_ARGS__);

template <typename T, int V>
__device__ __forceinline__ void train(const GroupNormParams &p, const Cut &cut, const T *__restrict__ x,
                                      const T *__restrict__ residual, const T *__restrict__ scale,
                                      const T *__restrict__ shift, const float *__restrict__ mean,
                                      const float *__restrict__ rstd, T *__restrict__ y) {
    apply<T, V, From::RSTD>(p, cut, x, residual, scale, shift, mean, rstd, y);
}
template <typename T, int V>
__device__ __forceinline__ void train_of_moments(const GroupNormParams &p, const Cut &cut, const T *__restrict__ x,
                                                 const T *__restrict__ residual, const T *__restrict__ scale,
                                                 const T *__restrict__ shift, const float *__restrict__ moments,
                                                 T *__restrict__ y, const Statistics &to) {
    apply<T, V, From::MOMENTS>(p, cut, x, residual, scale, shift, moments, moments + p.groups, y, to);
}
template <typename T, int V>
__device__ __forceinline__ void eval(const GroupNormParams &p, const Cut &cut, const T *__restrict__ x,
                                     const T *__restrict__ residual, const T *__restrict__ scale,
                                     const T *__restrict__ shift, const float *__restrict__ mean,
                                     const float *__restrict__ var, T *__restrict__ y) {
    apply<T, V, From::VARIANCE>(p, cut, x, residual, scale, shift, mean, var, y);
}

template <typename T, int V, typename... Args> __device__ __forceinline__ void sums_given(const Args &...args) {
    sums<T, V, false>(args...);
}
template <typename T, int V, typename... Args> __device__ __forceinline__ void sums_again(const Args &...args) {
    sums<T, V, true>(args...);
}
template <typename T, int V, typename... Args> __device__ __forceinline__ void gradient_given(const Args &...args) {
    input_gradient<T, V, false>(args...);
}
template <typename T, int V, typename... Args> __device__ __forceinline__ void gradient_of_sums(const Args &...args) {
    input_gradient<T, V, false, true>(args...);
}
template <typename T, int V, typename... Args> __device__ __forceinline__ void gradient_again(const Args &...args) {
    input_gradient<T, V, true>(args...);
}

#define NORM(suffix, type)                                                                                             \
    extern "C" __global__ void __launch_bounds__(TILED)                                                                \
        norm_moments_##suffix(GroupNormParams p, Cut cut, const type *__restrict__ x, float *__restrict__ partial,     \
                              float *__restrict__ mean, float *__restrict__ rstd, float *__restrict__ running_mean,    \
                              float *__restrict__ running_var, i32 *__restrict__ batches, double momentum) {           \
        using T = type;                                                                                                \
        float *second = p.flags & NORM_M2 ? mean + p.groups : rstd;                                                    \
        const Statistics to = {mean, second, running_mean, running_var, batches, momentum};                            \
        BY_WIDTH(moments, p, cut, x, partial, to)                                                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED) norm_apply_##suffix(                                           \
        GroupNormParams p, Cut cut, const type *__restrict__ x, const type *__restrict__ residual,                     \
        const type *__restrict__ scale, const type *__restrict__ shift, const float *__restrict__ mean,                \
        const float *__restrict__ rstd, type *__restrict__ y) {                                                        \
        using T = type;                                                                                                \
        BY_WIDTH(train, p, cut, x, residual, scale, shift, mean, rstd, y)                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED) norm_apply_moments_##suffix(                                   \
        GroupNormParams p, Cut cut, const type *__restrict__ x, const type *__restrict__ residual,                     \
        const type *__restrict__ scale, const type *__restrict__ shift, const float *__restrict__ moments,             \
        type *__restrict__ y, float *__restrict__ mean, float *__restrict__ rstd, float *__restrict__ running_mean,    \
        float *__restrict__ running_var, i32 *__restrict__ batches, double momentum) {                                 \
        using T = type;                                                                                                \
        const Statistics to = {mean, rstd, running_mean, running_var, batches, momentum};                              \
        BY_WIDTH(train_of_moments, p, cut, x, residual, scale, shift, moments, y, to)                                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED) norm_eval_##suffix(                                            \
        GroupNormParams p, Cut cut, const type *__restrict__ x, const type *__restrict__ residual,                     \
        const type *__restrict__ scale, const type *__restrict__ shift, const float *__restrict__ mean,                \
        const float *__restrict__ var, type *__restrict__ y) {                                                         \
        using T = type;                                                                                                \
        BY_WIDTH(eval, p, cut, x, residual, scale, shift, mean, var, y)                                                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED) norm_sums_##suffix(                                            \
        GroupNormParams p, Cut cut, const type *__restrict__ x, const float *__restrict__ mean,                        \
        const float *__restrict__ rstd, const type *__restrict__ g, float *__restrict__ partial,                       \
        const type *__restrict__ more, const type *__restrict__ y, type *__restrict__ dr, type *__restrict__ dscale,   \
        type *__restrict__ dshift, const type *__restrict__ scale, float *__restrict__ factors) {                      \
        using T = type;                                                                                                \
        const Totals<T> to = {dscale, dshift, scale, factors};                                                         \
        BY_WIDTH(sums_given, p, cut, x, mean, rstd, g, partial, more, y, dr, nullptr, to)                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED) norm_sums_relu_##suffix(                                       \
        GroupNormParams p, Cut cut, const type *__restrict__ x, const float *__restrict__ mean,                        \
        const float *__restrict__ rstd, const type *__restrict__ g, float *__restrict__ partial,                       \
        const type *__restrict__ more, type *__restrict__ dr, type *__restrict__ dscale, type *__restrict__ dshift,    \
        const type *__restrict__ scale, float *__restrict__ factors, const type *__restrict__ shift) {                 \
        using T = type;                                                                                                \
        const Totals<T> to = {dscale, dshift, scale, factors};                                                         \
        BY_WIDTH(sums_again, p, cut, x, mean, rstd, g, partial, more, nullptr, dr, shift, to)                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(REDUCE)                                                               \
        norm_factors_##suffix(GroupNormParams p, Cut cut, const float *__restrict__ partial,                           \
                              const type *__restrict__ scale, float *__restrict__ factors) {                           \
        factors_of<type>(p, cut, partial, scale, factors);                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        norm_totals_##suffix(GroupNormParams p, const float *__restrict__ partial, u64 parts,                          \
                             type *__restrict__ dscale, type *__restrict__ dshift, const type *__restrict__ scale,     \
                             float *__restrict__ factors) {                                                            \
        totals_of<type>(p, parts, partial, Totals<type>{dscale, dshift, scale, factors});                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED)                                                                \
        norm_grad_##suffix(GroupNormParams p, Cut cut, const type *__restrict__ x, const type *__restrict__ scale,     \
                           const float *__restrict__ mean, const float *__restrict__ rstd, const type *g,              \
                           const float *__restrict__ factors, type *dx) {                                              \
        using T = type;                                                                                                \
        BY_WIDTH(gradient_given, p, cut, x, scale, nullptr, mean, rstd, g, factors, dx)                                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED)                                                                \
        norm_data_grad_##suffix(GroupNormParams p, Cut cut, const type *__restrict__ x, const type *__restrict__ scale, \
                                const float *__restrict__ mean, const float *__restrict__ rstd,                        \
                                const type *__restrict__ d, const float *__restrict__ dscale,                          \
                                const float *__restrict__ dshift, type *__restrict__ dx) {                             \
        using T = type;                                                                                                \
        BY_WIDTH(gradient_of_sums, p, cut, x, scale, nullptr, mean, rstd, d, dscale, dx, dshift)                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED)                                                                \
        norm_grad_relu_##suffix(GroupNormParams p, Cut cut, const type *__restrict__ x,                                \
                                const type *__restrict__ scale, const float *__restrict__ mean,                        \
                                const float *__restrict__ rstd, const type *g, const float *__restrict__ factors,      \
                                type *dx, const type *__restrict__ shift) {                                            \
        using T = type;                                                                                                \
        BY_WIDTH(gradient_again, p, cut, x, scale, shift, mean, rstd, g, factors, dx)                                         \
    }
FOR_FLOATS(NORM)
