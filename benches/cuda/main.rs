//! `kiln-cuda-bench`: measures Kiln's kernels and training steps on a GPU, with one JSON line per measurement, and makes a
//! table that compares them with PyTorch's.

mod attention;
mod conv;
mod copy;
mod gemm;
mod measure;
mod memory;
mod modelled;
mod norm;
mod optim;
mod pool;
mod random;
mod report;
mod step;

use clap::{Parser, Subcommand};
use kiln_core::Result;
use kiln_cuda::{Cuda, Options};
use measure::Bench;
use modelled::Model;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    about = "Measures Kiln on a CUDA device",
    after_help = "\
  kiln-cuda-bench run                        everything, as JSON lines
  kiln-cuda-bench run --quick gemm/f32       one family and dtype, a first impression
  kiln-cuda-bench run sum/ softmax/          two families to the letter; `sum` finds sum_rows and sum_columns too
  kiln-cuda-bench run --quick --max-flops 40000000 --max-bytes 1000000
                                             what an emulated device can do in minutes
  kiln-cuda-bench report kiln.jsonl torch.jsonl --out results.json
Ids are family/dtype/size, such as gemm/bf16/4096x4096x4096; `variant` is the kernel or the way of training. A filter is
found from the beginning of a word: `sum/` is not in cumsum/f32/256x50257, `grad` is in gelu_grad. The same work in PyTorch
is benches/peers/torch_cuda.py. Where KILN_LAUNCH_LOG names a file for the launches and `kiln forecast` knows the card, each
line has the time beside it that is modelled for it."
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure, and print one JSON line per measurement
    Run(Run),
    /// Print the first of those lines alone, which names the card and its driver
    About {
        /// Number of the device
        #[arg(long, default_value_t = 0, value_name = "N")]
        device: usize,
    },
    /// Compare measurements in a table and as JSON
    Report(report::Args),
}

#[derive(clap::Args)]
struct Run {
    /// Run only benches whose id has one of these at the beginning of a word
    filters: Vec<String>,
    /// Fewer and shorter samples
    #[arg(long)]
    quick: bool,
    /// Number of the device
    #[arg(long, default_value_t = 0, value_name = "N")]
    device: usize,
    /// Leave out benches with more floating-point operations per call than this, for slow devices
    #[arg(long, value_name = "FLOPS")]
    max_flops: Option<u64>,
    /// Leave out benches that move more bytes per call than this, for slow devices
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// Also append the lines to a file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Run(args) => match run(&args) {
            Ok(0) => Err("no bench is as asked for: see the ids in `kiln-cuda-bench --help`".to_string()),
            outcome => outcome.map(|_| ()).map_err(|e| e.to_string()),
        },
        Task::About { device } => Cuda::new(device)
            .map(|cuda| println!("{}", measure::about(&cuda, None)))
            .map_err(|e| e.to_string()),
        Task::Report(args) => report::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("kiln-cuda-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the benches that the filters name; returns the number of measurements.
fn run(args: &Run) -> Result<usize> {
    let exact = Cuda::new(args.device)?;
    let tf32 = Cuda::with_options(
        args.device,
        Options {
            tf32: true,
            ..Options::default()
        },
    )?;
    // Without a model the times are measured all the same.
    let model = Model::new(&exact).inspect_err(|why| eprintln!("kiln-cuda-bench: no modelled times: {why}"));
    let bench = Bench::new(args, model.ok());
    bench.about(&exact);
    copy::run(&bench, &exact)?;
    gemm::run(&bench, &exact, &tf32)?;
    conv::run(&bench, &exact, &tf32)?;
    attention::run(&bench, &exact)?;
    memory::run(&bench, &exact)?;
    norm::run(&bench, &exact)?;
    optim::run(&bench, &exact)?;
    pool::run(&bench, &exact)?;
    random::run(&bench, &exact)?;
    step::run(&bench, &exact)?;
    Ok(bench.measured())
}
