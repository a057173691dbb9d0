//! One file per op family: strategies, oracles and tolerances, and `suite` functions that a backend's tests call.

pub mod attention;
pub mod conv;
pub mod conv_pool;
pub mod einsum;
pub mod elementwise;
pub mod fft;
pub mod image;
pub mod index;
pub mod integer;
pub mod interpolate;
pub mod loss;
pub mod matmul;
pub mod modulated_conv;
pub mod norm;
pub mod optim;
pub mod pool;
pub mod random;
pub mod recurrent;
pub mod reduce;
pub mod residual;
pub mod rotary;
pub mod softmax;
pub mod upfirdn2d;
