// Products of bf16 operands on the tensor cores of sm_90a: matmul_warpgroup.cuh.
#include "matmul_warpgroup.cuh"

MATMUL_WARPGROUPS(bf16, bf16)
