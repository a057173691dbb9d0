//! Matrix products: batched, with broadcast batch dimensions, either operand transposed; and the fused linear layer.

use super::{Activation, Dims, Op, Reduce, ReduceParams, ResidualParams, Strides};
use crate::{DType, Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of a batched product `C[b] = op(A[b]) · op(B[b])`, where op transposes or not.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct MatmulParams {
    /// Batch dimensions of the output.
    pub batch: Dims,
    /// Strides of A's batch dimensions in elements, 0 where broadcast.
    pub a_batch: Strides,
    /// Strides of B's batch dimensions in elements, 0 where broadcast.
    pub b_batch: Strides,
    /// Rows of C.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    /// The size of the summed dimension.
    pub k: u64,
    /// Number of batch dimensions.
    pub batch_rank: u32,
    /// 1 when A is stored `[k, m]`.
    pub trans_a: u32,
    /// 1 when B is stored `[n, k]`.
    pub trans_b: u32,
    /// Code of the [`Activation`] applied to the result (linear only).
    pub activation: u32,
}
const _: () = assert!(size_of::<MatmulParams>() == 232);

impl MatmulParams {
    /// Parameters for `[…, m, k] · […, k, n]` after the given transpositions; returns them with the shape of the result.
    ///
    /// # Errors
    /// Ranks below 2, inner dimensions that differ, batches that do not broadcast.
    pub fn new(op: &'static str, a: &Shape, b: &Shape, trans_a: bool, trans_b: bool) -> Result<(Self, Shape)> {
        for s in [a, b] {
            if s.rank() < 2 {
                return Err(Error::Rank {
                    op,
                    expected: "2 or more",
                    rank: s.rank(),
                });
            }
        }
        let mismatch = || Error::ShapeMismatch { op, lhs: *a, rhs: *b };
        let split = |s: &Shape, t: bool| {
            let r = s.rank();
            if t { (s[r - 1], s[r - 2]) } else { (s[r - 2], s[r - 1]) }
        };
        let ((m, k), (k2, n)) = (split(a, trans_a), split(b, trans_b));
        if k != k2 {
            return Err(mismatch());
        }
        let lead = |s: &Shape| Shape::new(&s[..s.rank() - 2]);
        let (la, lb) = (lead(a)?, lead(b)?);
        let batch = la.broadcast(op, &lb).map_err(|_| mismatch())?;
        let strides = |s: &Shape, matrix: usize| {
            let mut st = s.broadcast_strides(op, &batch)?;
            st.iter_mut().for_each(|x| *x *= matrix as i64);
            Ok::<_, Error>(st)
        };
        let mut out = [0; crate::MAX_RANK];
        out[..batch.rank()].copy_from_slice(&batch);
        out[batch.rank()] = m;
        out[batch.rank() + 1] = n;
        let p = MatmulParams {
            batch: super::dims(&batch),
            a_batch: strides(&la, m * k)?,
            b_batch: strides(&lb, k * n)?,
            m: m as u64,
            n: n as u64,
            k: k as u64,
            batch_rank: batch.rank() as u32,
            trans_a: u32::from(trans_a),
            trans_b: u32::from(trans_b),
            activation: 0,
        };
        Ok((p, Shape::new(&out[..batch.rank() + 2])?))
    }

    /// The number of products in the batch.
    pub fn batches(&self) -> usize {
        self.batch[..self.batch_rank as usize].iter().product::<u64>() as usize
    }

    /// The floating-point operations of all products; a multiply-add counts as two.
    pub fn flops(&self) -> u64 {
        let factors = [self.batches() as u64, self.m, self.n, self.k];
        factors.into_iter().fold(2, u64::saturating_mul)
    }

    /// The sum `db = Σ g` of a linear layer, whose [`weight_grad`](Self::weight_grad) these parameters are.
    ///
    /// # Errors
    /// More elements than memory can have.
    pub fn bias_grad(&self) -> Result<ReduceParams> {
        let g = Shape::new(&[self.k as usize, self.m as usize])?;
        Ok(ReduceParams::new("linear_grad", Reduce::Sum, &g, &[0], false)?.0)
    }

    /// The product `dx = g·W` of a linear layer with these parameters.
    pub fn data_grad(&self) -> Self {
        MatmulParams {
            n: self.k,
            k: self.n,
            trans_b: 0,
            activation: 0,
            ..*self
        }
    }

    /// The product `dw = gᵀ·x` of a linear layer with these parameters.
    pub fn weight_grad(&self) -> Self {
        MatmulParams {
            m: self.n,
            n: self.k,
            k: self.m,
            trans_a: 1,
            trans_b: 0,
            activation: 0,
            ..*self
        }
    }

    /// The activation of the fused linear layer.
    ///
    /// # Panics
    /// If the code is not that of a variant, which the [`checks`](crate::checks) of an op exclude.
    pub fn activation(&self) -> Activation {
        Activation::ALL[self.activation as usize]
    }
}

/// The tensors from which the gradients of a linear layer are computed, besides the gradient of its result.
#[derive(Debug)]
pub struct LinearInputs<'a, B> {
    /// The input, `[m, k]`, where the gradient of the weight is wanted and [`LinearGrads::x`] does not get it.
    pub x: Option<&'a B>,
    /// The weight, `[n, k]`.
    pub w: &'a B,
    /// The result, `[m, n]`, if it is that of a ReLU.
    pub y: Option<&'a B>,
    /// The slope by which the gradient of the input is multiplied, if the input is the result of an activation.
    pub slope: Option<Slope<'a, B>>,
    /// The layer norm that makes [`LinearGrads::x`] again, if the input is the result of one.
    pub norm: Option<RowNorm<'a, B>>,
}

