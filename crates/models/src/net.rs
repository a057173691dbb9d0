//! One interface for networks of every task.

use crate::PhaseOptions;
use crate::language::LanguageModel;
use crate::task::{Batches, Purpose, Task};
use kiln_core::{Backend, DType, Error, ModuleId, Result};
use kiln_data::{AnyBatch, AnyBatchOn, Batch, Dataset, Loader, Sample};
use kiln_nn::detection::Detections;
use kiln_nn::optim::{Optimizer, Schedule, Sgd, SharedOptimizer};
use kiln_nn::{Module, Rng, Tensor, Walk, WalkMut, Walkable, no_grad};
use kiln_train::{
    Capsule, Deviation, Evaluation, LrCurve, LrRange, Metric, Output, Phase, Replay, Report, Trainer, Twin, Validation,
    evaluate, find_lr_of_phase,
};
use std::ops::{Deref, DerefMut};

/// The optimizer, schedule and frequency of a phase's updates.
pub struct Update<B: Backend> {
    /// The optimizer.
    pub optimizer: Box<dyn Optimizer<B>>,
    /// The learning rates over the run; `None` for a constant one.
    pub schedule: Option<Schedule>,
    /// An update is made in each `every`-th step.
    pub every: u64,
}

impl<B: Backend> Update<B> {
    /// These updates of the phases of a step, where those that share the optimizer of another have a handle to it in the place of
    /// their own.
    pub fn shared(phases: &[PhaseOptions], mut updates: Vec<Self>) -> Vec<Self> {
        for owner in 0..updates.len().min(phases.len()) {
            let of_owner = |phase: &PhaseOptions| phase.shares == Some(phases[owner].name);
            if !phases.iter().any(of_owner) {
                continue;
            }
            let own = std::mem::replace(&mut updates[owner].optimizer, Box::new(Sgd::new(0.0)));
            let optimizer = SharedOptimizer::new(own);
            for (phase, update) in phases.iter().zip(&mut updates) {
                if of_owner(phase) {
                    update.optimizer = Box::new(optimizer.clone());
                }
            }
            updates[owner].optimizer = Box::new(optimizer);
        }
        updates
    }

    /// The updates of phases with constant learning rates, one of each in every step: those that are measured.
    pub fn of_each(phases: &[PhaseOptions]) -> Vec<Self> {
        let update = |phase: &PhaseOptions| Update {
            optimizer: phase.optimizer.build(),
            schedule: None,
            every: 1,
        };
        Update::shared(phases, phases.iter().map(update).collect())
    }
}

/// A batch on a device and the network that it is for.
pub trait OneBatch<B: Backend> {
    /// The measurements of validation on it.
    ///
    /// # Errors
    /// Those of the layers.
    fn measure(&self) -> Result<Output<B>>;

    /// The forward pass, without a loss.
    ///
    /// # Errors
    /// Those of the layers.
    fn forward(&self) -> Result<Tensor<B>>;
}

/// A function that looks at a batch and returns true to see the next one.
pub type Look<'a, B> = &'a mut dyn FnMut(&dyn OneBatch<B>) -> kiln_train::Result<bool>;

/// The answers of a [`Net`], which depend on its task.
pub trait AnyTask<B: Backend>: Walkable<B> {
    /// The names of the updates of a step, in order; one that is empty if there is one. [`Update`]s are given in this order.
    fn phases(&self) -> Vec<&'static str>;

    /// The metrics of its results, which may compare with the samples held back.
    ///
    /// # Errors
    /// Samples that cannot be read.
    fn metrics(&self, held_back: &dyn Dataset<Sample = Sample>) -> kiln_train::Result<Vec<Box<dyn Metric<B>>>>;

    /// The logits `[N, classes]` of images `[N, H, W, C]` or of clips `[N, T, H, W, C]`; `None` if it tells no classes apart.
    fn classify(&self, images: &Tensor<B>) -> Option<Result<Tensor<B>>>;

    /// The objects that it finds in each of images `[N, H, W, C]`, the most certain first, in pixels of the images; `None` if it finds none.
    fn detect(&self, images: &Tensor<B>) -> Option<Result<Vec<Detections>>>;

    /// The numbers `[N, targets]` that it predicts for inputs `[N, …]`, at the scale of its training; `None` if it predicts none.
    fn regress(&self, inputs: &Tensor<B>) -> Option<Result<Tensor<B>>>;

    /// Images with values from 0 to 1 that the network makes of images `[N, H, W, C]`, as it keeps them; `None` if it makes none of images.
    fn reconstruct(&self, images: &Tensor<B>) -> Option<Result<Tensor<B>>>;

