//! Attention without a matrix of scores: kernels on tensor cores, and plain ones for what those do not take.
//!
//! | operands                                                      | kernels                                       |
//! |---------------------------------------------------------------|-----------------------------------------------|
//! | bf16, f16; widths up to 256 that are multiples of 8            | `attention_tensor_…`, `attention_…_grad_…`    |
//! | the same with dropout                                         | `attention_dropped_…`                         |
//! | the same with a bias or a mask that is not one of keys alone  | `attention_masked_…`                          |
//! | f32, other widths                                             | `attention_plain`, `attention_…_grad_plain`   |
//!
//! A mask of keys is the same for all queries of a head, as one of padding is; the first two kinds of kernels take it, of 4096 keys or
//! fewer.
//!
//! The kernels on tensor cores are made for widths of 32, 64, 128 and 256; a width between takes the next one, and zeros fill its
//! vectors up in shared memory. The gradient is two launches: queries, which also give a pair of numbers for each, then keys and values; by the plain kernels three, of which
//! the first makes the pairs.
//!
//! [`Cuda::attention_with`] and its like take given kernels, for benches and tests.

mod tiles;

use super::instance;
use crate::buffer::maybe;
use crate::{Cuda, CudaBuffer};
use bytemuck::{Pod, Zeroable};
use kiln_core::ops::{
    AttentionMasks, AttentionOperands, AttentionOps, AttentionParams, DotProductAttentionParams, ElementwiseOps,
};
use kiln_core::philox::{drop_below, rounds};
use kiln_core::{Buffer, DType, Error, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{Kernel, attention as plain};

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
        self.takes(p.width, dtype)
    }

    /// True if this variant computes attention of operands that lie apart, of these parameters and dtype.
    pub fn computes_apart(self, p: &DotProductAttentionParams, dtype: DType) -> bool {
        self.takes(p.width, dtype)
    }

    fn takes(self, width: u64, dtype: DType) -> bool {
        // Vectors are copied by 16 bytes. They begin on as many if their width is a multiple of it.
        let tensor = matches!(dtype, DType::BF16 | DType::F16) && width <= tiles::WIDEST && width.is_multiple_of(8);
        self == Algorithm::Plain || tensor
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
    batch: u64,
    heads: u64,
    group: u64,
    queries: u64,
    keys: u64,
    width: u64,
    mask: [u64; 4],
    bias: [u64; 4],
    scale: f32,
    factor: f32,
    unscale: f32,
    causal: u32,
    stream: u32,
    below: u32,
    rest: u32,
    kept: f32,
    rounds: [u32; 20],
}
const _: () = assert!(size_of::<Call>() == 352);

/// 16 bits drop a weight if they are below either half of this. At a probability of 1 the largest number drops none; the factor of what is
/// kept is 0 then.
fn below(drop: f64) -> u32 {
    drop_below(drop).min(0xffff) * 0x1_0001
}

impl Call {
    /// # Errors
    /// [`Error::TooLarge`] where positions or widths pass what the kernels count in 32 bits.
    fn new(vectors: [Vectors; 4], p: &DotProductAttentionParams) -> Result<Self> {
        let &DotProductAttentionParams {
            batch,
            heads,
            queries,
            keys,
            width,
            ..
        } = p;
        const MOST: u64 = i32::MAX as u64 / 2;
        if queries.max(keys).max(width) > MOST {
            return Err(Error::TooLarge {
                op: "attention",
                dims: [batch, heads, queries, keys, width].map(|d| d as usize).into(),
            });
        }
        let [q, k, v, y] = vectors;
        Ok(Call {
            q,
            k,
            v,
            y,
            batch,
            heads,
            group: heads / p.kv_heads,
            queries,
            keys,
            width,
            mask: p.mask,
            bias: p.bias,
            scale: p.scale as f32,
            factor: (p.scale * std::f64::consts::LOG2_E) as f32,
            unscale: (1.0 / p.scale) as f32,
            causal: p.causal,
            stream: p.stream,
            below: below(p.drop),
            rest: below(p.drop) & 0x7fff_7fff,
            kept: p.kept() as f32,
            rounds: bytemuck::cast(rounds(p.seed)),
        })
    }

