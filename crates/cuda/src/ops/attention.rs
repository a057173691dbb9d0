//! Attention without a matrix of scores: kernels on tensor cores, and plain ones for what those do not take.
//!
//! | operands                                                      | kernels                                       |
//! |---------------------------------------------------------------|-----------------------------------------------|
//! | bf16, f16; widths up to 256 that are multiples of 8            | `attention_tensor_…`, `attention_…_grad_…`    |
//! | f32, other widths                                             | `attention_plain`, `attention_…_grad_plain`   |
//!
//! The kernels on tensor cores are made for widths of 32, 64, 128 and 256; a width between takes the next one, and zeros fill its
//! vectors up in shared memory. The gradient is three launches: a pair of numbers for each query, then keys and values, then queries.
//!
//! [`Cuda::attention_with`] and [`Cuda::attention_grad_with`] take given kernels, for benches and tests.

use super::instance;
use crate::{Cuda, CudaBuffer};
use bytemuck::{Pod, Zeroable};
use kiln_core::ops::{AttentionOps, AttentionParams};
use kiln_core::{Buffer, DType, Error, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{Kernel, attention as plain, attention_tensor_bf16 as bf16, attention_tensor_f16 as f16};

/// Kernels for attention, which all compute the same but for rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Tiles of 64×64 scores, 4×4 a thread, of any dtype and width.
    Plain,
    /// Tiles on tensor cores.
    Tensor,
}

impl Algorithm {
    /// All variants.
    pub const ALL: [Algorithm; 2] = [Algorithm::Plain, Algorithm::Tensor];

    /// A name for benches: `plain`, `tensor`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Plain => "plain",
            Algorithm::Tensor => "tensor",
        }
    }

    /// True if this variant computes attention of these parameters and dtype.
    pub fn computes(self, p: &AttentionParams, dtype: DType) -> bool {
        // Vectors are copied by 16 bytes. Those of packed operands begin on as many if their width is a multiple of it.
        let tensor = matches!(dtype, DType::BF16 | DType::F16) && p.width <= WIDEST && p.width.is_multiple_of(8);
        self == Algorithm::Plain || tensor
    }

    /// The fastest variant that computes attention of these parameters and dtype.
    pub fn choose(p: &AttentionParams, dtype: DType) -> Self {
        match Algorithm::Tensor.computes(p, dtype) {
            true => Algorithm::Tensor,
            false => Algorithm::Plain,
        }
    }
}

/// `Vectors` of kernels/src/attention.cuh, in elements: where the vectors of an operand lie.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Vectors {
    first: i64,
    batch: i64,
    row: i64,
    head: i64,
}

/// `AttentionCall` of kernels/src/attention.cuh.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Call {
    q: Vectors,
    k: Vectors,
    v: Vectors,
    y: Vectors,
    heads: u64,
    group: u64,
    queries: u64,
    keys: u64,
    width: u64,
    scale: f32,
    factor: f32,
    causal: u32,
    pad: u32,
}
const _: () = assert!(size_of::<Call>() == 184);

impl Call {
    /// Self-attention over `[batch, positions, 3, heads, width]`.
    fn packed(p: &AttentionParams) -> Self {
        let [positions, heads, width] = [p.positions, p.heads, p.width].map(|d| d as i64);
        let joined = heads * width;
        let of = |parts: i64, part: i64| Vectors {
            first: part * joined,
            batch: positions * parts * joined,
            row: parts * joined,
            head: width,
        };
        Call {
            q: of(3, 0),
            k: of(3, 1),
            v: of(3, 2),
            y: of(1, 0),
            heads: p.heads,
            group: 1,
            queries: p.positions,
            keys: p.positions,
            width: p.width,
            scale: p.scale as f32,
            factor: (p.scale * std::f64::consts::LOG2_E) as f32,
            causal: p.causal,
            pad: 0,
        }
    }
}

/// Rows and columns of a tile of the plain kernels, and their threads.
const SIDE: u64 = 64;
const PLAIN_THREADS: u32 = 256;
/// Threads of the kernels on tensor cores.
const TENSOR_THREADS: u32 = 128;
/// The widest vectors that the kernels on tensor cores take.
const WIDEST: u64 = 256;

