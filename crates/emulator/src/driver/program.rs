//! What the driver needs of the interpreter: a program from PTX, its kernels and variables, and a launch.

use crate::memory::Snapshot;
use crate::{Fault, Launch, LoadError, Options, Param};

/// A kernel, ready to run.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    /// What `__launch_bounds__` allows, if it is given.
    pub(crate) max_threads: Option<u32>,
    pub(crate) static_shared: u32,
    pub(crate) local: u32,
    pub(crate) registers: u32,
}

/// A variable in global or constant memory.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) constant: bool,
    /// Its first bytes; the rest are zero.
    pub(crate) bytes: Vec<u8>,
    /// Places that hold the address of another variable plus an offset.
    pub(crate) addresses: Vec<(u64, usize, i64)>,
}

/// A module's kernels and variables.
pub(crate) struct Program {
    pub(crate) entries: Vec<Entry>,
    pub(crate) variables: Vec<Variable>,
}

impl Program {
    pub(crate) fn load(_ptx: &str) -> Result<Self, LoadError> {
        Ok(Self {
            entries: Vec::new(),
            variables: Vec::new(),
        })
    }

    pub(crate) fn run(
        &self,
        _entry: usize,
        _launch: &Launch<'_>,
        _memory: &Snapshot,
        _options: &Options,
    ) -> Result<(), Fault> {
        Ok(())
    }
}
