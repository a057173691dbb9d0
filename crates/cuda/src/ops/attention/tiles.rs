//! The tiles, the shared memory and the grids of the kernels of attention.

use crate::ops::instance;
use kiln_core::{DType, Error, Result};
use kiln_device::Geometry;
use kiln_kernels::{Kernel, PerFloat, attention_tensor_bf16 as bf16, attention_tensor_f16 as f16};

/// Rows and columns of a tile of the plain kernels, and their threads.
const SIDE: u64 = 64;
pub(super) const PLAIN_THREADS: u32 = 256;
/// Threads of the kernels on tensor cores.
const TENSOR_THREADS: u32 = 128;
/// The widest vectors that the kernels on tensor cores take.
pub(super) const WIDEST: u64 = 256;

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

/// The forward pass: a tile of queries, two stages of `step` keys and values, and 16 bytes.
const fn forward(width: u64, rows: u64, step: u64, bf16: &'static Kernel, f16: &'static Kernel) -> Tile {
    Tile {
        width,
        rows,
        parts: 1,
        shared: ((rows + 4 * step) * width * 2 + 16) as u32,
        bf16,
        f16,
    }
}

/// A gradient of `rows` rows: its own two operands, of which `kept` stay beside two stages of `step` rows of two others with a pair of
/// f32 each; and 32 bytes.
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
        shared: (operands + 16 * step + 32) as u32,
        bf16,
        f16,
    }
}

pub(super) static FORWARD: [Tile; 4] = [
    forward(
        32,
        128,
        64,
        &bf16::ATTENTION_TENSOR_32_BF16,
        &f16::ATTENTION_TENSOR_32_F16,
    ),
    forward(
        64,
        128,
        64,
        &bf16::ATTENTION_TENSOR_64_BF16,
        &f16::ATTENTION_TENSOR_64_F16,
    ),
    forward(
        128,
        128,
        48,
        &bf16::ATTENTION_TENSOR_128_BF16,
        &f16::ATTENTION_TENSOR_128_F16,
    ),
    forward(
        256,
        64,
        32,
        &bf16::ATTENTION_TENSOR_256_BF16,
        &f16::ATTENTION_TENSOR_256_F16,
    ),
];
pub(super) static KEY_GRAD: [Tile; 4] = [
    grad(
        [32, 32],
        [128, 64, 0],
        &bf16::ATTENTION_KEY_GRAD_32_BF16,
        &f16::ATTENTION_KEY_GRAD_32_F16,
    ),
    grad(
        [64, 64],
        [128, 64, 0],
        &bf16::ATTENTION_KEY_GRAD_64_BF16,
        &f16::ATTENTION_KEY_GRAD_64_F16,
    ),
    grad(
        [128, 128],
        [64, 32, 1],
        &bf16::ATTENTION_KEY_GRAD_128_BF16,
        &f16::ATTENTION_KEY_GRAD_128_F16,
    ),
    grad(
        [256, 128],
        [64, 16, 2],
        &bf16::ATTENTION_KEY_GRAD_256_BF16,
        &f16::ATTENTION_KEY_GRAD_256_F16,
    ),
];
pub(super) static QUERY_GRAD: [Tile; 4] = [
    grad(
        [32, 32],
        [128, 64, 0],
        &bf16::ATTENTION_QUERY_GRAD_32_BF16,
        &f16::ATTENTION_QUERY_GRAD_32_F16,
    ),
    grad(
        [64, 64],
        [128, 64, 0],
        &bf16::ATTENTION_QUERY_GRAD_64_BF16,
        &f16::ATTENTION_QUERY_GRAD_64_F16,
    ),
    grad(
        [128, 128],
        [64, 32, 0],
        &bf16::ATTENTION_QUERY_GRAD_128_BF16,
        &f16::ATTENTION_QUERY_GRAD_128_F16,
    ),
    grad(
        [256, 256],
        [64, 16, 2],
        &bf16::ATTENTION_QUERY_GRAD_256_BF16,
        &f16::ATTENTION_QUERY_GRAD_256_F16,
    ),
];

/// The kernels with a mask or a bias.
pub(super) static MASKED: [Tile; 2] = [
    forward(
        64,
        128,
        32,
        &bf16::ATTENTION_MASKED_64_BF16,
        &f16::ATTENTION_MASKED_64_F16,
    ),
    forward(
        128,
        64,
        32,
        &bf16::ATTENTION_MASKED_128_BF16,
        &f16::ATTENTION_MASKED_128_F16,
    ),
];
pub(super) static MASKED_KEY_GRAD: [Tile; 2] = [
    grad(
        [64, 64],
        [64, 64, 0],
        &bf16::ATTENTION_MASKED_KEY_GRAD_64_BF16,
        &f16::ATTENTION_MASKED_KEY_GRAD_64_F16,
    ),
    grad(
        [128, 128],
        [64, 32, 2],
        &bf16::ATTENTION_MASKED_KEY_GRAD_128_BF16,
        &f16::ATTENTION_MASKED_KEY_GRAD_128_F16,
    ),
];
pub(super) static MASKED_QUERY_GRAD: [Tile; 2] = [
    grad(
        [64, 64],
        [64, 64, 0],
        &bf16::ATTENTION_MASKED_QUERY_GRAD_64_BF16,
        &f16::ATTENTION_MASKED_QUERY_GRAD_64_F16,
    ),
    grad(
        [128, 128],
        [64, 32, 2],
        &bf16::ATTENTION_MASKED_QUERY_GRAD_128_BF16,
        &f16::ATTENTION_MASKED_QUERY_GRAD_128_F16,
    ),
];
/// The widest vectors that the kernels on tensor cores take with a mask or a bias.
pub(super) const WIDEST_MASKED: u64 = 128;

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
