//! Kiln's own tasks, run as `cargo xtask TASK`.
//!
//! Exit codes: 0 on success, 1 if a check or a test failed, 2 if the command line is wrong.

mod bench;
mod browser;
mod bundle;
mod ci;
mod counters;
mod emulated;
mod fuzz;
mod gpu_gates;
mod instances;
mod kills;
mod licences;
mod machine_code;
mod names;
mod new_op;
mod package;
mod parallel;
mod sanitize;
mod test;
mod tidy;
mod toolkit;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Kiln's own tasks",
    after_help = "\
A newcomer needs one of them:
  cargo xtask test            everything this machine can test
While working:
  cargo test -p kiln-cpu conv  one crate, one filter: plain cargo
  cargo xtask tidy             the workspace's rules, in a second
Before a commit:
  cargo xtask ci               formatting, clippy, docs, then `test`

Exit codes: 0 all is well, 1 a check or a test failed, 2 the command line is wrong."
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all tests that can run on this machine: tidy, then `cargo test --workspace`
    Test(test::Args),
    /// Check the workspace's rules: op modules, layering, circles of files, unsafe, file length, lints
    Tidy,
    /// Measure Kiln and its peers on the same work: a table with ratios, and JSON
    Bench(bench::Args),
    /// Make a folder of programs for a machine with a GPU but without cargo
    Bundle(bundle::Args),
    /// If there is no nvcc, install it from five pinned PyPI wheels (271 MB) into `.venv-cuda`, and nvdisasm (5 MB); no GPU is needed
    Toolkit,
    /// Run fuzz targets: code that reads untrusted files, images and programs, on inputs that depend on a seed
    Fuzz(fuzz::Args),
    /// Count the launches and the memory of training steps, and the instructions of kernels' loops, and compare them with kernels/gates.toml
    GpuGates(gpu_gates::Args),
    /// Show what the kernels of a small step ask of memory: sectors, wavefronts, divergence, bytes in flight, counted by the emulated driver
    Counters(counters::Args),
    /// Show what the machine code of each kernel asks of a GPU, without one: registers, resident warps, the instructions of its loops
    MachineCode(machine_code::Args),
    /// Kill training runs at random steps and while they save, resume them, and compare them with runs that never stop
    Kills(kills::Args),
    /// Open reports of runs in a headless Chromium: errors, requests, windows of a phone and a desktop, contrast in light and dark
    Browser,
    /// Run tests of the crates with `unsafe` code under AddressSanitizer, Valgrind or Miri
    Sanitize(sanitize::Args),
    /// Check every dependency's licence against the list in deny.toml
    Licences,
    /// Pack every crate as it would be published, and build it from its package
    Package,
    /// Write the guide's table of PyTorch's names anew, from the documentation of kiln-nn
    Names,
    /// Write the list of kiln-nn's functions that are compiled once for a backend anew
    Instances,
    /// Make the files of a new op family, one in every layer
    NewOp(new_op::Args),
    /// Check formatting, clippy, docs, then run the tests
    Ci(ci::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Tidy => tidy::run(),
        Task::Bench(args) => bench::run(&args),
        Task::Bundle(args) => bundle::run(&args),
        Task::Toolkit => toolkit::run(),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::GpuGates(args) => gpu_gates::run(&args),
        Task::Counters(args) => counters::run(&args),
        Task::MachineCode(args) => machine_code::run(&args),
        Task::Kills(args) => kills::run(&args),
        Task::Browser => browser::run(),
        Task::Sanitize(args) => sanitize::run(&args),
        Task::Licences => licences::run(),
        Task::Package => package::run(),
        Task::Names => names::run(),
        Task::Instances => instances::run(),
        Task::NewOp(args) => new_op::run(&args),
        Task::Ci(args) => ci::run(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(1)
        }
    }
}
