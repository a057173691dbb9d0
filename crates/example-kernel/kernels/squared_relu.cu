// The squared rectifier: y = max(x, 0)², and its gradient dx = 2·max(x, 0)·dy. One thread for each element.
#include <kiln/slice.cuh>

extern "C" __global__ void squared_relu(kiln::Slice<const float> x, kiln::Slice<float> y) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < y.size()) {
        float positive = fmaxf(x[i], 0.0f);
        y[i] = positive * positive;
    }
}

extern "C" __global__ void squared_relu_grad(
    kiln::Slice<const float> x, kiln::Slice<const float> dy, kiln::Slice<float> dx, float scale) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < dx.size()) dx[i] = scale * fmaxf(x[i], 0.0f) * dy[i];
}
