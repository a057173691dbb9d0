//! Attention without a matrix of scores: kernels on tensor cores, and plain ones for what those do not take.
//!
//! | operands                                                      | kernels                                       |
//! |---------------------------------------------------------------|-----------------------------------------------|
//! | bf16, f16; widths up to 256 that are multiples of 8            | `attention_tensor_…`, `attention_…_grad_…`    |
//! | the same up to 128, with a mask or a bias                      | `attention_masked_…`                          |
//! | f32, other widths                                             | `attention_plain`, `attention_…_grad_plain`   |
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
use kiln_core::ops::{AttentionOperands, AttentionOps, AttentionParams, DotProductAttentionParams, ElementwiseOps};
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
        self.takes(p.width, tiles::WIDEST, dtype)
    }

    /// True if this variant computes attention with or without a mask or a bias.
    pub fn computes_apart(self, p: &DotProductAttentionParams, masked: bool, dtype: DType) -> bool {
        let widest = if masked { tiles::WIDEST_MASKED } else { tiles::WIDEST };
        self.takes(p.width, widest, dtype)
    }

    fn takes(self, width: u64, widest: u64, dtype: DType) -> bool {
        // Vectors are copied by 16 bytes. They begin on as many if their width is a multiple of it.
        let tensor = matches!(dtype, DType::BF16 | DType::F16) && width <= widest && width.is_multiple_of(8);
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
}
const _: () = assert!(size_of::<Call>() == 256);

impl Call {
    /// # Errors
    /// [`Error::TooLarge`] where positions or widths pass what the kernels count in 32 bits.
    fn new(
        vectors: [Vectors; 4],
        [batch, heads, group, queries, keys, width]: [u64; 6],
        scale: f64,
        causal: u32,
    ) -> Result<Self> {
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
            group,
            queries,
            keys,
            width,
            mask: [0; 4],
            bias: [0; 4],
            scale: scale as f32,
            factor: (scale * std::f64::consts::LOG2_E) as f32,
            unscale: (1.0 / scale) as f32,
            causal,
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
        let sizes = [p.batch, p.heads, 1, p.positions, p.positions, p.width];
        Call::new([of(3, 0), of(3, 1), of(3, 2), of(1, 0)], sizes, p.scale, p.causal)
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
        let (queries, keys) = (of(p.heads, p.queries), of(p.kv_heads, p.keys));
        let sizes = [p.batch, p.heads, p.heads / p.kv_heads, p.queries, p.keys, p.width];
        let call = Call::new([queries, keys, keys, queries], sizes, p.scale, p.causal)?;
        Ok(Call {
            mask: p.mask,
            bias: p.bias,
            ..call
        })
    }
}

/// True if a call has a mask or a bias.
fn masked(x: &AttentionOperands<'_, CudaBuffer>) -> bool {
    x.mask.is_some() || x.bias.is_some()
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
        let (kernel, geometry) = match (tensor, masked(&x)) {
            (true, false) => tiles::tensor_launch(&tiles::FORWARD, dtype, call.width, rows)?,
            (true, true) => tiles::tensor_launch(&tiles::MASKED, dtype, call.width, rows)?,
            (false, _) => tiles::plain_launch(&plain::ATTENTION_PLAIN, dtype, call.width, rows)?,
        };
        let args = [
            Arg::value(call),
            x.q.arg(),
            x.k.arg(),
            x.v.arg(),
            y.out(),
            lse.out(),
            maybe(x.mask),
            maybe(x.bias),
        ];
        // The kernels on tensor cores without a mask have no parameters for one.
        let len = if tensor && !masked(&x) { 6 } else { 8 };
        self.launch(kernel, geometry, &args[..len])
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
        let launch = |tiles, kernels, rows| match tensor {
            true => tiles::tensor_launch(tiles, dtype, call.width, rows),
            false => tiles::plain_launch(kernels, dtype, call.width, rows),
        };
        let masked = masked(&x);
        let (key_tiles, query_tiles): (&'static [tiles::Tile], &'static [tiles::Tile]) = match masked {
            true => (&tiles::MASKED_KEY_GRAD, &tiles::MASKED_QUERY_GRAD),
            false => (&tiles::KEY_GRAD, &tiles::QUERY_GRAD),
        };
        let keys = launch(key_tiles, &plain::ATTENTION_KEY_GRAD_PLAIN, of_keys)?;
        let queries = launch(query_tiles, &plain::ATTENTION_QUERY_GRAD_PLAIN, of_queries)?;
        // The kernels on tensor cores without a mask have no parameters for one.
        let without = if tensor && !masked { 2 } else { 0 };
        let [dq, dk, dv] = out;
        let operands = [Arg::value(call), x.q.arg(), x.k.arg(), x.v.arg(), g.arg()];
        let masks = [maybe(x.mask), maybe(x.bias)];
        let launch = |(kernel, geometry): (&'static Kernel, Geometry), own: &[Arg<'_>]| -> Result<()> {
            let args = [&operands[..], own, &masks[without..]].concat();
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
        y: &mut CudaBuffer,
        lse: &mut CudaBuffer,
    ) -> Result<()> {
        checks::attention(self, p, qkv, y, lse)?;
        if y.len() == 0 {
            return Ok(());
        }
        let tensor = algorithm == Algorithm::Tensor && algorithm.computes(p, qkv.dtype());
        self.attend(tensor, &Call::packed(p)?, all_of(qkv), [y, lse])
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
        let tensor = algorithm == Algorithm::Tensor && algorithm.computes(p, qkv.dtype());
        let given = [y, lse, g];
        self.attend_grad(tensor, &Call::packed(p)?, all_of(qkv), given, [dqkv; 3])
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
        let tensor = algorithm == Algorithm::Tensor && algorithm.computes_apart(p, masked(&x), x.q.dtype());
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
        let tensor = algorithm == Algorithm::Tensor && algorithm.computes_apart(p, masked(&x), x.q.dtype());
        self.attend_grad(tensor, &Call::apart(p)?, x, [y, lse, g], [dq, dk, dv])
    }
}

/// Packed queries, keys and values: each begins where the call says.
fn all_of(qkv: &CudaBuffer) -> AttentionOperands<'_, CudaBuffer> {
    AttentionOperands {
        q: qkv,
        k: qkv,
        v: qkv,
        mask: None,
        bias: None,
    }
}

impl AttentionOps for Cuda {
    fn attention(&self, p: &AttentionParams, qkv: &CudaBuffer, y: &mut CudaBuffer, lse: &mut CudaBuffer) -> Result<()> {
        checks::attention(self, p, qkv, y, lse)?;
        self.attention_with(Algorithm::Tensor, p, qkv, y, lse)
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
        self.attention_grad_with(Algorithm::Tensor, p, qkv, y, lse, g, dqkv)
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
