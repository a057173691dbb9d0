//! Checks of the operands of ops: every op has a function of the same name here, which every backend calls first.
//!
//! The ops of a [`Backend`](crate::Backend) are safe functions, but their parameters may hold any values and their buffers
//! may have any length. These functions compare the two, in release builds too and without overflow, so that no op
//! reads or writes out of bounds. Values that only the device sees, such as indices, are checked there.

mod attention;
mod conv;
mod elementwise;
mod image;
mod index;
mod integer;
mod loss;
mod matmul;
mod memory;
mod norm;
mod operands;
mod optim;
mod pool;
mod random;
mod recurrent;
mod reduce;
mod residual;
mod softmax;
mod window;

pub use attention::*;
pub use conv::*;
pub use elementwise::*;
pub use image::*;
pub use index::*;
pub use integer::*;
pub use loss::*;
pub use matmul::*;
pub use memory::*;
pub use norm::*;
pub use optim::*;
pub use pool::*;
pub use random::*;
pub use recurrent::*;
pub use reduce::*;
pub use residual::*;
pub use softmax::*;

use operands::{Operands, accumulator};
