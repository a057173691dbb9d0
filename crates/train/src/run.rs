//! The training loop: epochs, and the batches of each.
//!
//! Steps that a backend may record and replay are in `capture.rs`, `step.rs` runs steps op by op. Nothing is read back inside of a
//! step: losses, metrics, and whether an update was skipped (`verdict.rs`) stay on the device until they are read together.

use crate::buffers::Buffers;
use crate::checkpoint::{EpochState, Kept, Writer};
use crate::explained::Explained;
use crate::grad_norm::Norms;
use crate::group::{Came, Group};
use crate::host_state::Held;
use crate::journal::Journal;
use crate::left::Left;
use crate::losses::{LOSS, Losses, NonFiniteAt};
use crate::monitor::Progress;
use crate::recording::Recorder;
use crate::report::TwinReport;
use crate::{
    End, EpochRecord, Execution, Goal, History, Metric, NonFinite, Phase, Report, Result, RunFolder, Running, StepInfo,
    TrainError, Trainer, Validation, Values, Warning,
};
use kiln_core::{Backend, Interrupt};
use kiln_data::{Batch, Loader, Position};
use kiln_nn::optim::{AveragedModel, GradScaler, ReduceOnPlateau};
use kiln_nn::{Module, Tensor};
use kiln_nvtx::{range, range_with};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(crate) const ADVICE: &str = "try a smaller learning rate, clip gradients, or look at the data";

/// The reason why a pass over the training data ended.
#[derive(Clone, Copy, PartialEq)]
enum Passed {
    /// All batches are done.
    Whole,
    /// The run has made [`TrainOptions::max_steps`](crate::TrainOptions::max_steps) steps.
    Cut,
    /// A stop was requested.
    Stopped,
}

