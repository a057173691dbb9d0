// Products of bf16 operands on tensor cores: matmul_tensor.cuh.
#include "matmul_tensor.cuh"

MATMUL_TENSORS(bf16, bf16)
