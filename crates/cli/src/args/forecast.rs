//! The command line of `kiln forecast`.

use crate::config::ConfigArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln forecast resnet18 --batch 256 --precision bf16
  kiln forecast gpt-mini --batch 64 --precision bf16 --gpu h100,a100,l40s,rtx4090
  kiln forecast resnet18 --batch 128 --gpu all --samples 50000 --epochs 30 --price l40s=0.9
  kiln forecast resnet18 --batch 128 --gpu mine --cards mine.toml
  kiln forecast vgg11 --batch 128 --json | jq '.cards[] | [.name, .seconds]'

No GPU and no nvcc are needed. The settings are those of `kiln train`. A step is recorded by the emulated driver, which computes
nothing: every launch with its arguments, every copy, and the memory that is allocated. Each launch is then modelled from the machine
code of its kernel: what it asks of the schedulers, of tensor cores and other pipes, of shared memory, L2 and memory, and how long it waits.

Every time here is modelled, none is measured. low and high are the bounds within which the model was on published kernels of others whose
times are known (docs/forecast.md); what a host does between steps is not in them. Energy is at most: the board's limit for the whole step.
Costs are by the price of a card in the table, with its date, or by --price. The largest batch fits the card's memory with a tenth left
for the driver and for other programs; it is estimated from two sizes and then tried.

A table of cards (--cards) has a [[card]] for each, with the fields of crates/forecast/data/cards.toml.")]
pub(crate) struct ForecastArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Cards, with commas between, or all
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "h100,a100,l40s,rtx4090"
    )]
    pub(crate) gpu: Vec<String>,

    /// A table with cards of your own
    #[arg(long, value_name = "FILE")]
    pub(crate) cards: Option<PathBuf>,

    /// Samples of an epoch, for its time and cost
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) samples: Option<u64>,

    /// Dollars an hour of a card; may be repeated
    #[arg(long, value_name = "CARD=DOLLARS")]
    pub(crate) price: Vec<String>,

    /// Kernels that are listed for each card
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,

    /// Leave out the search for the largest batch
    #[arg(long)]
    pub(crate) no_largest: bool,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
