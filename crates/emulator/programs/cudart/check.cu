// A check of the runtime: kernels, variables, the numbers of errors, and the time for which they are remembered.

#include <cstdio>
#include <cstdlib>

__device__ int device = 7;
__constant__ float constant[4];
__managed__ int managed = 5;

template <class T> __global__ void line(T *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * constant[1] + device;
    if (i == 0) managed += 3;
}

__global__ void astray(int *p) { *p = 1; }

#define EXPECT(code, call)                                                                                    \
    do {                                                                                                      \
        cudaError_t found = (call);                                                                           \
        if (found == code) break;                                                                             \
        printf("line %d: %s is %s (%s)\n", __LINE__, #call, cudaGetErrorName(found), cudaGetErrorString(found)); \
        exit(1);                                                                                              \
    } while (0)
#define OK(call) EXPECT(cudaSuccess, call)
#define HOLDS(condition)                                        \
    do {                                                        \
        if (condition) break;                                   \
        printf("line %d: not %s\n", __LINE__, #condition);      \
        exit(1);                                                \
    } while (0)

int main() {
    const int n = 100, eight = 8;
    const float factors[] = {1, 2, 3, 4};
    float host[n], *x;
    for (int i = 0; i < n; i++) host[i] = i;
    managed = 6;
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    OK(cudaMemcpyToSymbol(constant, factors, sizeof factors));
    OK(cudaMemcpyToSymbol(device, &eight, sizeof eight));
    EXPECT(cudaErrorInvalidValue, cudaMemcpyToSymbol(constant, factors, sizeof factors, 4));
    EXPECT(cudaErrorInvalidSymbol, cudaMemcpyToSymbol(host, factors, sizeof factors));
    EXPECT(cudaErrorInvalidSymbol, cudaGetLastError());
    line<<<4, 32>>>(x, n);
    OK(cudaGetLastError());
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDefault));
    HOLDS(host[0] == 8 && host[99] == 206 && managed == 9);

    // An error of a call is remembered once.
    line<<<4, 2000>>>(x, n);
    EXPECT(cudaErrorInvalidConfiguration, cudaPeekAtLastError());
    EXPECT(cudaErrorInvalidConfiguration, cudaGetLastError());
    OK(cudaGetLastError());
    EXPECT(cudaErrorInvalidDeviceFunction, cudaLaunchKernel(host, 1, 1, nullptr, 0, nullptr));
    EXPECT(cudaErrorInvalidMemcpyDirection, cudaMemcpy(x, host, 4, static_cast<cudaMemcpyKind>(9)));
    cudaDeviceProp p;
    EXPECT(cudaErrorInvalidDevice, cudaGetDeviceProperties(&p, 99));
    EXPECT(cudaErrorInvalidDevice, cudaGetLastError());
    OK(cudaGetDeviceProperties(&p, 0));
    HOLDS(p.warpSize == 32 && p.multiProcessorCount > 0 && p.totalGlobalMem > 0 && p.maxThreadsDim[2] == 64);

    cudaFuncAttributes a;
    OK(cudaFuncGetAttributes(&a, line<float>));
    HOLDS(a.maxThreadsPerBlock > 0 && a.numRegs > 0);
    int blocks, threads;
    OK(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, line<float>));
    HOLDS(blocks >= p.multiProcessorCount && threads % 32 == 0);
    cudaPointerAttributes where;
    OK(cudaPointerGetAttributes(&where, x));
    HOLDS(where.type == cudaMemoryTypeDevice && where.hostPointer == nullptr);
    OK(cudaPointerGetAttributes(&where, host));
    HOLDS(where.type == cudaMemoryTypeUnregistered);

    // An error of a kernel stays until the device is reset, which brings variables back too.
    astray<<<1, 1>>>(reinterpret_cast<int *>(8));
    EXPECT(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    EXPECT(cudaErrorIllegalAddress, cudaGetLastError());
    EXPECT(cudaErrorIllegalAddress, cudaGetLastError());
    EXPECT(cudaErrorIllegalAddress, cudaFree(x));
    OK(cudaDeviceReset());
    OK(cudaGetLastError());
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMemset(x, 0, sizeof host));
    line<<<4, 32>>>(x, n);
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    HOLDS(host[0] == 7);
    OK(cudaFree(x));
    OK(cudaFree(nullptr));
}
