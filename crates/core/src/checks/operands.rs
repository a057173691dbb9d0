//! The operands of one call of an op, and what the checks of all ops ask of them.

use crate::ops::{Dims, Strides};
use crate::{Buffer, DType, Error, MAX_RANK, Result, Runtime, runtime};

/// The most elements that a buffer has, as in [`Shape`](crate::Shape).
const MOST: u64 = isize::MAX as u64 / 8;

/// The operands of one call of an op.
#[derive(Clone, Copy)]
pub(super) struct Operands<'r, R> {
    on: &'r R,
    pub(super) op: &'static str,
}

impl<'r, R: Runtime> Operands<'r, R> {
    pub(super) fn new(on: &'r R, op: &'static str) -> Self {
        Operands { on, op }
    }

    /// The dtype of a buffer that the runtime computes with.
    pub(super) fn any(&self, buffer: &R::Buffer) -> Result<DType> {
        let dtype = buffer.dtype();
        if self.on.supports_dtype(dtype) {
            return Ok(dtype);
        }
        self.refuse(dtype, "one that the device computes with")
    }

    /// The dtype of a buffer of floats.
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

    /// Compares a buffer with what the parameters need of it.
    pub(super) fn holds(&self, operand: &'static str, buffer: &R::Buffer, dtype: DType, len: usize) -> Result<()> {
        runtime::holds(self.on, self.op, operand, buffer, dtype, len)
    }

    /// As [`holds`](Self::holds), where there is a buffer.
    pub(super) fn may_hold(
        &self,
        operand: &'static str,
        buffer: Option<&R::Buffer>,
        dtype: DType,
        len: usize,
    ) -> Result<()> {
        buffer.map_or(Ok(()), |buffer| self.holds(operand, buffer, dtype, len))
    }

    /// The product of dimensions. As in [`Shape`](crate::Shape), a zero does not excuse an overflow of the others.
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

    /// A parameter that says yes or no.
    pub(super) fn flag(&self, argument: &'static str, value: u32) -> Result<()> {
        self.require(value <= 1, argument, value, "0 or 1")
    }

    /// A code of an enum, of which the conversion gave `known`.
    pub(super) fn code<T>(&self, argument: &'static str, code: u32, known: Option<T>) -> Result<T> {
        known.ok_or_else(|| Error::invalid(self.op, argument, code, "the code of one of its values"))
    }

    /// The dimensions in use.
    pub(super) fn dims<'d>(&self, dims: &'d Dims, rank: u32) -> Result<&'d [u64]> {
        let used = usize::try_from(rank).ok().and_then(|rank| dims.get(..rank));
        used.ok_or(Error::Rank {
            op: self.op,
            expected: "at most 8",
            rank: rank as usize,
        })
    }

    /// The elements that lie from the first to the last that a walk reaches, `block` at each step. Steps lead forwards.
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

/// The dtype of statistics, log-sums and optimizer state that belong to tensors of `dtype`.
pub(super) fn accumulator(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
