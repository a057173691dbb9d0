//! Elementwise ops.

use super::{Reference, ReferenceBuffer, rounded};
use crate::ops::elementwise::Function;
use kiln_core::ops::{Binary, BroadcastParams, Compare, ElementwiseOps, Strides, Unary, UnaryParams};
use kiln_core::{Result, checks};

/// Calls `f(i, places)` for every element `i` of the result, with the offsets of its operands.
pub(super) fn broadcast<const N: usize>(
    p: &BroadcastParams,
    strides: [&Strides; N],
    mut f: impl FnMut(usize, [usize; N]),
) {
    let dims = &p.shape[..p.rank as usize];
    for i in 0..p.n as usize {
        let (mut rest, mut at) = (i as i64, [0; N]);
        for (d, &size) in dims.iter().enumerate().rev() {
            let index = rest % size as i64;
            rest /= size as i64;
            for (at, strides) in at.iter_mut().zip(strides) {
                *at += index * strides[d];
            }
        }
        f(i, at.map(|at| at as usize));
    }
}

fn value(f: Binary, a: f64, b: f64) -> f64 {
    match f {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Pow => a.powf(b),
        Binary::Maximum | Binary::Minimum if a.is_nan() || b.is_nan() => f64::NAN,
        Binary::Maximum => a.max(b),
        Binary::Minimum => a.min(b),
        Binary::Atan2 => a.atan2(b),
        Binary::Remainder => {
            let r = a % b;
            if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
        }
    }
}

fn holds(f: Compare, a: f64, b: f64) -> bool {
    match f {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
    }
}

impl ElementwiseOps for Reference {
    fn unary(&self, p: &UnaryParams, x: &ReferenceBuffer, y: &mut ReferenceBuffer) -> Result<()> {
        checks::unary(self, p, x, y)?;
        let f = Function::new(p.op(), p.a, p.b);
        y.data = x.data.mapv(|x| match p.op() {
            // All comparisons of NaN with a bound are false, so NaN stays.
            Unary::Clamp | Unary::Hardshrink | Unary::Softshrink if x.is_nan() => x,
            _ => f.exact(x),
        });
        Ok(())
    }

    fn binary(
        &self,
        p: &BroadcastParams,
        a: &ReferenceBuffer,
        b: &ReferenceBuffer,
        y: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::binary(self, p, a, b, y)?;
        let f = Binary::ALL[p.op as usize];
        broadcast(p, [&p.a, &p.b], |i, at| {
            y.data[i] = value(f, a.data[at[0]], b.data[at[1]])
        });
        Ok(())
    }

    fn compare(
        &self,
        p: &BroadcastParams,
        a: &ReferenceBuffer,
        b: &ReferenceBuffer,
        mask: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::compare(self, p, a, b, mask)?;
        let f = Compare::ALL[p.op as usize];
        broadcast(p, [&p.a, &p.b], |i, at| {
            mask.data[i] = f64::from(u8::from(holds(f, a.data[at[0]], b.data[at[1]])));
        });
        Ok(())
    }

    fn select(
        &self,
        p: &BroadcastParams,
        mask: &ReferenceBuffer,
        a: &ReferenceBuffer,
        b: &ReferenceBuffer,
        y: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::select(self, p, mask, a, b, y)?;
        broadcast(p, [&p.mask, &p.a, &p.b], |i, at| {
            let takes_a = mask.data[at[0]] != 0.0;
            y.data[i] = if takes_a { a.data[at[1]] } else { b.data[at[2]] };
        });
        Ok(())
    }

    fn cast(&self, x: &ReferenceBuffer, y: &mut ReferenceBuffer) -> Result<()> {
        checks::cast(self, x, y)?;
        y.data = x.data.mapv(|v| rounded(rounded(v, x.dtype), y.dtype));
        Ok(())
    }

    fn fill(&self, value: f64, y: &mut ReferenceBuffer) -> Result<()> {
        checks::fill(self, y)?;
        y.data.fill(rounded(value, y.dtype));
        Ok(())
    }

    fn accumulate(&self, x: &ReferenceBuffer, y: &mut ReferenceBuffer) -> Result<()> {
        checks::accumulate(self, x, y)?;
        y.data += &x.data;
        Ok(())
    }
}
