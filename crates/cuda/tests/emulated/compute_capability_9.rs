//! Kernels that only devices of compute capability 9.0 have, with one emulated: this program's other tests have one of 8.0.

use std::process::Command;

/// Runs the tests of products of warp groups, which other devices refuse, on a device that has them.
#[test]
fn what_only_compute_capability_9_has() {
    let output = Command::new(std::env::current_exe().expect("this program has a path"))
        .arg("warp_groups")
        .env("KILN_EMULATOR_SM", "90")
        .output()
        .expect("the tests run");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(
        output.status.success() && said[0].contains("7 passed"),
        "{}{}",
        said[0],
        said[1]
    );
}
