//! The command line.

mod answers;
mod find_batch;
mod find_lr;
mod forecast;
mod inspect;

use crate::config::{ConfigArgs, DeviceArgs, Small, Whole, model};
use crate::device::DeviceChoice;
use clap::{Args, Parser, Subcommand};
use kiln_data::TokenizerChoice;
use kiln_models::Model;
use std::path::PathBuf;

pub(crate) use answers::{EvalArgs, GenerateArgs, Invert, PredictArgs, TranscribeArgs, WeightDtype, WeightsArgs};
pub(crate) use find_batch::FindBatchArgs;
pub(crate) use find_lr::FindLrArgs;
pub(crate) use forecast::ForecastArgs;
pub(crate) use inspect::{DatasetsArgs, DevicesArgs, DoctorArgs, ModelsArgs, ProfileArgs, SummaryArgs};

const EXAMPLES: &str = "\
Examples:
  kiln train mnist-cnn                      train on the digits inside this program, 5 epochs
  kiln eval -w runs/mnist-cnn-0/best.safetensors
  kiln predict -w runs/mnist-cnn-0/best.safetensors digit.png
  kiln train --resume runs/mnist-cnn-0      go on after Ctrl-C, a kill or a crash
  kiln train resnet18 --data cifar-10-batches-bin
  kiln train gpt-mini --data shakespeare.txt
  kiln generate runs/gpt-mini-0 --prompt 'To be' --tokens 500
  kiln train deepspeech2 --data manifest.tsv   then: kiln transcribe runs/deepspeech2-0 FILE.wav
  kiln train vae                            a network that draws digits; then: kiln generate runs/vae-0
  kiln train mlp --data houses.csv --target price
  kiln summary lenet
  kiln report runs/mnist-cnn-0              a page of curves, confusion matrix, worst samples
  kiln profile resnet18                     where the time of a training step goes
  kiln forecast resnet18 --gpu h100,rtx4090 how long a step would take there, without the card

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
    /// Prove that a killed and resumed run ends with the same bits as one that never stopped
    VerifyResume(VerifyResumeArgs),
    /// Find a learning rate: train for some steps while it grows, and plot the loss
    FindLr(FindLrArgs),
    /// Find the largest batch that fits the memory, and the throughput of batches up to it
    FindBatch(FindBatchArgs),
    /// Train with many settings, a grid or random draws, and compare the results
    Sweep(SweepArgs),
    /// Make a step with a NaN again, on the CPU in f64, and tell overflow from what has no value
    Replay(ReplayArgs),
    /// Make a page of a run: curves, epochs, confusion matrix, worst samples, time by layer
    Report(ReportArgs),
    /// Show what differs between two runs: settings, epochs, weights
    Diff(DiffArgs),
    /// Average the weights of several runs or files
    Average(AverageArgs),
    /// Measure saved weights on held-back data: loss, accuracy, confusion matrix
    Eval(EvalArgs),
    /// Answer about files by saved weights: classes of images, reconstructions, numbers for the rows of a table
    Predict(PredictArgs),
    /// Continue a text with the language model of a run, or draw images with a vae
    Generate(GenerateArgs),
    /// Write down what is said in sound files, by the network of a run
    Transcribe(TranscribeArgs),
    /// Write texts of any size as files of tokens, which are read from the disk while a network is trained
    Tokenize(TokenizeArgs),
    /// List the models, their sizes and how each is trained
    Models(ModelsArgs),
    /// List the datasets that are read, and the models that take them
    Datasets(DatasetsArgs),
    /// Show a model's layers, shapes, parameters, FLOPs and output sizes
    Summary(SummaryArgs),
    /// Measure the time of a step, layer by layer, and compare it with the least possible time
    Profile(ProfileArgs),
    /// Model how long a step would take on GPUs that are not here, and its memory, energy and cost
    Forecast(ForecastArgs),
    /// List the devices this build can use
    Devices(DevicesArgs),
    /// Examine this machine for training, and say what to do about what it lacks
    Doctor(DoctorArgs),
}

const TRAIN_EXAMPLES: &str = "\
Examples:
  kiln train mnist-cnn
  kiln train mnist-cnn --epochs 10 --optimizer sgd --lr 0.01 --momentum 0.9
  kiln train mnist-cnn --data fashion-mnist --out runs/fashion
  kiln train lenet --synthetic              no dataset at hand: see whether everything works
  kiln train resnet18 --data cifar-10-batches-bin --epochs 30
  kiln train gpt-mini --data shakespeare.txt    any text of UTF-8; its last tenth is held back
  kiln train gpt-mini --data moby-dick.txt.gz --tokenizer bpe:1024
  kiln train bert-mini --data moby-dick.txt.gz --tokenizer wordpiece:4000 --out runs/bert
  kiln train bert-classifier --data reviews.tsv --init-from runs/bert
  kiln train bert-tagger --data names.conll --init-from runs/bert
  kiln train bert-reader --data squad       questions about texts; then: kiln predict -w RUN --question TEXT FILE
  kiln train transformer --data pairs.tsv       columns source and target; then: kiln predict -w runs/transformer-0 FILE.txt
  kiln train transformer --data moby-dick.txt   learns its spelling: lines with mistakes, to be written without
  kiln train lenet --data photos            a folder of images for each class
  kiln train mlp --data houses.csv --target price    predicts a column from the others
  kiln train mnist-cnn --json | jq .valid.accuracy
  kiln train mnist-cnn --tensorboard        then: tensorboard --logdir runs
  kiln train mnist-cnn --report             then open report.html in the folder of the run
  kiln train --config run.toml --set optimizer.lr=3e-4
  kiln train --resume runs/mnist-cnn-0 --epochs 20
  kiln train lenet --synthetic --fast-dev-run     does it run at all?
  kiln train lenet --synthetic --overfit-batches --epochs 200     can it learn one batch by heart?

