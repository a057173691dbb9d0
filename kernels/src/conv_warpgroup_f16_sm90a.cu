// Convolution and its gradients on the tensor cores of sm_90a in f16: conv_warpgroup.cuh.
#include "conv_warpgroup.cuh"

CONV_WARPGROUPS(f16, f16)
