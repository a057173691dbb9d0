// Products of f16 operands on the tensor cores of sm_90a: matmul_warpgroup.cuh.
#include "matmul_warpgroup.cuh"

MATMUL_WARPGROUPS(f16, f16)
