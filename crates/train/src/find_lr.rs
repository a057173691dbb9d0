//! A search for a learning rate: short training with a rate that grows.

use crate::phase::unfreeze;
use crate::{Output, Phase, Result, TrainError};
use kiln_core::Backend;
use kiln_data::{Batch, Loader};
use kiln_nn::module::StateDict;
use kiln_nn::optim::GradScaler;
use kiln_nn::{LoadOptions, Module, Optimizer};
use serde::Serialize;

/// The learning rates that [`find_lr`] tries. The default is that of PyTorch Lightning's `lr_find`: 100 steps from 1e-8 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LrRange {
    /// The learning rate of the first step.
    pub min: f64,
    /// The learning rate of the last step; between, its logarithm grows evenly.
    pub max: f64,
    /// The number of steps.
    pub steps: u64,
    /// The factor of the smallest smoothed loss at which the search ends early; of a loss below 0, that many less one times its size
    /// above it.
    pub diverged: f64,
    /// True to scale the losses by a [`GradScaler`], for a step that computes in f16. A step whose gradients overflow makes no update.
    pub scale_loss: bool,
}

impl Default for LrRange {
    fn default() -> Self {
        LrRange {
            min: 1e-8,
            max: 1.0,
            steps: 100,
            diverged: 4.0,
            scale_loss: false,
        }
    }
}

impl LrRange {
    /// The learning rate of a step, counted from 0.
    fn lr(&self, step: u64) -> f64 {
        let at = step as f64 / (self.steps - 1) as f64;
        self.min * (self.max / self.min).powf(at)
    }

    fn check(&self) -> Result<()> {
        let refuse = |name, value: f64, expected| Err(TrainError::invalid(name, value, expected));
        if !(self.min > 0.0 && self.min.is_finite()) {
            return refuse("range.min", self.min, "a finite number above 0");
        }
        if !(self.max > self.min && self.max.is_finite()) {
            return refuse("range.max", self.max, "a finite number above the smallest rate");
        }
        if self.steps < 3 {
            return refuse("range.steps", self.steps as f64, "at least 3");
        }
        if self.diverged.is_nan() || self.diverged <= 1.0 {
            return refuse("range.diverged", self.diverged, "a number above 1");
        }
        Ok(())
    }
}

/// A step of a search for a learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LrPoint {
    /// The learning rate.
    pub lr: f64,
    /// The loss before the update.
    pub loss: f64,
    /// The exponential moving average of the losses so far with decay 0.98, corrected for its start at 0.
    pub smoothed: f64,
}

/// The losses of a search for a learning rate, in the order of the rates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LrCurve {
    /// The steps.
    pub points: Vec<LrPoint>,
    /// True if the loss grew too large, or was not finite, before the largest rate.
    pub diverged: bool,
}

impl LrCurve {
    /// The suggested learning rate: the one at which the smoothed loss falls most steeply, the first ten steps (or a tenth of fewer
    /// than 100) and the last left out. `None` if it falls nowhere.
    pub fn suggestion(&self) -> Option<f64> {
        let from = 10.min(self.points.len() / 10);
        let windows = self.points.windows(3).skip(from.saturating_sub(1));
        let slopes = windows.map(|w| (w[2].smoothed - w[0].smoothed, w[1].lr));
        let (slope, lr) = slopes.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (slope < 0.0).then_some(lr)
    }
}

/// Trains for some steps with a learning rate that grows from step to step, and returns the losses (Smith 2017, "Cyclical learning
/// rates for training neural networks"). The model is afterwards as it was. The optimizer is one for the search alone.
///
/// The epochs of `loader` are used one after the other; steps run op by op.
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
/// use kiln_nn::layers::{Flatten, Linear};
/// use kiln_nn::{Init, Layer, Sequential, optim::Sgd};
/// use kiln_train::{LrRange, Output, find_lr};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cpu = Cpu::new();
/// let mut model = Sequential::new()
///     .push(Flatten::default())
///     .push(Linear::new(&mut Init::new(&cpu, 0), 9, 2)?);
/// let data = Loader::new(Arc::new(Synthetic::images(64, &[3, 3, 1], 2, 0)?), LoaderOptions::default())?;
/// let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
///     Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
/// };
/// let range = LrRange { min: 1e-4, max: 100.0, ..Default::default() };
/// let curve = find_lr(&cpu, &mut model, Sgd::new(1.0), step, &data, range)?;
/// if let Some(lr) = curve.suggestion() {
///     println!("try a learning rate of {lr:.1e}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`TrainError::InvalidArgument`] for a range that is none and for a loader without batches, the errors of the loader and of the
/// closure. The model is as it was then, too.
pub fn find_lr<B, M, S, D, T>(
    backend: &B,
    model: &mut M,
    mut optimizer: impl Optimizer<B>,
    step: S,
    loader: &Loader<D, T>,
    range: LrRange,
) -> Result<LrCurve>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>>,
    D: Default + Send + 'static,
    T: Batch,
{
    let phases = vec![Phase::new("", &mut optimizer, step)];
    find_lr_of_phase(backend, model, phases, 0, loader, range)
}

