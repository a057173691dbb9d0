//! The settings of a training run, as flags and as the tables of a file.

use super::common::{DataArgs, DeviceArgs, model};
use super::lora::Lora;
use super::names::{GradNormKind, Names};
use super::non_finite::OnNan;
use super::optimizer::OptimizerConfig;
use super::placement::Placement;
use super::precision::Precision;
use super::twin::Every;
use super::values::{Count, Factor, Positive, Share, Small, Whole};
use clap::Args;
use kiln_models::Model;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The settings of a run; those that are `None` are left to a default.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunConfig {
    /// The model's name
    #[arg(value_parser = model())]
    pub(crate) model: Option<Model>,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// Passes over the training data [default: that of the model's recipe, like others below; see `kiln models`]
    #[arg(long, value_name = "N")]
    pub(crate) epochs: Option<Count>,

    /// Samples of a batch [default: that of the model]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<Small>,

    /// Samples of a batch in validation [default: 100, of text 1, and no less than --batch]; its results differ by rounding alone
    #[arg(long, value_name = "N")]
    pub(crate) valid_batch: Option<Small>,

    #[command(flatten)]
    pub(crate) optimizer: OptimizerConfig,

    /// The settings of single updates of a step that has several, by their names; they go before those of `optimizer`.
    #[arg(skip)]
    pub(crate) phases: BTreeMap<String, PhaseConfig>,

    /// Clip the norm of all gradients to this [default: that of the model]
    #[arg(long, value_name = "NORM", allow_negative_numbers = true)]
    pub(crate) clip_norm: Option<Positive>,

    /// Batches whose gradients are averaged for one update [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) accumulate: Option<Small>,

    /// Precision of products and convolutions; weights stay in f32 [default: f32]
    #[arg(long, value_name = "PRECISION", value_enum)]
    pub(crate) precision: Option<Precision>,

    /// Start from these weights instead of random ones: a weights file or the folder of a run, whose text has the characters or tokens. Of
    /// another model, or of PyTorch's (.safetensors), those are taken whose names and shapes the model has; heads for other classes of images
    /// are not
    #[arg(long = "init-from", value_name = "PATH")]
    pub(crate) init_from: Option<PathBuf>,

    /// Train low-rank additions to the linear layers alone (LoRA), from --init-from: their rank r, alpha (r by default), dropout
    /// (0) and the layers by patterns of names (all linear ones), such as r=8,alpha=16,modules=c_attn. The run saves the additions alone,
    /// which need those weights where they are
    #[arg(long, value_name = "r=N[,alpha=X][,dropout=P][,modules=PATTERN]")]
    pub(crate) lora: Option<Lora>,

    /// Do not train the parameters that this pattern of dotted names matches, such as 'layer1' (all in it), 'bn?', '*.bias'; may be
    /// repeated. Names: see `kiln summary`. Running statistics of batch norms go on moving
    #[arg(long, value_name = "PATTERN")]
    pub(crate) freeze: Option<Vec<Names>>,

    /// Compute the layers that this pattern of names matches again in the backward pass instead of keeping what they compute
    /// (activation checkpointing), such as 'h.*' or 'layer?.*': less memory, more time, the same results; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) recompute: Option<Vec<Names>>,

    /// Compute norms and activations again in the backward pass that products read, instead of keeping them: less memory, a little more
    /// time, the same results
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub(crate) recompute_activations: Option<bool>,

    /// Measure the norm of all gradients in every step, before clipping; report its mean and its largest value. With =layers
    /// also the mean of each layer
    #[arg(long, value_name = "OF", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "total")]
    pub(crate) log_grad_norm: Option<GradNormKind>,

    /// Average the weights over the steps, exponentially with this decay, such as 0.999; validate and save the averages
    #[arg(long, value_name = "DECAY", allow_negative_numbers = true)]
    pub(crate) ema: Option<Share>,

    /// Average the weights after each epoch from this one on (stochastic weight averaging); validate and save the averages
    #[arg(long, value_name = "EPOCH", conflicts_with = "ema")]
    pub(crate) swa: Option<Count>,

    /// Compute the running statistics of batch norms anew for averaged weights, by a pass over the training data before each
    /// validation [default: true with --swa, false with --ema]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(crate) update_bn: Option<bool>,

    /// Train on the first N batches alone, measure on them too and change no image: a net that works learns them by heart
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub(crate) overfit_batches: Option<Small>,

    /// End after N epochs without a better validation accuracy (of text: loss)
    #[arg(long, value_name = "N")]
    pub(crate) patience: Option<Count>,

    /// End after N updates, even within an epoch; the weights are evaluated and saved as after a whole epoch
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<Count>,

    /// On a NaN or infinity: stop and name the layer and op; skip the step, for which every step is checked; or go back to before
    /// it and leave it out, for which losses are checked when they are read [default: stop]
    #[arg(long, value_name = "stop|skip|rollback", value_enum, hide_possible_values = true)]
    pub(crate) nan: Option<OnNan>,

    /// Steps in a row that --nan skip and rollback may leave out [default: 10]; alone it stands for --nan skip
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10")]
    pub(crate) skip_nan: Option<Whole<0>>,

    /// Multiply the learning rate by this, from then on, each time that --nan rollback goes back, such as 0.5 [default: 1]
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    pub(crate) nan_lr: Option<Factor>,

    /// Compare the ops of a step with the CPU's, from the same inputs, before every N-th step; end with an error that names the first
    /// that differs by more than rounding explains, or with ,warn name each such op in a warning and go on
    #[arg(long, value_name = "every=N[,warn]")]
    pub(crate) twin: Option<Every>,

    /// Seed of initial weights, order of the samples and augmentation [default: 0]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,

    /// Threads that prepare batches ahead [default: that of the model]; results do not depend on it
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<Whole<0, 256>>,

    /// Where the images lie, on the device as bytes or on the host; same results [default: auto]
    #[arg(long, value_name = "WHERE", value_enum)]
    pub(crate) data_on_device: Option<Placement>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Launch every kernel of every step separately instead of replaying a recorded step (GPU); same results
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub(crate) no_capture: Option<bool>,

    #[command(flatten)]
    pub(crate) checkpoint: CheckpointConfig,

    /// Folder of the run, new or empty [default: runs/MODEL-SEED, with a number if that exists]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Write event files for TensorBoard into the folder of the run: losses, metrics, learning rate, weights, settings
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub(crate) tensorboard: Option<bool>,

    /// Make a page of the run at its end, report.html in its folder; see `kiln report`
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub(crate) report: Option<bool>,

    /// Batches between two reports of the loss [default: 100]
    #[arg(long, value_name = "N")]
    pub(crate) log_every: Option<Small>,
}

