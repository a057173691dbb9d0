//! Resident blocks are those that crates/machine-code counts by the same rules.

use kiln_forecast::resident_blocks;
use kiln_machine_code::occupancy::Limits;

#[test]
fn resident_blocks_are_those_of_the_machine_code() {
    for sm in [80, 86, 89, 90, 100, 120] {
        let limits = Limits::of(sm).unwrap();
        for registers in [16, 40, 64, 96, 128, 168, 255] {
            for shared in [0, 1024, 16384, 49152, 98304] {
                for threads in [32, 128, 256, 512, 1024] {
                    let wanted = limits.resident_blocks(registers, shared, threads);
                    let found = resident_blocks(sm, registers, shared, threads);
                    assert_eq!(
                        found, wanted,
                        "sm_{sm}, {registers} registers, {shared} bytes, {threads} threads"
                    );
                }
            }
        }
    }
}
