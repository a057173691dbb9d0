//! The options of averaging weights over the steps of a run.

use crate::{Result, TrainError};
use kiln_core::Backend;
use kiln_nn::Module;
use kiln_nn::optim::AveragedModel;

/// An average of the weights over the steps of a run ([`AveragedModel`]), parameters and float buffers alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Average {
    /// The exponential moving average: `average ← decay·average + (1 − decay)·weights` after every step.
    Ema {
        /// The decay, from 0 to 1, such as 0.999.
        decay: f64,
    },
    /// The equal mean of stochastic weight averaging (Izmailov and others 2018). Its learning rate is that of the schedule. The running
    /// statistics of batch norms are computed anew before each validation: [`TrainOptions::update_bn`](crate::TrainOptions::update_bn).
    Swa {
        /// The number of steps before the first that is averaged.
        from: u64,
        /// The number of steps between two that are averaged, such as the number of steps of an epoch.
        every: u64,
    },
}

impl Average {
    /// True if the weights after `step` steps are averaged.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        match *self {
            Average::Ema { .. } => true,
            Average::Swa { from, every } => step > from && (step - from - 1).is_multiple_of(every),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match *self {
            Average::Ema { decay } if !(0.0..=1.0).contains(&decay) => {
                Err(TrainError::invalid("average.decay", decay, "a number from 0 to 1"))
            }
            Average::Swa { every: 0, .. } => Err(TrainError::invalid("average.every", 0, "at least 1")),
            _ => Ok(()),
        }
    }

    /// The average as it starts.
    pub(crate) fn begin<B: Backend, M: Module<B>>(&self, model: &M) -> kiln_core::Result<AveragedModel<B>> {
        let average = match *self {
            Average::Ema { decay } => AveragedModel::ema(model, decay)?,
            Average::Swa { .. } => AveragedModel::swa(model)?,
        };
        Ok(average.use_buffers())
    }
}

impl std::fmt::Display for Average {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Average::Ema { decay } => write!(f, "ema {decay}"),
            Average::Swa { from, every } => write!(f, "swa from {from} every {every}"),
        }
    }
}
