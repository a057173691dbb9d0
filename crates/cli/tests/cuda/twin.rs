//! A GPU that computes wrongly, as `kiln train --twin` and `kiln replay` find it.

use super::program::Ran;
use super::with_gpu;
use std::path::Path;

/// Runs the program with an emulated GPU that leaves this kernel out, or none.
fn run(dir: &Path, wrong: Option<&str>, args: &[&str]) -> Ran {
    let mut command = with_gpu(dir, args);
    command.env("KILN_EMULATOR_SKIP", wrong.unwrap_or_default());
    Ran::of(command.output().unwrap())
}

#[test]
fn a_gpu_that_computes_wrongly_is_named_and_compared_again() {
    if std::env::var_os("KILN_CUDA_DRIVER").is_some_and(|driver| !driver.is_empty()) {
        return eprintln!("skipped: only the emulated driver can be told to compute wrongly");
    }
    let dir = tempfile::tempdir().unwrap();
    // A kernel of the forward pass, and one of the gradients.
    for (out, kernel, op, pass) in [
        ("forward", "max_pool_packed", "max_pool", "forward pass"),
        ("backward", "cross_entropy_grad", "cross_entropy", "gradient"),
    ] {
        let args = [
            "train",
            "lenet",
            "--synthetic",
            "40",
            "--batch",
            "4",
            "--max-steps",
            "3",
            "--device",
            "cuda",
        ];
        let args = [&args[..], &["--seed", "7", "--twin", "every=2", "--out", out]].concat();
        let ran = run(dir.path(), Some(kernel), &args);
        let capsule = format!("{out}/capsule-000000001.json");
        let replay = format!("`kiln replay {capsule}`");
        ran.fails(
            1,
            &[
                "error: step 1 (epoch 1): the device differs from its twin in ",
                pass,
                op,
                &replay,
                "help: ",
            ],
        );
        let again = |wrong, more: &[&str]| run(dir.path(), wrong, &[&["replay", &capsule][..], more].concat());
        let differs = again(Some(kernel), &[]);
        assert_eq!(differs.code, Some(3), "{}{}", differs.stdout, differs.stderr);
        assert!(
            differs.stdout.contains("cuda:0 differs from the CPU again"),
            "{}",
            differs.stdout
        );
        let json = again(Some(kernel), &["--json"]).json().remove(0);
        assert_eq!(
            (&json["verdict"], &json["deviation"]["op"]),
            (&"differs".into(), &op.into()),
            "{json}"
        );
        // Not the step is wrong but the device: with the kernel again, and on the CPU.
        for (device, name) in [("cuda", "cuda:0"), ("cpu", "cpu")] {
            let agrees = again(None, &["--device", device]);
            assert_eq!(agrees.code, Some(0), "{}{}", agrees.stdout, agrees.stderr);
            assert!(
                agrees.stdout.contains(&format!("{name} agrees with the CPU this time")),
                "{}",
                agrees.stdout
            );
        }
    }
}
