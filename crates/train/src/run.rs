//! The training loop.
//!
//! Steps that a backend may record and replay are in `capture.rs`; nothing is read back inside them. This file runs steps
//! op by op, among them those that are skipped if their gradients are not finite. In both cases losses and metrics stay
//! on the device until they are read together.

use crate::buffers::Buffers;
use crate::evaluate::evaluate_until;
use crate::losses::{Losses, NonFiniteAt};
use crate::monitor::Progress;
use crate::recording::Recorder;
use crate::weights::first_non_finite;
use crate::{
    Batch, Clip, End, EpochRecord, Execution, Goal, History, Metric, NonFinite, Output, Report, Result, RunFolder,
    Running, StepInfo, TrainError, Trainer, Values, Warning,
};
use kiln_core::{Backend, Interrupt};
use kiln_data::{HostBatch, Loader};
use kiln_nn::optim::ReduceOnPlateau;
use kiln_nn::{Gradients, Module, Optimizer, Tensor};
use std::collections::BTreeSet;
use std::time::Instant;

pub(crate) const ADVICE: &str = "try a smaller learning rate, clip gradients, or look at the data";

/// The gradients and counts of the batches accumulated so far for one update.
struct Group<B: Backend> {
    begun: bool,
    grads: Option<Gradients<B>>,
    batches: usize,
    samples: usize,
    /// The model's buffers before the first of its batches, if it has any, in case the step is skipped or abandoned.
    before: Option<Buffers<B>>,
}

impl<B: Backend> Group<B> {
    fn empty() -> Self {
        Group {
            begun: false,
            grads: None,
            batches: 0,
            samples: 0,
            before: None,
        }
    }
}

/// The result of a batch.
#[derive(PartialEq)]
enum Came {
    /// Its gradients were accumulated, or the model was updated.
    In,
    /// Its step was skipped.
    Skipped,
    /// It was interrupted, and its step is abandoned.
    GivenUp,
}

/// The results of one epoch.
struct Epoch {
    samples: u64,
    skipped: u64,
    seconds: f64,
    values: Values,
    execution: Execution,
    stopped: bool,
}

pub(crate) struct Run<'a, B: Backend, M, S> {
    pub(crate) trainer: &'a mut Trainer<B>,
    pub(crate) model: &'a mut M,
    pub(crate) optimizer: &'a mut dyn Optimizer<B>,
    pub(crate) closure: &'a S,
    pub(crate) recorder: Recorder<B>,
    pub(crate) losses: Losses<B>,
    /// The sums of the training metrics, in the order of `trainer.metrics`.
    pub(crate) running: Vec<Running<B>>,
    execution: Execution,
    pub(crate) history: History,
    progress: Progress,
    /// A copy of the trainer's, so that its state is not carried into the next run.
    plateau: Option<ReduceOnPlateau>,
    /// The epoch in progress, counted from 1.
    pub(crate) epoch: u64,
    /// The number of updates so far, skipped ones included: the step in messages.
    pub(crate) step: u64,
    /// The number of updates made so far: the step in reports.
    pub(crate) updates: u64,
    /// The number of consecutive updates skipped.
    skipped_in_a_row: u64,
    /// The names of the weight files written so far.
    pub(crate) saved: BTreeSet<&'static str>,
    pub(crate) warnings: Vec<Warning>,
    /// True once a step in progress is to be abandoned.
    interrupt: Interrupt,
    /// True if the model has buffers or counters, which a forward pass changes.
    has_buffers: bool,
}

impl<'a, B, M, S> Run<'a, B, M, S>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &Batch<B>) -> kiln_core::Result<Output<B>>,
{
    pub(crate) fn new(
        trainer: &'a mut Trainer<B>,
        model: &'a mut M,
        optimizer: &'a mut dyn Optimizer<B>,
        closure: &'a S,
        history: History,
    ) -> Self {
        let maximize = trainer.options.monitor.goal == Goal::Max;
        let plateau = trainer.plateau.clone().map(|p| ReduceOnPlateau { maximize, ..p });
        let options = &trainer.options;
        Run {
            recorder: Recorder::new(options.capture && !options.skips(), options.accumulate),
            interrupt: trainer.stop.interrupt(trainer.grace),
            has_buffers: Buffers::of(&*model).any(),
            losses: Losses::new(),
            running: trainer.metrics.iter().map(|_| Running::new()).collect(),
            execution: Execution::default(),
            trainer,
            model,
            optimizer,
            closure,
            history,
            progress: Progress::default(),
            plateau,
            epoch: 0,
            step: 0,
            updates: 0,
            skipped_in_a_row: 0,
            saved: BTreeSet::new(),
            warnings: Vec::new(),
        }
    }

