// Convolution and its gradients on tensor cores in bf16, the third variant: conv_tensor.cuh.
#include "conv_tensor.cuh"

CONV_TENSORS(bf16, bf16)
