//! Ops on integers. Sums, products and shifts wrap around, so loops in any order and on any number of threads agree.

use super::elementwise::zip;
use super::index::checked;
use super::reduce::integer::reduce;
use crate::parallel::chunks_mut;
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{AxisParams, BroadcastParams, IndexParams, Integer, IntegerFold, IntegerOps, ReduceParams};
use kiln_core::{Buffer, DType, Result, checks};

/// Runs `$body` with `$f` bound to the function of an [`Integer`] code, in a loop of its own.
macro_rules! function {
    ($code:expr, $f:ident => $body:expr, [$($case:ident),*]) => {
        match $code {
            $(Integer::$case => {
                let $f = |a, b| value(Integer::$case, a, b);
                $body
            })*
        }
    };
}

/// Runs `$body` with `$join` bound to the join of a fold, in a loop of its own.
macro_rules! joins {
    ($fold:expr, $join:ident => $body:expr) => {
        match $fold {
            IntegerFold::Sum => {
                let $join = i32::wrapping_add;
                $body
            }
            IntegerFold::Max => {
                let $join = <i32 as Ord>::max;
                $body
            }
            IntegerFold::Min => {
                let $join = <i32 as Ord>::min;
                $body
            }
        }
    };
}

/// Moves a quotient or a remainder that is rounded towards zero to that of the floor, where they differ.
#[inline(always)]
fn floored(rest: i32, b: i32, truncated: i32, moved: i32) -> i32 {
    if rest != 0 && (rest < 0) != (b < 0) {
        moved
    } else {
        truncated
    }
}

/// `f(a, b)`.
#[inline(always)]
fn value(f: Integer, a: i32, b: i32) -> i32 {
    match f {
        Integer::Add => a.wrapping_add(b),
        Integer::Sub => a.wrapping_sub(b),
        Integer::Mul => a.wrapping_mul(b),
        Integer::FloorDivide | Integer::Remainder if b == 0 => 0,
        Integer::FloorDivide => {
            let quotient = a.wrapping_div(b);
            floored(a.wrapping_rem(b), b, quotient, quotient.wrapping_sub(1))
        }
        Integer::Remainder => {
            let rest = a.wrapping_rem(b);
            floored(rest, b, rest, rest.wrapping_add(b))
        }
        Integer::Maximum => a.max(b),
        Integer::Minimum => a.min(b),
        Integer::BitwiseAnd => a & b,
        Integer::BitwiseOr => a | b,
        Integer::BitwiseXor => a ^ b,
        Integer::LeftShift => u32::try_from(b).ok().and_then(|b| a.checked_shl(b)).unwrap_or(0),
        Integer::RightShift => a >> u32::try_from(b).map_or(31, |b| b.min(31)),
    }
}

impl IntegerOps for Cpu {
    fn integer_binary(&self, p: &BroadcastParams, a: &CpuBuffer, b: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::integer_binary(self, p, a, b, y)?;
        let f = Integer::ALL[p.op as usize];
        if y.dtype() == DType::U8 {
            let (a, b, y) = (a.as_slice::<u8>(), b.as_slice(), y.as_mut_slice());
            match f {
                Integer::BitwiseAnd => zip(p, a, b, y, 1, |a, b| a & b),
                Integer::BitwiseOr => zip(p, a, b, y, 1, |a, b| a | b),
                _ => zip(p, a, b, y, 1, |a, b| a ^ b),
            }
            return Ok(());
        }
        let (a, b, y) = (a.as_slice::<i32>(), b.as_slice(), y.as_mut_slice());
        function!(f, f => zip(p, a, b, y, 1, f), [
            Add, Sub, Mul, FloorDivide, Remainder, Maximum, Minimum, BitwiseAnd, BitwiseOr, BitwiseXor, LeftShift,
            RightShift
        ]);
        Ok(())
    }

    fn integer_reduce(&self, f: IntegerFold, p: &ReduceParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::integer_reduce(self, f, p, x, y)?;
        let (x, y) = (x.as_slice::<i32>(), y.as_mut_slice::<i32>());
        joins!(f, join => reduce(self, p, x, y, f.identity(), join))
    }

    fn integer_cumsum(&self, p: &AxisParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::integer_cumsum(self, p, x, y)?;
        let (x, y) = (x.as_slice::<i32>(), y.as_mut_slice::<i32>());
        let (inner, slice) = (p.inner as usize, (p.n * p.inner) as usize);
        chunks_mut(y, slice, 2, |first, y| {
            y.copy_from_slice(&x[first..first + y.len()]);
            for y in y.chunks_exact_mut(slice) {
                // Each element takes the one before it, whose sum is complete.
                for i in inner..slice {
                    let (at, from) = match p.reverse {
                        0 => (i, i - inner),
                        _ => (slice - 1 - i, slice - 1 - i + inner),
                    };
                    y[at] = y[at].wrapping_add(y[from]);
                }
            }
        });
        Ok(())
    }

    fn integer_scatter(
        &self,
        f: IntegerFold,
        p: &IndexParams,
        x: &CpuBuffer,
        index: &CpuBuffer,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        checks::integer_scatter(self, p, x, index, y)?;
        let index = checked("integer_scatter", index, p.size)?;
        let (x, y) = (x.as_slice::<i32>(), y.as_mut_slice::<i32>());
        let (inner, from, to) = (
            p.inner as usize,
            (p.count * p.inner) as usize,
            (p.size * p.inner) as usize,
        );
        if x.is_empty() {
            return Ok(());
        }
        joins!(f, join => chunks_mut(y, to, 2 * from / to + 1, |first, y| {
            let first = first / to * from;
            let slices = x[first..].chunks(from).zip(index[first..].chunks(from));
            for (y, (x, index)) in y.chunks_mut(to).zip(slices) {
                for (i, (&x, &j)) in x.iter().zip(index).enumerate() {
                    let y = &mut y[j as usize * inner + i % inner];
                    *y = join(*y, x);
                }
            }
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_those_of_the_floor() {
        for (a, b, quotient, rest) in [
            (7, 2, 3, 1),
            (-7, 2, -4, 1),
            (7, -2, -4, -1),
            (-7, -2, 3, -1),
            (6, -3, -2, 0),
            (i32::MIN, -1, i32::MIN, 0),
            (5, 0, 0, 0),
            (i32::MIN, i32::MAX, -2, i32::MAX - 1),
        ] {
            assert_eq!(value(Integer::FloorDivide, a, b), quotient, "{a} / {b}");
            assert_eq!(value(Integer::Remainder, a, b), rest, "{a} % {b}");
        }
    }

    #[test]
    fn shifts_by_more_than_there_are_bits_shift_everything_out() {
        for (a, b, left, right) in [
            (3, 1, 6, 1),
            (-3, 1, -6, -2),
            (1, 31, i32::MIN, 0),
            (-1, 32, 0, -1),
            (5, -1, 0, 0),
        ] {
            assert_eq!(value(Integer::LeftShift, a, b), left, "{a} << {b}");
            assert_eq!(value(Integer::RightShift, a, b), right, "{a} >> {b}");
        }
    }
}
