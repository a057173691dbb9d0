//! One file per op family: its parameter struct, whose constructor checks the shapes, and the trait that a backend
//! implements.
//!
//! Parameter structs are `#[repr(C)]` Pod values that are passed to kernels by value; their sizes are asserted here and in
//! the CUDA C sources. All ops share these conventions: tensors are contiguous and row-major, images are channels-last,
//! and arithmetic accumulates in [`Float::Acc`](crate::Float::Acc) and rounds once.
//!
//! Every op returns the errors of its function in [`checks`](crate::checks), errors of the device, and
//! [`Error::OutOfMemory`] for scratch memory. A fused op that the backend does not implement returns
//! [`Error::UnsupportedOp`].

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

pub use crate::op::Op;
pub use attention::*;
pub use conv::*;
pub use conv_pool::*;
pub use elementwise::*;
pub use image::*;
pub use index::*;
pub use integer::*;
pub use loss::*;
pub use matmul::*;
pub use norm::*;
pub use optim::*;
pub use pool::*;
pub use random::*;
pub use recurrent::*;
pub use reduce::*;
pub use residual::*;
pub use softmax::*;

use crate::{Error, MAX_RANK, Result, Shape};

/// Dimensions in parameter structs, padded with ones.
pub type Dims = [u64; MAX_RANK];
/// Strides in parameter structs, in elements and signed.
pub type Strides = [i64; MAX_RANK];

/// The dimensions of `shape`, padded with ones.
pub fn dims(shape: &Shape) -> Dims {
    let mut out = [1; MAX_RANK];
    for (o, &d) in out.iter_mut().zip(shape.dims()) {
        *o = d as u64;
    }
    out
}

/// Converts a dimension to a 32-bit parameter; an error above 2³¹ − 1.
pub(crate) fn dim32(op: &'static str, argument: &'static str, value: usize) -> Result<u32> {
    if value > i32::MAX as usize {
        return Err(Error::invalid(op, argument, value, "at most 2147483647"));
    }
    Ok(value as u32)
}

/// Declares an enum whose discriminant is stored in a Pod parameter struct as `u32`.
macro_rules! coded {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name { $($(#[$vmeta])* $variant),* }

        impl $name {
            /// All variants in the order of their codes.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The variant with code `code`, its value `as u32`; `None` for any other number.
            pub fn from_code(code: u32) -> Option<Self> {
                Self::ALL.get(code as usize).copied()
            }
        }
    };
}
pub(crate) use coded;