/// `[phases.NAME]`: how often an update is made, and its optimizer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PhaseConfig {
    /// The update is made in each `every`-th step.
    pub(crate) every: Option<Count>,
    pub(crate) optimizer: OptimizerConfig,
}

/// `[checkpoint]`: the checkpoints that a run can be resumed from.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CheckpointConfig {
    /// Updates between two checkpoints, beside those after each epoch [default: only by time]
    #[arg(id = "checkpoint_steps", long = "checkpoint-steps", value_name = "N")]
    pub(crate) steps: Option<Count>,

    /// Minutes between two checkpoints [default: 10]
    #[arg(
        id = "checkpoint_minutes",
        long = "checkpoint-minutes",
        value_name = "M",
        allow_negative_numbers = true
    )]
    pub(crate) minutes: Option<Positive>,

    /// Checkpoints that are kept, the newest [default: 2]
    #[arg(id = "keep_checkpoints", long = "keep-checkpoints", value_name = "K")]
    pub(crate) keep: Option<Small>,
}

/// The settings of a run on a command line: flags, then `--set`, then a file.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    pub(crate) flags: RunConfig,

    /// File of settings: TOML, or the config.json of a run. Flags and --set go before it
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// One setting by its key in such a file, such as optimizer.lr=3e-4; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}
