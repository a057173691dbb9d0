//! Memory of a GPU that runs out.

use super::program::{Ran, kiln};
use std::path::Path;
use std::process::Command;

/// The program with an emulated GPU of so many KiB.
fn with_memory(dir: &Path, kib: u64, args: &[&str]) -> Command {
    let emulator = kiln_device::emulator::beside().expect("cargo builds the emulator beside its tests");
    let mut command = kiln(dir, args);
    command
        .env("KILN_CUDA_DRIVER", emulator)
        .env("KILN_EMULATOR_MEMORY", (kib << 10).to_string());
    command
}

fn run(dir: &Path, kib: u64, args: &[&str]) -> Ran {
    Ran::of(with_memory(dir, kib, args).output().unwrap())
}

fn succeeds(dir: &Path, kib: u64, args: &[&str]) -> Ran {
    let ran = run(dir, kib, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.stdout, ran.stderr);
    ran
}

/// The kernels are not carried out here: what takes memory is the same.
#[test]
fn the_largest_batch_of_a_gpu_is_found_and_trains() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = with_memory(dir.path(), 12 << 10, args);
        Ran::of(command.env("KILN_EMULATOR_EXECUTE", "0").output().unwrap())
    };
    let model = ["lenet", "--synthetic", "600", "--device", "cuda"];
    let found = run(&[&["find-batch"][..], &model, &["--json"]].concat());
    assert_eq!(found.code, Some(0), "{}", found.stderr);
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
        run(&[&["train"][..], &model, &more].concat())
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
        &["error: step ", "out of memory", "bytes requested", "kiln find-batch"],
    );
}

/// The steps of batches of 4 fit, and the batch of 20 of the validation does not: the run ends with a checkpoint of the last step, and
/// goes on with more memory or with smaller batches of the validation to the bits of a run that never stopped.
#[test]
fn memory_of_a_gpu_that_runs_out_ends_the_run_and_it_goes_on_with_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = |out: &str| dir.path().join(out);
    let train = |out, kib, more: &[&str]| {
        let data = ["--synthetic", "100", "--batch", "4", "--data-on-device", "off"];
        let steps = ["--epochs", "2", "--max-steps", "27", "--checkpoint-steps", "10"];
        let args = [
            &["train", "lenet", "--device", "cuda", "--out", out][..],
            &data,
            &steps,
            more,
        ]
        .concat();
        run(dir.path(), kib, &args)
    };
    // With the least memory that the steps fit and the validation does not.
    let (kib, ran) = (1024..16384)
        .step_by(64)
        .find_map(|kib| {
            let _ = std::fs::remove_dir_all(path("stopped"));
            let ran = train("stopped", kib, &[]);
            ran.stderr.contains("error: validation ").then_some((kib, ran))
        })
        .unwrap();
    ran.fails(
        1,
        &[
            "error: validation after step 25 (epoch 1): ",
            "cuda:0: out of memory",
            "bytes requested",
            "bytes free",
            "kiln train --resume stopped and a smaller --valid-batch",
        ],
    );
    assert!(path("stopped").join("checkpoint-000000025.json").exists());
    run(dir.path(), kib, &["train", "--resume", "stopped"]).fails(1, &["error: validation after step 25 "]);
    std::fs::create_dir(path("same")).unwrap();
    for entry in std::fs::read_dir(path("stopped")).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, path("same").join(from.file_name().unwrap())).unwrap();
    }
    assert_eq!(train("calm", 256 << 10, &[]).code, Some(0));
    let weights = |out: &str| std::fs::read(path(out).join("last.safetensors")).unwrap();
    // Recorded steps take memory beside that of the first validation.
    for (out, kib, more) in [
        ("stopped", 256 << 10, &[][..]),
        ("same", kib + 2048, &["--valid-batch", "4"]),
    ] {
        succeeds(dir.path(), kib, &[&["train", "--resume", out][..], more].concat());
        assert!(weights(out) == weights("calm"), "{kib} KiB, {more:?}");
    }
}
