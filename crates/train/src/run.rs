//! The training loop: epochs, and the batches of each.
//!
//! Steps that a backend may record and replay are in `capture.rs`; nothing is read back inside them. `step.rs` runs steps op by
//! op, among them those that are skipped if their gradients are not finite. In both cases losses and metrics stay on the device
//! until they are read together.

use crate::buffers::Buffers;
use crate::group::{Came, Group};
use crate::losses::{LOSS, Losses, NonFiniteAt};
use crate::monitor::Progress;
use crate::recording::Recorder;
use crate::weights::first_non_finite;
use crate::{
    End, EpochRecord, Execution, Goal, History, Metric, NonFinite, Phase, Report, Result, RunFolder, Running, StepInfo,
    TrainError, Trainer, Validation, Values, Warning,
};
use kiln_core::{Backend, Interrupt};
use kiln_data::{Batch, Loaded, Loader};
use kiln_nn::Module;
use kiln_nn::optim::ReduceOnPlateau;
use std::collections::BTreeSet;
use std::time::Instant;

pub(crate) const ADVICE: &str = "try a smaller learning rate, clip gradients, or look at the data";

/// The results of one epoch.
struct Epoch {
    samples: u64,
    skipped: u64,
    seconds: f64,
    values: Values,
    execution: Execution,
    stopped: bool,
}

/// A phase in this run.
pub(crate) struct Leg<'p, B: Backend, M, T: Batch> {
    pub(crate) phase: Phase<'p, B, M, T>,
    pub(crate) recorder: Recorder<B, T>,
    pub(crate) losses: Losses<B>,
    /// The number of its updates so far, skipped ones included.
    pub(crate) attempts: u64,
    /// A copy of the trainer's, so that its state is not carried into the next run.
    plateau: Option<ReduceOnPlateau>,
}

impl<B: Backend, M, T: Batch> Leg<'_, B, M, T> {
    /// The name of a measured value of this phase.
    fn label(&self, name: &str) -> String {
        match &self.phase.name[..] {
            "" => name.to_string(),
            phase => format!("{phase}/{name}"),
        }
    }

    fn labelled(&self, values: Values) -> impl Iterator<Item = (String, f64)> {
        values.into_iter().map(|(name, value)| (self.label(&name), value))
    }
}

