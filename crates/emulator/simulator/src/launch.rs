//! A launch of a kernel, and the options for running it.

use std::time::Duration;

use crate::System;

/// One parameter of a kernel, in the block of bytes that holds all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// The offset of its first byte.
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
    /// The output and the heap of its context.
    pub system: &'a System,
}

/// Bytes of the workspace of a cooperative launch: its size and the barrier of the grid, as CUDA's headers have them.
pub const WORKSPACE: u64 = 8;

/// The options for running launches.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// True to run the checker, which is slower.
    pub check: bool,
    /// The compute capability, ten times: 80 for 8.0.
    pub sm: u32,
    /// The number of multiprocessors that `%nsmid` says.
    pub multiprocessors: u32,
    /// The number of blocks that the device holds at one time: these make progress side by side, even if they wait for each
    /// other. The others begin as these end.
    pub resident: u64,
    /// A launch of which no block ends for this time is ended with a fault.
    pub watchdog: Option<Duration>,
}
