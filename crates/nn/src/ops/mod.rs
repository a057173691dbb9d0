//! Differentiable ops, one file per family: the public function and its gradient rule.
//!
//! Each public function checks its arguments once (through the family's parameter struct in `kiln-core`), allocates
//! the output, calls the backend and records its rule.

mod activation;
mod attention;
mod conv;
mod conv_pool;
mod einsum;
pub mod elementwise;
mod fft;
mod image;
pub mod index;
pub mod integer;
mod interpolate;
pub mod loss;
mod matmul;
mod modulated_conv;
mod norm;
mod pool;
pub(crate) mod random;
mod recurrent;
mod reduce;
mod residual;
mod rotary;
mod softmax;
mod upfirdn2d;

pub(crate) use activation::activate;
pub(crate) use attention::by_heads;
pub use attention::{AttentionOptions, KeyValueCache};
pub use fft::FftNorm;
pub use interpolate::{GridMode, GridOptions, GridPadding, Interpolation};
pub use kiln_core::ops::RecurrentCell;
pub(crate) use norm::{Behind, RunningStats};
pub use recurrent::Recurrence;
pub(crate) use recurrent::last_states;
pub(crate) use reduce::acc_dtype;
pub use residual::DropoutDraw;
pub use rotary::Rotary;
