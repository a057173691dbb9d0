// Products of f32 operands, rounded to tf32 (10 bits of fraction) on tensor cores: matmul_tensor.cuh.
#include "matmul_tensor.cuh"

MATMUL_TENSORS(tf32, f32)
