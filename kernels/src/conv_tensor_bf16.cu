// Convolution and its gradients on tensor cores in bf16, the third variant: conv_tensor.cuh.
#include "conv_tensor.cuh"

CONV_TENSOR(_bf16, bf16, SmallTensorTile)
CONV_TENSOR(_large_bf16, bf16, LargeTensorTile)
