//! The frameworks that are measured.

/// Kiln and its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Framework {
    Kiln,
    Torch,
    TensorFlow,
    Jax,
    /// NumPy, for its BLAS.
    NumPy,
    /// Candle, for texts that are written.
    Candle,
}

impl Framework {
    /// The peers that train networks.
    pub(super) const NETS: [Framework; 3] = [Framework::Torch, Framework::TensorFlow, Framework::Jax];
    /// Those that write texts, of which JAX and TensorFlow have no network here.
    pub(super) const WRITERS: [Framework; 2] = [Framework::Torch, Framework::Candle];
    /// The peers whose matrix products are measured: MKL through PyTorch, OpenBLAS through NumPy.
    pub(super) const PRODUCTS: [Framework; 2] = [Framework::Torch, Framework::NumPy];

    /// The header of the framework's column.
    pub(super) fn label(self) -> &'static str {
        match self {
            Framework::Kiln => "kiln",
            Framework::Torch => "torch",
            Framework::TensorFlow => "tensorflow",
            Framework::Jax => "jax",
            Framework::NumPy => "numpy",
            Framework::Candle => "candle",
        }
    }

    /// The Python module that the framework needs, and its worker script; `None` for those in Rust, whose workers are programs.
    pub(super) fn script(self) -> Option<(&'static str, &'static str)> {
        match self {
            Framework::Kiln | Framework::Candle => None,
            Framework::Torch => Some(("torch", "torch_nets.py")),
            Framework::TensorFlow => Some(("tensorflow", "tf_nets.py")),
            Framework::Jax => Some(("jax", "jax_nets.py")),
            Framework::NumPy => Some(("numpy", "numpy_gemm.py")),
        }
    }
}
