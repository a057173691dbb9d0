//! One file per op family: its parameter struct, its one shape check, and the trait a backend implements.
//!
//! Parameter structs are `#[repr(C)]` Pod values that travel to a kernel by value; their sizes are asserted here and
//! in the CUDA C sources. Conventions shared by all of them: tensors are contiguous and row-major, images are
//! channels-last, all arithmetic accumulates in [`Float::Acc`](crate::Float::Acc) and rounds once.

mod attention;
mod conv;
mod conv_pool;
mod elementwise;
mod index;
mod loss;
mod matmul;
mod norm;
mod optim;
mod pool;
mod random;
mod reduce;
mod softmax;

pub use crate::op::Op;
pub use attention::*;
pub use conv::*;
pub use conv_pool::*;
pub use elementwise::*;
pub use index::*;
pub use loss::*;
pub use matmul::*;
pub use norm::*;
pub use optim::*;
pub use pool::*;
pub use random::*;
pub use reduce::*;
pub use softmax::*;

use crate::{Error, MAX_RANK, Result, Shape};

/// Dimensions as kernels take them.
pub type Dims = [u64; MAX_RANK];
/// Signed element strides as kernels take them.
pub type Strides = [i64; MAX_RANK];

/// The dimensions of `shape`, padded with ones.
pub fn dims(shape: &Shape) -> Dims {
    let mut out = [1; MAX_RANK];
    for (o, &d) in out.iter_mut().zip(shape.dims()) {
        *o = d as u64;
    }
    out
}

/// A dimension as a kernel's 32-bit parameter.
pub(crate) fn dim32(op: &'static str, argument: &'static str, value: usize) -> Result<u32> {
    if value > i32::MAX as usize {
        return Err(Error::invalid(op, argument, value, "at most 2147483647"));
    }
    Ok(value as u32)
}

/// Declares an enum whose discriminant travels in a Pod parameter struct as `u32`.
macro_rules! coded {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name { $($(#[$vmeta])* $variant),* }

        impl $name {
            /// Every variant, in the order of their codes.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The variant of a code that `as u32` gave; `None` for any other number.
            pub fn from_code(code: u32) -> Option<Self> {
                Self::ALL.get(code as usize).copied()
            }
        }
    };
}
pub(crate) use coded;
