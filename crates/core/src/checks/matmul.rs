//! Checks of matrix products.

use super::{Operands, residual_norm};
use crate::ops::{Activation, LinearGrads, LinearInputs, MatmulParams};
use crate::{Buffer, DType, Result, Runtime};

/// Checks a batched product with a bias and an activation, which backends may have beyond the functions of
/// [`MatmulOps`](crate::ops::MatmulOps).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn product<R: Runtime>(
    on: &R,
    op: &'static str,
    p: &MatmulParams,
    (a, b): (&R::Buffer, &R::Buffer),
    bias: Option<&R::Buffer>,
    c: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, op);
    of.code("activation", p.activation, Activation::from_code(p.activation))?;
    let dtype = operands(&of, p, [("a", a), ("b", b), ("c", c)])?;
    of.may_hold("bias", bias, dtype, of.size(&[p.n])?)
}

/// Checks A, B and C against the parameters; returns C's dtype.
fn operands<R: Runtime>(
    of: &Operands<'_, R>,
    p: &MatmulParams,
    [(a_name, a), (b_name, b), (c_name, c)]: [(&'static str, &R::Buffer); 3],
) -> Result<DType> {
    let dtype = of.float(c)?;
    of.flag("trans_a", p.trans_a)?;
    of.flag("trans_b", p.trans_b)?;
    let batch = of.dims(&p.batch, p.batch_rank)?;
    let batches = of.size(batch)?;
    of.holds(c_name, c, dtype, of.size(&[batches as u64, p.m, p.n])?)?;
    let operands = [
        (a_name, a, &p.a_batch, of.size(&[p.m, p.k])?),
        (b_name, b, &p.b_batch, of.size(&[p.k, p.n])?),
    ];
    for (name, buffer, strides, matrix) in operands {
        let len = match (batches, matrix) {
            // With no products nothing is read; the operands may still have elements.
            (0, _) => buffer.len(),
            (_, 0) => 0,
            _ => of.span(batch, strides, matrix)?,
        };
        of.holds(name, buffer, dtype, len)?;
    }
    Ok(dtype)
}

/// Checks [`MatmulOps::matmul`](crate::ops::MatmulOps::matmul).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn matmul<R: Runtime>(on: &R, p: &MatmulParams, a: &R::Buffer, b: &R::Buffer, c: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "matmul");
    of.require(
        p.activation == Activation::None as u32,
        "activation",
        p.activation,
        "none",
    )?;
    operands(&of, p, [("a", a), ("b", b), ("c", c)]).map(drop)
}

/// Checks [`MatmulOps::linear`](crate::ops::MatmulOps::linear).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn linear<R: Runtime>(
    on: &R,
    p: &MatmulParams,
    x: &R::Buffer,
    w: &R::Buffer,
    bias: Option<&R::Buffer>,
    h: Option<&R::Buffer>,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "linear");
    let f = of.code("activation", p.activation, Activation::from_code(p.activation))?;
    if h.is_some() {
        let expected = "none, as the gradient of the activation does not read it";
        of.require(f.reads_input(), "h", "given", expected)?;
    }
    of.require(p.batch_rank == 0, "batch_rank", p.batch_rank, "0: one product")?;
    let dtype = operands(&of, p, [("x", x), ("w", w), ("y", y)])?;
    of.may_hold("h", h, dtype, of.size(&[p.m, p.n])?)?;
    of.may_hold("bias", bias, dtype, of.size(&[p.n])?)
}

/// Checks [`MatmulOps::linear_grad`](crate::ops::MatmulOps::linear_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn linear_grad<R: Runtime>(
    on: &R,
    p: &MatmulParams,
    inputs: &LinearInputs<'_, R::Buffer>,
    g: &R::Buffer,
    to: &LinearGrads<'_, R::Buffer>,
) -> Result<()> {
    let of = Operands::new(on, "linear_grad");
    let relu = p.activation == Activation::Relu as u32;
    let known = relu || p.activation == Activation::None as u32;
    of.require(known, "activation", p.activation, "none or a ReLU")?;
    let found = inputs.y.is_some();
    of.require(found == relu, "y", found, "the result, if it is that of a ReLU")?;
    of.require(p.batch_rank == 0, "batch_rank", p.batch_rank, "0: one product")?;
    let plain = p.trans_a == 0 && p.trans_b == 1;
    of.require(plain, "trans_a and trans_b", (p.trans_a, p.trans_b), "0 and 1")?;
    let sizes = [p.m, p.n, p.k];
    of.require(!sizes.contains(&0), "m, n and k", sizes, "nothing that is empty")?;
    let (given, again) = (inputs.x.is_some(), to.x.is_some());
    of.require(!(given && again), "x", "given and wanted", "one of these")?;
    of.require(
        given || again || to.dw.is_none(),
        "x",
        "absent",
        "the input, which dw is made of",
    )?;
    let by_slope = inputs.slope.as_ref().is_some_and(|slope| slope.f.reads_input());
    let remade = to.dx.is_some() && (by_slope || inputs.norm.is_some());
    let expected = "given, without dx and either a slope whose activation gives it or a norm";
    of.require(!again || remade, "x", "wanted", expected)?;
    if let Some(norm) = &inputs.norm {
        let x = to.x.as_deref().filter(|_| inputs.slope.is_none());
        of.require(x.is_some(), "norm", "given", "none, without an x that it makes again")?;
        let (q, found) = (&norm.p, (norm.p.rows, norm.p.width));
        of.require(found == (p.m, p.k), "norm", found, "m rows of k elements")?;
        of.require(q.drop == 0.0, "norm", q.drop, "no dropout")?;
        let (s, scale, shift) = (norm.s, norm.scale, norm.shift);
        if let Some(x) = x {
            residual_norm(on, q, s, None, None, scale, shift, x, norm.mean, norm.rstd)?;
        }
    }
    let dtype = of.float(g)?;
    let [x, w, y] = [of.size(&[p.m, p.k])?, of.size(&[p.n, p.k])?, of.size(&[p.m, p.n])?];
    of.holds("g", g, dtype, y)?;
    of.holds("w", inputs.w, dtype, w)?;
    of.may_hold("x", inputs.x.or(to.x.as_deref()), dtype, x)?;
    of.may_hold("y", inputs.y, dtype, y)?;
    of.may_hold("slope", inputs.slope.as_ref().map(|slope| slope.at), dtype, x)?;
    of.may_hold("dx", to.dx.as_deref(), dtype, x)?;
    of.may_hold("dw", to.dw.as_deref(), dtype, w)?;
    of.may_hold("db", to.db.as_deref(), dtype, of.size(&[p.n])?)
}
