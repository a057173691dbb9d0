//! The tiles, the shared memory and the grids of the kernels of attention.

use crate::ops::instance;
use kiln_core::{DType, Error, Result};
use kiln_device::Geometry;
use kiln_kernels::attention_dropped_bf16 as dropped_bf16;
use kiln_kernels::attention_dropped_f16 as dropped_f16;
use kiln_kernels::attention_masked_bf16 as masked_bf16;
use kiln_kernels::attention_masked_f16 as masked_f16;
use kiln_kernels::attention_tensor_bf16 as tensor_bf16;
use kiln_kernels::attention_tensor_f16 as tensor_f16;
use kiln_kernels::{Kernel, PerFloat};

/// Rows and columns of a tile of the plain kernels, and their threads.
const SIDE: u64 = 64;
pub(super) const PLAIN_THREADS: u32 = 256;
/// Threads of the kernels on tensor cores.
const TENSOR_THREADS: u32 = 128;
/// The widest vectors that the kernels on tensor cores take.
pub(super) const WIDEST: u64 = 256;

/// Bytes of shared memory for where operands begin, and for a bit for each of [`MOST_KEYS`] and of the rest of a tile.
const PLACE: u64 = 96 + MOST_KEYS / 8 + 16;
/// The most keys of a mask of keys; more take the kernels for any mask.
pub(super) const MOST_KEYS: u64 = 4096;

/// The sizes that a kernel on tensor cores is made for, as in the table of kernels/src/attention_tensor_grad.cuh.
pub(super) struct Tile {
    /// Columns of its vectors.
    width: u64,
    /// Rows of its result that a block computes.
    rows: u64,
    /// Blocks that share the columns of these rows.
    parts: u64,
    /// Bytes of shared memory.
    shared: u32,
    bf16: &'static Kernel,
    f16: &'static Kernel,
}

/// The forward pass: a tile of queries, two stages of `step` keys and values, and [`PLACE`].
const fn forward(width: u64, rows: u64, step: u64, bf16: &'static Kernel, f16: &'static Kernel) -> Tile {
    Tile {
        width,
        rows,
        parts: 1,
        shared: ((rows + 4 * step) * width * 2 + PLACE) as u32,
        bf16,
        f16,
    }
}

/// A gradient of `rows` rows: its own two operands, of which `kept` stay beside two stages of `step` rows of two others with a pair of
/// f32 each; and [`PLACE`].
const fn grad(
    [width, part]: [u64; 2],
    [rows, step, kept]: [u64; 3],
    bf16: &'static Kernel,
    f16: &'static Kernel,
) -> Tile {
    let (own, stages) = (rows * width * 2, 4 * step * width * 2);
    let beside = kept * own + stages;
    let operands = if beside > 2 * own { beside } else { 2 * own };
    Tile {
        width,
        rows,
        parts: width / part,
        shared: (operands + 16 * step + PLACE) as u32,
        bf16,
        f16,
    }
}

/// The kernels of a kind, by the width that they are made for.
pub(super) struct Tiles {
    pub(super) forward: [Tile; 4],
    pub(super) key_grad: [Tile; 4],
    pub(super) query_grad: [Tile; 4],
}

/// Without dropout; a mask is one of keys.
pub(super) static UNDROPPED: Tiles = Tiles {
    forward: [
        forward(
            32,
            128,
            64,
            &tensor_bf16::ATTENTION_TENSOR_32_BF16,
            &tensor_f16::ATTENTION_TENSOR_32_F16,
        ),
        forward(
            64,
            128,
            64,
            &tensor_bf16::ATTENTION_TENSOR_64_BF16,
            &tensor_f16::ATTENTION_TENSOR_64_F16,
        ),
        forward(
            128,
            128,
            48,
            &tensor_bf16::ATTENTION_TENSOR_128_BF16,
            &tensor_f16::ATTENTION_TENSOR_128_F16,
        ),
        forward(
            256,
            64,
            32,
            &tensor_bf16::ATTENTION_TENSOR_256_BF16,
            &tensor_f16::ATTENTION_TENSOR_256_F16,
        ),
    ],
    key_grad: [
        grad(
            [32, 32],
            [128, 64, 0],
            &tensor_bf16::ATTENTION_KEY_GRAD_32_BF16,
            &tensor_f16::ATTENTION_KEY_GRAD_32_F16,
        ),
        grad(
            [64, 64],
            [128, 64, 0],
            &tensor_bf16::ATTENTION_KEY_GRAD_64_BF16,
            &tensor_f16::ATTENTION_KEY_GRAD_64_F16,
        ),
        grad(
            [128, 128],
            [64, 32, 1],
            &tensor_bf16::ATTENTION_KEY_GRAD_128_BF16,
            &tensor_f16::ATTENTION_KEY_GRAD_128_F16,
        ),
        grad(
            [256, 128],
            [64, 16, 2],
            &tensor_bf16::ATTENTION_KEY_GRAD_256_BF16,
            &tensor_f16::ATTENTION_KEY_GRAD_256_F16,
        ),
    ],
    query_grad: [
        grad(
            [32, 32],
            [128, 64, 0],
            &tensor_bf16::ATTENTION_QUERY_GRAD_32_BF16,
            &tensor_f16::ATTENTION_QUERY_GRAD_32_F16,
        ),
        grad(
            [64, 64],
            [128, 64, 0],
            &tensor_bf16::ATTENTION_QUERY_GRAD_64_BF16,
            &tensor_f16::ATTENTION_QUERY_GRAD_64_F16,
        ),
        grad(
            [128, 128],
            [64, 32, 0],
            &tensor_bf16::ATTENTION_QUERY_GRAD_128_BF16,
            &tensor_f16::ATTENTION_QUERY_GRAD_128_F16,
        ),
        grad(
            [256, 256],
            [64, 16, 2],
            &tensor_bf16::ATTENTION_QUERY_GRAD_256_BF16,
            &tensor_f16::ATTENTION_QUERY_GRAD_256_F16,
        ),
    ],
};

