//! Faults of a running kernel, with their places.

use std::fmt;

/// The class of a fault; it decides the driver's error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An address outside every allocation, or one that was freed (CUDA 700).
    IllegalAddress,
    /// An address that is not a multiple of the access's size (CUDA 716).
    Misaligned,
    /// `trap` (CUDA 719).
    Trap,
    /// An assertion of the kernel (CUDA 710).
    Assert,
    /// A call to an address where no function is (CUDA 718).
    InvalidPc,
    /// Threads of one block wait at barriers that the others never reach.
    Barrier,
    /// A warp-wide instruction whose mask names lanes that do not take part.
    Warp,
    /// Two threads touch the same byte without order, and one writes.
    Race,
    /// A read of memory that nothing wrote.
    Uninitialised,
    /// A register is read that an asynchronous product still writes, or a product reads registers before a fence.
    Asynchronous,
    /// No block ended for as long as the watchdog allows (CUDA 702).
    Timeout,
    /// An instruction, or a form of one, that the emulator does not have.
    Unsupported,
    /// Arguments that do not fit the kernel.
    Launch,
}

impl FaultKind {
    /// True if only the checker sees it, and the kernel can go on.
    pub fn is_finding(self) -> bool {
        matches!(self, FaultKind::Race | FaultKind::Uninitialised)
    }
}

/// One fault or finding. `Display` is one line that names kernel, line, block and thread.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The class.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// The source file, as `-lineinfo` has it; empty when unknown.
    pub file: String,
    /// The line in `file`; 0 when unknown.
    pub line: u32,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The thread's index in its block.
    pub thread: [u32; 3],
    /// The message, without the place.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "{} in {}", self.message, self.kernel)?;
        if self.line > 0 {
            let name = self.file.rsplit('/').next().unwrap_or(&self.file);
            write!(f, " at {name}:{}", self.line)?;
        }
        write!(f, ", block ({bx},{by},{bz}) thread ({tx},{ty},{tz})")
    }
}

impl std::error::Error for Fault {}
