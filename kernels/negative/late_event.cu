// Correct by itself: y[i] = x[i] + 1. The mistake it serves is the caller's, who launches it on one stream while another
// still copies x, with no event between them.
//
// Geometry: 256 threads a block, one per element.
#include "../src/common/types.cuh"

extern "C" __global__ void __launch_bounds__(256) late_event(u64 n, const f32 *__restrict__ x, f32 *__restrict__ y) {
    u64 i = global_thread();
    if (i < n) y[i] = x[i] + 1.0f;
}