Everything a run writes goes into its folder: best.safetensors (best validation: the highest accuracy, of text and of
a vae the lowest loss, of a GAN the lowest Fréchet distance),
last.safetensors, averaged.safetensors (with --ema or --swa), history.jsonl (one line an epoch), history.csv (the same for
spreadsheets), config.json (all settings), tokenizer.json (of a text by --tokenizer), summary.json (how it ended, and on which machine) and checkpoints; .kiln.lock is
there while the run goes on, and keeps others out. Ctrl-C finishes the step, or gives it up when that takes more than 2 s,
saves last.safetensors and a checkpoint and ends with code 130; a second Ctrl-C ends at once. The same seed gives the same
weights, bit for bit, on any number of threads.

In a terminal a live view shows curves, speed and the machine, with keys to stop, to save a checkpoint and to change the
learning rate (? lists them); journal.jsonl in the folder notes what was asked. Elsewhere, and with --plain, there is a line
every --log-every batches.

A run that was stopped or killed goes on with --resume, from the middle of an epoch too, and ends with the weights that it
would have had: `kiln verify-resume` shows it. Only its length, its device and what results do not depend on can change.

A file of settings (--config) has the names of the flags, in tables; those of the command line go before it:
  model = \"lenet\"      epochs, batch, valid_batch, clip_norm, accumulate, precision, init_from, lora, freeze, recompute, recompute_activations,
                         log_grad_norm, ema, swa, overfit_batches, patience, max_steps, nan, skip_nan, twin, seed, workers,
                         data_on_device, no_capture, out, tensorboard, report, log_every
  [data]               path, format, target, tokenizer, image_size, synthetic, skip_bad
  [optimizer]          name, lr, schedule, lr_for, decay_for, and the options of the optimizer: momentum, betas = [0.5, 0.999], eps, …
  [phases.NAME]        every; [phases.NAME.optimizer] as [optimizer], for one update of a step that has several
  [device]             name, threads, memory, exact
  [checkpoint]         steps, minutes, keep";

#[derive(Debug, Args)]
#[command(after_help = TRAIN_EXAMPLES)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Continue the run in this folder from its newest checkpoint, to the same bits as if it had never stopped
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "out", "file", "set"])]
    pub(crate) resume: Option<PathBuf>,

    /// One update on one batch and one batch of validation, to see whether everything works; nothing is saved
    #[arg(long, conflicts_with_all = ["resume", "out", "max_steps"])]
    pub(crate) fast_dev_run: bool,

    /// One JSON object per line on standard output: `start`, one `epoch` for each, `end`
    #[arg(long)]
    pub(crate) json: bool,

    /// Lines in a terminal too, in the place of the live view
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln verify-resume mnist-cnn
  kiln verify-resume resnet18 --synthetic 200 --batch 4 --steps 100 --runs 5
  kiln verify-resume --config run.toml --steps 50 --kills 3
  kiln verify-resume mnist-cnn --steps 400 --kills 200 --during-save

Takes the settings of `kiln train` and trains with them for --steps updates: once without a stop, then in processes that are
killed (SIGKILL) at random steps and resumed. Weights, state of the optimizer and history must be equal bit for bit, times
left out. Exit code 0: all equal, 1: a run differs or failed.")]
pub(crate) struct VerifyResumeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Updates of a run
    #[arg(long, value_name = "N", default_value = "20", conflicts_with = "max_steps")]
    pub(crate) steps: Small,

    /// Runs that are killed and resumed
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) runs: Small,

    /// Times that each of them is killed
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) kills: Small,

    /// Kill them while they write a checkpoint
    #[arg(long)]
    pub(crate) during_save: bool,

    /// One JSON object per line on standard output: one `run` for each, `end`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln sweep mnist-cnn --over optimizer.lr=1e-3,3e-3,1e-2 --over batch=32,64
  kiln sweep mnist-cnn --epochs 2 --over optimizer.lr=1e-4..1e-1 --over optimizer.name=sgd,adam --random 20
  kiln sweep --config run.toml --over seed=0,1,2,3,4

