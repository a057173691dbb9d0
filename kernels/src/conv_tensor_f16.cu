// Convolution and its gradients on tensor cores in f16, the third variant: conv_tensor.cuh.
#include "conv_tensor.cuh"

CONV_TENSOR(_f16, f16, SmallTensorTile)
CONV_TENSOR(_large_f16, f16, LargeTensorTile)
