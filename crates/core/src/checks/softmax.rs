//! Checks of softmax.

use super::Operands;
use crate::ops::SoftmaxParams;
use crate::{Result, Runtime};

fn alike<R: Runtime>(
    on: &R,
    op: &'static str,
    p: &SoftmaxParams,
    buffers: &[(&'static str, &R::Buffer)],
    to: (&'static str, &R::Buffer),
) -> Result<()> {
    let of = Operands::new(on, op);
    of.flag("log", p.log)?;
    let (dtype, n) = (of.float(to.1)?, of.size(&[p.outer, p.n, p.inner])?);
    let mut all = buffers.iter().copied().chain([to]);
    all.try_for_each(|(name, buffer)| of.holds(name, buffer, dtype, n))
}

/// Checks [`SoftmaxOps::softmax`](crate::ops::SoftmaxOps::softmax).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn softmax<R: Runtime>(on: &R, p: &SoftmaxParams, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    alike(on, "softmax", p, &[("x", x)], ("y", y))
}

/// Checks [`SoftmaxOps::softmax_grad`](crate::ops::SoftmaxOps::softmax_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn softmax_grad<R: Runtime>(on: &R, p: &SoftmaxParams, y: &R::Buffer, g: &R::Buffer, dx: &R::Buffer) -> Result<()> {
    alike(on, "softmax_grad", p, &[("y", y), ("g", g)], ("dx", dx))
}
