//! Learning rates over time.

use super::{Optimizer, check, check_positive};
use crate::{Backend, Result};
use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// A learning rate as a pure function of the step (or the epoch: whichever the caller counts), from 0. Formulas are
/// those of `torch.optim.lr_scheduler`; resuming needs nothing but the count.
///
/// ```
/// use kiln_nn::optim::Schedule;
/// let schedule = Schedule::Step { lr: 0.1, every: 30, gamma: 0.5 };
/// assert_eq!((schedule.lr(0), schedule.lr(29), schedule.lr(30)), (0.1, 0.1, 0.05));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// The same rate for ever.
    Constant {
        /// The rate.
        lr: f64,
    },
    /// Times `gamma` every so many steps (`StepLR`).
    Step {
        /// The first rate.
        lr: f64,
        /// Steps between changes.
        every: u64,
        /// The factor.
        gamma: f64,
    },
    /// Times `gamma` at each milestone (`MultiStepLR`).
    MultiStep {
        /// The first rate.
        lr: f64,
        /// The steps at which the rate changes.
        milestones: Vec<u64>,
        /// The factor.
        gamma: f64,
    },
    /// Times `gamma` at each step (`ExponentialLR`).
    Exponential {
        /// The first rate.
        lr: f64,
        /// The factor.
        gamma: f64,
    },
    /// `lr` times a power of the share of `steps` that are left, and 0 after (`PolynomialLR`).
    Polynomial {
        /// The first rate.
        lr: f64,
        /// Steps to 0.
        steps: u64,
        /// The exponent; 1, a straight line, in PyTorch.
        power: f64,
    },
    /// A function of the step: see [`Schedule::function`].
    Function(Function),
    /// Half a cosine from `lr` to `min` (`CosineAnnealingLR`; Loshchilov and Hutter 2017). It comes up again after.
    Cosine {
        /// The first rate.
        lr: f64,
        /// The last rate.
        min: f64,
        /// Steps from one to the other.
        steps: u64,
    },
    /// Half cosines, one after the other (`CosineAnnealingWarmRestarts`).
    CosineRestarts {
        /// The rate each begins with.
        lr: f64,
        /// The rate each ends with.
        min: f64,
        /// Steps of the first.
        steps: u64,
        /// How many times longer each is than the one before.
        factor: u64,
    },
    /// Up to `max` and down again, by half cosines (`OneCycleLR`; Smith and Topin 2018). The last rate holds after.
    OneCycle {
        /// The largest rate.
        max: f64,
        /// Steps in all.
        steps: u64,
        /// The share of the steps on the way up; 0.3 in PyTorch.
        up: f64,
        /// The first rate is `max` divided by this; 25 in PyTorch.
        start_divisor: f64,
        /// The last rate is the first divided by this; 10⁴ in PyTorch.
        end_divisor: f64,
    },
    /// Linear from `start` times the first rate of another schedule, which then follows (`LinearLR` before another in
    /// `SequentialLR`).
    Warmup {
        /// The first factor.
        start: f64,
        /// Steps of the warm-up.
        steps: u64,
        /// The schedule that follows, counting from its own 0.
        then: Box<Schedule>,
    },
}

