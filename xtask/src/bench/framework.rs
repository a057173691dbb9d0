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
}

impl Framework {
    /// The peers that train networks.
    pub(super) const NETS: [Framework; 3] = [Framework::Torch, Framework::TensorFlow, Framework::Jax];
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
        }
    }

    /// The Python module that the framework needs, and its worker script.
    pub(super) fn script(self) -> (&'static str, &'static str) {
        match self {
            Framework::Kiln => ("", ""),
            Framework::Torch => ("torch", "torch_nets.py"),
            Framework::TensorFlow => ("tensorflow", "tf_nets.py"),
            Framework::Jax => ("jax", "jax_nets.py"),
            Framework::NumPy => ("numpy", "numpy_gemm.py"),
        }
    }
}
