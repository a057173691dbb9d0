// Attention of bf16 on tensor cores without dropout, a mask being one of keys: attention_tensor.cuh.
#include "attention_tensor_grad.cuh"

ATTENTION_TENSOR(tensor, 32, bf16, bf16, 2, 64, 2, false, false)
ATTENTION_TENSOR(tensor, 64, bf16, bf16, 2, 64, 4, false, false)
ATTENTION_TENSOR(tensor, 128, bf16, bf16, 2, 48, 0, false, false)
ATTENTION_TENSOR(tensor, 256, bf16, bf16, 1, 32, 0, false, false)
ATTENTION_KEY_GRAD(, 32, bf16, bf16, 32, 2, 64, 2, 2, false, false)
ATTENTION_KEY_GRAD(, 64, bf16, bf16, 64, 2, 64, 4, 4, false, false)
ATTENTION_KEY_GRAD(, 128, bf16, bf16, 128, 1, 32, 8, 6, false, false)
ATTENTION_KEY_GRAD(, 256, bf16, bf16, 128, 1, 16, 0, 0, false, false)
ATTENTION_QUERY_GRAD(, 32, bf16, bf16, 32, 2, 64, 2, false, false)
ATTENTION_QUERY_GRAD(, 64, bf16, bf16, 64, 2, 64, 4, false, false)
ATTENTION_QUERY_GRAD(, 128, bf16, bf16, 128, 1, 32, 8, false, false)
ATTENTION_QUERY_GRAD(, 256, bf16, bf16, 256, 1, 16, 0, false, false)
