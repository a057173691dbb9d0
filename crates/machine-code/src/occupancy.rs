//! How many blocks and warps of a kernel an SM holds at a time.
//!
//! The rules are those of `cuda_occupancy.h` of NVIDIA's toolkit, the numbers those of the table "Technical Specifications per Compute
//! Capability" in the CUDA C++ Programming Guide. Registers are given to warps in units of 256, each quarter of an SM from its own; shared
//! memory is given to blocks in units of 128 bytes, with 1 KiB for the system in each.

/// Registers, shared memory and warps of an SM, for one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most warps.
    pub warps: u32,
    /// The most blocks.
    pub blocks: u32,
    /// Bytes of shared memory for all blocks.
    pub shared: u32,
    /// Bytes of shared memory that the system takes of each block.
    pub reserved: u32,
    /// Bytes of the unit in which shared memory is given.
    pub unit: u32,
}

/// Registers of an SM, from Volta on.
const REGISTERS: u32 = 65536;
/// The parts of an SM, each with a scheduler and registers of its own.
const PARTS: u32 = 4;
/// Registers of the unit in which they are given to a warp.
const REGISTER_UNIT: u32 = 256;
/// The most registers of a thread.
const MOST_REGISTERS: u32 = 255;

impl Limits {
    /// The limits of an architecture, ten times its compute capability; `None` of one that is not in the table.
    pub fn of(architecture: u32) -> Option<Limits> {
        let (warps, blocks, kib) = match architecture {
            75 => (32, 16, 64),
            80 => (64, 32, 164),
            86 => (48, 16, 100),
            87 => (48, 16, 164),
            89 => (48, 24, 100),
            90 | 100 | 103 => (64, 32, 228),
            120 | 121 => (48, 24, 100),
            _ => return None,
        };
        let turing = architecture == 75;
        Some(Limits {
            warps,
            blocks,
            shared: kib * 1024,
            reserved: if turing { 0 } else { 1024 },
            unit: if turing { 256 } else { 128 },
        })
    }

    /// The blocks of `threads` threads that an SM holds; 0 if not even one fits.
    pub fn resident_blocks(&self, registers: u32, shared: u32, threads: u32) -> u32 {
        let warps = threads.div_ceil(32).max(1);
        let by_warps = self.blocks.min(self.warps / warps);
        let by_registers = match (registers * 32).next_multiple_of(REGISTER_UNIT) {
            0 => u32::MAX,
            // A block is placed over all parts: one whose warps do not fill them needs as much as one whose warps do.
            of_warp if registers > MOST_REGISTERS || of_warp * warps.next_multiple_of(PARTS) > REGISTERS => 0,
            of_warp => REGISTERS / PARTS / of_warp * PARTS / warps,
        };
        let by_shared = match (u64::from(shared) + u64::from(self.reserved)).next_multiple_of(u64::from(self.unit)) {
            0 => u32::MAX,
            of_block => u32::try_from(u64::from(self.shared) / of_block).unwrap_or(u32::MAX),
        };
        by_warps.min(by_registers).min(by_shared)
    }

    /// The warps of blocks of `threads` threads that an SM holds.
    pub fn resident_warps(&self, registers: u32, shared: u32, threads: u32) -> u32 {
        self.resident_blocks(registers, shared, threads) * threads.div_ceil(32).max(1)
    }
}
