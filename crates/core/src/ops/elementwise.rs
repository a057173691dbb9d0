//! Elementwise ops: one input, two inputs with NumPy broadcasting, comparison, selection, conversion, fill.

mod functions;

pub use functions::*;

use super::{Dims, Op, Strides, coded, dims};
use crate::{Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

coded! {
    /// An elementwise function of two tensors.
    Binary {
        /// a + b
        Add,
        /// a − b
        Sub,
        /// a · b
        Mul,
        /// a / b
        Div,
        /// aᵇ
        Pow,
        /// The larger; NaN if either is. The gradient is halved between equal operands, as in PyTorch.
        Maximum,
        /// The smaller; NaN if either is. The gradient is halved between equal operands, as in PyTorch.
        Minimum,
        /// The angle of the point (b, a) in (−π, π], by the signs of both (`torch.atan2`)
        Atan2,
        /// a − b·⌊a/b⌋, of b's sign (`torch.remainder`)
        Remainder,
    }
}

coded! {
    /// A comparison of two tensors; the result is a mask of 0 and 1.
    Compare {
        /// a = b
        Eq,
        /// a ≠ b
        Ne,
        /// a < b
        Lt,
        /// a ≤ b
        Le,
        /// a > b
        Gt,
        /// a ≥ b
        Ge,
    }
}

/// Parameters of a [`Unary`] op.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct UnaryParams {
    /// The number of elements.
    pub n: u64,
    /// The first parameter of the function, if it has one.
    pub a: f64,
    /// The second parameter of the function, if it has one.
    pub b: f64,
    /// Code of the [`Unary`] function.
    pub op: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<UnaryParams>() == 32);

impl UnaryParams {
    /// Parameters for `op` over `n` elements.
    pub fn new(op: Unary, n: usize, a: f64, b: f64) -> Self {
        UnaryParams {
            n: n as u64,
            a,
            b,
            op: op as u32,
            pad: 0,
        }
    }

    /// The function.
    ///
    /// # Panics
    /// If the code is not that of a variant, which the [`checks`](crate::checks) of an op exclude.
    pub fn op(&self) -> Unary {
        Unary::ALL[self.op as usize]
    }

    /// The number of tensors that the gradient reads beside `g`: 0 for a constant slope, otherwise 1, the input or the
    /// output.
    pub fn grad_reads(&self) -> u64 {
        u64::from(self.op().function().reads != GradReads::Neither)
    }
}

/// Parameters of ops over two tensors that broadcast to `shape`: [`Binary`], [`Compare`] and selection.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BroadcastParams {
    /// The output dimensions, with adjacent dimensions merged where all operands step over them as over one.
    pub shape: Dims,
    /// Strides of the first operand, 0 along broadcast dimensions.
    pub a: Strides,
    /// Strides of the second operand, 0 along broadcast dimensions.
    pub b: Strides,
    /// Strides of the mask (selection only), 0 along broadcast dimensions.
    pub mask: Strides,
    /// Number of output elements.
    pub n: u64,
    /// Number of dimensions in use.
    pub rank: u32,
    /// Code of the [`Binary`] or [`Compare`] function.
    pub op: u32,
}
const _: () = assert!(size_of::<BroadcastParams>() == 272);

impl BroadcastParams {
    /// Parameters for operands of shapes `a` and `b` (and a mask); returns them with the shape of the result.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) when the shapes do not broadcast.
    pub fn new(op: &'static str, code: u32, a: &Shape, b: &Shape, mask: Option<&Shape>) -> Result<(Self, Shape)> {
        let mut out = a.broadcast(op, b)?;
        if let Some(m) = mask {
            out = out.broadcast(op, m)?;
        }
        let own = |s: &Shape| s.broadcast_strides(op, &out);
        let (sa, sb, sm) = (own(a)?, own(b)?, mask.map_or(Ok([0; 8]), own)?);
        let full = dims(&out);
        // Merge a dimension into the one before it if every operand steps over the two as over one.
        let mut p = BroadcastParams::zeroed();
        let mut rank = 0usize;
        for i in 0..out.rank() {
            if full[i] == 1 {
                continue;
            }
            let joins = |s: &Strides, kept: &Strides| rank > 0 && kept[rank - 1] == s[i] * full[i] as i64;
            if joins(&sa, &p.a) && joins(&sb, &p.b) && joins(&sm, &p.mask) {
                p.shape[rank - 1] *= full[i];
                (p.a[rank - 1], p.b[rank - 1], p.mask[rank - 1]) = (sa[i], sb[i], sm[i]);
            } else {
                p.shape[rank] = full[i];
                (p.a[rank], p.b[rank], p.mask[rank]) = (sa[i], sb[i], sm[i]);
                rank += 1;
            }
        }
        p.shape[rank..].fill(1);
        p.n = out.size() as u64;
        p.rank = rank as u32;
        p.op = code;
        Ok((p, out))
    }
}

/// Elementwise ops of a backend. Float tensors of one call share their dtype.
pub trait ElementwiseOps: Runtime {
    /// `y[i] = f(x[i])`.
    fn unary(&self, p: &UnaryParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// `dx[i] = g[i]·f′(x[i])`; `y = f(x)` is given too.
    fn unary_grad(
        &self,
        p: &UnaryParams,
        x: &Self::Buffer,
        y: &Self::Buffer,
        g: &Self::Buffer,
        dx: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, y, g, dx);
        self.unsupported(Op::UnaryGrad)
    }

    /// `y = f(a, b)` with broadcasting; `p.op` is a [`Binary`] code.
    fn binary(&self, p: &BroadcastParams, a: &Self::Buffer, b: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// `mask = a ⋈ b` with broadcasting; `p.op` is a [`Compare`] code, the mask is u8. Operands have one dtype, floats or
    /// integers.
    fn compare(&self, p: &BroadcastParams, a: &Self::Buffer, b: &Self::Buffer, mask: &mut Self::Buffer) -> Result<()>;

    /// `y = mask ? a : b` with broadcasting of all three.
    fn select(
        &self,
        p: &BroadcastParams,
        mask: &Self::Buffer,
        a: &Self::Buffer,
        b: &Self::Buffer,
        y: &mut Self::Buffer,
    ) -> Result<()>;

    /// Converts between any two dtypes: floats round to nearest even, float to integer truncates and saturates.
    fn cast(&self, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// `ys[i] = xs[i]` as [`cast`](ElementwiseOps::cast) converts, for tensors of one dtype into others of one dtype: the gradients of all
    /// parameters of a mixed-precision step at once.
    fn cast_each(&self, xs: &[&Self::Buffer], ys: &mut [&mut Self::Buffer]) -> Result<()> {
        let _ = (xs, ys);
        self.unsupported(Op::CastEach)
    }

    /// Sets every element to `value`, rounded to the buffer's dtype.
    fn fill(&self, value: f64, y: &mut Self::Buffer) -> Result<()>;

    /// `y += x`, element by element; gradients are accumulated with it.
    fn accumulate(&self, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;
}