    /// So many new images `[N, H, W, C]` with values from 0 to 1, which the seed decides; `None` if it makes none.
    fn draw(&self, backend: &B, count: usize, seed: u64) -> Option<Result<Tensor<B>>>;

    /// Images `[walks·steps, H, W, C]` with values from 0 to 1 on the way from one new image to another, walk by walk, which the seed
    /// decides; `None` if it makes no images of latent vectors.
    fn walk_between(&self, backend: &B, walks: usize, steps: usize, seed: u64) -> Option<Result<Tensor<B>>>;

    /// Log-probabilities `[T', classes]` of letters, of which class 0 is the blank of CTC, for a spectrogram `[T, F]` of any length; `None` if
    /// it writes down no speech.
    fn transcribe(&self, spectrogram: &Tensor<B>) -> Option<Result<Tensor<B>>>;

    /// The tokens that it writes for those of a source, by a search with so many beams, of which one takes the likeliest token each time;
    /// `None` if it writes no texts for texts.
    fn translate(&self, source: &[i32], beams: usize) -> Option<Result<Vec<i32>>>;

    /// The logits `[N, T', outputs]` of the tokens of texts `[N, T]` that end with negative numbers, with `T'` at most `T` and no less than
    /// the longest text; `None` if it says nothing about tokens.
    fn of_tokens(&self, texts: &Tensor<B>) -> Option<Result<Tensor<B>>>;

    /// The network as a model of text, if it is one.
    fn language_model(&self) -> Option<&dyn LanguageModel<B>>;
}

/// The losses and measurements of a task on batches whose type is forgotten: so the trainer is compiled once for a backend, and not for each
/// network.
pub(crate) trait Trainable<B: Backend>: AnyTask<B> {
    /// The loader of batches.
    fn any_loader(&self, batches: Batches, purpose: Purpose) -> kiln_data::Result<Loader<Sample, AnyBatch>>;

    /// The loss of the phase with this number, its parts and what metrics read.
    fn step(&self, phase: usize, batch: &AnyBatchOn<B>) -> Result<Output<B>>;

    /// True for the dotted names of the parameters that the phase with this number trains.
    fn trains(&self, phase: usize) -> fn(&str) -> bool;

    /// The measurements of validation.
    fn measure(&self, batch: &AnyBatchOn<B>) -> Result<Output<B>>;

    /// The forward pass, without a loss.
    fn forward(&self, batch: &AnyBatchOn<B>) -> Result<Tensor<B>>;
}

/// A network with its task, of whatever kind both are. As a module it is the network; its answers are the methods of [`AnyTask`].
pub struct Net<B: Backend>(Box<dyn Trainable<B>>);