    /// Runs all epochs.
    pub(crate) fn all(mut self, train: &Loader, valid: Option<&Loader>) -> Result<Report> {
        let mut end = End::Finished;
        for epoch in 1..=self.trainer.options.epochs {
            self.epoch = epoch;
            let done = self.train(train)?;
            let mut stopped = done.stopped;
            let mut measured = None;
            if let (false, Some(valid)) = (stopped, valid) {
                measured = self.validate(valid)?;
                stopped = measured.is_none();
            }
            if stopped {
                self.save(RunFolder::LAST)?;
                end = End::Stopped;
                break;
            }
            if self.finish_epoch(done, measured)? {
                end = End::Stopped;
                break;
            }
            if self.all_steps_done() {
                break;
            }
            if self.trainer.options.patience.is_some_and(|p| self.progress.stale >= p) {
                end = End::EarlyStopped;
                break;
            }
        }
        self.keep_whole()?;
        Ok(Report {
            end,
            steps: self.updates,
            execution: self.execution,
            not_captured: self.recorder.obstacle,
            history: self.history,
            warnings: self.warnings,
        })
    }

    /// Adds the step and the epoch to an error.
    pub(crate) fn at<T>(&self, result: kiln_core::Result<T>) -> Result<T> {
        result.map_err(|source| TrainError::Step {
            step: self.step,
            epoch: self.epoch,
            source,
        })
    }

    /// True if the run has made `max_steps` updates.
    fn all_steps_done(&self) -> bool {
        self.trainer.options.max_steps.is_some_and(|most| self.step >= most)
    }

    /// Runs one pass over the training data.
    fn train(&mut self, loader: &Loader) -> Result<Epoch> {
        self.model.train();
        let reset = self.running.iter_mut().try_for_each(Running::reset);
        self.at(reset)?;
        self.losses.reset();
        let began = Instant::now();
        let mut group = Group::empty();
        // The batches collected for a step that is recorded or replayed, and the last batch of the latest step.
        let (mut waiting, mut latest) = (Vec::new(), None);
        let (mut samples, mut skipped, mut number, mut stopped) = (0, 0, 0, false);
        let mut batches = loader.epoch(self.epoch - 1)?;
        let stop = self.trainer.stop.clone();
        while !stopped {
            let next = match stop.is_requested() {
                true => None,
                false => batches.next_until(&|| stop.is_requested()),
            };
            // The loop ends below after the last batch, so `None` means that the run was stopped.
            let Some(host) = next else {
                stopped = true;
                break;
            };
            let host = host?;
            number += 1;
            samples += host.len() as u64;
            let mut last = batches.len() == 0;
            if self.recorder.is_wanted() || !waiting.is_empty() {
                waiting.push(host);
                if last || waiting.len() == self.trainer.options.accumulate {
                    self.run_step(&waiting)?;
                    latest = waiting.drain(..).next_back();
                }
            } else {
                let came = self.take(&host, &mut group, last)?;
                skipped += u64::from(came == Came::Skipped);
                latest = Some(host);
                if came == Came::GivenUp {
                    stopped = true;
                    break;
                }
            }
            last |= !group.begun && waiting.is_empty() && self.all_steps_done();
            let mut loss = None;
            if last || self.losses.unreported() >= self.trainer.options.log_every {
                loss = self.read(latest.as_ref())?;
            }
            let info = StepInfo {
                epoch: self.epoch,
                batch: number,
                step: self.updates,
                samples,
                seconds: began.elapsed().as_secs_f64(),
                lr: self.optimizer.lr(),
                loss,
            };
            stopped = self.trainer.tell(|c| c.on_step(&info))?;
            if last {
                stopped |= stop.is_requested();
                break;
            }
        }
        if stopped {
            self.read(latest.as_ref())?;
            // The step was not completed: the batches accumulated for it are dropped.
            self.step -= u64::from(group.begun);
            self.rollback(group.before.take())?;
        }
        self.trainer.backend.sync()?;
        let seconds = began.elapsed().as_secs_f64();
        let mut values = Values::from([("loss".to_string(), self.losses.mean())]);
        for (metric, running) in self.trainer.metrics.iter_mut().zip(&mut self.running) {
            values.insert(metric.name(), running.finish(&mut **metric)?);
        }
        let execution = std::mem::take(&mut self.recorder.execution);
        self.execution.add(&execution);
        Ok(Epoch {
            samples,
            skipped,
            seconds,
            values,
            execution,
            stopped,
        })
    }

