//! Products of bf16 and f16 operands, which are read as they are: packing lays a block of either out as words of 32 bits, and
//! no operand is widened as a whole.
//!
//! ```text
//! kernels   the kernels that multiply words, and the form of word of each
//! source    operands as they lie in memory: matrices here, windows of images in `conv`
//! pack      rows of A and panels of B, as words
//! block     a block of C: its sums in f32, the epilogue, and the one rounding
//! product   products of two matrices
//! ```
//!
//! A word is an f32, the widened element of one step of k; or a pair of bfloat16, the elements of two steps of k, for the
//! instructions that multiply such pairs. To the kernels an operand is a matrix of words in either case.

mod block;
mod kernels;
mod pack;
mod product;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use block::{Block, finish, multiply};
pub(crate) use kernels::HalfKernels;
pub(crate) use pack::{HalfPanels, pack_rows};
pub(crate) use product::{product, small_m};
pub(crate) use source::{Matrix, Order, Source};

use crate::gemm::kernels::Widened;
use crate::scalar::Stored;

/// bf16 and f16.
pub(crate) trait Half: Stored<Acc = f32> + Widened {}
impl Half for half::bf16 {}
impl Half for half::f16 {}
