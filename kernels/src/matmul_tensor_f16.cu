// Products of f16 operands on tensor cores: matmul_tensor.cuh.
#include "matmul_tensor.cuh"

MATMUL_TENSORS(f16, f16)
