//! Limits of kernels and launches.

/// Local memory of one thread, at most, in bytes (CUDA C++ Programming Guide, technical specifications).
pub const MOST_LOCAL: u32 = 512 << 10;
/// Static shared memory of a block, at most, in bytes, as `ptxas` has it.
pub(crate) const MOST_SHARED: u64 = 48 << 10;
/// Shared memory of a block on any device, at most, in bytes.
pub(crate) const MOST_DYNAMIC: u32 = 227 << 10;
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