pub(crate) struct Run<'a, 'p, B: Backend, M, T: Batch> {
    pub(crate) trainer: &'a mut Trainer<B>,
    pub(crate) model: &'a mut M,
    pub(crate) legs: Vec<Leg<'p, B, M, T>>,
    /// The sums of the training metrics, in the order of `trainer.metrics`.
    pub(crate) running: Vec<Running<B>>,
    execution: Execution,
    pub(crate) history: History,
    progress: Progress,
    /// The epoch in progress, counted from 1.
    pub(crate) epoch: u64,
    /// The number of steps so far, skipped ones included: the step in messages.
    pub(crate) step: u64,
    /// The number of steps so far of which no update was skipped: the step in reports.
    pub(crate) updates: u64,
    /// The number of consecutive updates skipped.
    pub(crate) skipped_in_a_row: u64,
    /// The names of the weight files written so far.
    pub(crate) saved: BTreeSet<&'static str>,
    pub(crate) warnings: Vec<Warning>,
    /// True once a step in progress is to be abandoned.
    pub(crate) interrupt: Interrupt,
    /// True if the model has buffers or counters, which a forward pass changes.
    pub(crate) has_buffers: bool,
}

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    pub(crate) fn new(
        trainer: &'a mut Trainer<B>,
        model: &'a mut M,
        phases: Vec<Phase<'p, B, M, T>>,
        history: History,
    ) -> Self {
        let maximize = trainer.options.monitor.goal == Goal::Max;
        let plateau = trainer.plateau.clone().map(|p| ReduceOnPlateau { maximize, ..p });
        let options = &trainer.options;
        let leg = |phase| Leg {
            phase,
            recorder: Recorder::new(options.capture && !options.skips(), options.accumulate),
            losses: Losses::new(),
            attempts: 0,
            plateau: plateau.clone(),
        };
        Run {
            legs: phases.into_iter().map(leg).collect(),
            interrupt: trainer.stop.interrupt(trainer.grace),
            has_buffers: Buffers::of(&*model).any(),
            running: trainer.metrics.iter().map(|_| Running::new()).collect(),
            execution: Execution::default(),
            trainer,
            model,
            history,
            progress: Progress::default(),
            epoch: 0,
            step: 0,
            updates: 0,
            skipped_in_a_row: 0,
            saved: BTreeSet::new(),
            warnings: Vec::new(),
        }
    }

    /// Runs all epochs.
    pub(crate) fn all<D: Default + Send + 'static>(
        mut self,
        train: &Loader<D, T>,
        valid: Option<&Validation<'_, B, M>>,
    ) -> Result<Report> {
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
            not_captured: self.legs.into_iter().find_map(|leg| leg.recorder.obstacle),
            history: self.history,
            warnings: self.warnings,
        })
    }

    /// Adds the step and the epoch to an error.
    pub(crate) fn at<R>(&self, result: kiln_core::Result<R>) -> Result<R> {
        result.map_err(|source| TrainError::Step {
            step: self.step,
            epoch: self.epoch,
            source,
        })
    }

    /// True if the run has made `max_steps` steps.
    fn all_steps_done(&self) -> bool {
        self.trainer.options.max_steps.is_some_and(|most| self.step >= most)
    }

    /// The largest number of batches of a phase since its losses were last reported.
    fn unreported(&self) -> usize {
        self.legs.iter().map(|leg| leg.losses.unreported()).max().unwrap_or(0)
    }

    /// Runs one pass over the training data.
    fn train<D: Default + Send + 'static>(&mut self, loader: &Loader<D, T>) -> Result<Epoch> {
        self.model.train();
        let mut metrics = self.trainer.metrics.iter_mut().zip(&mut self.running);
        let reset = metrics.try_for_each(|(metric, running)| running.reset(&mut **metric));
        self.at(reset)?;
        self.legs.iter_mut().for_each(|leg| leg.losses.reset());
        let began = Instant::now();
        let mut group = Group::empty();
        // The batches collected for a step, if it needs all of them at once, and the last batch of the latest step.
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
            let records = self.legs.iter().any(|leg| leg.recorder.is_wanted());
            if records || self.legs.len() > 1 || !waiting.is_empty() {
                waiting.push(host);
                if last || waiting.len() == self.trainer.options.accumulate {
                    let came = self.run_step(&waiting, records)?;
                    skipped += u64::from(came == Came::Skipped);
                    stopped |= came == Came::GivenUp;
                    latest = waiting.drain(..).next_back();
                }
            } else {
                let came = self.take(0, &host, &mut group, last)?;
                skipped += u64::from(came == Came::Skipped);
                stopped |= came == Came::GivenUp;
                latest = Some(host);
            }
            if stopped {
                break;
            }
            last |= !group.begun && waiting.is_empty() && self.all_steps_done();
            let mut values = Values::new();
            if last || self.unreported() >= self.trainer.options.log_every {
                values = self.read(latest.as_ref())?;
            }
            let info = StepInfo {
                epoch: self.epoch,
                batch: number,
                step: self.updates,
                samples,
                seconds: began.elapsed().as_secs_f64(),
                lr: self.lr(),
                loss: self.legs.first().and_then(|leg| values.get(&leg.label(LOSS)).copied()),
                values,
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
            self.give_up(&mut group)?;
        }
        self.trainer.backend.sync()?;
        let seconds = began.elapsed().as_secs_f64();
        let mut values = Values::new();
        for leg in &self.legs {
            values.extend(leg.labelled(leg.losses.means()));
        }
        for (metric, running) in self.trainer.metrics.iter_mut().zip(&mut self.running) {
            values.extend(running.finish(&mut **metric)?);
        }
        let mut execution = Execution::default();
        for leg in &mut self.legs {
            execution.add(&std::mem::take(&mut leg.recorder.execution));
        }
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

    /// The learning rate of the first phase.
    fn lr(&self) -> f64 {
        self.legs.first().map_or(f64::NAN, |leg| leg.phase.optimizer.lr())
    }

    /// Reads the pending losses; returns the means since the last read, if there are any.
    fn read(&mut self, latest: Option<&Loaded<T>>) -> Result<Values> {
        let mut values = Values::new();
        for at in 0..self.legs.len() {
            let bad = self.legs[at].losses.read()?;
            if let (Some(bad), NonFinite::Stop) = (bad, self.trainer.options.non_finite) {
                return Err(self.non_finite(bad, latest)?);
            }
            let read = self.legs[at].losses.report();
            values.extend(self.legs[at].labelled(read));
        }
        Ok(values)
    }

    /// Makes the error for a loss that is not finite, with its cause if that can be found.
    fn non_finite(&self, bad: NonFiniteAt, latest: Option<&Loaded<T>>) -> Result<TrainError> {
        let cause = match (
            first_non_finite(self.model)?,
            latest.and_then(|batch| batch.first_non_finite()),
        ) {
            (Some(name), _) => Some(format!("`{name}` holds values that are not finite")),
            (None, Some(name)) => Some(format!("`{name}` of the batch holds values that are not finite")),
            (None, None) => None,
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
    fn validate(&mut self, valid: &Validation<'_, B, M>) -> Result<Option<Values>> {
        let Trainer {
            backend, metrics, stop, ..
        } = &mut *self.trainer;
        let mut metrics: Vec<&mut dyn Metric<B>> = metrics.iter_mut().map(|m| &mut **m as _).collect();
        let measured = (valid.run)(backend, self.model, &mut metrics, stop)?;
        Ok(measured.map(|m| m.values))
    }

    /// True if something depends on the monitored metric besides the choice of the best weights.
    fn watches(&self) -> bool {
        self.trainer.options.patience.is_some() || self.trainer.plateau.is_some()
    }

    /// Checks that every metric was measured somewhere.
    fn check_measured(&self, train: &Values, valid: Option<&Values>) -> Result<()> {
        for metric in &self.trainer.metrics {
            let name = metric.name();
            if !train.contains_key(&name) && !valid.is_some_and(|v| v.contains_key(&name)) {
                return Err(TrainError::NotMeasured {
                    metric: name,
                    reads: metric.reads().join("`, `"),
                });
            }
        }
        Ok(())
    }

    /// Saves the weights and the record of the epoch; true if a stop was requested.
    fn finish_epoch(&mut self, done: Epoch, valid: Option<Values>) -> Result<bool> {
        self.check_measured(&done.values, valid.as_ref())?;
        let named = self.legs.iter().filter(|leg| !leg.phase.name.is_empty());
        let mut record = EpochRecord {
            epoch: self.epoch,
            step: self.updates,
            skipped: done.skipped,
            lr: self.lr(),
            lrs: named
                .map(|leg| (leg.phase.name.clone(), leg.phase.optimizer.lr()))
                .collect(),
            train: done.values,
            valid,
            best: false,
            samples: done.samples,
            seconds: done.seconds,
            samples_per_second: done.samples as f64 / done.seconds,
            execution: done.execution,
        };
        let monitor = &self.trainer.options.monitor;
        match monitor.value(&record) {
            Ok(value) => {
                record.best = self.progress.update(monitor, value);
                for Leg { plateau, phase, .. } in &mut self.legs {
                    if let Some(plateau) = plateau {
                        let lr = plateau.observe(value, phase.optimizer.lr())?;
                        phase.optimizer.set_lr(lr);
                    }
                }
            }
            // Of several losses none is the one to watch unless it is named.
            Err(_) if monitor.metric == LOSS && !self.watches() => {}
            Err(error) => return Err(error),
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
