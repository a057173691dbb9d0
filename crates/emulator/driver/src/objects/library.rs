//! Libraries and their kernels.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use super::module::{Function, Image};
use crate::types::{CUcontext, CUkernel, CUlibrary, CUmodule};

/// One library.
pub(crate) struct Library {
    pub(crate) image: Arc<Image>,
    pub(crate) modules: HashMap<CUcontext, CUmodule>,
    /// Its kernels, in the order of the PTX.
    pub(crate) kernels: Vec<CUkernel>,
}

/// A kernel of a library.
pub(crate) struct Kernel {
    pub(crate) library: CUlibrary,
    pub(crate) name: String,
    /// The kernel's name for C, which lives as long as its library.
    pub(crate) text: Arc<CStr>,
    /// Attributes and cache settings of the kernel, by device.
    pub(crate) settings: HashMap<u32, Function>,
}
