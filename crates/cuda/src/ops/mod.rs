//! One file per op family, which chooses the kernel and the number of threads.

pub mod attention;
pub mod conv;
mod conv_pool;
mod elementwise;
mod image;
mod index;
mod integer;
mod loss;
pub mod matmul;
pub mod norm;
mod optim;
mod pool;
mod random;
mod recurrent;
pub mod reduce;
pub mod residual;
pub mod softmax;

use kiln_core::DType;
use kiln_kernels::{Kernel, PerFloat};

/// The instance of a kernel for a float dtype. Core refuses other dtypes before an op is called, and
/// [`supports`](kiln_core::Runtime::supports) leaves out f64.
pub(crate) fn instance(kernels: &PerFloat, dtype: DType) -> &'static Kernel {
    match dtype {
        DType::BF16 => kernels.bf16,
        DType::F16 => kernels.f16,
        _ => kernels.f32,
    }
}
