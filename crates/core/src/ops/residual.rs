//! Sums of a residual network: what a branch adds to its input, with dropout, and the layer norm of the sum.

use super::{Op, RandomParams};
use crate::{Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of the ops on a residual stream, rows `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct ResidualParams {
    /// The number of rows, which are normalised one by one.
    pub rows: u64,
    /// The elements of a row.
    pub width: u64,
    /// The constant added to the variance.
    pub eps: f64,
    /// The probability that dropout zeroes an element of the branch; 0 for no dropout.
    pub drop: f64,
    /// The run's seed.
    pub seed: u64,
    /// The Philox stream of dropout.
    pub stream: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<ResidualParams>() == 48);

impl ResidualParams {
    /// Parameters for rows along the last dimension of `x`, without dropout.
    ///
    /// # Errors
    /// A scalar, rows without elements, a negative or NaN `eps`.
    pub fn new(op: &'static str, x: &Shape, eps: f64) -> Result<Self> {
        let Some((&width, lead)) = x.split_last() else {
            return Err(Error::Rank {
                op,
                expected: "1 or more",
                rank: 0,
            });
        };
        if width == 0 {
            return Err(Error::invalid(op, "input", x, "rows with elements"));
        }
        if !(eps >= 0.0 && eps.is_finite()) {
            return Err(Error::invalid(op, "eps", eps, "a finite number, 0 or more"));
        }
        Ok(ResidualParams {
            rows: lead.iter().product::<usize>() as u64,
            width: width as u64,
            eps,
            drop: 0.0,
            seed: 0,
            stream: 0,
            pad: 0,
        })
    }

    /// These parameters with the dropout of `p`.
    pub fn dropout(self, p: &RandomParams) -> Self {
        ResidualParams {
            drop: p.a,
            seed: p.seed,
            stream: p.stream,
            ..self
        }
    }

    /// The factor of the elements that dropout keeps: 1/(1 − drop), and 0 where it keeps none.
    pub fn scale(&self) -> f64 {
        if self.drop < 1.0 { 1.0 / (1.0 - self.drop) } else { 0.0 }
    }
}

/// The tensors from which the gradients of a sum and of its norm are computed.
#[derive(Debug)]
pub struct ResidualNormInputs<'a, B> {
    /// The sum, `[rows, width]`.
    pub s: &'a B,
    /// The scale of the norm, `[width]`.
    pub scale: &'a B,
    /// The mean of each row, `[rows]`.
    pub mean: &'a B,
    /// One over the standard deviation of each row, `[rows]`.
    pub rstd: &'a B,
    /// The gradient of the norm, `[rows, width]`.
    pub g: &'a B,
    /// A second gradient of the norm, which is added to `g`.
    pub more: Option<&'a B>,
    /// The gradient that the sum has otherwise.
    pub sum: Option<&'a B>,
    /// The step of dropout, if there was one.
    pub step: Option<&'a B>,
}

/// The gradients of a sum and of its norm.
#[derive(Debug)]
pub struct ResidualNormGrads<'a, B> {
    /// That of the sum, which is that of the stream before it too.
    pub ds: &'a mut B,
    /// That of the branch, where it is wanted.
    pub dy: Option<&'a mut B>,
    /// That of the scale.
    pub dscale: &'a mut B,
    /// That of the shift.
    pub dshift: &'a mut B,
}

/// Ops of a backend on a residual stream. The stream (`x`, `s`, and their gradients) has the dtype of its rows; branches and norms (`y`,
/// `n`, and their gradients) have the same, or are of halves beside a stream of f32. Arithmetic is in f32 (f64 for f64), and every result
/// is rounded once, but the norm is that of the rounded sum. Scale and shift, and their gradients, are of the stream's dtype or of its
/// accumulation dtype.
///
/// Dropout is that of [`RandomOps::dropout`](super::RandomOps::dropout), whose `step` is an i32 on the device: it is given where
/// `p.drop` is not 0.
pub trait ResidualOps: Runtime {
    /// `s = x + dropout(y)`.
    fn residual_add(
        &self,
        p: &ResidualParams,
        x: &Self::Buffer,
        y: &Self::Buffer,
        step: Option<&Self::Buffer>,
        s: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, y, step, s);
        self.unsupported(Op::Residual)
    }

    /// The gradient of the branch of [`ResidualOps::residual_add`], `dy = dropout(g)`, rounded to the branch's dtype. That of `x` is `g`.
    fn residual_add_grad(
        &self,
        p: &ResidualParams,
        g: &Self::Buffer,
        step: Option<&Self::Buffer>,
        dy: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, g, step, dy);
        self.unsupported(Op::Residual)
    }

    /// The sum `s = x + dropout(y)`, where there is a branch `(y, s)`, else `s = x`; and its layer norm
    /// `n = (s − mean)·rstd·scale + shift` with the statistics `[rows]`: the mean, and `rstd = 1/√(var + eps)` of the biased variance.
    fn residual_norm(
        &self,
        p: &ResidualParams,
        x: &Self::Buffer,
        branch: Option<(&Self::Buffer, &mut Self::Buffer)>,
        step: Option<&Self::Buffer>,
        scale: &Self::Buffer,
        shift: &Self::Buffer,
        n: &mut Self::Buffer,
        mean: &mut Self::Buffer,
        rstd: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, branch, step, scale, shift, n, mean, rstd);
        self.unsupported(Op::Residual)
    }

    /// The gradient of [`ResidualOps::residual_norm`]: `ds = sum + rstd·(g·scale − Σ(g·scale)/width − ŝ·Σ(g·scale·ŝ)/width)` with
    /// `ŝ = (s − mean)·rstd`, where `g` stands for `g + more`; `dscale = Σ g·ŝ`, `dshift = Σ g`; and where it is asked for, the branch's
    /// `dy = dropout(ds)`.
    fn residual_norm_grad(
        &self,
        p: &ResidualParams,
        of: &ResidualNormInputs<'_, Self::Buffer>,
        to: ResidualNormGrads<'_, Self::Buffer>,
    ) -> Result<()> {
        let _ = (p, of, to);
        self.unsupported(Op::Residual)
    }
}
