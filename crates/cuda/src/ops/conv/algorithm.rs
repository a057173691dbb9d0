//! The kernel variants of a convolution, by name.

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

/// The size of a tile of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tile {
    /// 64 × 64: for results with few tiles.
    Small,
    /// 128 × 128: each element that is read takes part in more products.
    Large,
}

/// The kernel variants, which all compute the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A thread per element, everything from global memory: the definition, and the variant that runs where no other fits.
    Naive,
    /// Products of gathered tiles in shared memory and registers.
    Tiled(Tile),
    /// Products of gathered tiles on tensor cores: bf16 and f16, and f32 with [`Options::tf32`](crate::Options::tf32).
    Tensor(Tile),
    /// Direct, for at most 4 input channels.
    Shallow,
    /// Direct, for one input channel a group.
    Depthwise,
    /// Winograd's F(2×2, 3×3) in f32, forward and data gradient: fewer products, larger rounding errors. Tiles that see an
    /// infinity or NaN are computed again by direct sums, so it reaches only the windows that see it.
    Winograd(Tile),
}

impl Algorithm {
    /// All variants.
    pub const ALL: [Algorithm; 9] = [
        Algorithm::Naive,
        Algorithm::Tiled(Tile::Small),
        Algorithm::Tiled(Tile::Large),
        Algorithm::Tensor(Tile::Small),
        Algorithm::Tensor(Tile::Large),
        Algorithm::Shallow,
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
            Algorithm::Tensor(Tile::Small) => "tensor64",
            Algorithm::Tensor(Tile::Large) => "tensor128",
            Algorithm::Shallow => "shallow",
            Algorithm::Depthwise => "depthwise",
            Algorithm::Winograd(Tile::Small) => "winograd64",
            Algorithm::Winograd(Tile::Large) => "winograd128",
        }
    }
}
