// Attention of bf16 on tensor cores with a bias or any mask, with or without dropout: attention_tensor.cuh.
#include "attention_tensor_grad.cuh"

ATTENTION_TENSOR(masked, 32, bf16, bf16, 2, 32, 2, true, false)
ATTENTION_TENSOR(masked, 64, bf16, bf16, 2, 64, 4, true, false)
ATTENTION_TENSOR(masked, 128, bf16, bf16, 2, 32, 0, true, false)
ATTENTION_TENSOR(masked, 256, bf16, bf16, 1, 32, 0, true, false)
ATTENTION_KEY_GRAD(masked_, 32, bf16, bf16, 32, 1, 64, 2, 2, true, false)
ATTENTION_KEY_GRAD(masked_, 64, bf16, bf16, 64, 2, 32, 0, 0, true, false)
ATTENTION_KEY_GRAD(masked_, 128, bf16, bf16, 128, 1, 32, 8, 0, true, false)
ATTENTION_KEY_GRAD(masked_, 256, bf16, bf16, 128, 1, 16, 0, 0, true, false)
ATTENTION_QUERY_GRAD(masked_, 32, bf16, bf16, 32, 1, 64, 2, true, false)
ATTENTION_QUERY_GRAD(masked_, 64, bf16, bf16, 64, 2, 64, 4, true, false)
ATTENTION_QUERY_GRAD(masked_, 128, bf16, bf16, 128, 1, 32, 8, true, false)
ATTENTION_QUERY_GRAD(masked_, 256, bf16, bf16, 256, 1, 16, 0, true, false)