    /// Self-attention over `[batch, positions, 3, heads, width]`.
    fn packed(p: &AttentionParams) -> Result<Self> {
        let [positions, heads, width] = [p.positions, p.heads, p.width].map(|d| d as i64);
        let joined = heads * width;
        let of = |parts: i64, part: i64| Vectors {
            first: part * joined,
            batch: positions * parts * joined,
            row: parts * joined,
            head: width,
        };
        Call::new([of(3, 0), of(3, 1), of(3, 2), of(1, 0)], &p.apart())
    }

    /// Attention of queries to keys and values that lie apart.
    fn apart(p: &DotProductAttentionParams) -> Result<Self> {
        let width = p.width as i64;
        let of = |heads: u64, positions: u64| {
            let [heads, positions] = [heads, positions].map(|d| d as i64);
            let (row, head) = match p.heads_first {
                1 => (width, positions * width),
                _ => (heads * width, width),
            };
            Vectors {
                first: 0,
                batch: heads * positions * width,
                row,
                head,
            }
        };
        let (queries, keys) = (of(p.heads, p.queries), of(p.kv_heads, p.room));
        Call::new([queries, keys, keys, queries], p)
    }

    /// The kernels on tensor cores for this call.
    fn tiles(&self, x: &AttentionMasks<'_, CudaBuffer>) -> &'static tiles::Tiles {
        let [_, heads, queries, _] = self.mask;
        // Heads that share keys share what the gradient's kernel of keys knows of them.
        let of_keys = queries == 0 && (heads == 0 || self.group == 1) && self.keys <= tiles::MOST_KEYS;
        match () {
            () if x.bias.is_some() || (x.mask.is_some() && !of_keys) => &tiles::MASKED,
            () if x.step.is_some() => &tiles::DROPPED,
            () => &tiles::UNDROPPED,
        }
    }
}

/// The operands but for a step that nothing is drawn by.
fn drawn<'a>(p: &DotProductAttentionParams, x: AttentionMasks<'a, CudaBuffer>) -> AttentionMasks<'a, CudaBuffer> {
    AttentionMasks {
        step: x.step.filter(|_| p.drop > 0.0),
        ..x
    }
}

impl Cuda {
    /// The launch of the forward pass, on tensor cores or not.
    fn attend(
        &self,
        tensor: bool,
        call: &Call,
        x: AttentionOperands<'_, CudaBuffer>,
        [y, lse]: [&mut CudaBuffer; 2],
    ) -> Result<()> {
        let (dtype, rows) = (x.q.dtype(), [call.batch * call.heads, call.queries]);
        let (kernel, geometry) = match tensor {
            true => tiles::tensor_launch(&call.tiles(&x.masks).forward, dtype, call.width, rows)?,
            false => tiles::plain_launch(&plain::ATTENTION_PLAIN, dtype, call.width, rows)?,
        };
        let args = [
            Arg::value(call),
            x.q.arg(),
            x.k.arg(),
            x.v.arg(),
            y.out(),
            lse.out(),
            maybe(x.masks.mask),
            maybe(x.masks.bias),
            maybe(x.masks.step),
        ];
        self.launch(kernel, geometry, &args)
    }

