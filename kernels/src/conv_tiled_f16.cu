// Convolution and its gradients in f16, the second variant: conv_tiled.cuh.
#include "conv_tiled.cuh"

CONV_TILED(_f16, f16, 1, SmallTile, 2)
CONV_TILED(_packed_f16, f16, 4, SmallTile, 2)
