//! The kernel variants of a convolution, by name.

use crate::tensor_tile::TensorTile as Shape;

/// The three ops of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// [`ConvOps::conv`](kiln_core::ops::ConvOps::conv).
    Forward,
    /// [`ConvOps::conv_data_grad`](kiln_core::ops::ConvOps::conv_data_grad).
    DataGrad,
    /// [`ConvOps::conv_weight_grad`](kiln_core::ops::ConvOps::conv_weight_grad).
    WeightGrad,
}

/// The size of a tile of the products, in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tile {
    /// 64 × 64: for results with few tiles.
    Small,
    /// 128 × 128: each element that is read takes part in more products.
    Large,
}

/// The size of a tile of the products on tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorTile {
    /// 64 × 64: for results with few tiles, and for data gradients whose channels are no multiples of 64 bytes.
    T64x64,
    /// 128 × 64: for results with few channels.
    T128x64,
    /// 128 × 128: each element that is read takes part in more products.
    T128x128,
    /// 128 × 256: still more, for results with many channels; one block on a multiprocessor.
    T128x256,
    /// 128 × 64 by products of warp groups, as those below: bf16 and f16, on devices of compute capability 9.0 alone.
    Warpgroup128x64,
    /// 128 × 128 by products of warp groups.
    Warpgroup128x128,
    /// 128 × 256 by products of warp groups; one block on a multiprocessor.
    Warpgroup128x256,
}

impl TensorTile {
    /// All tiles.
    pub const ALL: [TensorTile; 7] = [
        TensorTile::T64x64,
        TensorTile::T128x64,
        TensorTile::T128x128,
        TensorTile::T128x256,
        TensorTile::Warpgroup128x64,
        TensorTile::Warpgroup128x128,
        TensorTile::Warpgroup128x256,
    ];

    /// Bytes of shared memory that a launch asks for, where it is more than a kernel may declare.
    pub(super) fn dynamic_shared(self) -> u32 {
        match self {
            // Three stages of 64 bytes for each row and column of the tile (`TensorTile::BYTES`).
            TensorTile::T128x256 => 3 * 64 * (128 + 256),
            // Stages of 128 bytes for each, and what the threads of a block have alike (`WarpgroupTile::BYTES`).
            TensorTile::Warpgroup128x64 => 4 * 128 * (128 + 64) + 1024,
            TensorTile::Warpgroup128x128 => 3 * 128 * (128 + 128) + 1024,
            TensorTile::Warpgroup128x256 => 4 * 128 * (128 + 256) + 1024,
            _ => 0,
        }
    }

    pub(super) fn shape(self) -> Shape {
        match self {
            TensorTile::T64x64 => Shape::T64X64,
            TensorTile::T128x64 => Shape::T128X64,
            TensorTile::T128x128 => Shape::T128X128,
            TensorTile::T128x256 => Shape::T128X256,
            TensorTile::Warpgroup128x64 => Shape::WARPGROUP_128X64,
            TensorTile::Warpgroup128x128 => Shape::WARPGROUP_128X128,
            TensorTile::Warpgroup128x256 => Shape::WARPGROUP_128X256,
        }
    }
}

/// The kernel variants, which all compute the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A thread per element, everything from global memory: the definition, and the variant that runs where no other fits.
    Naive,
    /// Products of gathered tiles in shared memory and registers.
    Tiled(Tile),
    /// Products of gathered tiles on tensor cores: bf16 and f16, and f32 with [`Options::tf32`](crate::Options::tf32).
    Tensor(TensorTile),
    /// On tensor cores, for input channels of less than 16 bytes in one group, which are padded to 16: forward and weight
    /// gradient, in the tile of the least modelled time.
    Padded,
    /// Direct, for at most 4 input channels.
    Shallow,
    /// Direct, for small data gradients: the weight and the gradient of an image lie in shared memory.
    Few,
    /// Direct, for one input channel a group.
    Depthwise,
    /// Winograd's F(2×2, 3×3) in f32, forward and data gradient: fewer products, larger rounding errors. Tiles that see an
    /// infinity or NaN are computed again by direct sums, so it reaches only the windows that see it.
    Winograd(Tile),
}

impl Algorithm {
    /// Bytes of shared memory that a launch of the kernel that multiplies tiles asks for.
    pub(super) fn dynamic_shared(self) -> u32 {
        match self {
            Algorithm::Tensor(tile) => tile.dynamic_shared(),
            _ => 0,
        }
    }

    /// All variants.
    pub const ALL: [Algorithm; 16] = [
        Algorithm::Naive,
        Algorithm::Tiled(Tile::Small),
        Algorithm::Tiled(Tile::Large),
        Algorithm::Tensor(TensorTile::T64x64),
        Algorithm::Tensor(TensorTile::T128x64),
        Algorithm::Tensor(TensorTile::T128x128),
        Algorithm::Tensor(TensorTile::T128x256),
        Algorithm::Tensor(TensorTile::Warpgroup128x64),
        Algorithm::Tensor(TensorTile::Warpgroup128x128),
        Algorithm::Tensor(TensorTile::Warpgroup128x256),
        Algorithm::Padded,
        Algorithm::Shallow,
        Algorithm::Few,
        Algorithm::Depthwise,
        Algorithm::Winograd(Tile::Small),
        Algorithm::Winograd(Tile::Large),
    ];

    /// A name for benches: `naive`, `tiled64`, `tiled128`, …
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Naive => "naive",
            Algorithm::Tiled(Tile::Small) => "tiled64",
            Algorithm::Tiled(Tile::Large) => "tiled128",
            Algorithm::Tensor(TensorTile::T64x64) => "tensor64x64",
            Algorithm::Tensor(TensorTile::T128x64) => "tensor128x64",
            Algorithm::Tensor(TensorTile::T128x128) => "tensor128x128",
            Algorithm::Tensor(TensorTile::T128x256) => "tensor128x256",
            Algorithm::Tensor(TensorTile::Warpgroup128x64) => "warpgroup128x64",
            Algorithm::Tensor(TensorTile::Warpgroup128x128) => "warpgroup128x128",
            Algorithm::Tensor(TensorTile::Warpgroup128x256) => "warpgroup128x256",
            Algorithm::Padded => "padded",
            Algorithm::Shallow => "shallow",
            Algorithm::Few => "few",
            Algorithm::Depthwise => "depthwise",
            Algorithm::Winograd(Tile::Small) => "winograd64",
            Algorithm::Winograd(Tile::Large) => "winograd128",
        }
    }
}