/// With dropout; a mask is one of keys.
pub(super) static DROPPED: Tiles = Tiles {
    forward: [
        forward(
            32,
            128,
            64,
            &dropped_bf16::ATTENTION_DROPPED_32_BF16,
            &dropped_f16::ATTENTION_DROPPED_32_F16,
        ),
        forward(
            64,
            128,
            64,
            &dropped_bf16::ATTENTION_DROPPED_64_BF16,
            &dropped_f16::ATTENTION_DROPPED_64_F16,
        ),
        forward(
            128,
            128,
            32,
            &dropped_bf16::ATTENTION_DROPPED_128_BF16,
            &dropped_f16::ATTENTION_DROPPED_128_F16,
        ),
        forward(
            256,
            64,
            32,
            &dropped_bf16::ATTENTION_DROPPED_256_BF16,
            &dropped_f16::ATTENTION_DROPPED_256_F16,
        ),
    ],
    key_grad: [
        grad(
            [32, 32],
            [128, 64, 0],
            &dropped_bf16::ATTENTION_DROPPED_KEY_GRAD_32_BF16,
            &dropped_f16::ATTENTION_DROPPED_KEY_GRAD_32_F16,
        ),
        grad(
            [64, 64],
            [128, 32, 0],
            &dropped_bf16::ATTENTION_DROPPED_KEY_GRAD_64_BF16,
            &dropped_f16::ATTENTION_DROPPED_KEY_GRAD_64_F16,
        ),
        grad(
            [128, 128],
            [64, 32, 1],
            &dropped_bf16::ATTENTION_DROPPED_KEY_GRAD_128_BF16,
            &dropped_f16::ATTENTION_DROPPED_KEY_GRAD_128_F16,
        ),
        grad(
            [256, 128],
            [64, 16, 2],
            &dropped_bf16::ATTENTION_DROPPED_KEY_GRAD_256_BF16,
            &dropped_f16::ATTENTION_DROPPED_KEY_GRAD_256_F16,
        ),
    ],
    query_grad: [
        grad(
            [32, 32],
            [128, 64, 0],
            &dropped_bf16::ATTENTION_DROPPED_QUERY_GRAD_32_BF16,
            &dropped_f16::ATTENTION_DROPPED_QUERY_GRAD_32_F16,
        ),
        grad(
            [64, 64],
            [128, 64, 0],
            &dropped_bf16::ATTENTION_DROPPED_QUERY_GRAD_64_BF16,
            &dropped_f16::ATTENTION_DROPPED_QUERY_GRAD_64_F16,
        ),
        grad(
            [128, 128],
            [64, 32, 0],
            &dropped_bf16::ATTENTION_DROPPED_QUERY_GRAD_128_BF16,
            &dropped_f16::ATTENTION_DROPPED_QUERY_GRAD_128_F16,
        ),
        grad(
            [256, 256],
            [64, 16, 2],
            &dropped_bf16::ATTENTION_DROPPED_QUERY_GRAD_256_BF16,
            &dropped_f16::ATTENTION_DROPPED_QUERY_GRAD_256_F16,
        ),
    ],
};

