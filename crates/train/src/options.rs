//! The options of a run.

use crate::{Monitor, Result, TrainError};

/// The bound that keeps gradients small.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clip {
    /// Scales the gradients of the model's parameters so that their common 2-norm is at most this
    /// (`torch.nn.utils.clip_grad_norm_`).
    Norm(f64),
    /// Bounds each of their entries to this distance from 0 (`torch.nn.utils.clip_grad_value_`).
    Value(f64),
}

/// The answer to a loss or a gradient that is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonFinite {
    /// End the run with an error that names the step. The loss of every step is kept, and looked at when losses are read,
    /// every [`TrainOptions::log_every`] batches; up to so many steps follow the bad one, and nothing is saved in between.
    Stop,
    /// Leave the model as it was before the step, running statistics and counters included, and go on with the next
    /// batch; more than `in_a_row` such steps one after the other end the run. Loss and gradients are looked at before
    /// every update, which waits for the device each time: such steps are not captured.
    Skip {
        /// Steps in a row that may be skipped.
        in_a_row: u64,
    },
}

/// The options of a run. The default trains for one epoch and does nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainOptions {
    /// Passes over the training data.
    pub epochs: u64,
    /// Batches whose gradients are averaged, weighted by their samples, for one update: as if they had been one
    /// batch. The last update of an epoch takes what is left. They are taken one at a time, and their samples dropped, unless
    /// the step is captured; a step of more than 16 batches is not.
    pub accumulate: usize,
    /// The bound that keeps gradients small.
    pub clip: Option<Clip>,
    /// Batches between two reads of the loss.
    pub log_every: usize,
    /// The answer to NaN.
    pub non_finite: NonFinite,
    /// The metric that decides which weights are best.
    pub monitor: Monitor,
    /// Ends the run after this many epochs without improvement.
    pub patience: Option<u64>,
    /// Ends the run after this many updates, those skipped included. The epoch in progress ends with it, and is measured
    /// and saved as a whole one is.
    pub max_steps: Option<u64>,
    /// Lets a backend that can record a step do so and replay it: the same results, bit for bit, in one launch a step. The
    /// first batch of a shape runs op by op, the second is recorded, the others are replayed; the first two shapes that
    /// come again are kept (whole batches, and the short one that ends an epoch), any other runs op by op. See
    /// [`Trainer::fit`](crate::Trainer::fit) for what the closure must not do then.
    ///
    /// With [`NonFinite::Skip`] all steps run op by op.
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
            monitor: Monitor::default(),
            patience: None,
            max_steps: None,
            capture: true,
        }
    }
}

impl TrainOptions {
    /// True if steps may be skipped, which takes a look at their gradients.
    pub(crate) fn skips(&self) -> bool {
        matches!(self.non_finite, NonFinite::Skip { .. })
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
