#![doc = include_str!("../README.md")]

/// The names of `kiln_nn::prelude` for one backend, and the functions that are compiled for it.
macro_rules! backend {
    ($Backend:ty: $path:ident { $($name:ident)* } $($rest:tt)*) => {
        $(
            #[doc = concat!("[`kiln_nn`]'s type of this name on [`", stringify!($Backend), "`].")]
            pub type $name = kiln_nn::$path::$name<$Backend>;
        )*
        backend! { $Backend: $($rest)* }
    };
    ($Backend:ty:) => {
        pub use kiln_nn::prelude::*;

        /// The addresses of the functions that this crate has compiled for the backend.
        pub fn functions() -> Vec<*const ()> {
            kiln_nn::instances::<$Backend>()
        }
    };
}

/// Calls `backend!` with the types of `kiln_nn` that are generic over a backend alone.
macro_rules! types {
    ($Backend:ty) => {
        backend! { $Backend:
            prelude { Gradients Indices Init Param State Tensor }
            module { Counter StateDict }
            layers {
                BatchNorm Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d DropPath Dropout Dropout1d
                Dropout2d Dropout3d Embedding EmbeddingBag GroupNorm InstanceNorm Lambda LayerNorm Linear
                MultiheadAttention PRelu RmsNorm Sequential TransformerEncoder TransformerEncoderLayer
            }
            optim {
                Adadelta Adafactor Adagrad Adam AdamW Adamax Asgd AveragedModel Lamb Lion Muon NAdam RAdam Rmsprop Rprop Sgd
            }
        }
    };
}

/// `kiln_nn::prelude` on the CPU.
#[cfg(feature = "cpu")]
pub mod cpu {
    pub use kiln_cpu::Cpu;
    types!(kiln_cpu::Cpu);
}

/// `kiln_nn::prelude` on NVIDIA GPUs.
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use kiln_cuda::Cuda;
    types!(kiln_cuda::Cuda);
}