/// What a kernel on tensor cores is made for, as in the table of kernels/src/attention_tensor_grad.cuh.
struct Tile {
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

static FORWARD: [Tile; 4] = [
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
static KEY_GRAD: [Tile; 4] = [
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
static QUERY_GRAD: [Tile; 4] = [
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

/// A launch for each tile of `rows` rows, part of the columns, and one of `sequences`.
fn launch_of(
    tiles: &'static [Tile; 4],
    dtype: DType,
    call: &Call,
    [sequences, rows]: [u64; 2],
) -> Result<(&'static Kernel, Geometry)> {
    // Every width up to the widest finds a tile, the last one at the latest.
    let tile = tiles.iter().find(|t| t.width >= call.width).unwrap_or(&tiles[3]);
    let kernel = if dtype == DType::BF16 { tile.bf16 } else { tile.f16 };
    let blocks = [sequences, tile.parts, rows.div_ceil(tile.rows)];
    Ok((kernel, grid(blocks, TENSOR_THREADS, tile.shared)?))
}

/// Blocks of the plain kernels, for tiles of `rows` rows.
fn plain_grid(call: &Call, sequences: u64, rows: u64) -> Result<Geometry> {
    let blocks = [sequences, call.width.div_ceil(SIDE), rows.div_ceil(SIDE)];
    grid(blocks, PLAIN_THREADS, 0)
}

/// A grid of one dimension of as many blocks as the product of `blocks`.
fn grid(blocks: [u64; 3], threads: u32, shared: u32) -> Result<Geometry> {
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

/// The call of these parameters.
///
/// # Errors
/// [`Error::TooLarge`] where positions or widths pass what the kernels count in 32 bits.
fn call(p: &AttentionParams) -> Result<Call> {
    const MOST: u64 = i32::MAX as u64 / 2;
    if p.positions > MOST || p.width > MOST {
        return Err(Error::TooLarge {
            op: "attention",
            dims: [p.batch, p.positions, p.heads, p.width].map(|d| d as usize).into(),
        });
    }
    Ok(Call::packed(p))
}

impl Cuda {
    /// Attention by `algorithm`, or by the plain kernels where `algorithm` does not compute it.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, and those of a launch.
    pub fn attention_with(
        &self,
        algorithm: Algorithm,
        p: &AttentionParams,
        qkv: &CudaBuffer,
        y: &mut CudaBuffer,
        lse: &mut CudaBuffer,
    ) -> Result<()> {
        checks::attention(self, p, qkv, y, lse)?;
        if y.len() == 0 {
            return Ok(());
        }
        let (call, dtype, sequences) = (call(p)?, qkv.dtype(), p.batch * p.heads);
        let (kernel, geometry) = match algorithm == Algorithm::Tensor && algorithm.computes(p, dtype) {
            true => launch_of(&FORWARD, dtype, &call, [sequences, call.queries])?,
            false => {
                let geometry = plain_grid(&call, sequences, call.queries)?;
                (instance(&plain::ATTENTION_PLAIN, dtype), geometry)
            }
        };
        let args = [Arg::value(&call), qkv.arg(), qkv.arg(), qkv.arg(), y.out(), lse.out()];
        self.launch(kernel, geometry, &args)
    }

    /// The gradient of attention by `algorithm`, or by the plain kernels where `algorithm` does not compute it.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, those of a launch, and no memory for two f32 for each query and head.
    pub fn attention_grad_with(
        &self,
        algorithm: Algorithm,
        p: &AttentionParams,
        qkv: &CudaBuffer,
        y: &CudaBuffer,
        lse: &CudaBuffer,
        g: &CudaBuffer,
        dqkv: &mut CudaBuffer,
    ) -> Result<()> {
        checks::attention_grad(self, p, qkv, y, lse, g, dqkv)?;
        if dqkv.len() == 0 {
            return Ok(());
        }
        let (call, dtype, sequences) = (call(p)?, qkv.dtype(), p.batch * p.heads);
        let rows = p.rows() as u64;
        let mut statistics = self.scratch(DType::F32, 2 * p.rows())?;
        let args = [
            Arg::value(&call),
            Arg::value(&rows),
            y.arg(),
            g.arg(),
            lse.arg(),
            statistics.out(),
        ];
        // Eight threads a query.
        let geometry = grid([rows.div_ceil(u64::from(PLAIN_THREADS) / 8), 1, 1], PLAIN_THREADS, 0)?;
        self.launch(instance(&plain::ATTENTION_STATISTICS, dtype), geometry, &args)?;

        let [keys, queries] = match algorithm == Algorithm::Tensor && algorithm.computes(p, dtype) {
            true => [
                launch_of(&KEY_GRAD, dtype, &call, [sequences / call.group, call.keys])?,
                launch_of(&QUERY_GRAD, dtype, &call, [sequences, call.queries])?,
            ],
            false => [
                (
                    instance(&plain::ATTENTION_KEY_GRAD_PLAIN, dtype),
                    plain_grid(&call, sequences / call.group, call.keys)?,
                ),
                (
                    instance(&plain::ATTENTION_QUERY_GRAD_PLAIN, dtype),
                    plain_grid(&call, sequences, call.queries)?,
                ),
            ],
        };
        let read = || [qkv.arg(), qkv.arg(), qkv.arg(), g.arg(), statistics.arg()];
        let [q, k, v, slopes, pairs] = read();
        let args = [Arg::value(&call), q, k, v, slopes, pairs, dqkv.arg(), dqkv.arg()];
        self.launch(keys.0, keys.1, &args)?;
        let [q, k, v, slopes, pairs] = read();
        let args = [Arg::value(&call), q, k, v, slopes, pairs, dqkv.out()];
        self.launch(queries.0, queries.1, &args)
    }
}

impl AttentionOps for Cuda {
    fn attention(&self, p: &AttentionParams, qkv: &CudaBuffer, y: &mut CudaBuffer, lse: &mut CudaBuffer) -> Result<()> {
        checks::attention(self, p, qkv, y, lse)?;
        self.attention_with(Algorithm::choose(p, qkv.dtype()), p, qkv, y, lse)
    }

    fn attention_grad(
        &self,
        p: &AttentionParams,
        qkv: &CudaBuffer,
        y: &CudaBuffer,
        lse: &CudaBuffer,
        g: &CudaBuffer,
        dqkv: &mut CudaBuffer,
    ) -> Result<()> {
        checks::attention_grad(self, p, qkv, y, lse, g, dqkv)?;
        self.attention_grad_with(Algorithm::choose(p, qkv.dtype()), p, qkv, y, lse, g, dqkv)
    }
}
