//! The command line of `kiln find-batch`.

use crate::config::{ConfigArgs, Small, Whole};
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln find-batch resnet18 --data cifar-10-batches-bin
  kiln find-batch gpt-mini --data shakespeare.txt --memory 8G --recompute 'h.*'
  kiln find-batch --config run.toml --max 512 --json | jq .largest

Takes the settings of `kiln train` and makes a few updates with each size, at a learning rate of 0: sizes are doubled until one
does not fit, then the gap is halved. On the processor the memory is that of --memory [default: nine tenths of what is
available]. Ctrl-C ends the search with what it has found. Nothing is saved. Leave some room: other programs take memory too.")]
pub(crate) struct FindBatchArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// First size
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) min: Small,

    /// Largest size to try
    #[arg(long, value_name = "N", default_value = "8192")]
    pub(crate) max: Small,

    /// Updates with each size
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) steps: Whole<3, 1000>,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
