//! Memory of a GPU that runs out.

use super::program::{Ran, kiln};
use std::path::Path;

/// Runs the program with an emulated GPU of so many MiB.
fn run(dir: &Path, mib: u64, args: &[&str]) -> Ran {
    let emulator = kiln_device::emulator::beside().expect("cargo builds the emulator beside its tests");
    let mut command = kiln(dir, args);
    command
        .env("KILN_CUDA_DRIVER", emulator)
        .env("KILN_EMULATOR_MEMORY", (mib << 20).to_string());
    Ran::of(command.output().unwrap())
}

fn succeeds(dir: &Path, mib: u64, args: &[&str]) -> Ran {
    let ran = run(dir, mib, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.stdout, ran.stderr);
    ran
}

#[test]
fn the_largest_batch_of_a_gpu_is_found_and_trains() {
    let dir = tempfile::tempdir().unwrap();
    const MIB: u64 = 8;
    let model = ["lenet", "--synthetic", "600", "--device", "cuda"];
    let found = succeeds(dir.path(), MIB, &[&["find-batch"][..], &model, &["--json"]].concat());
    let found = &found.json()[0];
    assert_eq!(found["limit"], "memory", "{found}");
    let largest = found["largest"].as_u64().unwrap();
    let points = found["points"].as_array().unwrap();
    let failed = points.iter().position(|p| p["fits"] == false).unwrap();
    // The memory of a size that does not fit is there again for those that do.
    assert!(points[failed..].iter().any(|p| p["fits"] == true), "{found}");
    let fails = points.iter().filter(|p| p["fits"] == false);
    let smallest = fails.map(|p| p["batch"].as_u64().unwrap()).min().unwrap();
    assert!(
        largest < smallest && smallest <= largest + (largest / 32).max(1),
        "{found}"
    );
    let train = |batch: u64| {
        let batch = batch.to_string();
        let more = ["--batch", &batch, "--max-steps", "3", "--out", &batch];
        run(dir.path(), MIB, &[&["train"][..], &model, &more].concat())
    };
    let (fits, does_not) = (train(largest), train(2 * largest));
    // The validation has batches of its own, which may be larger.
    assert!(
        fits.code == Some(0) || !fits.stderr.contains("error: step"),
        "{}",
        fits.stderr
    );
    does_not.fails(
        1,
        &[
            "error: step 1 (epoch 1): ",
            "out of memory",
            "bytes requested",
            "kiln find-batch",
        ],
    );
}
