//! The command line of `kiln find-lr`.

use crate::config::{ConfigArgs, Positive, Whole};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln find-lr mnist-cnn
  kiln find-lr resnet18 --data cifar-10-batches-bin --plot lr.svg
  kiln find-lr --config run.toml --min 1e-5 --max 10 --json | jq .suggestion

Takes the settings of `kiln train`. The suggested rate is the one at which the smoothed loss falls most steeply; a schedule
with a warm-up bears more. Nothing is saved but the plot.")]
pub(crate) struct FindLrArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Learning rate of the first step
    #[arg(long, value_name = "RATE", default_value = "1e-8")]
    pub(crate) min: Positive,

    /// Learning rate of the last step
    #[arg(long, value_name = "RATE", default_value = "1")]
    pub(crate) max: Positive,

    /// Steps; the search ends early when the loss grows to four times its smallest value
    #[arg(long, value_name = "N", default_value = "100")]
    pub(crate) steps: Whole<3, 1000000>,

    /// Of several phases, that whose learning rate grows: `generator`, say [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Option<String>,

    /// Write the plot to a file (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
