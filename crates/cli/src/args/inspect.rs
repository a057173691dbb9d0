//! The command lines that look at models, datasets and machines: `kiln models`, `datasets`, `summary`, `profile`, `doctor`, `devices`.

use crate::config::{DeviceArgs, model, named};
use clap::Args;
use kiln_models::{Model, OptimizerKind};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DatasetsArgs {
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    /// The model's name
    #[arg(value_parser = model())]
    pub(crate) model: Model,

    /// Batch size that shapes, FLOPs and sizes are shown for
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) batch: u32,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

const PROFILE_HELP: &str = "\
Examples:
  kiln profile mnist-cnn --batch 128
  kiln profile resnet18 --threads 1 --steps 3
  kiln profile gpt-mini --inference
  kiln profile --run runs/wgan-gp-0         with the optimizers of a run
  kiln profile lenet --trace lenet.json     then open the file at https://ui.perfetto.dev
  kiln profile vgg11 --json | jq '.rows[0]'

Reading the table: a row is a layer, with the time of its forward pass and of its gradients, the layers inside of it left
out. Rows in parentheses are the rest of the step: (input) copies a batch to the device, (model) is what a model does between
its layers, (loss), (backward) adds gradients up, (optimizer), and (step) is what is in none of them. FLOPs are those of
products and convolutions, a multiply-add counted as two. Bytes are those of every op's operands and results, once each.
The floor is, op by op, the longer of FLOPs over the rate of multiply-adds and bytes over the rate of memory, both measured
first, on the same threads: memory at several sizes, since what fits a cache is faster. gap is time - floor: the rows on top
are where time can be won. A floor can be beaten: a fast convolution makes do with fewer FLOPs, an operand may still lie in
the cache of a core.

Batches are made up and lie in memory. Every second step is watched, the others show what watching costs. A GPU is
waited for after every op of a watched step.";

#[derive(Debug, Args)]
#[command(after_help = PROFILE_HELP)]
pub(crate) struct ProfileArgs {
    /// The model's name
    #[arg(value_parser = model(), required_unless_present = "run")]
    pub(crate) model: Option<Model>,

    /// Folder of a run, whose model and optimizers are profiled
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with = "model")]
    pub(crate) run: Option<PathBuf>,

    /// Samples of a batch [default: 32 images, 4 windows of text, 64 rows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) batch: Option<u32>,

    /// Steps to measure, after two warm-up steps
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub(crate) steps: u32,

    /// Forward passes without gradients instead of training steps
    #[arg(long, conflicts_with = "optimizer")]
    pub(crate) inference: bool,

    /// Optimizer [default: those of the model or of the run]
    #[arg(long, value_name = "NAME", value_parser = named::<OptimizerKind>(OptimizerKind::ALL.map(OptimizerKind::name)))]
    pub(crate) optimizer: Option<OptimizerKind>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Write every measured step to a file for <https://ui.perfetto.dev> or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Print a table for a Markdown document
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examines the processor, memory, this folder, nvcc, the driver and every GPU, and runs a small net on the device that training
would take, compared with the processor. Exit code 1: something is there that does not work.")]
pub(crate) struct DoctorArgs {
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
