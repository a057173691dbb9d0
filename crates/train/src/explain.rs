//! Explains steps that the device has skipped: at once where it is known at once, else by making the step again.

use crate::group::Came;
use crate::run::Run;
use crate::{Cause, Result, TrainError, Warning};
use kiln_core::Backend;
use kiln_data::{Batch, Loader};
use kiln_nn::Module;
use std::collections::BTreeSet;

/// The number of skipped steps of a run that are examined.
const EXAMINED: u64 = 4;

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Warns of a step that was skipped, with the first value in it that is not finite. Its first batch is the present one.
    pub(crate) fn explain_skipped<D: Default + Send + 'static>(
        &mut self,
        loader: &Loader<D, T>,
        batches: u64,
    ) -> Result<()> {
        let Some((_, at)) = self.skipped.take().filter(|_| self.explains()) else {
            return Ok(());
        };
        self.explained += 1;
        let hosts: Result<Vec<_>, _> = loader.resume(self.position())?.take(batches as usize).collect();
        let hosts = hosts?;
        if let Some(first) = self.examine(at, &hosts, &BTreeSet::new())? {
            let cause = self.cause(at, first, &hosts);
            self.warn(Warning::Skipped { cause: Box::new(cause) });
        }
        Ok(())
    }

    /// As [`explain_skipped`](Run::explain_skipped), for the first step that was skipped among those whose losses have just been read
    /// together: it is made again from the state that was kept before it, and the run goes on from where it is.
    pub(crate) fn explain_late<D: Default + Send + 'static>(&mut self, loader: &Loader<D, T>) -> Result<()> {
        let Some((step, _)) = self.skipped.take().filter(|_| self.explains()) else {
            return Ok(());
        };
        self.explained += 1;
        let (manifest, tensors) = self.snapshot()?;
        let execution: Vec<_> = self.legs.iter().map(|leg| leg.recorder.execution).collect();
        let cause = self.find_skipped(loader, step)?;
        self.go_to(&manifest, &tensors)?;
        for (leg, execution) in self.legs.iter_mut().zip(execution) {
            leg.recorder.execution = execution;
        }
        if let Some(cause) = cause {
            self.warn(Warning::Skipped { cause: Box::new(cause) });
        }
        Ok(())
    }

    fn explains(&self) -> bool {
        self.explained < EXAMINED && self.trainer.options.find_non_finite
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
