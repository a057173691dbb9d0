//! Kiln's CUDA C kernels, compiled by nvcc when this crate is built, as constants.
//!
//! One `.cu` file per op family, one module here for each. An [`Image`] holds machine code for several architectures
//! and PTX for later ones; any program that can load a module through the CUDA driver can use it, with or without the
//! rest of Kiln. Each file opens with its formulas, layouts, contract and launch geometry.
//!
//! `KILN_CUDA_ARCHS` (default `80,90`) names the architectures; PTX of the first is always there, and `ptx` alone leaves
//! the machine code out. Images whose names end in `_sm90a` use instructions of compute capability 9.0 and load there alone.

/// A compiled `.cu` file: a fatbin for `cuModuleLoadData`.
#[derive(Debug)]
pub struct Image {
    /// The file's stem.
    pub name: &'static str,
    /// The image.
    pub fatbin: &'static [u8],
}

/// A kernel of an image.
#[derive(Debug)]
pub struct Kernel {
    /// The name of its entry.
    pub name: &'static str,
    /// The image that contains it.
    pub image: &'static Image,
    /// Bytes of each parameter, in order.
    pub params: &'static [u32],
    /// The most threads of a block (its `__launch_bounds__`).
    pub max_threads: u32,
}

/// The instances of a kernel for the float dtypes.
#[derive(Debug)]
pub struct PerFloat {
    /// IEEE binary32.
    pub f32: &'static Kernel,
    /// bfloat16.
    pub bf16: &'static Kernel,
    /// IEEE binary16.
    pub f16: &'static Kernel,
}

/// Aligns an image so that a driver may read it by words. Modules that `kiln-nvcc` writes use it.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Aligned<T: ?Sized>(pub T);

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// Kernels that are wrong on purpose, with mistakes that the checks must catch.
#[cfg(feature = "negative")]
pub mod negative {
    include!(concat!(env!("OUT_DIR"), "/negative.rs"));
}
