// Attention of f16 on tensor cores: attention_tensor.cuh.
#include "attention_tensor_grad.cuh"

ATTENTION_TENSORS(f16, f16)
