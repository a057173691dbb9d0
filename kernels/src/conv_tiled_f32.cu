// Convolution and its gradients in f32, the second variant: conv_tiled.cuh.
#include "conv_tiled.cuh"

CONV_TILED(_f32, f32, 1, SmallTile, 2)
CONV_TILED(_packed_f32, f32, 4, SmallTile, 2)
CONV_TILED(_packed_large_f32, f32, 4, LargeTile, 1)
