//! The command line.

use crate::device::{DeviceChoice, DeviceOptions};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use kiln_models::{Model, OptimizerKind, ScheduleKind};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kiln train mnist-cnn                      train on the digits inside this program, 5 epochs
  kiln eval -w runs/mnist-cnn-0/best.safetensors
  kiln predict -w runs/mnist-cnn-0/best.safetensors digit.png
  kiln train resnet18 --data cifar-10-batches-bin
  kiln train gpt-mini --data shakespeare.txt
  kiln generate runs/gpt-mini-0 --prompt 'To be' --tokens 500
  kiln summary lenet
  kiln profile resnet18                     where the time of a training step goes

Exit codes: 0 done, 1 failed, 2 wrong command line, 130 interrupted (Ctrl-C), 143 terminated.";

/// Trains, evaluates and inspects neural networks.
#[derive(Debug, Parser)]
#[command(name = "kiln", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model and save its weights
    Train(TrainArgs),
    /// Measure saved weights on held-back data: loss, accuracy, confusion matrix
    Eval(EvalArgs),
    /// Classify image files with saved weights
    Predict(PredictArgs),
    /// Continue a text with the language model of a run
    Generate(GenerateArgs),
    /// List the models, their sizes and how each is trained
    Models(ModelsArgs),
    /// Show a model's layers, shapes, parameters, FLOPs and output sizes
    Summary(SummaryArgs),
    /// Measure the time of a step, layer by layer, and compare it with the least possible time
    Profile(ProfileArgs),
    /// List the devices this build can use
    Devices(DevicesArgs),
}

/// The source of the samples.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// Folder with the dataset: MNIST's four IDX files for mnist-cnn (default: the 10,000 digits inside this program),
    /// CIFAR-10's binary version for other image models; for gpt-mini a text file
    #[arg(long, value_name = "DIR|FILE", conflicts_with = "synthetic")]
    pub(crate) data: Option<PathBuf>,

    /// Synthetic images instead of a dataset: N to train on (default 2000) and N/5 to evaluate on
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "2000",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) synthetic: Option<u32>,

    /// Leave out broken records of an otherwise valid file, and count them
    #[arg(long)]
    pub(crate) skip_bad: bool,
}

/// The device to compute on.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeviceArgs {
    /// Device to compute on: auto, cpu, cuda or cuda:N; see `kiln devices`
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: DeviceChoice,

    /// Threads to compute on [default: all cores]; results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,

    /// Compute convolutions as plain sums of products, without Winograd's algorithm; slower
    #[arg(long)]
    pub(crate) exact: bool,
}

impl DeviceArgs {
    /// These arguments as the options of [`with_device`](crate::device::with_device).
    pub(crate) fn options(&self) -> DeviceOptions {
        DeviceOptions {
            choice: self.device,
            threads: self.threads,
            exact: self.exact,
        }
    }
}

/// Reads the name of a model.
fn model() -> impl TypedValueParser<Value = Model> {
    let value = |m: Model| PossibleValue::new(m.name()).help(m.card().description);
    PossibleValuesParser::new(Model::ALL.map(value)).try_map(|name| Model::from_name(&name).ok_or("no such model"))
}

/// Reads the name of an optimizer.
fn optimizer() -> impl TypedValueParser<Value = OptimizerKind> {
    PossibleValuesParser::new(OptimizerKind::ALL.map(OptimizerKind::name))
        .try_map(|name| OptimizerKind::from_name(&name).ok_or("no such optimizer"))
}

/// Reads the name of a schedule.
fn schedule() -> impl TypedValueParser<Value = ScheduleKind> {
    PossibleValuesParser::new(ScheduleKind::ALL.map(ScheduleKind::name))
        .try_map(|name| ScheduleKind::from_name(&name).ok_or("no such schedule"))
}

