// Attention of f16 on tensor cores without dropout, a mask being one of keys: attention_tensor.cuh.
#include "attention_tensor_grad.cuh"

ATTENTION_TENSOR(tensor, 32, f16, f16, 2, 64, 2, false, false)
ATTENTION_TENSOR(tensor, 64, f16, f16, 2, 64, 4, false, false)
ATTENTION_TENSOR(tensor, 128, f16, f16, 2, 48, 0, false, false)
ATTENTION_TENSOR(tensor, 256, f16, f16, 1, 32, 0, false, false)
ATTENTION_KEY_GRAD(, 32, f16, f16, 32, 2, 64, 2, 2, false, false)
ATTENTION_KEY_GRAD(, 64, f16, f16, 64, 2, 64, 4, 4, false, false)
ATTENTION_KEY_GRAD(, 128, f16, f16, 128, 1, 32, 8, 6, false, false)
ATTENTION_KEY_GRAD(, 256, f16, f16, 128, 1, 16, 0, 0, false, false)
ATTENTION_QUERY_GRAD(, 32, f16, f16, 32, 2, 64, 2, false, false)
ATTENTION_QUERY_GRAD(, 64, f16, f16, 64, 2, 64, 4, false, false)
ATTENTION_QUERY_GRAD(, 128, f16, f16, 128, 1, 32, 8, false, false)
ATTENTION_QUERY_GRAD(, 256, f16, f16, 256, 1, 16, 0, false, false)