/// A layer norm of a residual stream, whose result is the input of a linear layer `[m, k]`.
#[derive(Debug)]
pub struct RowNorm<'a, B> {
    /// The parameters of [`ResidualOps::residual_norm`](super::ResidualOps::residual_norm) of `m` rows of `k` elements, without dropout.
    pub p: ResidualParams,
    /// The stream, `[m, k]`.
    pub s: &'a B,
    /// The mean of each row, `[m]`.
    pub mean: &'a B,
    /// One over the standard deviation of each row, `[m]`.
    pub rstd: &'a B,
    /// `[k]`.
    pub scale: &'a B,
    /// `[k]`.
    pub shift: &'a B,
}

/// The slope of an activation, whose result is the input of a linear layer `[m, k]`.
#[derive(Debug)]
pub struct Slope<'a, B> {
    /// The activation.
    pub f: Activation,
    /// Its input, or its result if the gradient [reads](super::UnaryFunction::reads) that.
    pub at: &'a B,
}

/// The gradients of a linear layer, where they are wanted.
#[derive(Debug)]
pub struct LinearGrads<'a, B> {
    /// The input again, if it was not kept: the activation of what [`LinearInputs::slope`] is taken at, whose gradient reads its input, or
    /// the result of [`LinearInputs::norm`], each with the bits of its op. The gradient of the input is wanted then.
    pub x: Option<&'a mut B>,
    /// That of the input.
    pub dx: Option<&'a mut B>,
    /// That of the weight.
    pub dw: Option<&'a mut B>,
    /// That of the bias.
    pub db: Option<&'a mut B>,
}

/// Matrix products of a backend.
pub trait MatmulOps: Runtime {
    /// The name of the algorithm that computes the product of `p` in `dtype` on this backend, for profiles; `None` if there is
    /// only one.
    fn matmul_algorithm(&self, p: &MatmulParams, dtype: DType) -> Option<&'static str> {
        let _ = (p, dtype);
        None
    }

    /// `C = op(A)·op(B)` (`torch.matmul`); `k = 0` gives zeros.
    fn matmul(&self, p: &MatmulParams, a: &Self::Buffer, b: &Self::Buffer, c: &mut Self::Buffer) -> Result<()>;

    /// `y = f(x·Wᵀ + bias)` as a single product (`batch_rank` 0, `trans_b` 1) with `x [m, k]`, `W [n, k]`, `bias [n]` and
    /// the activation of `p`. Where the gradient of f reads its input, that is rounded to the dtype, and `h [m, n]` gets it,
    /// if given (cuBLASLt's `EPILOGUE_GELU_AUX`).
    fn linear(
        &self,
        p: &MatmulParams,
        x: &Self::Buffer,
        w: &Self::Buffer,
        bias: Option<&Self::Buffer>,
        h: Option<&mut Self::Buffer>,
        y: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, w, bias, h, y);
        self.unsupported(Op::Linear)
    }

    /// The gradients of [`MatmulOps::linear`] with the activation none or ReLU, for the gradient `g` of its result, which counts as zero
    /// where `y ≤ 0` if the result is that of a ReLU: `dx = g·W`, `dw = gᵀ·x`, `db = Σ g`. With a slope, `dx` is rounded to the
    /// dtype and multiplied by it, as by the elementwise op (cuBLASLt's `EPILOGUE_DGELU`), and `x` may be made again. Nothing is empty.
    fn linear_grad(
        &self,
        p: &MatmulParams,
        of: &LinearInputs<'_, Self::Buffer>,
        g: &Self::Buffer,
        to: LinearGrads<'_, Self::Buffer>,
    ) -> Result<()> {
        let _ = (p, of, g, to);
        self.unsupported(Op::Linear)
    }

    /// True if [`MatmulOps::linear_grad`] of a layer with these parameters makes [`LinearGrads::x`] on its way, at no launch of its own.
    fn remakes_input(&self, p: &MatmulParams, dtype: DType) -> bool {
        let _ = (p, dtype);
        false
    }
}