/// A closure as a schedule: see [`Schedule::function`]. Equal to its clones alone.
#[derive(Clone)]
pub struct Function(Arc<dyn Fn(u64) -> f64 + Send + Sync>);

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Schedule {
    /// The rate that `f` gives for a step counted from 0 (`LambdaLR`, whose function gives a factor of the first rate).
    ///
    /// ```
    /// use kiln_nn::optim::Schedule;
    /// let schedule = Schedule::function(|step| 0.1 / (1.0 + step as f64).sqrt());
    /// assert_eq!((schedule.lr(0), schedule.lr(3)), (0.1, 0.05));
    /// ```
    pub fn function(f: impl Fn(u64) -> f64 + Send + Sync + 'static) -> Self {
        Schedule::Function(Function(Arc::new(f)))
    }

    /// `OneCycle` with PyTorch's defaults.
    ///
    /// ```
    /// use kiln_nn::optim::Schedule;
    /// let schedule = Schedule::one_cycle(0.1, 100);
    /// assert_eq!(schedule.lr(29), 0.1); // the largest rate, after 30 % of the steps
    /// assert!((schedule.lr(0) - 0.1 / 25.0).abs() < 1e-9);
    /// ```
    pub fn one_cycle(max: f64, steps: u64) -> Self {
        Schedule::OneCycle {
            max,
            steps,
            up: 0.3,
            start_divisor: 25.0,
            end_divisor: 1e4,
        }
    }

    /// This schedule after a linear warm-up from nothing (from `1/steps` of the rate, so that no step is wasted).
    ///
    /// ```
    /// use kiln_nn::optim::Schedule;
    /// let schedule = Schedule::Constant { lr: 1.0 }.warmed_up(4);
    /// assert_eq!([0, 1, 2, 3, 4].map(|step| schedule.lr(step)), [0.25, 0.4375, 0.625, 0.8125, 1.0]);
    /// ```
    pub fn warmed_up(self, steps: u64) -> Self {
        Schedule::Warmup {
            start: 1.0 / steps.max(1) as f64,
            steps,
            then: Box::new(self),
        }
    }

    /// Checks the parameters.
    ///
    /// ```
    /// use kiln_nn::optim::Schedule;
    /// assert!(Schedule::Constant { lr: -0.1 }.check().is_err());
    /// ```
    ///
    /// # Errors
    /// A rate or factor that is negative or not finite, a length of 0, a divisor of 0, a share outside `0..=1`.
    pub fn check(&self) -> Result<()> {
        const OP: &str = "schedule";
        let length = |n: u64| check(OP, "steps", n as f64, n > 0, "at least 1");
        match self {
            Schedule::Constant { lr } => check_positive(OP, "lr", *lr),
            Schedule::Step { lr, every, gamma } => {
                check_positive(OP, "lr", *lr)?;
                length(*every)?;
                check_positive(OP, "gamma", *gamma)
            }
            Schedule::MultiStep { lr, gamma, .. } | Schedule::Exponential { lr, gamma } => {
                check_positive(OP, "lr", *lr)?;
                check_positive(OP, "gamma", *gamma)
            }
            Schedule::Polynomial { lr, steps, power } => {
                check_positive(OP, "lr", *lr)?;
                check_positive(OP, "power", *power)?;
                length(*steps)
            }
            Schedule::Function(f) => check_positive(OP, "the rate of step 0", f.0(0)),
            Schedule::Cosine { lr, min, steps } => {
                check_positive(OP, "lr", *lr)?;
                check_positive(OP, "min", *min)?;
                length(*steps)
            }
            Schedule::CosineRestarts { lr, min, steps, factor } => {
                check_positive(OP, "lr", *lr)?;
                check_positive(OP, "min", *min)?;
                check(OP, "factor", *factor as f64, *factor > 0, "at least 1")?;
                length(*steps)
            }
            Schedule::OneCycle {
                max,
                steps,
                up,
                start_divisor,
                end_divisor,
            } => {
                check_positive(OP, "max", *max)?;
                check(OP, "up", *up, (0.0..=1.0).contains(up), "a share from 0 to 1")?;
                for d in [*start_divisor, *end_divisor] {
                    check(OP, "divisor", d, d > 0.0, "more than 0")?;
                }
                length(*steps)
            }
            Schedule::Warmup { start, steps, then } => {
                check_positive(OP, "start", *start)?;
                length(*steps)?;
                then.check()
            }
        }
    }

    /// The rate of step `step`, counted from 0.
    ///
    /// ```
    /// use kiln_nn::optim::Schedule;
    /// let schedule = Schedule::Cosine { lr: 0.1, min: 0.0, steps: 10 };
    /// assert_eq!(schedule.lr(0), 0.1);
    /// assert!((schedule.lr(5) - 0.05).abs() < 1e-9);
    /// ```
    pub fn lr(&self, step: u64) -> f64 {
        let times = |lr: f64, gamma: f64, n: u64| lr * gamma.powf(n as f64);
        match self {
            Schedule::Constant { lr } => *lr,
            Schedule::Step { lr, every, gamma } => times(*lr, *gamma, step / (*every).max(1)),
            Schedule::MultiStep { lr, milestones, gamma } => {
                let passed = milestones.iter().filter(|&&m| m <= step).count();
                times(*lr, *gamma, passed as u64)
            }
            Schedule::Exponential { lr, gamma } => times(*lr, *gamma, step),
            Schedule::Polynomial { lr, steps, power } => {
                let steps = (*steps).max(1);
                lr * (1.0 - step.min(steps) as f64 / steps as f64).powf(*power)
            }
            Schedule::Function(f) => f.0(step),
            Schedule::Cosine { lr, min, steps } => cosine(*lr, *min, step as f64 / (*steps).max(1) as f64),
            Schedule::CosineRestarts { lr, min, steps, factor } => {
                let (at, length) = restart(step, (*steps).max(1), (*factor).max(1));
                cosine(*lr, *min, at as f64 / length as f64)
            }
            Schedule::OneCycle {
                max,
                steps,
                up,
                start_divisor,
                end_divisor,
            } => {
                let first = max / start_divisor;
                let (peak, end) = (up * *steps as f64 - 1.0, steps.saturating_sub(1) as f64);
                let step = (step as f64).min(end);
                if step <= peak {
                    cosine(first, *max, if peak > 0.0 { step / peak } else { 1.0 })
                } else {
                    let share = if end > peak { (step - peak) / (end - peak) } else { 1.0 };
                    cosine(*max, first / end_divisor, share)
                }
            }
            Schedule::Warmup { start, steps, then } => match step.checked_sub(*steps) {
                Some(after) => then.lr(after),
                None => then.lr(0) * (start + (1.0 - start) * step as f64 / *steps as f64),
            },
        }
    }

    /// Sets an optimizer's rate to that of `step`.
    ///
    /// ```
    /// # use kiln_cpu::Cpu;
    /// use kiln_nn::optim::{Optimizer, Schedule, Sgd};
    /// let schedule = Schedule::Exponential { lr: 0.1, gamma: 0.5 };
    /// let mut sgd = Sgd::<Cpu>::new(0.1);
    /// schedule.apply(1, &mut sgd)?;
    /// assert_eq!(sgd.lr(), 0.05);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Schedule::check`].
    pub fn apply<B: Backend>(&self, step: u64, optimizer: &mut dyn Optimizer<B>) -> Result<()> {
        self.check()?;
        optimizer.set_lr(self.lr(step));
        Ok(())
    }
}

/// Half a cosine from `from` (at 0) to `to` (at 1).
fn cosine(from: f64, to: f64, at: f64) -> f64 {
    to + (from - to) * (1.0 + (PI * at).cos()) / 2.0
}

/// How far `step` is into its cycle, and the cycle's length, where each is `factor` times longer than the one before.
fn restart(step: u64, steps: u64, factor: u64) -> (u64, u64) {
    if factor == 1 {
        return (step % steps, steps);
    }
    let (mut at, mut length) = (step, steps);
    while at >= length {
        at -= length;
        length = length.saturating_mul(factor);
    }
    (at, length)
}
