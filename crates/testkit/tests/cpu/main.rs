//! Every op of the public interface on the CPU backend, with poisoned buffers.

mod attention;
mod conv;
mod conv_pool;
mod elementwise;
mod golden;
mod halves;
mod index;
mod loss;
mod matmul;
mod norm;
mod pool;
mod random;
mod reduce;
mod softmax;
