//! Helpers for the checks of all ops.

use crate::ops::{Dims, Strides};
use crate::{Buffer, DType, Error, MAX_RANK, Result, Runtime, runtime};

/// The largest number of elements of a buffer, as in [`Shape`](crate::Shape).
const MOST: u64 = isize::MAX as u64 / 8;

/// The checks of one call of an op: the runtime, and the op's name for errors.
#[derive(Clone, Copy)]
pub(super) struct Operands<'r, R> {
    on: &'r R,
    pub(super) op: &'static str,
}

impl<'r, R: Runtime> Operands<'r, R> {
    pub(super) fn new(on: &'r R, op: &'static str) -> Self {
        Operands { on, op }
    }

    /// Returns the dtype of a buffer; an error if the runtime does not compute with it.
    pub(super) fn any(&self, buffer: &R::Buffer) -> Result<DType> {
        let dtype = buffer.dtype();
        if self.on.supports_dtype(dtype) {
            return Ok(dtype);
        }
        self.refuse(dtype, "one that the device computes with")
    }

    /// Returns the dtype of a buffer of floats; an error for another dtype.
    pub(super) fn float(&self, buffer: &R::Buffer) -> Result<DType> {
        let dtype = self.any(buffer)?;
        if dtype.is_float() {
            return Ok(dtype);
        }
        self.refuse(dtype, "a floating-point dtype")
    }

    fn refuse<T>(&self, dtype: DType, expected: &'static str) -> Result<T> {
        Err(Error::UnsupportedDType {
            op: self.op,
            dtype,
            expected,
        })
    }

    /// Checks that a buffer has dtype `dtype` and `len` elements.
    pub(super) fn holds(&self, operand: &'static str, buffer: &R::Buffer, dtype: DType, len: usize) -> Result<()> {
        runtime::holds(self.on, self.op, operand, buffer, dtype, len)
    }

    /// As [`holds`](Self::holds), for an optional buffer.
    pub(super) fn may_hold(
        &self,
        operand: &'static str,
        buffer: Option<&R::Buffer>,
        dtype: DType,
        len: usize,
    ) -> Result<()> {
        buffer.map_or(Ok(()), |buffer| self.holds(operand, buffer, dtype, len))
    }

    /// The product of dimensions. As in [`Shape`](crate::Shape), the dimensions other than 0 must not overflow either.
    pub(super) fn size(&self, dims: &[u64]) -> Result<usize> {
        let bound = dims.iter().try_fold(1u64, |size, &d| size.checked_mul(d.max(1)));
        match bound {
            Some(bound) if bound <= MOST => Ok(dims.iter().product::<u64>() as usize),
            _ => Err(Error::TooLarge {
                op: self.op,
                dims: dims.iter().map(|&d| d as usize).collect(),
            }),
        }
    }

    pub(super) fn require(
        &self,
        holds: bool,
        argument: &'static str,
        found: impl std::fmt::Debug,
        expected: &'static str,
    ) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(Error::invalid(self.op, argument, format!("{found:?}"), expected))
    }

    /// Checks that a parameter is 0 or 1.
    pub(super) fn flag(&self, argument: &'static str, value: u32) -> Result<()> {
        self.require(value <= 1, argument, value, "0 or 1")
    }

    /// Returns `known`, the variant that `code` was converted to; an error if there is none.
    pub(super) fn code<T>(&self, argument: &'static str, code: u32, known: Option<T>) -> Result<T> {
        known.ok_or_else(|| Error::invalid(self.op, argument, code, "the code of one of its values"))
    }

    /// The first `rank` dimensions.
    pub(super) fn dims<'d>(&self, dims: &'d Dims, rank: u32) -> Result<&'d [u64]> {
        let used = usize::try_from(rank).ok().and_then(|rank| dims.get(..rank));
        used.ok_or(Error::Rank {
            op: self.op,
            expected: "at most 8",
            rank: rank as usize,
        })
    }

    /// The number of elements from the first to the last that a strided walk reaches, with `block` elements at each step.
    /// Strides must not be negative.
    pub(super) fn span(&self, dims: &[u64], strides: &Strides, block: usize) -> Result<usize> {
        let last = dims.iter().zip(strides).try_fold(0u64, |at, (&d, &stride)| {
            let stride = u64::try_from(stride).ok()?;
            at.checked_add(stride.checked_mul(d.saturating_sub(1))?)
        });
        let end = last.and_then(|last| last.checked_add(block as u64));
        match end {
            Some(end) if end <= MOST => Ok(end as usize),
            _ => Err(Error::invalid(
                self.op,
                "strides",
                format!("{:?}", &strides[..dims.len().min(MAX_RANK)]),
                "steps forwards inside of an operand",
            )),
        }
    }
}

/// The dtype of the statistics, log-sum-exps and optimizer state of tensors of `dtype`: f32, or f64 for f64.
pub(super) fn accumulator(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
