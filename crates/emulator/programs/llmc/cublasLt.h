// The names of cuBLASLt in llm.c's files. None of it computes: the kernel that asks for a product is refused.

#pragma once

#include <cstdio>

#include "cublas_v2.h"

typedef struct cublasNothing *cublasLtHandle_t, *cublasLtMatmulDesc_t, *cublasLtMatmulPreference_t, *cublasLtMatrixLayout_t;
struct cublasLtMatmulHeuristicResult_t {
    int algo;
};
enum cublasLtEpilogue_t {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_GELU = 32,
    CUBLASLT_EPILOGUE_GELU_BIAS = 36
};
enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8
};

#define ABSENT(name)                                                    \
    template <class... Any> static inline cublasStatus_t name(Any...) { \
        fprintf(stderr, #name " is not implemented\n");                 \
        return CUBLAS_STATUS_NOT_SUPPORTED;                             \
    }
ABSENT(cublasLtMatmulDescCreate)
ABSENT(cublasLtMatmulDescDestroy)
ABSENT(cublasLtMatmulDescSetAttribute)
ABSENT(cublasLtMatrixLayoutCreate)
ABSENT(cublasLtMatrixLayoutDestroy)
ABSENT(cublasLtMatmulPreferenceCreate)
ABSENT(cublasLtMatmulPreferenceDestroy)
ABSENT(cublasLtMatmulPreferenceSetAttribute)
ABSENT(cublasLtMatmulAlgoGetHeuristic)
ABSENT(cublasLtMatmul)

static inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) { return *handle = nullptr, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
