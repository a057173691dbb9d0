//! The options of a run.

use crate::{Average, GradNorm, Monitor, Result, TrainError};
use kiln_nn::module::NamePattern;
use kiln_nn::{DType, autocast};
use std::time::Duration;

/// The kind of gradient clipping, with its bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clip {
    /// Scales the gradients of the model's parameters so that their joint 2-norm is at most this
    /// (`torch.nn.utils.clip_grad_norm_`).
    Norm(f64),
    /// Clamps each entry of the gradients to ± this value (`torch.nn.utils.clip_grad_value_`).
    Value(f64),
}

/// The policy for a loss or a gradient that is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NonFinite {
    /// End the run with an error that names the step. The losses of all steps are checked when they are read, every
    /// [`TrainOptions::log_every`] batches; up to that many steps follow the bad one, and nothing is saved in between.
    Stop,
    /// Leave the model and the optimizer as they were before the step, running statistics and counters included, and go on with
    /// the next batch. The device decides so, and nothing is read back within a step, which can be captured. Skipped steps are
    /// counted when losses are read: on the CPU, and where weights are averaged, after each step. More than `in_a_row` of them in
    /// succession end the run then. The learning rate follows its schedule as if they had been made. Warnings explain
    /// the first four, and later ones with a new cause ([`Warning::Skipped`](crate::Warning::Skipped)).
    Skip {
        /// The number of consecutive steps that may be skipped.
        in_a_row: u64,
    },
    /// Go back to the state before the first bad step, leave its batches out, and go on with the next batch. Losses are read as with
    /// [`Stop`](NonFinite::Stop), so steps may be captured, and a run without a bad step pays nothing. It takes
    /// [`TrainOptions::find_non_finite`]: the steps since the state that was kept last are made again. More than `in_a_row` such
    /// steps in succession end the run. With a factor of 1 the result is that of [`Skip`](NonFinite::Skip), bit for bit, except that of
    /// several phases all leave the step out.
    Rollback {
        /// The number of consecutive steps that may be left out.
        in_a_row: u64,
        /// The factor that every learning rate is multiplied by each time, also those of schedules: 1 to keep them.
        lr_factor: f64,
    },
}

/// When a run with a folder writes checkpoints: beside these, after each epoch and when it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoints {
    /// The number of steps between two checkpoints; `None` for none because of steps.
    pub every_steps: Option<u64>,
    /// The time between two checkpoints; `None` for none because of time.
    pub every: Option<Duration>,
    /// The number of checkpoints that are kept.
    pub keep: usize,
}

impl Default for Checkpoints {
    /// One every ten minutes, of which the last two are kept.
    fn default() -> Self {
        Checkpoints {
            every_steps: None,
            every: Some(Duration::from_secs(600)),
            keep: 2,
        }
    }
}

/// The options of a run. The default trains for one epoch, without clipping, accumulation or early stopping.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainOptions {
    /// The number of passes over the training data.
    pub epochs: u64,
    /// The number of batches whose gradients are averaged for one update, weighted by their samples, as if they were one
    /// batch. The last update of an epoch takes the batches that are left. Batches are copied to the device and freed one at
    /// a time, unless the step is captured; a step of more than 16 batches is not captured.
    pub accumulate: usize,
    /// The gradient clipping; `None` for none.
    pub clip: Option<Clip>,
    /// The number of batches between two reads of the loss.
    pub log_every: usize,
    /// The policy for a loss or gradient that is NaN or infinite.
    pub non_finite: NonFinite,
    /// True to find the first layer and op with a value that is NaN or infinite when a loss is. From time to time the state of the
    /// run (model, optimizer, metrics) is copied to the memory of the host, for at most a hundredth of the time; from the last
    /// copy on the steps are made again, op by op, and the bad one is watched. False saves that memory; errors then name the step alone.
    pub find_non_finite: bool,
    /// The metric that decides which weights are best.
    pub monitor: Monitor,
    /// The number of epochs without improvement after which the run ends; `None` to train all epochs.
    pub patience: Option<u64>,
    /// The number of updates, skipped ones included, after which the run ends; the epoch in progress then ends early, and is
    /// validated and saved like a whole one.
    pub max_steps: Option<u64>,
    /// The average of the weights over the steps; `None` for none. The averaged weights are validated, they are the best weights
    /// that are saved, and after each epoch they are saved as
    /// [`RunFolder::AVERAGED`](crate::RunFolder::AVERAGED). The model and the last weights are not averaged.
    pub average: Option<Average>,
    /// True if the running statistics of batch norms are computed anew for the averaged weights, by a pass over the training data before
    /// each validation ([`update_bn`](crate::update_bn())); without it they are averaged as the weights are. `None`, the default, does so
    /// for [`Average::Swa`](crate::Average::Swa). A model without batch norms takes no pass.
    pub update_bn: Option<bool>,
    /// The dtype of mixed precision, bf16 or f16: steps and validation run inside of [`autocast`](kiln_nn::autocast), with weights,
    /// gradients and the optimizer in f32. `None` to compute in the precision of the model.
    ///
    /// With f16 losses are scaled by a [`GradScaler`](kiln_nn::optim::GradScaler) for each phase, and a step whose gradient overflows
    /// is skipped as by [`NonFinite::Skip`]; 32 of them in succession, which find a scale from 2¹⁶ to 2⁻¹⁶, do not end the run.
    pub autocast: Option<DType>,
    /// Patterns of the dotted names of parameters that are not trained: the start of the run freezes them
    /// ([`Module::set_trainable`](kiln_nn::Module::set_trainable)), and they stay frozen. As in PyTorch, running statistics of a batch
    /// norm whose parameters are frozen go on moving.
    pub freeze: Vec<NamePattern>,
    /// Patterns of the dotted names of layers with activation checkpointing: the backward pass computes them again instead of keeping
    /// what they compute, which saves memory and changes no result
    /// ([`checkpoint_layers`](kiln_nn::autograd::checkpoint_layers)). The run warns of layers that run and cannot be computed again
    /// ([`Warning::NotRecomputed`](crate::Warning::NotRecomputed)).
    pub recompute: Vec<NamePattern>,
    /// True to compute norms and activations again in the backward pass that products and convolutions read, and the blocks of residual
    /// networks with them, instead of keeping them: less memory, a little more time, the same results ([`recompute_activations`](kiln_nn::autograd::recompute_activations)).
    pub recompute_activations: bool,
    /// The norms of gradients that are measured.
    pub grad_norm: GradNorm,
    /// The checkpoints in the folder of the run; `None` for none.
    pub checkpoints: Option<Checkpoints>,
    /// True to let a backend that can record a step replay it, with bit-identical results, in one launch per step. The
    /// first batch of a shape runs op by op, the second is recorded, the others are replayed. The first two shapes that
    /// occur twice are recorded (whole batches, and the short one that ends an epoch); any other shape runs op by op. See
    /// [`Trainer::fit`](crate::Trainer::fit) for the restrictions on the closure.
    pub capture: bool,
}

