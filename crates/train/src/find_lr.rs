//! A search for a learning rate: short training with a rate that grows.

use crate::{Output, Result, TrainError};
use kiln_core::Backend;
use kiln_data::{Batch, Loader};
use kiln_nn::module::StateDict;
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
    /// The factor of the smallest smoothed loss at which the search ends early.
    pub diverged: f64,
}

impl Default for LrRange {
    fn default() -> Self {
        LrRange {
            min: 1e-8,
            max: 1.0,
            steps: 100,
            diverged: 4.0,
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
    range.check()?;
    if loader.batches() == 0 {
        let samples = loader.samples();
        return Err(TrainError::invalid("training samples", samples, "enough for one batch"));
    }
    let before = StateDict::of(&*model).copy()?;
    model.train();
    let curve = search(backend, model, &mut optimizer, &step, loader, range);
    model.load_state_dict(&before, LoadOptions::strict().allow_non_finite())?;
    curve
}

fn search<B, M, S, D, T>(
    backend: &B,
    model: &mut M,
    optimizer: &mut dyn Optimizer<B>,
    step: &S,
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
    const DECAY: f64 = 0.98;
    let mut points: Vec<LrPoint> = Vec::new();
    let (mut mean, mut smallest) = (0.0, f64::INFINITY);
    let mut epoch = 0;
    let mut batches = loader.epoch(epoch)?;
    for number in 0..range.steps {
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
        let lr = range.lr(number);
        optimizer.set_lr(lr);
        let output = step(model, &batch.to_device(backend)?)?;
        let loss = output.loss.item()?;
        mean = DECAY * mean + (1.0 - DECAY) * loss;
        let smoothed = mean / (1.0 - DECAY.powf((number + 1) as f64));
        if !loss.is_finite() || (number > 0 && smoothed > range.diverged * smallest) {
            return Ok(LrCurve { points, diverged: true });
        }
        points.push(LrPoint { lr, loss, smoothed });
        smallest = smallest.min(smoothed);
        let grads = output.loss.backward()?;
        optimizer.step(model, &grads)?;
    }
    Ok(LrCurve {
        points,
        diverged: false,
    })
}
