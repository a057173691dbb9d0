//! Ops that move elements. Views and gathers copy bits, so they are compiled once per element size, not per dtype.

#[cfg(test)]
mod tests;
mod view;

use crate::dispatch::{any, float};
use crate::fork::in_pool;
use crate::ops::elementwise::To;
use crate::parallel::{self, GRAIN, THREADS};
use crate::{Cpu, CpuBuffer};
use bytemuck::cast_slice;
use kiln_core::ops::{ElementwiseOps, IndexOps, IndexParams, Join, Split, ViewParams};
use kiln_core::{Buffer, DType, Error, Float, Result, checks};
use rayon::prelude::*;

/// Runs `$body` with `$T` bound to the unsigned integer of the size of `$dtype`.
macro_rules! bits {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype.size() {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            _ => {
                type $T = u64;
                $body
            }
        }
    };
}

/// Returns the indices after checking, before anything is written, that each is in `0..size`.
pub(super) fn checked<'a>(op: &'static str, index: &'a CpuBuffer, size: u64) -> Result<&'a [i32]> {
    let index = index.as_slice::<i32>();
    match index.iter().position(|&i| i < 0 || i as u64 >= size) {
        Some(position) => Err(Error::IndexOutOfRange {
            op,
            index: i64::from(index[position]),
            position,
            size: size as usize,
        }),
        None => Ok(index),
    }
}

impl IndexOps for Cpu {
    fn view_read(&self, p: &ViewParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::view_read(self, p, x, y)?;
        debug_assert_eq!((x.dtype(), p.n as usize), (y.dtype(), y.len()));
        bits!(x.dtype(), T => view::read::<T>(p, cast_slice(x.bytes()), bytemuck::cast_slice_mut(y.bytes_mut())));
        Ok(())
    }

    fn view_write(&self, p: &ViewParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::view_write(self, p, x, y)?;
        debug_assert_eq!((y.dtype(), p.n as usize), (x.dtype(), x.len()));
        bits!(x.dtype(), T => view::write::<T>(p, cast_slice(x.bytes()), bytemuck::cast_slice_mut(y.bytes_mut())));
        Ok(())
    }

