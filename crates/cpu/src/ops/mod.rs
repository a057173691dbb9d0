//! One file per op family, with the implementation of the trait of the same name in `kiln-core`.

mod attention;
pub(crate) mod conv;
pub(crate) mod conv_pool;
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