impl Default for TrainOptions {
    fn default() -> Self {
        TrainOptions {
            epochs: 1,
            accumulate: 1,
            clip: None,
            log_every: 50,
            non_finite: NonFinite::Stop,
            find_non_finite: true,
            monitor: Monitor::default(),
            patience: None,
            max_steps: None,
            average: None,
            update_bn: None,
            autocast: None,
            freeze: Vec::new(),
            recompute: Vec::new(),
            recompute_activations: false,
            grad_norm: GradNorm::Off,
            checkpoints: Some(Checkpoints::default()),
            capture: true,
        }
    }
}

impl TrainOptions {
    /// True if the device decides whether an update is made.
    pub(crate) fn decides(&self) -> bool {
        self.skips() || self.scales()
    }

    /// True if steps are skipped whose loss or gradient is not finite.
    pub(crate) fn skips(&self) -> bool {
        matches!(self.non_finite, NonFinite::Skip { .. })
    }

    /// True if losses are scaled.
    pub(crate) fn scales(&self) -> bool {
        self.autocast == Some(DType::F16)
    }

    /// Runs `f` in the precision of steps.
    pub(crate) fn in_precision<R>(&self, f: impl FnOnce() -> kiln_core::Result<R>) -> kiln_core::Result<R> {
        match self.autocast {
            Some(dtype) => autocast(dtype, f),
            None => f(),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let positive = |name, value: u64| match value {
            0 => Err(TrainError::invalid(name, 0, "at least 1")),
            _ => Ok(()),
        };
        positive("epochs", self.epochs)?;
        positive("accumulate", self.accumulate as u64)?;
        positive("log_every", self.log_every as u64)?;
        positive("patience", self.patience.unwrap_or(1))?;
        positive("max_steps", self.max_steps.unwrap_or(1))?;
        if let Some(checkpoints) = self.checkpoints {
            positive("checkpoints.every_steps", checkpoints.every_steps.unwrap_or(1))?;
            positive("checkpoints.keep", checkpoints.keep as u64)?;
        }
        if let NonFinite::Rollback { lr_factor, .. } = self.non_finite {
            if !(lr_factor > 0.0 && lr_factor <= 1.0) {
                return Err(TrainError::invalid(
                    "lr_factor",
                    lr_factor,
                    "a number above 0 and at most 1",
                ));
            }
            if !self.find_non_finite {
                return Err(TrainError::invalid("find_non_finite", false, "true, for going back"));
            }
        }
        self.average.map_or(Ok(()), |average| average.check())?;
        if let Some(dtype) = self.autocast
            && !matches!(dtype, DType::BF16 | DType::F16)
        {
            return Err(TrainError::invalid("autocast", dtype, "bf16 or f16"));
        }
        if let Some(Clip::Norm(limit) | Clip::Value(limit)) = self.clip
            && !(limit.is_finite() && limit > 0.0)
        {
            return Err(TrainError::invalid("clip", limit, "a finite number above 0"));
        }
        if self.monitor.min_delta.is_nan() || self.monitor.min_delta < 0.0 {
            return Err(TrainError::invalid(
                "min_delta",
                self.monitor.min_delta,
                "a number of 0 or more",
            ));
        }
        Ok(())
    }
}
