// Attention of bf16 on tensor cores: attention_tensor.cuh.
#include "attention_tensor_grad.cuh"

ATTENTION_TENSORS(bf16, bf16)
