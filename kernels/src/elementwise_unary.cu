// Functions of one tensor and their gradients: y[i] = f(x[i]) and dx[i] = g[i]·f′(x[i]), i < n.
//
// Computed in f32 and rounded once. The code of the function is the same for all threads, so the switch stands outside
// the loop. Accesses are of 16 bytes where the pointers allow it; the last elements go one by one.
// The gradient reads x or y only where the function needs it; x, y and g may be the same memory.
//
// Geometry: 256 threads, a grid of any size striding over n/(16 bytes).
#include "common/pointwise_half.cuh"
#include "common/words.cuh"

struct UnaryParams {
    u64 n;
    double a, b;
    u32 op, pad;
};
static_assert(sizeof(UnaryParams) == 32, "core::ops::UnaryParams");

template <u32 OP, typename T>
__device__ __forceinline__ void map(const UnaryParams &p, const T *__restrict__ x, T *__restrict__ y) {
    const float a = (float)p.a, b = (float)p.b;
    const u64 packs = aligned16(x) && aligned16(y) ? p.n / LANES<T> : 0;
    for (u64 i = global_thread(); i < packs; i += global_threads()) {
        Words<T> v = load_words(x, i);
        constexpr int STEPS = UNARY_LIGHT<OP> ? 4 : 1;
#pragma unroll STEPS
        for (int k = 0; k < 4; ++k) {
            Word<T> r;
#pragma unroll
            for (int j = 0; j < WORD<T>; ++j) r.v[j] = from_acc<T>(value_as<T, OP>(to_acc(v.w[0].v[j]), a, b));
            v.turn(r);
        }
        store_words(y, i, v);
    }
    for (u64 i = packs * LANES<T> + global_thread(); i < p.n; i += global_threads())
        y[i] = from_acc<T>(value_as<T, OP>(to_acc(x[i]), a, b));
}

template <u32 OP, typename T>
__device__ __forceinline__ void map_grad(const UnaryParams &p, const T *x, const T *y, const T *g,
                                         T *__restrict__ dx) {
    const float a = (float)p.a, b = (float)p.b;
    constexpr bool X = GRAD_READS_X<OP>, Y = GRAD_READS_Y<OP>;
    const bool aligned = aligned16(x) && aligned16(y) && aligned16(g) && aligned16(dx);
    const u64 packs = aligned ? p.n / LANES<T> : 0;
    for (u64 i = global_thread(); i < packs; i += global_threads()) {
        Words<T> vg = load_words(g, i), vx = vg, vy = vg;
        if constexpr (X) vx = load_words(x, i);
        if constexpr (Y) vy = load_words(y, i);
        constexpr int STEPS = GRAD_LIGHT<OP> ? 4 : 1;
#pragma unroll STEPS
        for (int k = 0; k < 4; ++k) {
            Word<T> r;
#pragma unroll
            for (int j = 0; j < WORD<T>; ++j)
                r.v[j] = from_acc<T>(
                    slope_as<T, OP>(to_acc(vx.w[0].v[j]), to_acc(vy.w[0].v[j]), to_acc(vg.w[0].v[j]), a, b));
            if constexpr (X) vx.turn(vx.w[0]);
            if constexpr (Y) vy.turn(vy.w[0]);
            vg.turn(r);
        }
        store_words(dx, i, vg);
    }
    for (u64 i = packs * LANES<T> + global_thread(); i < p.n; i += global_threads()) {
        float vx = X ? to_acc(x[i]) : 0.0f, vy = Y ? to_acc(y[i]) : 0.0f;
        dx[i] = from_acc<T>(slope_as<T, OP>(vx, vy, to_acc(g[i]), a, b));
    }
}

#define FORWARD_CASE(code)                                                                                             \
    case UNARY_##code: return map<UNARY_##code, T>(p, x, y);
#define GRAD_CASE(code)                                                                                                \
    case UNARY_##code: return map_grad<UNARY_##code, T>(p, x, y, g, dx);

template <typename T> __device__ __forceinline__ void forward(const UnaryParams &p, const T *x, T *y) {
    switch (p.op) { UNARY_CODES(FORWARD_CASE) }
}
template <typename T>
__device__ __forceinline__ void backward(const UnaryParams &p, const T *x, const T *y, const T *g, T *dx) {
    switch (p.op) { UNARY_CODES(GRAD_CASE) }
}

#define ENTRIES(suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        unary_##suffix(UnaryParams p, const T *__restrict__ x, T *__restrict__ y) {                                    \
        forward<T>(p, x, y);                                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                               \
        unary_grad_##suffix(UnaryParams p, const T *x, const T *y, const T *g, T *__restrict__ dx) {                   \
        backward<T>(p, x, y, g, dx);                                                                                   \
    }
FOR_FLOATS(ENTRIES)
