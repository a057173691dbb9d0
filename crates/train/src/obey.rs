//! Requests to a run in progress: those of its [`Control`](crate::Control), which go into the journal, and the readings
//! of callbacks, which go into the records of epochs.

use crate::control::Request;
use crate::journal::utc;
use crate::run::{Leg, Run};
use crate::{Checkpoint, Event, JournalEntry, Result};
use kiln_core::Backend;
use kiln_data::Batch;
use kiln_nn::Module;
use kiln_nn::optim::Schedule;
use std::time::{Instant, SystemTime};

impl<B: Backend, M, T: Batch> Leg<'_, B, M, T> {
    /// The schedule of its rate, its own or the trainer's.
    fn schedule<'s>(&'s self, common: Option<&'s Schedule>) -> Option<&'s Schedule> {
        self.phase.schedule.as_ref().or(common)
    }

    /// The learning rate of its next update, with the factor of schedules.
    fn next_lr(&self, common: Option<&Schedule>, factor: f64) -> f64 {
        match self.schedule(common) {
            Some(schedule) => schedule.lr(self.attempts) * factor,
            None => self.phase.optimizer.lr(),
        }
    }
}

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Does what was asked since the last step. The run is between two steps, and all losses have been read.
    pub(crate) fn obey(&mut self) -> Result<()> {
        for request in self.trainer.control.take() {
            match request {
                Request::Stop => {
                    self.trainer.stop.request();
                    self.note(Event::Stop)?;
                }
                Request::Save => {
                    self.checkpoint()?;
                    let name = Checkpoint::manifest_name(self.step);
                    let writes = self.writer.is_some() && self.trainer.options.checkpoints.is_some();
                    let checkpoint = writes.then_some(name);
                    self.note(Event::Save { checkpoint })?;
                }
                Request::ScaleLr(factor) => self.change_lr(factor, None)?,
                Request::SetLr(lr) => {
                    let common = self.trainer.schedule.as_ref();
                    let now = self.legs.first().map_or(0.0, |leg| leg.next_lr(common, self.lr_factor));
                    let factor = if now > 0.0 { lr / now } else { 1.0 };
                    self.change_lr(factor, Some(lr))?;
                }
            }
        }
        Ok(())
    }

    /// Multiplies the rates of all phases; without a schedule the first one's is then exactly `to`.
    fn change_lr(&mut self, factor: f64, to: Option<f64>) -> Result<()> {
        let common = self.trainer.schedule.clone();
        let (before, after) = (self.lr_factor, self.lr_factor * factor);
        let mut changes = Vec::new();
        for (i, leg) in self.legs.iter_mut().enumerate() {
            let from = leg.next_lr(common.as_ref(), before);
            if leg.schedule(common.as_ref()).is_none() {
                leg.phase
                    .optimizer
                    .set_lr(to.filter(|_| i == 0).unwrap_or(from * factor));
            }
            changes.push(Event::Lr {
                phase: leg.phase.name.clone(),
                from,
                to: leg.next_lr(common.as_ref(), after),
            });
        }
        self.lr_factor = after;
        // A run that goes back does so to a state with this rate.
        if self.trainer.options.find_non_finite {
            self.kept_now()?;
        }
        changes.into_iter().try_for_each(|change| self.note(change))
    }

    /// Begins the readings of an epoch, or of what is left of it, or those of its validation.
    pub(crate) fn begin_readings(&mut self) {
        for callback in &mut self.trainer.callbacks {
            drop(callback.readings());
        }
        self.read_at = Some(Instant::now());
    }

    /// Adds what callbacks have measured to the epoch.
    pub(crate) fn take_readings(&mut self) {
        let Some(since) = self.read_at else { return };
        let seconds = since.elapsed().as_secs_f64();
        for callback in &mut self.trainer.callbacks {
            self.at_epoch.machine.add(callback.readings(), seconds);
        }
        self.read_at = Some(Instant::now());
    }

    /// As [`take_readings`](Run::take_readings), at the end of the training of an epoch.
    pub(crate) fn end_readings(&mut self) {
        self.take_readings();
        self.read_at = None;
    }

    /// Ends the readings of the validation of an epoch.
    pub(crate) fn end_readings_of_validation(&mut self) {
        let Some(since) = self.read_at.take() else { return };
        let seconds = since.elapsed().as_secs_f64();
        for callback in &mut self.trainer.callbacks {
            self.at_epoch.machine.add_of_validation(callback.readings(), seconds);
        }
    }

    /// Notes that the run goes on from a checkpoint, if it has a journal.
    pub(crate) fn note_resume(&mut self) -> Result<()> {
        let folder = self.trainer.folder.as_ref();
        match folder.is_some_and(|f| f.open().contains(crate::RunFolder::JOURNAL)) {
            true => self.note(Event::Resume),
            false => Ok(()),
        }
    }

    /// Adds an entry to the journal, and shows it to the callbacks.
    fn note(&mut self, event: Event) -> Result<()> {
        let entry = JournalEntry {
            time: utc(SystemTime::now()),
            step: self.step,
            epoch: self.epoch,
            batch: self.at_epoch.batches,
            event,
        };
        if let Some(folder) = &self.trainer.folder {
            self.journal.push(folder.open(), &entry)?;
        }
        for callback in &mut self.trainer.callbacks {
            callback.on_journal(&entry);
        }
        Ok(())
    }
}
