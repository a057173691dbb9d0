//! Explains steps that the device has skipped: at once where it is known at once, else by making the step again.

use crate::cause::{Cause, Place};
use crate::group::Came;
use crate::run::Run;
use crate::{Result, TrainError, Warning};
use kiln_core::Backend;
use kiln_data::{Batch, Loader};
use kiln_nn::Module;
use kiln_nn::optim::GradScalerState;
use std::collections::BTreeSet;

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Warns of a step that was skipped, with the first value in it that is not finite. Its first batch is the present one.
    pub(crate) fn explain_skipped<D: Default + Send + 'static>(
        &mut self,
        loader: &Loader<D, T>,
        batches: u64,
    ) -> Result<()> {
        let Some((_, at)) = self.next_explained() else {
            return Ok(());
        };
        let hosts: Result<Vec<_>, _> = loader.resume(self.position())?.take(batches as usize).collect();
        let hosts = hosts?;
        // The scale has fallen since the step.
        let now = self.set_scale(at, None)?;
        let first = self.examine(at, &hosts, &BTreeSet::new());
        self.set_scale(at, now)?;
        if let Some(first) = first? {
            let cause = self.cause(at, first, &hosts);
            self.tell_skipped(cause);
        }
        Ok(())
    }

    /// Sets the state of what scales the losses of a phase, or without one the scale of the step before, and returns the state of now.
    fn set_scale(&mut self, at: usize, to: Option<GradScalerState>) -> Result<Option<GradScalerState>> {
        let Some(scaler) = self.legs[at].scaler.as_mut().filter(|_| self.trainer.options.scales()) else {
            return Ok(None);
        };
        let now = scaler.state()?;
        let before = GradScalerState {
            scale: now.scale * 2.0,
            ..now
        };
        scaler.set_state(to.unwrap_or(before))?;
        Ok(Some(now))
    }

    /// Warns of a step that was skipped.
    fn tell_skipped(&mut self, cause: Cause) {
        if !self.explained.tells(&cause.place) {
            return;
        }
        let overflows = matches!(
            &cause.place,
            Place::Op {
                backward: true,
                nan: false,
                ..
            }
        );
        let cause = Box::new(cause);
        self.warn(match self.trainer.options.scales() && overflows {
            true => Warning::Overflow { cause },
            false => Warning::Skipped { cause },
        });
    }

    /// As [`explain_skipped`](Run::explain_skipped), for the first step that was skipped among those whose losses have just been read
    /// together: it is made again from the state that was kept before it, and the run goes on from where it is.
    pub(crate) fn explain_late<D: Default + Send + 'static>(&mut self, loader: &Loader<D, T>) -> Result<()> {
        let Some((step, _)) = self.next_explained() else {
            return Ok(());
        };
        let (manifest, tensors) = self.snapshot()?;
        let execution: Vec<_> = self.legs.iter().map(|leg| leg.recorder.execution).collect();
        let cause = self.find_skipped(loader, step)?;
        self.go_to(&manifest, &tensors)?;
        for (leg, execution) in self.legs.iter_mut().zip(execution) {
            leg.recorder.execution = execution;
        }
        if let Some(cause) = cause {
            self.tell_skipped(cause);
        }
        Ok(())
    }

    /// A skipped step that is to be explained, and its phase.
    fn next_explained(&mut self) -> Option<(u64, usize)> {
        let skipped = self.skipped.take()?;
        (self.trainer.options.find_non_finite && self.explained.examines()).then_some(skipped)
    }

    /// The error that ends the run for too many skipped steps, with the first value that is not finite in the last of them.
    pub(crate) fn with_cause<D: Default + Send + 'static>(
        &mut self,
        loader: &Loader<D, T>,
        error: TrainError,
    ) -> TrainError {
        match error {
            TrainError::TooManySkipped {
                step,
                epoch,
                count,
                cause: None,
                advice,
            } => {
                // The error of the run matters more than one of the search.
                let cause = self.find_skipped(loader, step).unwrap_or_default().map(Box::new);
                TrainError::TooManySkipped {
                    step,
                    epoch,
                    count,
                    advice: cause.as_ref().map_or(advice, |cause| cause.place.advice()),
                    cause,
                }
            }
            other => other,
        }
    }

    /// Finds the first value that is not finite in a step that was skipped; `None` if the state that was kept is a later one, or if all
    /// values are finite this time. The run is in no particular state afterwards.
    fn find_skipped<D: Default + Send + 'static>(&mut self, loader: &Loader<D, T>, step: u64) -> Result<Option<Cause>> {
        if !self.trainer.options.find_non_finite || !self.go_back()? || self.step >= step {
            return Ok(None);
        }
        let mut batches = loader.resume(self.position())?;
        while self.step + 1 < step {
            let hosts = self.next_step(loader, &mut batches)?;
            if hosts.is_empty() || !self.make(&hosts)? {
                return Ok(None);
            }
            self.look(false)?;
        }
        let hosts = self.next_step(loader, &mut batches)?;
        self.step += 1;
        for at in 0..self.legs.len() {
            if !self.is_turn(at) {
                continue;
            }
            if let Some(first) = self.examine(at, &hosts, &BTreeSet::new())? {
                return Ok(Some(self.cause(at, first, &hosts)));
            }
            if self.run_phase(at, &hosts, None, false)? == Came::GivenUp {
                return Ok(None);
            }
        }
        Ok(None)
    }
}
