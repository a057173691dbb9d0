//! A search for the largest batch that fits the memory of a device, by real training steps.

use crate::{End, Flow, Monitor, Report, Result, StopHandle, TrainError, TrainOptions, Trainer};
use kiln_core::Backend;
use kiln_nn::module::StateDict;
use kiln_nn::weights::{Metadata, decode, encode};
use kiln_nn::{LoadOptions, Module};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Instant;

/// The batch sizes that [`find_batch`] tries.
#[derive(Debug, Clone)]
pub struct BatchRange {
    /// The options of the training: precision, accumulation, clipping, averaging, activation checkpointing and the like take memory or
    /// save it.
    pub options: TrainOptions,
    /// The first size; the next ones are twice as large each.
    pub min: usize,
    /// The largest size to try.
    pub max: usize,
    /// The number of updates with each size, at least 3: the first ones make the optimizer's state, load kernels and are recorded.
    pub steps: u64,
    /// Ends the search early, with what it has found by then.
    pub stop: StopHandle,
}

impl Default for BatchRange {
    /// From 1 to 8192, four updates each.
    fn default() -> Self {
        BatchRange {
            options: TrainOptions::default(),
            min: 1,
            max: 8192,
            steps: 4,
            stop: StopHandle::new(),
        }
    }
}

/// A batch size that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchPoint {
    /// The number of samples of a batch.
    pub batch: usize,
    /// True if a step of it fits the memory.
    pub fits: bool,
    /// The seconds of the fastest update behind the second; `None` if it does not fit.
    pub seconds: Option<f64>,
    /// The samples of an update by these seconds.
    pub samples_per_second: Option<f64>,
    /// The largest number of bytes in use so far in the search, if a step of this size has raised it.
    pub peak: Option<usize>,
    /// The bytes that were asked for in vain, and those that were free then as far as known, of a size that does not fit.
    pub refused: Option<(u64, Option<u64>)>,
}

/// The reason for the end of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchLimit {
    /// The memory: a larger batch does not fit.
    Memory,
    /// The training samples: there are no more for one batch.
    Samples,
    /// [`BatchRange::max`].
    Range,
    /// A request to stop.
    Stopped,
}

/// The sizes that a search for a batch size has tried, in the order in which it tried them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchCurve {
    /// The sizes.
    pub points: Vec<BatchPoint>,
    /// The reason for the end of the search.
    pub limit: BatchLimit,
}

impl BatchCurve {
    /// The largest size that fits; `None` if none does.
    pub fn largest(&self) -> Option<usize> {
        self.points.iter().filter(|p| p.fits).map(|p| p.batch).max()
    }

    /// The smallest size with at least 97 % of the largest number of samples a second: more memory gains nothing beyond it.
    pub fn fastest(&self) -> Option<usize> {
        let rates = || {
            self.points
                .iter()
                .filter_map(|p| Some((p.batch, p.samples_per_second?)))
        };
        let best = rates().map(|(_, rate)| rate).fold(0.0, f64::max);
        rates()
            .filter(|(_, rate)| *rate >= 0.97 * best)
            .map(|(batch, _)| batch)
            .min()
    }
}

/// The largest batch whose training step fits the memory of `backend`, and the throughput of each size tried. `train` makes a run by the
/// trainer that it is given, on batches of the size that it is given: a few updates with all that belongs to them by the options, with
/// the optimizer's state, and on a GPU recorded and replayed. Sizes are doubled until one does not fit, and then the gap is halved until
/// it is a thirty-second of the size. The model is afterwards as it was; the optimizer of each run should be a new one.
///
/// A limit of the processor's memory is an option of its backend, such as `CpuBuilder::memory_limit`; without one the system may end
/// the program before an allocation fails.
///
/// `samples` is the number of those to train on, and so the largest size. `tell` is called with every size that was tried.
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
/// use kiln_nn::layers::{Flatten, Linear};
/// use kiln_nn::{Init, Layer, Sequential, optim::Adam};
/// use kiln_train::{BatchRange, Flow, Output, find_batch};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cpu = Cpu::builder().memory_limit(Some(1 << 20)).build();
/// let mut model = Sequential::new()
///     .push(Flatten::default())
///     .push(Linear::new(&mut Init::new(&cpu, 0), 256, 10)?);
/// let data = Arc::new(Synthetic::images(4096, &[16, 16, 1], 10, 0)?);
/// let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
///     Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
/// };
/// let range = BatchRange::default();
/// let curve = find_batch(
///     &cpu,
///     &mut model,
///     4096,
///     |trainer, model, batch_size| {
///         let options = LoaderOptions { batch_size, drop_last: true, ..Default::default() };
///         trainer.fit(model, &mut Adam::new(1e-3), step, &Loader::new(data.clone(), options)?, None)
///     },
///     &range,
///     |_| Ok(Flow::Continue),
/// )?;
/// assert!((128..1024).contains(&curve.largest().unwrap()));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`TrainError::InvalidArgument`] for a range that is none; errors of `train` other than a lack of memory, those of `tell`. The model is as
/// it was then, too.
pub fn find_batch<B: Backend, M: Module<B>>(
    backend: &B,
    model: &mut M,
    samples: usize,
    mut train: impl FnMut(&mut Trainer<B>, &mut M, usize) -> Result<Report>,
    range: &BatchRange,
    mut tell: impl FnMut(&BatchPoint) -> Result<Flow>,
) -> Result<BatchCurve> {
    range.check()?;
    // On the host, so that the device has as much memory for a step as in training.
    let before = encode(&StateDict::of(&*model), &Metadata::new())?;
    let parameters = model.named_parameters().into_iter();
    let trained: BTreeSet<String> = parameters
        .filter(|(_, p)| p.is_trainable())
        .map(|(name, _)| name)
        .collect();
    let mut sizes = Sizes {
        fits: None,
        fails: None,
        min: range.min.min(samples),
        max: range.max.min(samples),
    };
    let mut curve = BatchCurve {
        points: Vec::new(),
        limit: match samples < range.max {
            true => BatchLimit::Samples,
            false => BatchLimit::Range,
        },
    };
    while let Some(batch) = sizes.next() {
        let tried = trial(backend, range, batch, |trainer| train(trainer, model, batch));
        let (state, _) = decode(&before, backend)?;
        model.load_state_dict(&state, LoadOptions::strict().allow_non_finite())?;
        drop(state);
        model.set_trainable(&|name| trained.contains(name), true);
        let Some(point) = tried? else {
            curve.limit = BatchLimit::Stopped;
            break;
        };
        sizes.learn(batch, point.fits);
        if !point.fits {
            curve.limit = BatchLimit::Memory;
        }
        let flow = tell(&point)?;
        curve.points.push(point);
        if flow == Flow::Stop || range.stop.is_requested() {
            curve.limit = BatchLimit::Stopped;
            break;
        }
    }
    Ok(curve)
}