impl<B: Backend> Net<B> {
    pub(crate) fn new<M: Module<B> + 'static, T: Batch>(task: Task<B, M, T>) -> Self {
        Net(Box::new(task))
    }

    pub(crate) fn task(&self) -> &dyn Trainable<B> {
        &*self.0
    }

    fn loader(&self, batches: Batches, purpose: Purpose) -> kiln_data::Result<Loader<Sample, AnyBatch>> {
        self.0.any_loader(batches, purpose)
    }

    /// The number of batches in an epoch.
    ///
    /// # Errors
    /// Options that are out of range.
    pub fn batches(&self, batches: Batches) -> kiln_train::Result<usize> {
        Ok(self.loader(batches, Purpose::Training)?.batches())
    }

    /// Trains the network: [`Trainer::fit_phases`] with the task's losses, and its validation on `valid` if there are any.
    ///
    /// # Errors
    /// As [`Trainer::fit_phases`].
    pub fn fit(
        &mut self,
        trainer: &mut Trainer<B>,
        updates: &mut [Update<B>],
        train: Batches,
        valid: Option<Batches>,
    ) -> kiln_train::Result<Report> {
        let train = self.loader(train, Purpose::Training)?;
        let valid = valid.map(|valid| self.loader(valid, Purpose::Measuring)).transpose()?;
        let measure = |net: &Net<B>, batch: &AnyBatchOn<B>| net.0.measure(batch);
        let valid = valid.as_ref().map(|valid| Validation::new(valid, measure));
        let phases = phases(self, updates);
        trainer.fit_phases(self, phases, &train, valid.as_ref())
    }

    /// Measures the network as in validation: [`evaluate`](kiln_train::evaluate()). It is in training mode then.
    ///
    /// # Errors
    /// As [`evaluate`](kiln_train::evaluate()).
    pub fn evaluate(
        &mut self,
        backend: &B,
        batches: Batches,
        metrics: &mut [&mut dyn Metric<B>],
    ) -> kiln_train::Result<Evaluation> {
        let loader = self.loader(batches, Purpose::Measuring)?;
        let measure = |net: &Net<B>, batch: &AnyBatchOn<B>| net.0.measure(batch);
        evaluate(backend, self, &measure, &loader, metrics)
    }

    /// Trains for some steps while the learning rate of one phase grows: [`find_lr_of_phase`].
    ///
    /// # Errors
    /// As [`find_lr_of_phase`].
    pub fn find_lr(
        &mut self,
        backend: &B,
        updates: &mut [Update<B>],
        phase: usize,
        batches: Batches,
        range: LrRange,
    ) -> kiln_train::Result<LrCurve> {
        let loader = self.loader(batches, Purpose::Training)?;
        let phases = phases(self, updates);
        find_lr_of_phase(backend, self, phases, phase, &loader, range)
    }

    /// Shows `look` the batches of the first epoch, until it has seen enough. Nothing is recorded for gradients.
    ///
    /// # Errors
    /// Those of the loader and of `look`.
    pub fn each_batch(&self, backend: &B, batches: Batches, look: Look<'_, B>) -> kiln_train::Result<()> {
        no_grad(|| {
            for host in self.loader(batches, Purpose::Measuring)?.epoch(0)? {
                let batch = host?.to_device(backend)?;
                if !look(&OnDevice { net: self, batch })? {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Makes the step of a capsule again, by the loss of its phase: [`Capsule::replay`]. Random numbers are those of the run for a network
    /// of the run's seed.
    ///
    /// # Errors
    /// A phase that the network has not, and as [`Capsule::replay`].
    pub fn replay(&mut self, backend: &B, capsule: &Capsule, dtype: DType) -> kiln_train::Result<Replay> {
        let step = step(self.phase_of(capsule)?);
        capsule.replay::<B, Net<B>, AnyBatch>(backend, self, step, dtype)
    }

    /// Compares the ops of a step of a run with a twin again: [`Capsule::compare`] for the network of the capsule and its batches.
    ///
    /// # Errors
    /// A phase that the network has not, and as [`Capsule::compare`].
    pub fn compare(
        &mut self,
        backend: &B,
        capsule: &Capsule,
        twin: &mut Twin,
    ) -> kiln_train::Result<(Option<Deviation>, usize)> {
        let step = step(self.phase_of(capsule)?);
        capsule.compare::<B, Net<B>, AnyBatch>(backend, self, step, twin)
    }

    /// The number of the phase that a capsule is of.
    fn phase_of(&self, capsule: &Capsule) -> Result<usize> {
        let asked = &capsule.cause().phase[..];
        let found = self.phases().iter().position(|name| *name == asked);
        found.ok_or_else(|| Error::invalid("replay", "phase", asked, "a phase of this network"))
    }
}

impl<B: Backend> Deref for Net<B> {
    type Target = dyn AnyTask<B>;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl<B: Backend> DerefMut for Net<B> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

/// The closure of the phase with this number.
pub(crate) fn step<B: Backend>(phase: usize) -> impl Fn(&Net<B>, &AnyBatchOn<B>) -> Result<Output<B>> + 'static {
    move |net, batch| net.0.step(phase, batch)
}

/// The phases of a run.
fn phases<'a, B: Backend>(net: &Net<B>, updates: &'a mut [Update<B>]) -> Vec<Phase<'a, B, Net<B>, AnyBatch>> {
    let phase = |((number, name), update): ((usize, &'static str), &'a mut Update<B>)| {
        let made = Phase::new(name, &mut *update.optimizer, step(number)).every(update.every);
        let made = match name {
            "" => made,
            _ => made.trains(net.0.trains(number)),
        };
        match &update.schedule {
            Some(schedule) => made.schedule(schedule.clone()),
            None => made,
        }
    };
    net.phases().into_iter().enumerate().zip(updates).map(phase).collect()
}

struct OnDevice<'a, B: Backend> {
    net: &'a Net<B>,
    batch: AnyBatchOn<B>,
}

impl<B: Backend> OneBatch<B> for OnDevice<'_, B> {
    fn measure(&self) -> Result<Output<B>> {
        self.net.0.measure(&self.batch)
    }
    fn forward(&self) -> Result<Tensor<B>> {
        self.net.0.forward(&self.batch)
    }
}

/// The batch of a task.
fn batch_of<T: Batch, B: Backend>(batch: &AnyBatchOn<B>) -> Result<T::On<B>> {
    let of = batch.of::<T>();
    of.map_err(|e| Error::invalid("task", "batch", e, "the arrays that this network takes"))
}

impl<B: Backend, M: Module<B>, T: Batch> Trainable<B> for Task<B, M, T> {
    fn any_loader(&self, batches: Batches, purpose: Purpose) -> kiln_data::Result<Loader<Sample, AnyBatch>> {
        Ok(self.loader(batches, purpose)?.any())
    }

    fn step(&self, phase: usize, batch: &AnyBatchOn<B>) -> Result<Output<B>> {
        (self.phases[phase].step)(&self.net, &batch_of::<T, B>(batch)?)
    }

    fn trains(&self, phase: usize) -> fn(&str) -> bool {
        self.phases[phase].trains
    }

    fn measure(&self, batch: &AnyBatchOn<B>) -> Result<Output<B>> {
        (self.measure)(&self.net, &batch_of::<T, B>(batch)?)
    }

    fn forward(&self, batch: &AnyBatchOn<B>) -> Result<Tensor<B>> {
        (self.forward)(&self.net, &batch_of::<T, B>(batch)?)
    }
}

impl<B: Backend, M: Module<B>, T: Batch> AnyTask<B> for Task<B, M, T> {
    fn phases(&self) -> Vec<&'static str> {
        self.phases.iter().map(|phase| phase.name).collect()
    }

    fn metrics(&self, held_back: &dyn Dataset<Sample = Sample>) -> kiln_train::Result<Vec<Box<dyn Metric<B>>>> {
        (self.metrics)(held_back)
    }

    fn classify(&self, images: &Tensor<B>) -> Option<Result<Tensor<B>>> {
        self.views.classify.map(|classify| classify(&self.net, images))
    }

    fn detect(&self, images: &Tensor<B>) -> Option<Result<Vec<Detections>>> {
        self.views.detect.map(|detect| detect(&self.net, images))
    }

    fn regress(&self, inputs: &Tensor<B>) -> Option<Result<Tensor<B>>> {
        self.views.regress.map(|regress| regress(&self.net, inputs))
    }

    fn reconstruct(&self, images: &Tensor<B>) -> Option<Result<Tensor<B>>> {
        self.views.reconstruct.map(|reconstruct| reconstruct(&self.net, images))
    }

    fn draw(&self, backend: &B, count: usize, seed: u64) -> Option<Result<Tensor<B>>> {
        let rng = &mut Rng::new(seed);
        match (self.views.draw, self.views.decode) {
            (Some(draw), _) => Some(draw(&self.net, backend, count, rng)),
            (None, Some((width, decode))) => {
                let latent = Tensor::randn(backend, &[count, width], DType::F32, rng);
                Some(latent.and_then(|latent| decode(&self.net, &latent)))
            }
            (None, None) => None,
        }
    }

    fn walk_between(&self, backend: &B, walks: usize, steps: usize, seed: u64) -> Option<Result<Tensor<B>>> {
        let (width, decode) = self.views.decode?;
        let way = way(backend, [walks, steps, width], seed);
        Some(way.and_then(|way| decode(&self.net, &way)))
    }

    fn transcribe(&self, spectrogram: &Tensor<B>) -> Option<Result<Tensor<B>>> {
        self.views
            .transcribe
            .map(|transcribe| transcribe(&self.net, spectrogram))
    }

    fn translate(&self, source: &[i32], beams: usize) -> Option<Result<Vec<i32>>> {
        self.views
            .translate
            .map(|translate| translate(&self.net, source, beams))
    }

    fn of_tokens(&self, texts: &Tensor<B>) -> Option<Result<Tensor<B>>> {
        self.views.tokens.map(|of_tokens| of_tokens(&self.net, texts))
    }

    fn language_model(&self) -> Option<&dyn LanguageModel<B>> {
        self.views.write.map(|write| write(&self.net))
    }
}

impl<B: Backend> Walkable<B> for Net<B> {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }
    fn module_id(&self) -> ModuleId {
        self.0.module_id()
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        self.0.walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        self.0.walk_mut(walk);
    }
}

impl<B: Backend> std::fmt::Debug for Net<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Net").field(&self.kind()).finish()
    }
}

/// Latent vectors `[walks·steps, width]` on the way from one to another. On a quarter of a circle between two vectors of standard normal
/// numbers every vector is as likely as these.
fn way<B: Backend>(backend: &B, [walks, steps, width]: [usize; 3], seed: u64) -> Result<Tensor<B>> {
    let ends = Tensor::randn(backend, &[2, walks, 1, width], DType::F32, &mut Rng::new(seed))?;
    let angles = Tensor::linspace(backend, 0.0, std::f64::consts::FRAC_PI_2, steps, DType::F32)?;
    let angles = angles.reshape(&[1, steps, 1])?;
    let (from, to) = (ends.narrow(0, 0, 1)?.squeeze(0)?, ends.narrow(0, 1, 1)?.squeeze(0)?);
    let way = from.mul(&angles.cos()?)?.add(&to.mul(&angles.sin()?)?)?;
    way.reshape(&[walks.saturating_mul(steps), width])
}