    fn join(&self, joins: &mut [Join<'_, CpuBuffer>]) -> Result<()> {
        checks::join(self, joins)?;
        for join in joins {
            let mut rest = join.whole.bytes_mut();
            for part in &join.parts {
                let (to, after) = rest.split_at_mut(part.bytes().len());
                to.copy_from_slice(part.bytes());
                rest = after;
            }
        }
        Ok(())
    }

    fn split(&self, splits: &mut [Split<'_, CpuBuffer>]) -> Result<()> {
        checks::split(self, splits)?;
        for split in splits {
            let size = split.whole.dtype().size();
            for (start, part) in &mut split.parts {
                let at = *start * size;
                let n = part.bytes().len();
                part.bytes_mut().copy_from_slice(&split.whole.bytes()[at..at + n]);
            }
        }
        Ok(())
    }

    fn gather(&self, p: &IndexParams, x: &CpuBuffer, index: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::gather(self, p, x, index, y)?;
        debug_assert_eq!(x.dtype(), y.dtype());
        let index = checked("gather", index, p.size)?;
        let (size, inner, count) = (p.size as usize, p.inner as usize, p.count as usize);
        bits!(x.dtype(), T => {
            let x: &[T] = cast_slice(x.bytes());
            parallel::chunks_mut(bytemuck::cast_slice_mut::<u8, T>(y.bytes_mut()), inner, 2, |at, y| {
                for (r, (y, index)) in y.chunks_mut(inner).zip(index[at..].chunks(inner)).enumerate() {
                    let x = &x[(at / inner + r) / count * size * inner..][..size * inner];
                    for (i, (y, &j)) in y.iter_mut().zip(index).enumerate() {
                        *y = x[j as usize * inner + i];
                    }
                }
            });
        });
        Ok(())
    }

    fn scatter_add(&self, p: &IndexParams, x: &CpuBuffer, index: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::scatter_add(self, p, x, index, y)?;
        let checked = checked("scatter_add", index, p.size)?;
        if x.is_empty() {
            return Ok(());
        }
        self.in_accumulator(x, y, |x, y| match x.dtype() {
            DType::F64 => scatter_add::<f64>(p, x.as_slice(), checked, y.as_mut_slice()),
            _ => scatter_add::<f32>(p, x.as_slice(), checked, y.as_mut_slice()),
        })
    }

    fn index_select(&self, p: &IndexParams, x: &CpuBuffer, index: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::index_select(self, p, x, index, y)?;
        debug_assert_eq!(x.dtype(), y.dtype());
        let index = checked("index_select", index, p.size)?;
        let (size, inner) = (p.size as usize, p.inner as usize);
        bits!(x.dtype(), T => {
            let x: &[T] = cast_slice(x.bytes());
            parallel::chunks_mut(bytemuck::cast_slice_mut::<u8, T>(y.bytes_mut()), inner, 1, |at, y| {
                for (r, y) in y.chunks_mut(inner).enumerate() {
                    let row = at / inner + r;
                    let from = (row / index.len() * size + index[row % index.len()] as usize) * inner;
                    y.copy_from_slice(&x[from..from + inner]);
                }
            });
        });
        Ok(())
    }

    fn index_add(&self, p: &IndexParams, x: &CpuBuffer, index: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::index_add(self, p, x, index, y)?;
        let checked = checked("index_add", index, p.size)?;
        if x.is_empty() {
            return Ok(());
        }
        self.in_accumulator(x, y, |x, y| match x.dtype() {
            DType::F64 => index_add::<f64>(p, x.as_slice(), checked, y.as_mut_slice()),
            _ => index_add::<f32>(p, x.as_slice(), checked, y.as_mut_slice()),
        })
    }

    fn one_hot(&self, p: &IndexParams, index: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::one_hot(self, p, index, y)?;
        let index = checked("one_hot", index, p.size)?;
        let size = p.size as usize;
        any!(y.dtype(), T => {
            let (zero, one) = (<T as To>::of(0.0), <T as To>::of(1.0));
            parallel::chunks_mut(y.as_mut_slice::<T>(), size, 1, |at, y| {
                y.fill(zero);
                for (y, &i) in y.chunks_mut(size).zip(&index[at / size..]) {
                    y[i as usize] = one;
                }
            });
        });
        Ok(())
    }
}

impl Cpu {
    /// Runs an accumulating `body` on f32 or f64 buffers; half dtypes go through f32 scratch, so that they round once.
    fn in_accumulator(
        &self,
        x: &CpuBuffer,
        y: &mut CpuBuffer,
        body: impl FnOnce(&CpuBuffer, &mut CpuBuffer),
    ) -> Result<()> {
        let acc = float!(y.dtype(), T => <<T as Float>::Acc as kiln_core::Element>::DTYPE);
        if y.dtype() == acc {
            body(x, y);
            return Ok(());
        }
        let (mut wide_x, mut wide_y) = (self.scratch(acc, x.len())?, self.scratch(acc, y.len())?);
        self.cast(x, &mut wide_x)?;
        self.cast(y, &mut wide_y)?;
        body(&wide_x, &mut wide_y);
        self.cast(&wide_y, y)
    }
}

/// Each outer slice is processed by one thread, in the order of `j`.
fn scatter_add<T: Copy + Send + Sync + std::ops::AddAssign>(p: &IndexParams, x: &[T], index: &[i32], y: &mut [T]) {
    let (size, inner, count) = (p.size as usize, p.inner as usize, p.count as usize);
    let (from, to) = (count * inner, size * inner);
    let slices = |at: usize, y: &mut [T]| {
        let first = at / to * from;
        for ((y, x), index) in y
            .chunks_mut(to)
            .zip(x[first..].chunks(from))
            .zip(index[first..].chunks(from))
        {
            for (x, index) in x.chunks(inner).zip(index.chunks(inner)) {
                for (i, (&x, &j)) in x.iter().zip(index).enumerate() {
                    y[j as usize * inner + i] += x;
                }
            }
        }
    };
    let group = to * GRAIN.div_ceil(2 * from.max(1));
    if x.len() < THREADS || y.len() <= group {
        slices(0, y);
    } else {
        in_pool(|| {
            y.par_chunks_mut(group)
                .enumerate()
                .with_max_len(1)
                .for_each(|(g, y)| slices(g * group, y));
        });
    }
}

/// Each task owns some rows of the result: it scans all indices and adds the rows that are its own, in the order of `j`.
fn index_add<T: Copy + Send + Sync + std::ops::AddAssign>(p: &IndexParams, x: &[T], index: &[i32], y: &mut [T]) {
    let (size, inner) = (p.size as usize, p.inner as usize);
    // Few tasks, because each reads every index.
    const OWNERS: usize = 16;
    let rows = y.len() / inner;
    let own = if x.len() < THREADS {
        rows
    } else {
        rows.div_ceil(OWNERS).max(GRAIN.div_ceil(2 * inner))
    };
    let add = |first: usize, y: &mut [T]| {
        let last = first + y.len() / inner;
        for o in first / size..last.div_ceil(size) {
            for (j, &i) in index.iter().enumerate() {
                let row = o * size + i as usize;
                if (first..last).contains(&row) {
                    let x = &x[(o * index.len() + j) * inner..][..inner];
                    for (y, &x) in y[(row - first) * inner..][..inner].iter_mut().zip(x) {
                        *y += x;
                    }
                }
            }
        }
    };
    if own >= rows {
        add(0, y);
    } else {
        in_pool(|| {
            y.par_chunks_mut(own * inner)
                .enumerate()
                .with_max_len(1)
                .for_each(|(g, y)| add(g * own, y));
        });
    }
}
