// Convolution and its gradients on tensor cores in f16, the third variant: conv_tensor.cuh.
#include "conv_tensor.cuh"

CONV_TENSORS(f16, f16)
