//! Calls whose parameters are plain bytes, and the byte ranges of their fields.

use crate::misfit::call::{Call, Operand};
use bytemuck::{Pod, Zeroable, bytes_of, pod_read_unaligned};
use kiln_core::{Backend, DType, Result, Shape};
use std::mem::size_of;
use std::ops::Range;

/// A call with parameters `p` and buffers of these dtypes and lengths.
pub(super) fn call<B: Backend, P: Pod, const N: usize>(
    op: &'static str,
    p: P,
    operands: [(DType, usize); N],
    run: impl Fn(&B, &P, &mut [B::Buffer; N]) -> Result<()> + 'static,
) -> Call<B> {
    let operands = operands.map(|(dtype, len)| Operand::of(dtype, len)).to_vec();
    Call::new(op, bytes_of(&p), operands, move |backend, p, buffers| {
        let buffers = buffers.try_into().expect("as many as were named");
        run(backend, &pod_read_unaligned(p), buffers)
    })
}

/// The byte range of a field.
macro_rules! field {
    ($P:ty, $($field:ident).+) => {
        $crate::misfit::calls::fields::bytes(|p: &$P| &p.$($field).+, std::mem::offset_of!($P, $($field).+))
    };
}

pub(super) use field;

/// The implementation of `field!`, with which the field is named only once.
pub(super) fn bytes<P: Zeroable, F>(_: impl Fn(&P) -> &F, at: usize) -> Range<usize> {
    at..at + size_of::<F>()
}

/// The byte range of the unused entries, from `rank` on, of an array of 64-bit fields.
pub(super) fn unused(all: Range<usize>, rank: usize) -> Range<usize> {
    all.start + 8 * rank..all.end
}

pub(super) fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a small shape")
}