const TRAIN_EXAMPLES: &str = "\
Examples:
  kiln train mnist-cnn
  kiln train mnist-cnn --epochs 10 --optimizer sgd --lr 0.01 --momentum 0.9
  kiln train mnist-cnn --data fashion-mnist --out runs/fashion
  kiln train lenet --synthetic              no dataset at hand: see whether everything works
  kiln train resnet18 --data cifar-10-batches-bin --epochs 30
  kiln train gpt-mini --data shakespeare.txt    any text of UTF-8; its last tenth is held back
  kiln train mnist-cnn --json | jq .valid.accuracy

Everything a run writes goes into its folder: best.safetensors (highest validation accuracy, of text lowest loss), last.safetensors,
history.jsonl (one line an epoch) and config.json; .kiln.lock is there while the run goes on, and keeps others out. Ctrl-C
finishes the step, or gives it up when that takes more than 2 s, saves last.safetensors and ends with code 130; a second
Ctrl-C ends at once. The same seed gives the same weights, bit for bit, on any number of threads.";

#[derive(Debug, Args)]
#[command(after_help = TRAIN_EXAMPLES)]
pub(crate) struct TrainArgs {
    /// The model's name
    #[arg(value_parser = model())]
    pub(crate) model: Model,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// Passes over the training data [default: that of the model's recipe, like others below; see `kiln models`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epochs: Option<u64>,

    /// Samples of a batch [default: that of the model]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: Option<u32>,

    /// Learning rate, the largest of a schedule [default: that of the model; 0.001 with another optimizer]
    #[arg(long, value_name = "RATE", value_parser = rate, allow_negative_numbers = true)]
    pub(crate) lr: Option<f64>,

    /// Optimizer [default: that of the model]
    #[arg(long, value_name = "NAME", value_parser = optimizer())]
    pub(crate) optimizer: Option<OptimizerKind>,

    /// Schedule of the learning rate over the run [default: that of the model]
    #[arg(long, value_name = "NAME", value_parser = schedule())]
    pub(crate) schedule: Option<ScheduleKind>,

    /// Momentum of sgd and rmsprop [default: that of the model's own optimizer, else 0]
    #[arg(long, value_name = "M", value_parser = rate, allow_negative_numbers = true)]
    pub(crate) momentum: Option<f64>,

    /// Weight decay [default: that of the model's own optimizer, else the optimizer's]
    #[arg(long, value_name = "W", value_parser = rate, allow_negative_numbers = true)]
    pub(crate) weight_decay: Option<f64>,

    /// Clip the norm of all gradients to this [default: that of the model]
    #[arg(long, value_name = "NORM", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) clip_norm: Option<f64>,

    /// Batches whose gradients are averaged for one update
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) accumulate: u32,

    /// End after N epochs without a better validation accuracy (of text: loss)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) patience: Option<u64>,

    /// End after N updates, even within an epoch; the weights are evaluated and saved as after a whole epoch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_steps: Option<u64>,

    /// Skip steps whose loss or gradient is NaN or infinite, up to N in a row, instead of ending with an error
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10")]
    pub(crate) skip_nan: Option<u64>,

    /// Seed of initial weights, order of the samples and augmentation
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Threads that prepare batches ahead [default: that of the model]; results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub(crate) workers: Option<u16>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Launch every kernel of every step separately instead of replaying a recorded step (GPU); same results
    #[arg(long)]
    pub(crate) no_capture: bool,

    /// Folder of the run, new or empty [default: runs/MODEL-SEED, with a number if that exists]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Batches between two reports of the loss
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) log_every: u32,

    /// One JSON object per line on standard output: `start`, one `epoch` for each, `end`
    #[arg(long)]
    pub(crate) json: bool,
}

/// Saved weights and the model that they belong to.
#[derive(Debug, Clone, Args)]
pub(crate) struct WeightsArgs {
    /// Weights file (safetensors), or the folder of a run for its best weights
    #[arg(short, long, value_name = "FILE|RUN")]
    pub(crate) weights: PathBuf,

