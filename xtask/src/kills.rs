//! `cargo xtask kills`: training runs that are killed and resumed, many times, compared with runs that never stop.

use crate::workspace::{Outcome, cargo, passes, root};
use std::process::Command;

#[derive(clap::Args)]
#[command(after_help = "\
20 runs of 300 steps and 20 of 60 with augmentation, momentum and batch norm are killed at a random step each; then one run is
killed 200 times while it writes a checkpoint. All have to end with the weights, optimizers and histories of runs that never
stopped. `cargo test -p kiln-cli resume` is the short version.")]
pub(crate) struct Args {
    /// Threads of each run
    #[arg(long, default_value_t = 2)]
    threads: u16,
}

/// The settings of the runs: dropout, Adam, a schedule and accumulation; random crops and flips, momentum and batch norm; and
/// one whose checkpoints are written after each step.
const RUNS: [&str; 3] = [
    "mnist-cnn --synthetic 400 --batch 4 --accumulate 2 --schedule cosine --ema 0.99 --epochs 6 --steps 300 --runs 20",
    "resnet18 --synthetic 20 --batch 2 --epochs 6 --steps 60 --runs 20",
    "mnist-cnn --synthetic 400 --batch 2 --epochs 6 --steps 1000 --checkpoint-steps 1 --kills 200 --during-save",
];

pub(crate) fn run(args: &Args) -> Outcome {
    if !passes(&mut cargo(["build", "--release", "--package", "kiln-cli"]))? {
        return Ok(false);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir));
    let threads = args.threads.to_string();
    let mut all = true;
    for settings in RUNS {
        let mut verify = Command::new(target.join("release/kiln"));
        verify.arg("verify-resume").args(settings.split(' '));
        all &= passes(verify.args(["--threads", &threads, "--device", "cpu"]))?;
    }
    Ok(all)
}
