// The part of cuBLAS that llm.c's kernels use, with a plain kernel for the products, so that they run without the library.
// Matrices are column-major, as there.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <library_types.h>

#include <cstdint>

typedef struct cublasNothing *cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t { CUBLAS_DEFAULT_MATH, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum cublasComputeType_t { CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };

struct cublasMatrix {
    void *data;
    cudaDataType type;
    int ld;
    long long stride;

    __device__ long long at(int row, int column) const { return row + (long long)column * ld + blockIdx.z * stride; }

    __device__ float get(int row, int column) const {
        long long i = at(row, column);
        if (type == CUDA_R_32F) return ((const float *)data)[i];
        return type == CUDA_R_16F ? __half2float(((const __half *)data)[i])
                                  : __bfloat162float(((const __nv_bfloat16 *)data)[i]);
    }

    __device__ void put(int row, int column, float value) const {
        long long i = at(row, column);
        if (type == CUDA_R_32F) ((float *)data)[i] = value;
        else if (type == CUDA_R_16F) ((__half *)data)[i] = __float2half(value);
        else ((__nv_bfloat16 *)data)[i] = __float2bfloat16(value);
    }
};

static __global__ void cublasProduct(bool ta, bool tb, int m, int n, int k, float alpha, cublasMatrix a, cublasMatrix b,
                                     float beta, cublasMatrix c) {
    int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; i++) sum += (ta ? a.get(i, row) : a.get(row, i)) * (tb ? b.get(column, i) : b.get(i, column));
    // With a factor of zero the old value is not read, even where it is a NaN.
    c.put(row, column, alpha * sum + (beta == 0 ? 0 : beta * c.get(row, column)));
}

static cublasStatus_t cublasMultiply(cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, float alpha,
                                     cublasMatrix a, cublasMatrix b, float beta, cublasMatrix c, int count) {
    dim3 block(32, 8), grid((m + 31) / 32, (n + 7) / 8, count);
    cublasProduct<<<grid, block>>>(ta == CUBLAS_OP_T, tb == CUBLAS_OP_T, m, n, k, alpha, a, b, beta, c);
    return cudaGetLastError() == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

static inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m,
                                                        int n, int k, const void *alpha, const void *a, cudaDataType at,
                                                        int lda, long long sa, const void *b, cudaDataType bt, int ldb,
                                                        long long sb, const void *beta, void *c, cudaDataType ct, int ldc,
                                                        long long sc, int count, cublasComputeType_t compute,
                                                        cublasGemmAlgo_t) {
    for (cudaDataType type : {at, bt, ct})
        if (type != CUDA_R_32F && type != CUDA_R_16F && type != CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
    auto factor = [&](const void *p) {
        return compute == CUBLAS_COMPUTE_16F ? __half2float(*(const __half *)p) : *(const float *)p;
    };
    return cublasMultiply(ta, tb, m, n, k, factor(alpha), {(void *)a, at, lda, sa}, {(void *)b, bt, ldb, sb},
                          factor(beta), {c, ct, ldc, sc}, count);
}

static inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m,
                                                       int n, int k, const float *alpha, const float *a, int lda,
                                                       long long sa, const float *b, int ldb, long long sb,
                                                       const float *beta, float *c, int ldc, long long sc, int count) {
    return cublasMultiply(ta, tb, m, n, k, *alpha, {(void *)a, CUDA_R_32F, lda, sa}, {(void *)b, CUDA_R_32F, ldb, sb},
                          *beta, {c, CUDA_R_32F, ldc, sc}, count);
}

static inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                         int k, const float *alpha, const float *a, int lda, const float *b, int ldb,
                                         const float *beta, float *c, int ldc) {
    return cublasSgemmStridedBatched(handle, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}

// A handle holds nothing, and the kernel above is as exact as any mode asks for.
static inline cublasStatus_t cublasCreate(cublasHandle_t *handle) { return *handle = nullptr, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