/// A phase in this run.
pub(crate) struct Leg<'p, B: Backend, M, T: Batch> {
    pub(crate) phase: Phase<'p, B, M, T>,
    pub(crate) recorder: Recorder<B, T>,
    pub(crate) losses: Losses<B>,
    pub(crate) norms: Norms<B>,
    /// The number of its updates so far, skipped ones included.
    pub(crate) attempts: u64,
    /// What decides on the device whether an update is made, with the scale of the losses in mixed precision with f16.
    pub(crate) scaler: Option<GradScaler<B>>,
    /// A copy of the trainer's, so that its state is not carried into the next run.
    pub(crate) plateau: Option<ReduceOnPlateau>,
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
    /// The gradient of a loss by itself, with which backward passes begin.
    pub(crate) one: Tensor<B>,
    /// The average of the weights, once there is one.
    pub(crate) averaged: Option<AveragedModel<B>>,
    pub(crate) history: History,
    pub(crate) journal: Journal,
    pub(crate) progress: Progress,
    /// The epoch in progress, counted from 1.
    pub(crate) epoch: u64,
    /// What the steps of this epoch that are complete have used.
    pub(crate) at_epoch: EpochState,
    /// What has to be the same when the run goes on from one of its checkpoints.
    pub(crate) identity: BTreeMap<String, String>,
    pub(crate) writer: Option<Writer>,
    /// When callbacks were last asked for readings; `None` outside of the training of an epoch.
    pub(crate) read_at: Option<Instant>,
    /// The step and the time of the last checkpoint.
    pub(crate) checkpointed: (u64, Instant),
    /// The number of steps so far, skipped ones included: the step in messages.
    pub(crate) step: u64,
    /// The number of steps so far of which no update was skipped, as far as has been read: the step in reports.
    pub(crate) updates: u64,
    /// The time that the last step took that was made from all its batches at once.
    pub(crate) step_took: Option<Duration>,
    /// The states of the host before the step in progress.
    pub(crate) host_before: Held,
    /// The number of consecutive updates skipped.
    pub(crate) skipped_in_a_row: u64,
    /// The factor of the rates of schedules, which falls when the run goes back, and may be changed on request.
    pub(crate) lr_factor: f64,
    /// A step that was skipped, unless that was because the scale of its loss is falling, and its phase: the first that is not examined yet.
    pub(crate) skipped: Option<(u64, usize)>,
    /// A loss that is not finite, and that was read before it was looked for.
    pub(crate) unseen: Option<NonFiniteAt>,
    /// The explanations of skipped steps so far.
    pub(crate) explained: Explained,
    /// The number of capsules that were written.
    pub(crate) capsules: u64,
    /// The state that the run can go back to.
    pub(crate) kept: Option<Kept>,
    /// The step after which all weights were found to be finite.
    pub(crate) finite_at: Option<u64>,
    /// Layers that were to be computed again and were not.
    pub(crate) left: RefCell<Left>,
    /// What was compared with the twin.
    pub(crate) twin: Option<TwinReport>,
    /// The names of the weight files written so far.
    pub(crate) saved: BTreeSet<&'static str>,
    pub(crate) warnings: Vec<Warning>,
    /// True once a step in progress is to be abandoned.
    pub(crate) interrupt: Interrupt,
    /// True if the model has buffers or counters, which a forward pass changes.
    pub(crate) has_buffers: bool,
}

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    pub(crate) fn new(trainer: &'a mut Trainer<B>, model: &'a mut M, phases: Vec<Phase<'p, B, M, T>>) -> Result<Self> {
        let maximize = trainer.options.monitor.goal == Goal::Max;
        let plateau = trainer.plateau.clone().map(|p| ReduceOnPlateau { maximize, ..p });
        let options = &trainer.options;
        let leg = |phase| {
            Ok(Leg {
                phase,
                recorder: Recorder::new(options.capture, options.accumulate),
                losses: Losses::new(),
                norms: Norms::new(),
                attempts: 0,
                scaler: match (options.scales(), options.skips()) {
                    (true, _) => Some(GradScaler::new(&trainer.backend)?),
                    (false, true) => Some(GradScaler::without_scale(&trainer.backend)?),
                    (false, false) => None,
                },
                plateau: plateau.clone(),
            })
        };
        Ok(Run {
            legs: phases.into_iter().map(leg).collect::<Result<_>>()?,
            interrupt: trainer.stop.interrupt(trainer.grace),
            has_buffers: Buffers::of(&*model).any(),
            running: trainer.metrics.iter().map(|_| Running::resumable()).collect(),
            writer: trainer.folder.clone().map(Writer::new),
            read_at: None,
            checkpointed: (0, Instant::now()),
            identity: BTreeMap::new(),
            at_epoch: EpochState::default(),
            execution: Execution::default(),
            one: Tensor::from_slice(&trainer.backend, &[1.0f32], &[])?,
            trainer,
            model,
            averaged: None,
            history: History::new(),
            journal: Journal::default(),
            progress: Progress::default(),
            epoch: 1,
            step: 0,
            updates: 0,
            step_took: None,
            host_before: Held::new(),
            skipped_in_a_row: 0,
            lr_factor: 1.0,
            skipped: None,
            unseen: None,
            explained: Explained::default(),
            capsules: 0,
            kept: None,
            finite_at: None,
            left: RefCell::default(),
            twin: None,
            saved: BTreeSet::new(),
            warnings: Vec::new(),
        })
    }

    /// Runs all epochs.
    pub(crate) fn all<D: Default + Send + 'static>(
        mut self,
        train: &Loader<D, T>,
        valid: Option<&Validation<'_, B, M>>,
    ) -> Result<Report> {
        let end = match self.epochs(train, valid) {
            Ok(end) => end,
            Err(error) => {
                self.rescue(&error);
                return Err(error);
            }
        };
        self.keep_whole()?;
        Ok(Report {
            end,
            steps: self.updates,
            execution: self.execution,
            not_captured: self.legs.into_iter().find_map(|leg| leg.recorder.obstacle),
            twin: self.twin,
            history: self.history,
            warnings: self.warnings,
        })
    }

    /// Runs the epochs that are left.
    fn epochs<D: Default + Send + 'static>(
        &mut self,
        train: &Loader<D, T>,
        valid: Option<&Validation<'_, B, M>>,
    ) -> Result<End> {
        while self.epoch <= self.trainer.options.epochs && !(self.all_steps_done() && self.at_epoch.batches == 0) {
            let passed = match self.train(train) {
                Ok(passed) => passed,
                Err(error) => return Err(self.with_cause(train, error)),
            };
            if passed == Passed::Cut {
                self.obey()?;
                // With more steps the run goes on within this epoch.
                self.checkpoint()?;
            }
            let (mut passed, held) = (passed, self.trainer.host_states.hold());
            if passed != Passed::Stopped {
                let updated = self.update_bn(train);
                if !self.of_validation(updated)? {
                    passed = Passed::Stopped;
                }
            }
            let mut measured = None;
            if let (true, Some(valid)) = (passed != Passed::Stopped, valid) {
                self.begin_readings();
                let validated = self.with_average(|run| run.validate(valid));
                measured = self.of_validation(validated)?;
                self.end_readings_of_validation();
            }
            if passed == Passed::Stopped || (valid.is_some() && measured.is_none()) {
                self.trainer.host_states.put_back(held);
                self.obey()?;
                self.save(&[RunFolder::LAST])?;
                self.checkpoint()?;
                return Ok(End::Stopped);
            }
            let stopped = self.finish_epoch(measured)?;
            if passed == Passed::Whole {
                self.checkpoint()?;
                self.obey()?;
            }
            if stopped {
                return Ok(End::Stopped);
            }
            if self.trainer.options.patience.is_some_and(|p| self.progress.stale >= p) {
                return Ok(End::EarlyStopped);
            }
        }
        Ok(End::Finished)
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

    /// The position of the next batch.
    pub(crate) fn position(&self) -> Position {
        Position {
            epoch: self.epoch - 1,
            batch: self.at_epoch.batches,
        }
    }

    /// The largest number of batches of a phase since its losses were last reported.
    fn unreported(&self) -> usize {
        self.legs.iter().map(|leg| leg.losses.unreported()).max().unwrap_or(0)
    }

    /// Runs the rest of a pass over the training data.
    fn train<D: Default + Send + 'static>(&mut self, loader: &Loader<D, T>) -> Result<Passed> {
        self.model.train();
        self.begin_readings();
        let _epoch = range_with(|| format!("epoch {}", self.epoch));
        let began = Instant::now();
        let before = self.at_epoch.seconds;
        let mut waiting_seconds = self.at_epoch.waiting;
        let mut group = Group::empty();
        // The batches collected for a step, if it needs all of them at once, and the last batch of the latest step.
        let (mut waiting, mut latest) = (Vec::new(), None);
        let EpochState {
            batches: mut number,
            mut samples,
            ..
        } = self.at_epoch.clone();
        let mut batches = loader.resume(self.position())?;
        waiting_seconds += began.elapsed().as_secs_f64();
        self.keep_start()?;
        let stop = self.trainer.stop.clone();
        let mut passed = match batches.len() {
            0 => Some(Passed::Whole),
            _ => self.all_steps_done().then_some(Passed::Cut),
        };
        while passed.is_none() {
            if !group.begun && waiting.is_empty() && self.trainer.control.is_asked() {
                if let Some(bad) = self.look(true)? {
                    self.resolve(bad, loader, latest.as_ref())?;
                    (number, samples) = (self.at_epoch.batches, self.at_epoch.samples);
                    batches = loader.resume(self.position())?;
                    latest = None;
                }
                self.obey()?;
                if batches.len() == 0 {
                    passed = Some(Passed::Whole);
                    break;
                }
            }
            let asked = Instant::now();
            let wait = range("wait for a batch");
            let next = match stop.is_requested() {
                true => None,
                false => batches.next_until(&|| stop.is_requested()),
            };
            drop(wait);
            waiting_seconds += asked.elapsed().as_secs_f64();
            // The loop ends below after the last batch, so `None` means that the run was stopped.
            let Some(host) = next else {
                passed = Some(Passed::Stopped);
                break;
            };
            let host = host?;
            if !group.begun && waiting.is_empty() {
                self.check_twin(&host)?;
            }
            number += 1;
            samples += host.len() as u64;
            let mut last = batches.len() == 0;
            let records = self.legs.iter().any(|leg| leg.recorder.is_wanted());
            let mut came = Came::In;
            if records || self.legs.len() > 1 || !waiting.is_empty() {
                waiting.push(host);
                if last || waiting.len() == self.trainer.options.accumulate {
                    came = self.run_step(&waiting, records)?;
                    latest = waiting.drain(..).next_back();
                }
            } else {
                came = self.take(0, &host, &mut group, last)?;
                latest = Some(host);
            }
            if came == Came::GivenUp {
                passed = Some(Passed::Stopped);
                break;
            }
            let complete = !group.begun && waiting.is_empty();
            if complete {
                if let Some(left) = self.left.get_mut().warning() {
                    self.warn(left);
                }
                came = self.decided(came)?;
                if came == Came::Skipped {
                    self.explain_skipped(loader, number - self.at_epoch.batches)?;
                }
                self.complete(came, number - self.at_epoch.batches, samples - self.at_epoch.samples)?;
                self.at_epoch.seconds = before + began.elapsed().as_secs_f64();
                self.at_epoch.waiting = waiting_seconds;
            }
            passed = match last {
                true => Some(Passed::Whole),
                false => (complete && self.all_steps_done()).then_some(Passed::Cut),
            };
            last |= passed.is_some();
            let mut values = Values::new();
            let reports = last || self.unreported() >= self.trainer.options.log_every;
            let saves = complete && !last && self.is_checkpoint_due()?;
            if complete && (reports || saves) {
                if let Some(bad) = self.look(last || saves)? {
                    self.resolve(bad, loader, latest.as_ref())?;
                    // The run has gone back, and goes on behind the step that was left out.
                    (number, samples) = (self.at_epoch.batches, self.at_epoch.samples);
                    batches = loader.resume(self.position())?;
                    latest = None;
                    passed = match batches.len() {
                        0 => Some(Passed::Whole),
                        _ => self.all_steps_done().then_some(Passed::Cut),
                    };
                    continue;
                }
                self.explain_late(loader)?;
                if reports {
                    values = self.report();
                }
                if !last {
                    self.keep(false)?;
                }
            }
            let info = StepInfo {
                epoch: self.epoch,
                batch: number,
                step: self.updates,
                samples,
                seconds: before + began.elapsed().as_secs_f64(),
                waiting: waiting_seconds,
                lr: self.lr(),
                loss: self.legs.first().and_then(|leg| values.get(&leg.label(LOSS)).copied()),
                values,
            };
            let asked = self.trainer.tell(|c| c.on_step(&info))?;
            if saves {
                self.checkpoint()?;
            }
            if asked || (last && stop.is_requested()) {
                passed = Some(Passed::Stopped);
            }
        }
        if passed == Some(Passed::Stopped) {
            // The batches that were accumulated for a step that was not completed are dropped.
            self.give_up(0, &mut group)?;
            if let Some(bad) = self.look(true)? {
                self.resolve(bad, loader, latest.as_ref())?;
            }
        }
        self.trainer.backend.sync()?;
        self.at_epoch.seconds = before + began.elapsed().as_secs_f64();
        self.at_epoch.waiting = waiting_seconds;
        self.end_readings();
        for leg in &mut self.legs {
            self.at_epoch
                .execution
                .add(&std::mem::take(&mut leg.recorder.execution));
        }
        Ok(passed.unwrap_or(Passed::Whole))
    }

    /// The learning rate of the first phase.
    fn lr(&self) -> f64 {
        self.legs.first().map_or(f64::NAN, |leg| leg.phase.optimizer.lr())
    }

    /// The means of what was read since the last report.
    fn report(&mut self) -> Values {
        let mut values = Values::new();
        for leg in &mut self.legs {
            let mut read = leg.losses.report();
            read.extend(leg.norms.report());
            values.extend(leg.labelled(read));
        }
        values
    }

    /// Counts a step that is complete, of this many batches and samples.
    pub(crate) fn complete(&mut self, came: Came, batches: u64, samples: u64) -> Result<()> {
        self.at_epoch.skipped += u64::from(came == Came::Skipped);
        if came == Came::In {
            self.average()?;
            if matches!(self.trainer.options.non_finite, NonFinite::Rollback { .. }) && !self.decides() {
                self.skipped_in_a_row = 0;
            }
        }
        self.at_epoch.batches += batches;
        self.at_epoch.samples += samples;
        for (metric, running) in self.trainer.metrics.iter().zip(&mut self.running) {
            running.settle_if_due(&**metric)?;
        }
        Ok(())
    }

    /// Evaluates the model on the validation set; `None` if a stop was requested before the end.
    fn validate(&mut self, valid: &Validation<'_, B, M>) -> Result<Option<Values>> {
        let _validation = range("validation");
        let Trainer {
            backend,
            metrics,
            stop,
            options,
            ..
        } = &mut *self.trainer;
        let mut metrics: Vec<&mut dyn Metric<B>> = metrics.iter_mut().map(|m| &mut **m as _).collect();
        let measured = options.in_precision(|| Ok((valid.run)(backend, self.model, &mut metrics, stop)))??;
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

    /// Saves the weights and the record of the epoch, and begins the next; true if a stop was requested.
    fn finish_epoch(&mut self, valid: Option<Values>) -> Result<bool> {
        let mut train = Values::new();
        for leg in &self.legs {
            train.extend(leg.labelled(leg.losses.means()));
            train.extend(leg.labelled(leg.norms.values()));
        }
        for (metric, running) in self.trainer.metrics.iter_mut().zip(&mut self.running) {
            train.extend(running.finish(&mut **metric)?);
        }
        self.check_measured(&train, valid.as_ref())?;
        let EpochState {
            samples,
            skipped,
            seconds,
            waiting,
            execution,
            machine,
            ..
        } = std::mem::take(&mut self.at_epoch);
        self.execution.add(&execution);
        let named = self.legs.iter().filter(|leg| !leg.phase.name.is_empty());
        let mut record = EpochRecord {
            epoch: self.epoch,
            step: self.updates,
            skipped,
            lr: self.lr(),
            lrs: named
                .map(|leg| (leg.phase.name.clone(), leg.phase.optimizer.lr()))
                .collect(),
            train,
            valid,
            best: false,
            samples,
            seconds,
            waiting,
            samples_per_second: samples as f64 / seconds,
            execution,
            machine: machine.values(),
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
        self.save_epoch(record.best)?;
        self.history.push(record.clone())?;
        let asked = self.trainer.tell(|c| c.on_epoch_end(&record))?;
        self.begin_epoch()?;
        Ok(asked || self.trainer.stop.is_requested())
    }

    /// Begins the next epoch with nothing measured.
    pub(crate) fn begin_epoch(&mut self) -> Result<()> {
        self.epoch += 1;
        for leg in &mut self.legs {
            leg.losses.reset();
            leg.norms.reset();
        }
        let mut metrics = self.trainer.metrics.iter_mut().zip(&mut self.running);
        let reset = metrics.try_for_each(|(metric, running)| running.reset(&mut **metric));
        self.at(reset)
    }
}
