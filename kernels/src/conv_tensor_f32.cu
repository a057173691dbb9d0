// Convolution and its gradients on tensor cores in tf32, the third variant: conv_tensor.cuh. Operands are rounded
// to tf32, 10 bits of fraction: an option, never the default.
#include "conv_tensor.cuh"

CONV_TENSORS(f32, f32)