/// As [`find_lr`], for steps of several updates ([`Phase`]): the learning rate of the phase with the number `phase` grows, and its loss
/// is looked at; the others keep the rates of their optimizers.
///
/// # Errors
/// As [`find_lr`]; [`TrainError::InvalidArgument`] for a number without a phase.
pub fn find_lr_of_phase<B: Backend, M: Module<B>, D: Default + Send + 'static, T: Batch>(
    backend: &B,
    model: &mut M,
    mut phases: Vec<Phase<'_, B, M, T>>,
    phase: usize,
    loader: &Loader<D, T>,
    range: LrRange,
) -> Result<LrCurve> {
    range.check()?;
    if phase >= phases.len() {
        return Err(TrainError::invalid("phase", phase, "the number of a phase, from 0"));
    }
    if loader.batches() == 0 {
        let samples = loader.samples();
        return Err(TrainError::invalid("training samples", samples, "enough for one batch"));
    }
    let before = StateDict::of(&*model).copy()?;
    model.train();
    let curve = search(backend, model, &mut phases, phase, loader, range);
    model.load_state_dict(&before, LoadOptions::strict().allow_non_finite())?;
    curve
}

/// Makes the update of a phase and returns its loss before; no update for a loss that `accept` refuses.
fn update<B: Backend, M: Module<B>, T: Batch>(
    model: &mut M,
    phase: &mut Phase<'_, B, M, T>,
    batch: &T::On<B>,
    scaler: Option<&mut GradScaler<B>>,
    accept: &mut dyn FnMut(f64) -> bool,
) -> Result<()> {
    let frozen = phase.freeze(model);
    let made = || -> Result<()> {
        let output = (phase.closure)(model, batch)?;
        if !accept(output.loss.item()?) {
            return Ok(());
        }
        let Some(scaler) = scaler else {
            return Ok(phase.optimizer.step(model, &output.loss.backward()?)?);
        };
        let mut grads = scaler.scale(&output.loss)?.backward()?;
        scaler.unscale(&mut grads, model.parameters())?;
        scaler.step(&mut *phase.optimizer, model, &grads)?;
        Ok(scaler.update()?)
    };
    let result = made();
    unfreeze(model, frozen);
    result
}

fn search<B: Backend, M: Module<B>, D: Default + Send + 'static, T: Batch>(
    backend: &B,
    model: &mut M,
    phases: &mut [Phase<'_, B, M, T>],
    searched: usize,
    loader: &Loader<D, T>,
    range: LrRange,
) -> Result<LrCurve> {
    const DECAY: f64 = 0.98;
    let mut points: Vec<LrPoint> = Vec::new();
    let (mut mean, mut smallest) = (0.0, f64::INFINITY);
    let (mut epoch, mut step) = (0, 0);
    let mut scalers = Vec::new();
    for _ in phases.iter() {
        scalers.push(range.scale_loss.then(|| GradScaler::new(backend)).transpose()?);
    }
    let mut batches = loader.epoch(epoch)?;
    while (points.len() as u64) < range.steps {
        let batch = match batches.next() {
            Some(batch) => batch?,
            None => {
                epoch += 1;
                batches = loader.epoch(epoch)?;
                match batches.next() {
                    Some(batch) => batch?,
                    None => break,
                }
            }
        };
        let batch = batch.to_device(backend)?;
        step += 1;
        for (i, (phase, scaler)) in phases.iter_mut().zip(&mut scalers).enumerate() {
            if !u64::is_multiple_of(step, phase.every) {
                continue;
            }
            if i != searched {
                update(model, phase, &batch, scaler.as_mut(), &mut |_| true)?;
                continue;
            }
            let number = points.len() as u64;
            let lr = range.lr(number);
            phase.optimizer.set_lr(lr);
            let mut diverged = false;
            update(model, phase, &batch, scaler.as_mut(), &mut |loss| {
                mean = DECAY * mean + (1.0 - DECAY) * loss;
                let smoothed = mean / (1.0 - DECAY.powf((number + 1) as f64));
                diverged =
                    !loss.is_finite() || (number > 0 && smoothed > smallest + (range.diverged - 1.0) * smallest.abs());
                if !diverged {
                    points.push(LrPoint { lr, loss, smoothed });
                    smallest = smallest.min(smoothed);
                }
                !diverged
            })?;
            if diverged {
                return Ok(LrCurve { points, diverged });
            }
        }
    }
    Ok(LrCurve {
        points,
        diverged: false,
    })
}
