//! Limits of kernels and launches.

/// The most local memory of one thread, in bytes (CUDA C++ Programming Guide, technical specifications).
pub const MOST_LOCAL: u32 = 512 << 10;
/// The most static shared memory of a block, in bytes, as `ptxas` has it.
pub(crate) const MOST_SHARED: u64 = 48 << 10;
/// The most shared memory of a block on any device, in bytes.
pub(crate) const MOST_DYNAMIC: u32 = 227 << 10;
/// The most constants of a module, in bytes.
pub(crate) const MOST_CONSTANTS: u64 = 64 << 10;
/// The most registers of 32 bits that a function can declare: the emulator's own limit, 32 MiB for a warp.
pub(crate) const MOST_REGISTERS: u64 = 1 << 18;

/// The most bytes of parameters of a kernel, by the module's `.version` and `.target`, as `ptxas` has it.
pub(crate) fn most_params((major, minor): (u32, u32), target: u32) -> u64 {
    if (major, minor) >= (8, 1) && target >= 70 {
        32764
    } else {
        4352
    }
}
