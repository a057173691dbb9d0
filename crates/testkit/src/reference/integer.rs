//! Ops on integers, in i64, whose results wrap around.

use super::elementwise::broadcast;
use super::moves::places;
use super::reduce::place;
use super::{Reference, ReferenceBuffer};
use kiln_core::ops::{BroadcastParams, IndexParams, Integer, IntegerFold, IntegerOps, ReduceParams};
use kiln_core::{Result, checks};

/// `f(a, b)` before it wraps.
fn value(f: Integer, a: i64, b: i64) -> i64 {
    match f {
        Integer::Add => a + b,
        Integer::Sub => a - b,
        Integer::Mul => a * b,
        Integer::FloorDivide | Integer::Remainder if b == 0 => 0,
        Integer::FloorDivide => (a as f64 / b as f64).floor() as i64,
        Integer::Remainder => a - b * value(Integer::FloorDivide, a, b),
        Integer::Maximum => a.max(b),
        Integer::Minimum => a.min(b),
        Integer::BitwiseAnd => a & b,
        Integer::BitwiseOr => a | b,
        Integer::BitwiseXor => a ^ b,
        Integer::LeftShift => {
            if (0..32).contains(&b) {
                a << b
            } else {
                0
            }
        }
        Integer::RightShift => (a as f64 / 2f64.powi(if (0..32).contains(&b) { b as i32 } else { 32 })).floor() as i64,
    }
}

fn join(f: IntegerFold, a: f64, b: f64) -> f64 {
    match f {
        IntegerFold::Sum => wrapped(a as i64 + b as i64),
        IntegerFold::Max => a.max(b),
        IntegerFold::Min => a.min(b),
    }
}

/// The i32 with the lower bits of `value`.
fn wrapped(value: i64) -> f64 {
    f64::from(value as i32)
}

impl IntegerOps for Reference {
    fn integer_binary(
        &self,
        p: &BroadcastParams,
        a: &ReferenceBuffer,
        b: &ReferenceBuffer,
        y: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::integer_binary(self, p, a, b, y)?;
        let f = Integer::ALL[p.op as usize];
        broadcast(p, [&p.a, &p.b], |i, at| {
            y.data[i] = wrapped(value(f, a.data[at[0]] as i64, b.data[at[1]] as i64));
        });
        Ok(())
    }

    fn integer_reduce(
        &self,
        f: IntegerFold,
        p: &ReduceParams,
        x: &ReferenceBuffer,
        y: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::integer_reduce(self, f, p, x, y)?;
        y.data.fill(f64::from(f.identity()));
        for (i, &x) in x.data.iter().enumerate() {
            let y = &mut y.data[place(p, i)];
            *y = join(f, *y, x);
        }
        Ok(())
    }

    fn integer_scatter(
        &self,
        f: IntegerFold,
        p: &IndexParams,
        x: &ReferenceBuffer,
        index: &ReferenceBuffer,
        y: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::integer_scatter(self, p, x, index, y)?;
        for (&x, at) in x.data.iter().zip(places("integer_scatter", p, index)?) {
            y.data[at] = join(f, y.data[at], x);
        }
        Ok(())
    }
}
