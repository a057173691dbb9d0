// Convolution and its gradients in bf16, the second variant: conv_tiled.cuh.
#include "conv_tiled.cuh"

CONV_TILED(_bf16, bf16, 1, SmallTile, 2)
CONV_TILED(_packed_bf16, bf16, 4, SmallTile, 2)