    /// Runs one batch of a step op by op; the `last` batch of an epoch completes its step.
    fn take(&mut self, host: &HostBatch, group: &mut Group<B>, last: bool) -> Result<Came> {
        if !group.begun {
            self.step += 1;
            group.begun = true;
            group.before = self.has_buffers.then(|| Buffers::of(self.model));
        }
        let batch = host.to_device(&self.trainer.backend)?;
        let output = match self.accumulate(&batch, group) {
            Err(e) if e.is_interrupted() => return Ok(Came::GivenUp),
            output => self.at(output)?,
        };
        self.losses.push(&output.loss, host.len(), self.step);
        if let Some(scores) = &output.scores {
            let scored = self.score(scores, &batch);
            self.at(scored)?;
            self.count_scored(host.len())?;
        }
        match last || group.batches == self.trainer.options.accumulate {
            true => self.update(group),
            false => Ok(Came::In),
        }
    }

    /// Runs forward and backward of one batch, which may be interrupted, and adds its gradients to the group.
    fn accumulate(&mut self, batch: &Batch<B>, group: &mut Group<B>) -> kiln_core::Result<Output<B>> {
        let mut made = None;
        self.trainer.backend.interruptible(&self.interrupt, &mut || {
            let output = (self.closure)(self.model, batch)?;
            let grads = self.scale_loss(&output.loss, batch)?.backward()?;
            match &mut group.grads {
                Some(sum) => sum.accumulate(grads)?,
                none => *none = Some(grads),
            }
            made = Some(Output {
                loss: output.loss.detach(),
                scores: output.scores.map(|s| s.detach()),
            });
            Ok(())
        })?;
        group.batches += 1;
        group.samples += batch.labels.size();
        match made {
            Some(made) => Ok(made),
            None => unreachable!("the body has run"),
        }
    }

    /// Clips the gradients and updates the model, which is not interrupted.
    fn update(&mut self, group: &mut Group<B>) -> Result<Came> {
        let Group {
            grads, samples, before, ..
        } = std::mem::replace(group, Group::empty());
        let Some(grads) = grads else { return Ok(Came::In) };
        if let NonFinite::Skip { in_a_row } = self.trainer.options.non_finite {
            if !self.all_finite(&grads)? {
                self.rollback(before)?;
                self.skipped_in_a_row += 1;
                if self.skipped_in_a_row > in_a_row {
                    return Err(TrainError::TooManySkipped {
                        step: self.step,
                        epoch: self.epoch,
                        count: self.skipped_in_a_row,
                        advice: ADVICE,
                    });
                }
                return Ok(Came::Skipped);
            }
            self.skipped_in_a_row = 0;
        }
        let result = self.optimizer_step(grads, samples);
        self.at(result)?;
        self.updates += 1;
        self.recorder.execution.eager += 1;
        Ok(Came::In)
    }

    /// Restores the running statistics and counters from before an abandoned step.
    fn rollback(&self, before: Option<Buffers<B>>) -> Result<()> {
        match before {
            Some(before) => self.at(before.restore(self.model)),
            None => Ok(()),
        }
    }

    /// Reads the losses and the norm of the gradients; true if all are finite.
    fn all_finite(&mut self, grads: &Gradients<B>) -> Result<bool> {
        let bad = self.losses.read()?;
        Ok(bad.is_none()
            && self
                .at(grads.norm(self.model.parameters()).and_then(|n| n.item()))?
                .is_finite())
    }