    /// The launches of the gradient, on tensor cores or not; `out` are the gradients of queries, keys and values, which may be parts of
    /// one buffer.
    fn attend_grad(
        &self,
        tensor: bool,
        call: &Call,
        x: AttentionOperands<'_, CudaBuffer>,
        [y, lse, g]: [&CudaBuffer; 3],
        out: [&CudaBuffer; 3],
    ) -> Result<()> {
        let dtype = x.q.dtype();
        let rows = call.batch * call.heads * call.queries;
        let mut statistics = self.scratch(DType::F32, 2 * rows as usize)?;
        if !tensor {
            let args = [
                Arg::value(call),
                Arg::value(&rows),
                y.arg(),
                g.arg(),
                lse.arg(),
                statistics.out(),
            ];
            // Eight threads a query.
            let blocks = [rows.div_ceil(u64::from(tiles::PLAIN_THREADS) / 8), 1, 1];
            let geometry = tiles::grid(blocks, tiles::PLAIN_THREADS, 0)?;
            self.launch(instance(&plain::ATTENTION_STATISTICS, dtype), geometry, &args)?;
        }

        let of_keys = [call.batch * (call.heads / call.group), call.keys];
        let of_queries = [call.batch * call.heads, call.queries];
        let launch = |tiles: &'static [tiles::Tile], kernels, rows| match tensor {
            true => tiles::tensor_launch(tiles, dtype, call.width, rows),
            false => tiles::plain_launch(kernels, dtype, call.width, rows),
        };
        let tiles = call.tiles(&x.masks);
        let keys = launch(&tiles.key_grad, &plain::ATTENTION_KEY_GRAD_PLAIN, of_keys)?;
        let queries = launch(&tiles.query_grad, &plain::ATTENTION_QUERY_GRAD_PLAIN, of_queries)?;
        let [dq, dk, dv] = out;
        let operands = [Arg::value(call), x.q.arg(), x.k.arg(), x.v.arg(), g.arg()];
        let masks = [maybe(x.masks.mask), maybe(x.masks.bias), maybe(x.masks.step)];
        let launch = |(kernel, geometry): (&'static Kernel, Geometry), own: &[Arg<'_>]| -> Result<()> {
            let args = [&operands[..], own, &masks].concat();
            self.launch(kernel, geometry, &args)
        };
        // On tensor cores the kernel of queries writes the pairs that the other reads.
        match tensor {
            true => launch(queries, &[y.arg(), lse.arg(), statistics.out(), dq.arg()])?,
            false => launch(queries, &[statistics.arg(), dq.arg()])?,
        }
        launch(keys, &[statistics.arg(), dk.arg(), dv.arg()])
    }

    /// Attention by `algorithm`, or by the plain kernels where `algorithm` does not compute it.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, and those of a launch.
    pub fn attention_with(
        &self,
        algorithm: Algorithm,
        p: &AttentionParams,
        qkv: &CudaBuffer,
        masks: AttentionMasks<'_, CudaBuffer>,
        y: &mut CudaBuffer,
        lse: &mut CudaBuffer,
    ) -> Result<()> {
        checks::attention(self, p, qkv, masks, y, lse)?;
        if y.len() == 0 {
            return Ok(());
        }
        let tensor = algorithm == Algorithm::Tensor && algorithm.computes(p, qkv.dtype());
        self.attend(
            tensor,
            &Call::packed(p)?,
            all_of(qkv, drawn(&p.apart(), masks)),
            [y, lse],
        )
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
        masks: AttentionMasks<'_, CudaBuffer>,
        [y, lse, g]: [&CudaBuffer; 3],
        dqkv: &mut CudaBuffer,
    ) -> Result<()> {
        checks::attention_grad(self, p, qkv, masks, y, lse, g, dqkv)?;
        if dqkv.len() == 0 {
            return Ok(());
        }
        let tensor = algorithm == Algorithm::Tensor && algorithm.computes(p, qkv.dtype());
        let given = [y, lse, g];
        let x = all_of(qkv, drawn(&p.apart(), masks));
        self.attend_grad(tensor, &Call::packed(p)?, x, given, [dqkv; 3])
    }

    /// Attention of operands that lie apart by `algorithm`, or by the plain kernels where `algorithm` does not compute it.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, and those of a launch.
    pub fn dot_product_attention_with(
        &self,
        algorithm: Algorithm,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, CudaBuffer>,
        y: &mut CudaBuffer,
        lse: &mut CudaBuffer,
    ) -> Result<()> {
        checks::dot_product_attention(self, p, x, y, lse)?;
        if y.len() == 0 {
            return Ok(());
        }
        if p.keys == 0 {
            return self.fill(0.0, y);
        }
        let tensor = algorithm == Algorithm::Tensor && algorithm.computes_apart(p, x.q.dtype());
        let masks = drawn(p, x.masks);
        let x = AttentionOperands { masks, ..x };
        self.attend(tensor, &Call::apart(p)?, x, [y, lse])
    }

    /// The gradients of operands that lie apart by `algorithm`, or by the plain kernels where `algorithm` does not compute them.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, those of a launch, and no memory for two f32 for each query and head.
    pub fn dot_product_attention_grad_with(
        &self,
        algorithm: Algorithm,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, CudaBuffer>,
        [y, lse, g]: [&CudaBuffer; 3],
        [dq, dk, dv]: [&mut CudaBuffer; 3],
    ) -> Result<()> {
        checks::dot_product_attention_grad(self, p, x, y, lse, g, dq, dk, dv)?;
        if dq.len() == 0 || dk.len() == 0 {
            return [dq, dk, dv]
                .into_iter()
                .try_for_each(|gradient| self.fill(0.0, gradient));
        }
        let tensor = algorithm == Algorithm::Tensor && algorithm.computes_apart(p, x.q.dtype());
        let masks = drawn(p, x.masks);
        let x = AttentionOperands { masks, ..x };
        self.attend_grad(tensor, &Call::apart(p)?, x, [y, lse, g], [dq, dk, dv])
    }
}

