//! The ops of the profiling backend: each calls the inner backend's op and records the least cost.

mod attention;
mod conv;
mod conv_pool;
mod elementwise;
mod image;
mod index;
mod integer;
mod loss;
mod matmul;
mod norm;
mod optim;
mod pool;
mod random;
mod recurrent;
mod reduce;
mod residual;
mod softmax;

use crate::backend::bytes;
use crate::record::Detail;
use kiln_core::{Buffer, Cost};

/// Bytes of an operand that may be absent.
fn optional<Buf: Buffer>(buffer: Option<&Buf>) -> u64 {
    buffer.map_or(0, bytes)
}

/// Bytes of one element.
fn size<Buf: Buffer>(buffer: &Buf) -> u64 {
    buffer.dtype().size() as u64
}

/// The cost of an op that memory bounds.
fn moved(bytes: u64) -> Cost {
    Cost { flops: 0, bytes }
}

/// The number of elements of a buffer, for a trace.
fn elements<Buf: Buffer>(buffer: &Buf) -> Detail {
    Detail::Elements(buffer.len() as u64)
}