/// With a bias or any mask, with or without dropout.
pub(super) static MASKED: Tiles = Tiles {
    forward: [
        forward(
            32,
            128,
            32,
            &masked_bf16::ATTENTION_MASKED_32_BF16,
            &masked_f16::ATTENTION_MASKED_32_F16,
        ),
        forward(
            64,
            128,
            64,
            &masked_bf16::ATTENTION_MASKED_64_BF16,
            &masked_f16::ATTENTION_MASKED_64_F16,
        ),
        forward(
            128,
            128,
            32,
            &masked_bf16::ATTENTION_MASKED_128_BF16,
            &masked_f16::ATTENTION_MASKED_128_F16,
        ),
        forward(
            256,
            64,
            32,
            &masked_bf16::ATTENTION_MASKED_256_BF16,
            &masked_f16::ATTENTION_MASKED_256_F16,
        ),
    ],
    key_grad: [
        grad(
            [32, 32],
            [64, 64, 0],
            &masked_bf16::ATTENTION_MASKED_KEY_GRAD_32_BF16,
            &masked_f16::ATTENTION_MASKED_KEY_GRAD_32_F16,
        ),
        grad(
            [64, 64],
            [128, 32, 2],
            &masked_bf16::ATTENTION_MASKED_KEY_GRAD_64_BF16,
            &masked_f16::ATTENTION_MASKED_KEY_GRAD_64_F16,
        ),
        grad(
            [128, 128],
            [64, 32, 1],
            &masked_bf16::ATTENTION_MASKED_KEY_GRAD_128_BF16,
            &masked_f16::ATTENTION_MASKED_KEY_GRAD_128_F16,
        ),
        grad(
            [256, 128],
            [64, 16, 2],
            &masked_bf16::ATTENTION_MASKED_KEY_GRAD_256_BF16,
            &masked_f16::ATTENTION_MASKED_KEY_GRAD_256_F16,
        ),
    ],
    query_grad: [
        grad(
            [32, 32],
            [64, 64, 0],
            &masked_bf16::ATTENTION_MASKED_QUERY_GRAD_32_BF16,
            &masked_f16::ATTENTION_MASKED_QUERY_GRAD_32_F16,
        ),
        grad(
            [64, 64],
            [128, 64, 0],
            &masked_bf16::ATTENTION_MASKED_QUERY_GRAD_64_BF16,
            &masked_f16::ATTENTION_MASKED_QUERY_GRAD_64_F16,
        ),
        grad(
            [128, 128],
            [64, 32, 0],
            &masked_bf16::ATTENTION_MASKED_QUERY_GRAD_128_BF16,
            &masked_f16::ATTENTION_MASKED_QUERY_GRAD_128_F16,
        ),
        grad(
            [256, 256],
            [64, 16, 2],
            &masked_bf16::ATTENTION_MASKED_QUERY_GRAD_256_BF16,
            &masked_f16::ATTENTION_MASKED_QUERY_GRAD_256_F16,
        ),
    ],
};

/// A launch for each tile of `rows` rows, part of the columns, and one of `sequences`: of the first of the tiles that is as wide as
/// the vectors.
pub(super) fn tensor_launch(
    tiles: &'static [Tile],
    dtype: DType,
    width: u64,
    [sequences, rows]: [u64; 2],
) -> Result<(&'static Kernel, Geometry)> {
    let tile = tiles
        .iter()
        .find(|t| t.width >= width)
        .unwrap_or(&tiles[tiles.len() - 1]);
    let kernel = if dtype == DType::BF16 { tile.bf16 } else { tile.f16 };
    let blocks = [sequences, tile.parts, rows.div_ceil(tile.rows)];
    Ok((kernel, grid(blocks, TENSOR_THREADS, tile.shared)?))
}

/// A launch of a plain kernel for tiles of `rows` rows.
pub(super) fn plain_launch(
    kernels: &PerFloat,
    dtype: DType,
    width: u64,
    [sequences, rows]: [u64; 2],
) -> Result<(&'static Kernel, Geometry)> {
    let blocks = [sequences, width.div_ceil(SIDE), rows.div_ceil(SIDE)];
    Ok((instance(kernels, dtype), grid(blocks, PLAIN_THREADS, 0)?))
}

/// A grid of one dimension of as many blocks as the product of `blocks`.
pub(super) fn grid(blocks: [u64; 3], threads: u32, shared: u32) -> Result<Geometry> {
    const LONGEST: u64 = i32::MAX as u64;
    let all = blocks.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let all = all.filter(|&n| n <= LONGEST).ok_or_else(|| Error::TooLarge {
        op: "attention",
        dims: blocks.map(|d| d as usize).into(),
    })?;
    Ok(Geometry {
        grid: [all as u32, 1, 1],
        block: [threads, 1, 1],
        shared,
    })
}
