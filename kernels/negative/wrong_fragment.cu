// Wrong on purpose: one 16×8×16 product on tensor cores whose lanes hold rows g+8 of A where rows g belong. `right` = 1
// puts them in order.
//
//   C [16, 8] = A [16, 16] · B [8, 16]ᵀ
//
// Geometry: one warp.
#include "../src/common/mma.cuh"

extern "C" __global__ void __launch_bounds__(32)
    wrong_fragment(u32 right, const bf16 *__restrict__ a, const bf16 *__restrict__ b, f32 *__restrict__ c) {
    u32 g = threadIdx.x / 4, t = threadIdx.x % 4;
    auto pair = [](const bf16 *p) { return *reinterpret_cast<const u32 *>(p); };
    u32 low = right ? g : g + 8, high = right ? g + 8 : g;
    u32 fa[4] = {pair(a + low * 16 + 2 * t), pair(a + high * 16 + 2 * t), pair(a + low * 16 + 2 * t + 8),
                 pair(a + high * 16 + 2 * t + 8)};
    u32 fb[2] = {pair(b + g * 16 + 2 * t), pair(b + g * 16 + 2 * t + 8)};
    float fc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    mma<bf16>(fc, fa, fb);
    c[g * 8 + 2 * t] = fc[0];
    c[g * 8 + 2 * t + 1] = fc[1];
    c[(g + 8) * 8 + 2 * t] = fc[2];
    c[(g + 8) * 8 + 2 * t + 1] = fc[3];
}
