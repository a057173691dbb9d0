//! What the driver needs of the interpreter: a program from PTX, its kernels and variables, and a launch.

use std::sync::Arc;

use crate::memory::Snapshot;
use crate::{Fault, Kernel, Launch, LoadError, Options, Param};

/// A kernel. What only its code says is asked for when it is needed; a kernel that cannot be decoded says 0, and says
/// why at its launch.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    /// What `__launch_bounds__` allows, if it is given.
    pub(crate) max_threads: Option<u32>,
    kernel: Arc<Kernel>,
}

impl Entry {
    /// Bytes of shared memory that the kernel declares.
    pub(crate) fn static_shared(&self) -> u32 {
        self.kernel.static_shared().unwrap_or(0)
    }

    /// Bytes of local memory of each thread.
    pub(crate) fn local(&self) -> u32 {
        self.kernel.local().unwrap_or(0)
    }

    /// Registers of each thread. The PTX does not know, so a number that lets every block run.
    pub(crate) fn registers(&self) -> u32 {
        32
    }
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
    pub(crate) fn load(ptx: &str) -> Result<Self, LoadError> {
        let program = crate::Program::load(ptx)?;
        let entry = |kernel: Arc<Kernel>| Entry {
            name: kernel.name().to_string(),
            params: kernel.params().to_vec(),
            max_threads: kernel.max_threads(),
            kernel,
        };
        let variable = |v: &crate::Variable| Variable {
            name: v.name.clone(),
            size: v.size,
            constant: v.constant,
            bytes: v.init.clone(),
            addresses: v.relocations.iter().map(|r| (r.offset, r.variable, r.addend)).collect(),
        };
        Ok(Self {
            entries: program
                .kernels()
                .iter()
                .filter_map(|name| program.kernel(name))
                .map(entry)
                .collect(),
            variables: program.variables().iter().map(variable).collect(),
        })
    }

    pub(crate) fn run(
        &self,
        entry: usize,
        launch: &Launch<'_>,
        memory: &Snapshot,
        options: &Options,
    ) -> Result<(), Fault> {
        crate::run(&self.entries[entry].kernel, launch, memory, options)
    }
}
