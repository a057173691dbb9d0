//! What the driver says of a kernel and a launch.

use std::time::Duration;

use thiserror::Error;

use crate::memory::Snapshot;
use crate::{Fault, FaultKind, Kernel, System};

/// One parameter of a kernel, in the block of bytes that holds all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Where it starts, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
    /// Its alignment in bytes.
    pub align: u32,
}

/// One launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameters' bytes, laid out as the kernel's `params` say.
    pub params: &'a [u8],
    /// The device address of each of the program's variables, in their order.
    pub variables: &'a [u64],
    /// For a cooperative launch, the device address of [`WORKSPACE`] bytes, which are zero when it begins; 0 for others.
    pub workspace: u64,
    /// Where its output goes, and its heap.
    pub system: &'a System,
}

/// Bytes of the workspace of a cooperative launch: its size and the barrier of the grid, as CUDA's headers have them.
pub const WORKSPACE: u64 = 8;

/// How launches run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether the checker watches (slower).
    pub check: bool,
    /// The compute capability, ten times: 80 for 8.0.
    pub sm: u32,
    /// The number of multiprocessors that `%nsmid` says.
    pub multiprocessors: u32,
    /// The number of blocks that the device holds at one time: so many get on side by side, even if they wait for each
    /// other. The others begin as these end.
    pub resident: u64,
    /// A launch of which no block ends for so long is ended with a fault.
    pub watchdog: Option<Duration>,
}

/// Why a program cannot be loaded.
#[derive(Clone, Debug, Error)]
pub enum LoadError {
    /// The text is not PTX that the parser reads.
    #[error("PTX line {line}: {message}")]
    Syntax {
        /// The line in the PTX text.
        line: u32,
        /// What was found and what was expected.
        message: String,
    },
    /// An instruction, or a form of one, that the emulator does not have.
    #[error("{kernel}: `{opcode}` is not implemented (PTX line {line}{place})")]
    Unsupported {
        /// The kernel or function that holds it.
        kernel: String,
        /// The instruction as written.
        opcode: String,
        /// The line in the PTX text.
        line: u32,
        /// The line in the source, when the PTX says it.
        place: String,
    },
    /// A name that nothing declares.
    #[error("{kernel}: `{name}` is not declared (PTX line {line})")]
    Undeclared {
        /// The kernel or function that uses it.
        kernel: String,
        /// The name.
        name: String,
        /// The line in the PTX text.
        line: u32,
    },
    /// More of something than a device, or the emulator, has.
    #[error("{name}: {found} {what}; {most} can be")]
    Limit {
        /// The kernel, function or variable that asks for it; or the module.
        name: String,
        /// What there is too much of.
        what: &'static str,
        /// How much is asked for.
        found: u64,
        /// How much there can be.
        most: u64,
    },
}

/// Local memory of one thread, at most, in bytes (CUDA C++ Programming Guide, technical specifications).
pub(crate) const MOST_LOCAL: u32 = 512 << 10;
/// Static shared memory of a block, at most, in bytes, as `ptxas` has it.
pub(crate) const MOST_SHARED: u64 = 48 << 10;
/// Shared memory of a block on any device, at most, in bytes.
const MOST_DYNAMIC: u32 = 227 << 10;
/// Constants of a module, at most, in bytes.
pub(crate) const MOST_CONSTANTS: u64 = 64 << 10;
/// Registers of 32 bits that a function can declare, at most: the emulator's own limit, 32 MiB for a warp.
pub(crate) const MOST_REGISTERS: u64 = 1 << 18;

/// Bytes of parameters of a kernel, at most, by the module's `.version` and `.target`, as `ptxas` has it.
pub(crate) fn most_params((major, minor): (u32, u32), target: u32) -> u64 {
    if (major, minor) >= (8, 1) && target >= 70 {
        32764
    } else {
        4352
    }
}

/// Runs a kernel to its end. The caller has checked the launch's limits, and keeps the memory mapped meanwhile.
///
/// A fault ends the launch: of several blocks, that of the lowest is told. Findings of the checker do not end it; each comes
/// once, in the order of the blocks, before the fault.
pub fn run(kernel: &Kernel, launch: &Launch<'_>, memory: &Snapshot, options: &Options) -> Result<(), Vec<Fault>> {
    let refuse = |kind, message| {
        let name = kernel.name().to_string();
        vec![Fault {
            kind,
            kernel: name,
            file: String::new(),
            line: 0,
            block: [0; 3],
            thread: [0; 3],
            message,
        }]
    };
    let threads = launch.block.iter().try_fold(1u32, |n, d| n.checked_mul(*d));
    if !threads.is_some_and(|n| (1..=1024).contains(&n)) || launch.grid.contains(&0) {
        let message = format!("a launch of {:?} blocks of {:?} threads", launch.grid, launch.block);
        return Err(refuse(FaultKind::Launch, message));
    }
    if launch.params.len() != kernel.param_bytes() as usize {
        let message = format!(
            "{} bytes of parameters for a kernel that has {}",
            launch.params.len(),
            kernel.param_bytes()
        );
        return Err(refuse(FaultKind::Launch, message));
    }
    let code = kernel
        .code(options.check)
        .map_err(|e| refuse(FaultKind::Unsupported, e.to_string()))?;
    let local = code.functions[0].local;
    if local > MOST_LOCAL || launch.dynamic_shared > MOST_DYNAMIC {
        let message = format!(
            "a launch with {local} bytes of local memory for each thread and {} bytes of dynamic shared memory; \
             {MOST_LOCAL} and {MOST_DYNAMIC} can be",
            launch.dynamic_shared
        );
        return Err(refuse(FaultKind::Launch, message));
    }
    crate::exec::run(code, kernel.name(), launch, memory, options)
}
