//! Resident blocks against `cudaOccMaxActiveBlocksPerMultiprocessor` of the toolkit's `cuda_occupancy.h` (CUDA 13.0), which is plain C++:
//! a program that includes it and fills in the table of compute capabilities printed these rows.

use kiln_machine_code::occupancy::Limits;
use proptest::prelude::*;

/// Architecture, registers of a thread, threads of a block, bytes of shared memory of a block, resident blocks.
#[rustfmt::skip]
const ROWS: &[(u32, u32, u32, u32, u32)] = &[
    (75, 122, 256, 40960, 1),
    (75, 128, 256, 0, 2),
    (75, 162, 256, 49152, 1),
    (75, 168, 384, 16384, 1),
    (75, 40, 384, 16384, 2),
    (75, 32, 96, 40960, 1),
    (75, 122, 128, 100, 4),
    (75, 162, 256, 40960, 1),
    (75, 16, 128, 16384, 4),
    (75, 16, 256, 40960, 1),
    (75, 255, 32, 49152, 1),
    (75, 128, 256, 49152, 1),
    (80, 122, 256, 40960, 2),
    (80, 128, 256, 0, 2),
    (80, 162, 256, 49152, 1),
    (80, 168, 384, 16384, 1),
    (80, 16, 384, 49152, 3),
    (80, 122, 32, 40960, 4),
    (80, 162, 32, 100, 12),
    (80, 16, 128, 49152, 3),
    (80, 255, 1024, 100, 0),
    (80, 128, 128, 0, 4),
    (80, 32, 384, 49152, 3),
    (80, 16, 96, 49152, 3),
    (86, 122, 256, 40960, 2),
    (86, 128, 256, 0, 2),
    (86, 162, 256, 49152, 1),
    (86, 168, 384, 16384, 1),
    (86, 16, 384, 16384, 4),
    (86, 122, 384, 16384, 1),
    (86, 122, 256, 16384, 2),
    (86, 16, 256, 16384, 5),
    (86, 40, 32, 100, 16),
    (86, 16, 384, 40960, 2),
    (86, 128, 384, 40960, 1),
    (86, 122, 256, 49152, 2),
    (89, 122, 256, 40960, 2),
    (89, 128, 256, 0, 2),
    (89, 162, 256, 49152, 1),
    (89, 168, 384, 16384, 1),
    (89, 16, 256, 0, 6),
    (89, 255, 96, 0, 2),
    (89, 128, 1024, 100, 0),
    (89, 32, 32, 100, 24),
    (89, 32, 1024, 16384, 1),
    (89, 162, 128, 40960, 2),
    (89, 162, 128, 16384, 3),
    (89, 162, 32, 100, 12),
    (90, 122, 256, 40960, 2),
    (90, 128, 256, 0, 2),
    (90, 162, 256, 49152, 1),
    (90, 168, 384, 16384, 1),
    (90, 16, 256, 0, 8),
    (90, 128, 1024, 49152, 0),
    (90, 162, 32, 100, 12),
    (90, 122, 128, 100, 4),
    (90, 16, 128, 16384, 13),
    (90, 32, 1024, 100, 2),
    (90, 16, 128, 100, 16),
    (90, 128, 384, 49152, 1),
    (100, 122, 256, 40960, 2),
    (100, 128, 256, 0, 2),
    (100, 162, 256, 49152, 1),
    (100, 168, 384, 16384, 1),
    (100, 255, 128, 40960, 2),
    (100, 32, 32, 49152, 4),
    (100, 40, 128, 49152, 4),
    (100, 122, 256, 16384, 2),
    (100, 32, 96, 100, 21),
    (100, 128, 384, 0, 1),
    (100, 32, 32, 0, 32),
    (100, 128, 1024, 40960, 0),
    (120, 122, 256, 40960, 2),
    (120, 128, 256, 0, 2),
    (120, 162, 256, 49152, 1),
    (120, 168, 384, 16384, 1),
    (120, 40, 256, 40960, 2),
    (120, 128, 1024, 0, 0),
    (120, 255, 32, 16384, 5),
    (120, 162, 1024, 16384, 0),
    (120, 32, 256, 100, 6),
    (120, 16, 1024, 100, 1),
    (120, 162, 32, 0, 12),
    (120, 128, 1024, 40960, 0),
];

#[test]
fn resident_blocks_are_those_of_nvidias_header() {
    for (arch, registers, threads, shared, blocks) in ROWS.iter().copied() {
        let limits = Limits::of(arch).unwrap();
        let row = (arch, registers, threads, shared);
        assert_eq!(limits.resident_blocks(registers, shared, threads), blocks, "{row:?}");
        assert_eq!(
            limits.resident_warps(registers, shared, threads),
            blocks * threads.div_ceil(32),
            "{row:?}"
        );
    }
}

#[test]
fn half_the_registers_of_the_large_convolutions_hold_twice_the_warps() {
    let limits = Limits::of(90).unwrap();
    // 162 registers and 48 KiB, 256 threads: one block. At most 128 registers: two.
    assert_eq!(limits.resident_warps(162, 49152, 256), 8);
    assert_eq!(limits.resident_warps(128, 49152, 256), 16);
    assert_eq!(limits.resident_warps(129, 49152, 256), 8);
}

proptest! {
    #[test]
    fn more_of_anything_never_holds_more_blocks(
        arch in prop::sample::select(vec![75, 80, 86, 87, 89, 90, 100, 120]),
        registers in 1u32..255,
        threads in 1u32..1025,
        shared in 0u32..100_000,
    ) {
        let limits = Limits::of(arch).unwrap();
        let blocks = limits.resident_blocks(registers, shared, threads);
        prop_assert!(limits.resident_blocks(registers + 1, shared, threads) <= blocks);
        prop_assert!(limits.resident_blocks(registers, shared + 1, threads) <= blocks);
        prop_assert!(limits.resident_blocks(registers, shared, threads + 1) <= blocks);
        prop_assert!(blocks * threads.div_ceil(32) <= limits.warps && blocks <= limits.blocks);
        prop_assert!(blocks * registers * threads <= 65536);
    }
}
