//! Contexts.

use std::collections::HashMap;
use std::sync::Arc;

use kiln_simulator::System;

use crate::error::Code;
use crate::types::{CUcontext, CUstream};

/// Numbers of `CUlimit`.
pub(crate) const PRINTF: i32 = 1;
pub(crate) const HEAP: i32 = 2;

/// One context.
pub(crate) struct Context {
    pub(crate) device: u32,
    pub(crate) flags: u32,
    pub(crate) primary: bool,
    /// The error that every later call returns.
    pub(crate) sticky: Option<Code>,
    pub(crate) legacy: CUstream,
    pub(crate) limits: HashMap<i32, usize>,
    /// The output of its kernels' `printf`, and their heap.
    pub(crate) system: Arc<System>,
    pub(crate) cache: i32,
    pub(crate) shared: i32,
}

/// The primary context of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Primary {
    pub(crate) context: CUcontext,
    pub(crate) retained: u32,
    pub(crate) flags: u32,
}

impl Context {
    /// Bytes of the heap that its kernels have.
    pub(crate) fn heap(&self) -> u64 {
        self.limits.get(&HEAP).map_or(0, |bytes| *bytes as u64)
    }
}
