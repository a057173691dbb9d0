//! A learning rate that falls when a metric stops improving.

use super::{check, check_positive};
use crate::Result;

/// Multiplies the learning rate by `factor` when the metric has not improved for more than `patience` observations
/// (`torch.optim.lr_scheduler.ReduceLROnPlateau`, with its defaults).
///
/// ```
/// use kiln_nn::optim::ReduceOnPlateau;
/// let mut plateau = ReduceOnPlateau { factor: 0.5, patience: 1, ..Default::default() };
/// let mut lr = 0.1;
/// for loss in [2.0, 1.0, 1.0, 1.0] {
///     lr = plateau.observe(loss, lr)?;
/// }
/// assert_eq!(lr, 0.05);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ReduceOnPlateau {
    /// The rate is multiplied by this.
    pub factor: f64,
    /// How many observations without improvement are let pass.
    pub patience: u64,
    /// The least improvement: a share of the best value, or with `absolute` a difference from it.
    pub threshold: f64,
    /// True if the threshold is a difference rather than a share.
    pub absolute: bool,
    /// True if larger is better (accuracy) rather than smaller (loss).
    pub maximize: bool,
    /// Observations after a change during which none counts as bad.
    pub cooldown: u64,
    /// The rate never falls below this.
    pub min_lr: f64,
    /// The metrics so far, which are saved and restored with a checkpoint.
    pub state: PlateauState,
}

/// The state of a [`ReduceOnPlateau`]: a summary of the metrics so far.
///
/// ```
/// use kiln_nn::optim::{PlateauState, ReduceOnPlateau};
/// let mut plateau = ReduceOnPlateau::default();
/// plateau.observe(2.0, 0.1)?;
/// assert_eq!(plateau.state, PlateauState { best: Some(2.0), bad: 0, cooling: 0 });
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlateauState {
    /// The best value so far.
    pub best: Option<f64>,
    /// Observations since without improvement.
    pub bad: u64,
    /// The number of metrics left in the cooldown.
    pub cooling: u64,
}

impl Default for ReduceOnPlateau {
    fn default() -> Self {
        ReduceOnPlateau {
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            absolute: false,
            maximize: false,
            cooldown: 0,
            min_lr: 0.0,
            state: PlateauState::default(),
        }
    }
}

impl ReduceOnPlateau {
    /// Takes a metric and the present rate; returns the rate from here on. NaN is no improvement.
    ///
    /// See the example of [`ReduceOnPlateau`].
    ///
    /// # Errors
    /// A factor outside `0 ≤ factor < 1`, a negative threshold or rate.
    pub fn observe(&mut self, metric: f64, lr: f64) -> Result<f64> {
        const OP: &str = "reduce_on_plateau";
        check(
            OP,
            "factor",
            self.factor,
            (0.0..1.0).contains(&self.factor),
            "0 ≤ factor < 1",
        )?;
        check_positive(OP, "threshold", self.threshold)?;
        check_positive(OP, "min_lr", self.min_lr)?;
        if self.improves(metric) {
            self.state.best = Some(metric);
            self.state.bad = 0;
        } else {
            self.state.bad += 1;
        }
        if self.state.cooling > 0 {
            self.state.cooling -= 1;
            self.state.bad = 0;
        }
        if self.state.bad <= self.patience {
            return Ok(lr);
        }
        (self.state.bad, self.state.cooling) = (0, self.cooldown);
        let lower = (lr * self.factor).max(self.min_lr);
        // PyTorch's eps: smaller changes are not made.
        Ok(if lr - lower > 1e-8 { lower } else { lr })
    }

    fn improves(&self, metric: f64) -> bool {
        let Some(best) = self.state.best else {
            return !metric.is_nan();
        };
        let sign = if self.maximize { 1.0 } else { -1.0 };
        let mark = if self.absolute {
            best + sign * self.threshold
        } else {
            best * (1.0 + sign * self.threshold)
        };
        if self.maximize { metric > mark } else { metric < mark }
    }
}