impl BatchRange {
    fn check(&self) -> Result<()> {
        if self.min == 0 || self.max < self.min {
            let expected = "from at least 1 up to the largest size";
            return Err(TrainError::invalid("range.min", self.min, expected));
        }
        match self.steps {
            0..3 => Err(TrainError::invalid("range.steps", self.steps, "at least 3")),
            _ => Ok(()),
        }
    }
}

/// The sizes that are still to be tried.
struct Sizes {
    /// The largest that fits.
    fits: Option<usize>,
    /// The smallest that does not.
    fails: Option<usize>,
    min: usize,
    max: usize,
}

impl Sizes {
    /// The next size to try; `None` once the largest is known.
    fn next(&self) -> Option<usize> {
        match (self.fits, self.fails) {
            (None, None) => Some(self.min),
            // The first size may be too large.
            (None, Some(fails)) => (fails > 1).then_some(fails / 2),
            (Some(fits), None) => (fits < self.max).then(|| fits.saturating_mul(2).min(self.max)),
            (Some(fits), Some(fails)) => (fails - fits > (fits / 32).max(1)).then(|| fits + (fails - fits) / 2),
        }
    }

    fn learn(&mut self, batch: usize, fits: bool) {
        match fits {
            true => self.fits = self.fits.max(Some(batch)),
            false => self.fails = Some(self.fails.map_or(batch, |fails| fails.min(batch))),
        }
    }
}

/// Makes some updates with a size; `None` if it was asked to stop.
fn trial<B: Backend>(
    backend: &B,
    range: &BatchRange,
    batch: usize,
    train: impl FnOnce(&mut Trainer<B>) -> Result<Report>,
) -> Result<Option<BatchPoint>> {
    let options = TrainOptions {
        // An epoch may have no more than one batch.
        epochs: range.steps.saturating_mul(range.options.accumulate as u64),
        max_steps: Some(range.steps),
        patience: None,
        monitor: Monitor::default(),
        checkpoints: None,
        // A read waits for the device.
        log_every: 1,
        ..range.options.clone()
    };
    let samples = (batch * range.options.accumulate) as f64;
    let times: Rc<RefCell<Vec<(u64, Instant)>>> = Rc::default();
    let seen = times.clone();
    let peak = backend.memory().peak;
    let mut trainer = Trainer::new(backend, options)
        .stop_handle(range.stop.clone())
        .on_step(move |info| {
            let mut times = seen.borrow_mut();
            if times.last().is_none_or(|(step, _)| *step < info.step) {
                times.push((info.step, Instant::now()));
            }
            Ok(Flow::Continue)
        });
    let made = train(&mut trainer);
    let mut point = BatchPoint {
        batch,
        fits: true,
        seconds: None,
        samples_per_second: None,
        peak: Some(backend.memory().peak).filter(|now| *now > peak),
        refused: None,
    };
    match made {
        Err(error) => {
            point.refused = error.refused_memory();
            point.fits = false;
            match point.refused {
                Some(_) => Ok(Some(point)),
                None => Err(error),
            }
        }
        Ok(report) if report.end == End::Stopped => Ok(None),
        Ok(_) => {
            let times = times.borrow();
            let last = times
                .windows(2)
                .skip(1)
                .map(|w| w[1].1.duration_since(w[0].1).as_secs_f64());
            point.seconds = last.min_by(f64::total_cmp);
            point.samples_per_second = point.seconds.map(|seconds| samples / seconds.max(1e-9));
            Ok(Some(point))
        }
    }
}
