// Convolution and its gradients on the tensor cores of sm_90a in bf16: conv_warpgroup.cuh.
#include "conv_warpgroup.cuh"

CONV_WARPGROUPS(bf16, bf16)
