//! Checks of the operands of ops: every op has a function here of its own name, which every backend calls first.
//!
//! The ops of a [`Backend`](crate::Backend) are safe functions of parameters that anyone can fill in and of buffers of any
//! length. These functions compare the two in release builds too, with arithmetic that does not overflow, so that no call
//! reads or writes beside a buffer. Values that only a device sees, such as indices, are checked there.

mod attention;
mod conv;
mod elementwise;
mod index;
mod loss;
mod matmul;
mod memory;
mod norm;
mod operands;
mod optim;
mod pool;
mod random;
mod reduce;
mod softmax;
mod window;

pub use attention::*;
pub use conv::*;
pub use elementwise::*;
pub use index::*;
pub use loss::*;
pub use matmul::*;
pub use memory::*;
pub use norm::*;
pub use optim::*;
pub use pool::*;
pub use random::*;
pub use reduce::*;
pub use softmax::*;

use operands::{Operands, accumulator};