Takes the settings of `kiln train`; every run is one of its own, in a folder of --out (runs/sweep-MODEL), one after the other or --jobs
at the same time. Ctrl-C ends them all.
A sweep that was stopped goes on with the same command line. The table, best run first, is also saved as sweep.csv.
Exit code 1: a run failed.")]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Setting to vary: KEY=A,B,C, or with --random KEY=LOW..HIGH (by its logarithm above 0); may be repeated
    #[arg(long, value_name = "KEY=VALUES", required = true)]
    pub(crate) over: Vec<String>,

    /// N random combinations instead of all
    #[arg(long, value_name = "N")]
    pub(crate) random: Option<Small>,

    /// Runs at the same time, which share the cores unless --threads says otherwise; results do not depend on it
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) jobs: Whole<1, 256>,

    /// Seed of the random combinations
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) draw_seed: u64,

    /// One JSON object per run on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln replay runs/mnist-cnn-0/capsule-000000120.json
  kiln replay runs/mnist-cnn-0/capsule-000000120 --all --json | jq .verdict

A run that meets a NaN or an infinity writes a capsule into its folder: the batch, the weights before the step and the random
counters. The replay runs forward and backward of that batch on the CPU, once in the precision of the run and once in f64, and
shows smallest and largest value of the ops around the first bad one, and the share of values that are NaN or infinite.
The capsule of a twin check (kiln train --twin) compares the device with the CPU again.
Exit codes: 0 f64 stays finite, so that f32 or half precision is at fault; 3 f64 is not finite either; 1 failed. After a twin
check: 0 the device agrees this time, 3 it differs again.")]
pub(crate) struct ReplayArgs {
    /// The capsule, capsule-STEP.json
    #[arg(value_name = "CAPSULE")]
    pub(crate) capsule: PathBuf,

    /// Rows before and after the first bad op
    #[arg(long, value_name = "N", default_value = "5", conflicts_with = "all")]
    pub(crate) rows: Small,

    /// Show all ops
    #[arg(long)]
    pub(crate) all: bool,

    /// Model of the run [default: read from the capsule]
    #[arg(long, value_parser = model(), value_name = "MODEL")]
    pub(crate) model: Option<Model>,

    /// Seed of the run, which random layers draw by [default: that of config.json beside the capsule]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,

    /// Device to compare with the CPU, for the capsule of a twin check [default: that of the run, if it is there]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceChoice>,

    /// Threads to compute on [default: all cores]; results do not depend on it
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<Whole<1, 1024>>,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln report runs/mnist-cnn-0              then open runs/mnist-cnn-0/report.html
  kiln report runs/mnist-cnn-0 --brief -o /tmp/a.html
  kiln train mnist-cnn --report             the same at the end of the run

One file, report.html in the folder of the run: curves of losses, metrics, learning rate and throughput, a table of the
epochs, settings, machine and warnings. For images the best weights are measured on the data held back, which has to be
where it was: the confusion matrix, and the samples that were taken for another class with the largest loss. The time by
layer is that of a few steps on this machine, as in `kiln profile`. The file needs no network and no scripts.")]
pub(crate) struct ReportArgs {
    /// Folder of a run
    #[arg(value_name = "RUN_FOLDER")]
    pub(crate) run: PathBuf,

    /// File to write [default: report.html in the folder of the run]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Compute nothing: only what the run has recorded
    #[arg(long)]
    pub(crate) brief: bool,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln diff runs/mnist-cnn-0 runs/mnist-cnn-1
  kiln diff runs/a runs/b --json | jq .settings

The best epochs are marked with *. Losses and accuracies are those of the validation set.")]
pub(crate) struct DiffArgs {
    /// Folder of a run
    #[arg(value_name = "RUN_A")]
    pub(crate) a: PathBuf,

    /// Folder of another run
    #[arg(value_name = "RUN_B")]
    pub(crate) b: PathBuf,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln average runs/mnist-cnn-0 runs/mnist-cnn-1 runs/mnist-cnn-2 --out soup.safetensors
  kiln eval -w soup.safetensors

The files must be of one model. Counters are those of the first file. Running statistics are averaged as parameters are.")]
pub(crate) struct AverageArgs {
    /// Weights files, or folders of runs for their best weights
    #[arg(value_name = "FILE|RUN", required = true, num_args = 2..)]
    pub(crate) weights: Vec<PathBuf>,

    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln tokenize books/*.txt.gz --tokenizer bpe:8192 --out books.tokens
  kiln train gpt-mini --data books.tokens

Texts are UTF-8, plain or .gz, and follow each other with <|endoftext|> between. Of a text there are a few MiB in memory at a time. The last
tenth of the characters is held back, and no tokenizer learns from it.")]
pub(crate) struct TokenizeArgs {
    /// Texts, in order
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Tokens: bpe:N or wordpiece:N, learned from the texts, or a tokenizer.json
    #[arg(long, value_name = "TOKENS")]
    pub(crate) tokenizer: TokenizerChoice,

    /// Folder to write
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
