//! The CPUID instruction, and the features that the operating system has enabled.

use std::arch::x86_64::{__cpuid_count, _xgetbv, CpuidResult};

/// What the instruction says of this leaf.
pub(crate) fn leaf(leaf: u32, sub: u32) -> CpuidResult {
    // SAFETY: every processor of this architecture has the instruction, and it writes registers alone.
    #[allow(unused_unsafe)]
    unsafe {
        __cpuid_count(leaf, sub)
    }
}

/// True if the processor multiplies tiles of bfloat16: bits 22 (AMX-BF16) and 24 (AMX-TILE) of leaf 7.
pub(crate) fn has_bf16_tiles() -> bool {
    const BOTH: u32 = 1 << 22 | 1 << 24;
    leaf(0, 0).eax >= 7 && leaf(7, 0).edx & BOTH == BOTH
}

/// The features of the processor whose state the operating system saves, as the bits of XCR0; 0 if it saves none this way.
pub(crate) fn enabled_features() -> u64 {
    #[target_feature(enable = "xsave")]
    fn xcr0() -> u64 {
        // SAFETY: register 0 exists wherever the instruction does.
        unsafe { _xgetbv(0) }
    }
    // OSXSAVE: the operating system has enabled the instruction.
    if leaf(1, 0).ecx >> 27 & 1 == 0 {
        return 0;
    }
    // SAFETY: the bit says that the instruction may be used.
    unsafe { xcr0() }
}