/// Packed queries, keys and values: each begins where the call says.
fn all_of<'a>(qkv: &'a CudaBuffer, masks: AttentionMasks<'a, CudaBuffer>) -> AttentionOperands<'a, CudaBuffer> {
    AttentionOperands {
        q: qkv,
        k: qkv,
        v: qkv,
        masks,
    }
}

impl AttentionOps for Cuda {
    fn attention(
        &self,
        p: &AttentionParams,
        qkv: &CudaBuffer,
        masks: AttentionMasks<'_, CudaBuffer>,
        y: &mut CudaBuffer,
        lse: &mut CudaBuffer,
    ) -> Result<()> {
        checks::attention(self, p, qkv, masks, y, lse)?;
        self.attention_with(Algorithm::Tensor, p, qkv, masks, y, lse)
    }

    fn attention_grad(
        &self,
        p: &AttentionParams,
        qkv: &CudaBuffer,
        masks: AttentionMasks<'_, CudaBuffer>,
        y: &CudaBuffer,
        lse: &CudaBuffer,
        g: &CudaBuffer,
        dqkv: &mut CudaBuffer,
    ) -> Result<()> {
        checks::attention_grad(self, p, qkv, masks, y, lse, g, dqkv)?;
        self.attention_grad_with(Algorithm::Tensor, p, qkv, masks, [y, lse, g], dqkv)
    }

    fn dot_product_attention(
        &self,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, CudaBuffer>,
        y: &mut CudaBuffer,
        lse: &mut CudaBuffer,
    ) -> Result<()> {
        checks::dot_product_attention(self, p, x, y, lse)?;
        self.dot_product_attention_with(Algorithm::Tensor, p, x, y, lse)
    }

    fn dot_product_attention_grad(
        &self,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, CudaBuffer>,
        y: &CudaBuffer,
        lse: &CudaBuffer,
        g: &CudaBuffer,
        dq: &mut CudaBuffer,
        dk: &mut CudaBuffer,
        dv: &mut CudaBuffer,
    ) -> Result<()> {
        checks::dot_product_attention_grad(self, p, x, y, lse, g, dq, dk, dv)?;
        self.dot_product_attention_grad_with(Algorithm::Tensor, p, x, [y, lse, g], [dq, dk, dv])
    }
}