    fn optimizer_step(&mut self, mut grads: Gradients<B>, samples: usize) -> kiln_core::Result<()> {
        self.finish_gradients(&mut grads, samples)?;
        if let Some(schedule) = &self.trainer.schedule {
            schedule.apply(self.step - 1, self.optimizer)?;
        }
        self.optimizer.step(self.model, &grads)
    }

    /// Scales the loss of a batch by its samples if gradients are accumulated, so that a short batch has the weight that it
    /// would have in one large batch.
    pub(crate) fn scale_loss(&self, loss: &Tensor<B>, batch: &Batch<B>) -> kiln_core::Result<Tensor<B>> {
        match self.trainer.options.accumulate {
            1 => Ok(loss.clone()),
            _ => loss.mul_scalar(batch.labels.size() as f64),
        }
    }

    /// Divides the summed gradients of a step by its samples if they were accumulated, and clips them.
    pub(crate) fn finish_gradients(&self, grads: &mut Gradients<B>, samples: usize) -> kiln_core::Result<()> {
        if self.trainer.options.accumulate > 1 {
            grads.scale(1.0 / samples as f64)?;
        }
        match self.trainer.options.clip {
            Some(Clip::Norm(limit)) => grads.clip_norm(self.model.parameters(), limit).map(drop),
            Some(Clip::Value(limit)) => grads.clip_value(self.model.parameters(), limit),
            None => Ok(()),
        }
    }

    /// Reads the pending losses; returns the mean since the last read, if there are any.
    fn read(&mut self, latest: Option<&HostBatch>) -> Result<Option<f64>> {
        match (self.losses.read()?, self.trainer.options.non_finite) {
            (Some(bad), NonFinite::Stop) => Err(self.non_finite(bad, latest.map_or(&[], |h| &h.inputs))?),
            _ => Ok(self.losses.report()),
        }
    }

    /// Makes the error for a loss that is not finite, with its cause if that can be found.
    fn non_finite(&self, bad: NonFiniteAt, inputs: &[f32]) -> Result<TrainError> {
        let cause = match first_non_finite(self.model)? {
            Some(name) => Some(format!("`{name}` holds values that are not finite")),
            None if inputs.iter().any(|x| !x.is_finite()) => {
                Some("the batch holds inputs that are not finite".to_string())
            }
            None => None,
        };
        Ok(TrainError::NonFiniteLoss {
            step: bad.step,
            epoch: self.epoch,
            value: bad.value,
            cause,
            advice: ADVICE,
        })
    }

    /// Evaluates the model on the validation set; `None` if a stop was requested before the end.
    fn validate(&mut self, loader: &Loader) -> Result<Option<Values>> {
        let Trainer {
            backend, metrics, stop, ..
        } = &mut *self.trainer;
        let mut metrics: Vec<&mut dyn Metric<B>> = metrics.iter_mut().map(|m| &mut **m as _).collect();
        let measured = evaluate_until(backend, self.model, self.closure, loader, &mut metrics, stop)?;
        Ok(measured.map(|m| m.values))
    }

    /// Saves the weights and the record of the epoch; true if a stop was requested.
    fn finish_epoch(&mut self, done: Epoch, valid: Option<Values>) -> Result<bool> {
        let mut record = EpochRecord {
            epoch: self.epoch,
            step: self.updates,
            skipped: done.skipped,
            lr: self.optimizer.lr(),
            train: done.values,
            valid,
            best: false,
            samples: done.samples,
            seconds: done.seconds,
            samples_per_second: done.samples as f64 / done.seconds,
            execution: done.execution,
        };
        let monitor = &self.trainer.options.monitor;
        let value = monitor.value(&record)?;
        record.best = self.progress.update(monitor, value);
        if let Some(plateau) = &mut self.plateau {
            let lr = plateau.observe(value, self.optimizer.lr())?;
            self.optimizer.set_lr(lr);
        }
        self.look_after()?;
        // The last weights are saved before the best, so that the best file is never newer than the last.
        self.save(RunFolder::LAST)?;
        if record.best {
            self.save(RunFolder::BEST)?;
        }
        self.history.push(record.clone())?;
        let asked = self.trainer.tell(|c| c.on_epoch_end(&record))?;
        Ok(asked || self.trainer.stop.is_requested())
    }
}
