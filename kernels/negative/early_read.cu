// Wrong on purpose: reads shared memory that a `cp.async` of the same thread is still filling. `wait` = 1 puts the wait
// where it belongs, and the result is right.
//
//   y[i] = x[i]
//
// Geometry: one block of 64 threads, four elements a thread.
#include "../src/common/cp_async.cuh"

extern "C" __global__ void __launch_bounds__(64)
    early_read(u32 wait, const f32 *__restrict__ x, f32 *__restrict__ y) {
    __shared__ alignas(16) f32 tile[256];
    u32 at = 4 * threadIdx.x;
    cp_async<16>(shared_address(&tile[at]), x + at);
    cp_async_commit();
    if (wait) cp_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < 4; ++i) y[at + i] = tile[at + i];
    cp_async_wait<0>();
}
