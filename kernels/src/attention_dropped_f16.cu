// Attention of f16 on tensor cores with dropout, a mask being one of keys: attention_tensor.cuh.
#include "attention_tensor_grad.cuh"

ATTENTION_TENSOR(dropped, 32, f16, f16, 2, 64, 2, false, true)
ATTENTION_TENSOR(dropped, 64, f16, f16, 2, 64, 3, false, true)
ATTENTION_TENSOR(dropped, 128, f16, f16, 2, 32, 2, false, true)
ATTENTION_TENSOR(dropped, 256, f16, f16, 1, 32, 0, false, true)
ATTENTION_KEY_GRAD(dropped_, 32, f16, f16, 32, 2, 64, 2, 2, false, true)
ATTENTION_KEY_GRAD(dropped_, 64, f16, f16, 64, 2, 32, 4, 4, false, true)
ATTENTION_KEY_GRAD(dropped_, 128, f16, f16, 128, 1, 32, 8, 6, false, true)
ATTENTION_KEY_GRAD(dropped_, 256, f16, f16, 128, 1, 16, 0, 0, false, true)
ATTENTION_QUERY_GRAD(dropped_, 32, f16, f16, 32, 2, 64, 2, false, true)
ATTENTION_QUERY_GRAD(dropped_, 64, f16, f16, 64, 2, 64, 4, false, true)
ATTENTION_QUERY_GRAD(dropped_, 128, f16, f16, 128, 1, 32, 8, false, true)
ATTENTION_QUERY_GRAD(dropped_, 256, f16, f16, 256, 1, 16, 0, false, true)