    /// Model the weights belong to [default: read from config.json beside them, else from the file itself]
    #[arg(long, value_parser = model(), value_name = "MODEL")]
    pub(crate) model: Option<Model>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln eval -w runs/mnist-cnn-0             the weights with the highest validation accuracy
  kiln eval -w runs/mnist-cnn-0/last.safetensors
  kiln eval -w best.safetensors --model lenet --data cifar-10-batches-bin --json")]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    pub(crate) weights: WeightsArgs,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// Samples of a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,

    /// Seed of synthetic data; must be that of the training run
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Invert {
    /// When the border is lighter than mid-grey: dark ink on light paper
    Auto,
    /// Always
    Yes,
    /// Never: the digits are light on dark already
    No,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln predict -w runs/mnist-cnn-0/best.safetensors digit.png
  kiln predict -w runs/lenet-0/best.safetensors --top 3 --json *.jpg

Images for mnist-cnn are made grey and, when their border is light, inverted (MNIST is white on black). One that is not
28x28 is then treated as MNIST's own images were: the ink is cut out, scaled to fit 20x20 and centred by its mass.
Images for lenet are scaled to 32x32.")]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    pub(crate) weights: WeightsArgs,

    /// PNG or JPEG files
    #[arg(value_name = "IMAGE", required = true)]
    pub(crate) images: Vec<PathBuf>,

    /// Classes to show for each image
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) top: u16,

    /// When to invert images for mnist-cnn
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) invert: Invert,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// One JSON object per image on standard output, each on a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln generate runs/gpt-mini-0 --prompt 'To be' --tokens 500
  kiln generate runs/gpt-mini-0 --temperature 0.8 --top-k 20 --seed 1
  kiln generate runs/gpt-mini-0 --temperature 0      always the likeliest character

The characters that a model knows are those of the text it was trained on; config.json in the run's folder lists them.")]
pub(crate) struct GenerateArgs {
    /// Folder of a run for its best weights, or a weights file beside its config.json
    #[arg(value_name = "RUN_FOLDER")]
    pub(crate) run: PathBuf,

    /// Text to continue [default: a line break]
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,

    /// Characters to write
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tokens: u32,

    /// Divisor of the logits: below 1 probable characters become more probable; 0 always takes the most probable one
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = rate, allow_negative_numbers = true)]
    pub(crate) temperature: f64,

    /// Draw only among the K most probable characters
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top_k: Option<u32>,

    /// Seed of the draws
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

impl GenerateArgs {
    /// The weights of the run.
    pub(crate) fn weights(&self) -> WeightsArgs {
        WeightsArgs {
            weights: self.run.clone(),
            model: None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
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
    #[arg(value_parser = model())]
    pub(crate) model: Model,

    /// Samples of a batch [default: 32 images, 4 sequences]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) batch: Option<u32>,

    /// Steps to measure, after two warm-up steps
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub(crate) steps: u32,

    /// Forward passes without gradients instead of training steps
    #[arg(long, conflicts_with = "optimizer")]
    pub(crate) inference: bool,

    /// Optimizer [default: that of the model]
    #[arg(long, value_name = "NAME", value_parser = optimizer())]
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
pub(crate) struct DevicesArgs {
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// A finite number of 0 or more.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) => Err("expected a finite number of 0 or more".to_string()),
        Err(_) => Err("expected a number".to_string()),
    }
}

/// A finite number above 0.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) => Err("expected a finite number above 0".to_string()),
        Err(_) => Err("expected a number".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn rates_are_finite_and_not_negative() {
        assert_eq!(rate("1e-3"), Ok(1e-3));
        for wrong in ["-1", "nan", "inf", "fast", ""] {
            assert!(rate(wrong).is_err(), "{wrong}");
            assert!(positive(wrong).is_err(), "{wrong}");
        }
        assert_eq!((rate("0"), positive("0.5")), (Ok(0.0), Ok(0.5)));
        assert!(positive("0").is_err());
    }
}
