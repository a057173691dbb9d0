// Wrong on purpose: the last thread writes one element past the end.
//
//   y[i] = 2·x[i], i ≤ n where i < n was meant
//
// Geometry: 256 threads a block, one per element and one too many.
#include "../src/common/types.cuh"

extern "C" __global__ void __launch_bounds__(256) off_by_one(u64 n, const f32 *__restrict__ x, f32 *__restrict__ y) {
    u64 i = global_thread();
    if (i <= n) y[i] = i < n ? 2.0f * x[i] : 0.0f;
}
