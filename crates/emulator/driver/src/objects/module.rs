//! Modules and their functions.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use kiln_ptx::cubin::Resources;
use kiln_simulator::{Kernel, Program};

use crate::types::{CUcontext, CUmodule};

/// One module.
pub(crate) struct Module {
    pub(crate) context: CUcontext,
    pub(crate) image: Arc<Image>,
    /// The memory of each of the program's variables.
    pub(crate) variables: Arc<[u64]>,
}

/// A program, and the kernels' resources from machine code in the same image.
pub(crate) struct Image {
    pub(crate) program: Arc<Program>,
    pub(crate) resources: HashMap<String, Resources>,
}

/// One kernel of a module, with the attributes that were set for it.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) module: CUmodule,
    pub(crate) context: CUcontext,
    pub(crate) kernel: Arc<Kernel>,
    /// The kernel's name for C, which lives as long as its module.
    pub(crate) name: Arc<CStr>,
    pub(crate) variables: Arc<[u64]>,
    /// The resources that `ptxas` chose, if the image holds machine code for this device.
    pub(crate) resources: Option<Resources>,
    pub(crate) static_shared: u32,
    /// Bytes of the module's constants.
    pub(crate) constants: u64,
    /// The dynamic shared memory that a launch may have, in bytes.
    pub(crate) max_dynamic: u32,
    pub(crate) carveout: i32,
}
