//! The search for the first value that is not finite: the steps since the last kept state are made again, op by op, and the bad
//! one is watched.

use crate::buffers::Buffers;
use crate::cause::{Cause, Place};
use crate::group::Came;
use crate::losses::NonFiniteAt;
use crate::run::{ADVICE, Run};
use crate::weights::first_non_finite;
use crate::{NonFinite, Result, TrainError, Warning};
use kiln_core::Backend;
use kiln_data::{Batch, Loaded, Loader};
use kiln_nn::module::StateDict;
use kiln_nn::watch::{FirstNonFinite, OpName};
use kiln_nn::{Module, trace};
use std::collections::BTreeSet;

/// The number of capsules that a run writes; each has the size of the model.
pub(crate) const CAPSULES: u64 = 4;

/// The values that are not finite after a step.
pub(crate) enum Bad {
    Loss(NonFiniteAt),
    /// A parameter or buffer of this name.
    Weights(String),
}

/// The first value of a step that is not finite, and the batch that it arose in.
pub(crate) struct First<B: Backend> {
    place: Place,
    /// The number of the batch among those of the step.
    batch: usize,
    /// The model before that batch.
    before: StateDict<B>,
}

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Reads the losses of the steps since the last look, and if asked the weights; returns what is not finite.
    pub(crate) fn look(&mut self, weights: bool) -> Result<Option<Bad>> {
        let read = self.legs.iter_mut().try_for_each(|leg| leg.norms.read());
        self.at(read)?;
        self.at_epoch.skipped += self.read_verdicts()?;
        if let Some(bad) = self.unseen.take() {
            return Ok(Some(Bad::Loss(bad)));
        }
        match weights && self.finite_at != Some(self.step) {
            true => {
                let bad = first_non_finite(self.model);
                let bad = self.at(bad)?;
                self.finite_at = bad.is_none().then_some(self.step);
                Ok(bad.map(Bad::Weights))
            }
            false => Ok(None),
        }
    }

    /// Ends the run with an error, or goes back to before the bad step and leaves that out, as configured.
    pub(crate) fn resolve<D: Default + Send + 'static>(
        &mut self,
        bad: Bad,
        loader: &Loader<D, T>,
        latest: Option<&Loaded<T>>,
    ) -> Result<()> {
        // What can be said without making steps again, which changes the model.
        let in_batch = latest.and_then(|batch| batch.first_non_finite());
        let found = first_non_finite(self.model);
        let guess = match (self.at(found)?, in_batch) {
            (Some(name), _) => Some(Place::Weights { name }),
            (None, Some(array)) => Some(Place::Batch { array }),
            (None, None) => None,
        };
        let (step, epoch) = (self.step, self.epoch);
        let found = self.find(loader)?;
        if let (NonFinite::Rollback { in_a_row, lr_factor }, Some(cause)) = (self.trainer.options.non_finite, &found)
            && !matches!(cause.place, Place::Weights { .. })
        {
            return self.leave_out(loader, cause, in_a_row, lr_factor);
        }
        let place = found.as_ref().map(|cause| &cause.place);
        let advice = place.or(guess.as_ref()).map_or(ADVICE, Place::advice);
        let guess = guess.filter(|_| found.is_none()).map(|place| place.to_string());
        let cause = found.map(Box::new);
        Err(match bad {
            Bad::Loss(NonFiniteAt { step, value }) => TrainError::NonFiniteLoss {
                step,
                epoch,
                value,
                cause,
                guess,
                advice,
            },
            Bad::Weights(name) => TrainError::NonFiniteWeights {
                step,
                epoch,
                name,
                cause,
                advice,
            },
        })
    }

    /// Goes back to before the step of `cause`, and counts that as skipped.
    fn leave_out<D: Default + Send + 'static>(
        &mut self,
        loader: &Loader<D, T>,
        cause: &Cause,
        in_a_row: u64,
        lr_factor: f64,
    ) -> Result<()> {
        self.go_back()?;
        let mut batches = loader.resume(self.position())?;
        while self.step + 1 < cause.step {
            let hosts = self.next_step(loader, &mut batches)?;
            if !self.make(&hosts)? {
                return Ok(());
            }
            self.look(false)?;
        }
        let hosts = self.next_step(loader, &mut batches)?;
        self.step += 1;
        self.skipped_in_a_row += 1;
        if self.skipped_in_a_row > in_a_row {
            return Err(TrainError::TooManySkipped {
                step: self.step,
                epoch: self.epoch,
                count: self.skipped_in_a_row,
                cause: Some(Box::new(cause.clone())),
                advice: cause.place.advice(),
            });
        }
        for at in 0..self.legs.len() {
            self.legs[at].attempts += u64::from(self.is_turn(at));
            let leg = &mut self.legs[at];
            if leg.phase.schedule.is_none() && self.trainer.schedule.is_none() {
                leg.phase.optimizer.set_lr(leg.phase.optimizer.lr() * lr_factor);
            }
        }
        self.lr_factor *= lr_factor;
        let samples: usize = hosts.iter().map(Loaded::len).sum();
        self.complete(Came::Skipped, hosts.len() as u64, samples as u64)?;
        let cause = Box::new(cause.clone());
        self.warn(Warning::RolledBack { cause });
        self.keep(true)
    }

    /// Makes a step op by op; false if it was given up because the run is asked to stop.
    pub(crate) fn make(&mut self, hosts: &[Loaded<T>]) -> Result<bool> {
        let came = self.run_step(hosts, false)?;
        if came == Came::GivenUp {
            return Ok(false);
        }
        let came = self.decided(came)?;
        let samples: usize = hosts.iter().map(Loaded::len).sum();
        self.complete(came, hosts.len() as u64, samples as u64)?;
        Ok(true)
    }

    /// Finds the first value that is not finite since the state that was kept; `None` if there is no such state, or if all values are
    /// finite this time. The run is in no particular state afterwards.
    fn find<D: Default + Send + 'static>(&mut self, loader: &Loader<D, T>) -> Result<Option<Cause>> {
        let last = self.step;
        if !self.go_back()? {
            return Ok(None);
        }
        let began = self.step;
        let mut batches = loader.resume(self.position())?;
        loop {
            let hosts = self.next_step(loader, &mut batches)?;
            if hosts.is_empty() || self.step >= last || !self.make(&hosts)? {
                return Ok(None);
            }
            if self.look(true)?.is_some() {
                break;
            }
        }
        let bad = self.step;
        self.go_back()?;
        let mut batches = loader.resume(self.position())?;
        // Infinities that the step before the bad one has too, such as those of a mask, are not the cause.
        let mut ordinary = BTreeSet::new();
        while self.step + 1 < bad {
            let hosts = self.next_step(loader, &mut batches)?;
            if self.step + 2 == bad {
                ordinary = self.ordinary(&hosts)?;
            }
            if !self.make(&hosts)? {
                return Ok(None);
            }
            self.look(false)?;
        }
        let hosts = self.next_step(loader, &mut batches)?;
        if self.step == began
            && let Some(name) = first_non_finite(self.model)?
        {
            let first = First {
                place: Place::Weights { name },
                batch: 0,
                before: StateDict::of(&*self.model),
            };
            return Ok(Some(self.cause(0, first, &hosts)));
        }
        self.step += 1;
        for at in 0..self.legs.len() {
            if !self.is_turn(at) {
                continue;
            }
            if let Some(first) = self.examine(at, &hosts, &ordinary)? {
                return Ok(Some(self.cause(at, first, &hosts)));
            }
            let before = StateDict::of(&*self.model);
            if self.run_phase(at, &hosts, None, false)? == Came::GivenUp {
                return Ok(None);
            }
            if let Some(name) = first_non_finite(self.model)? {
                let first = First {
                    place: Place::Update { name },
                    batch: hosts.len() - 1,
                    before,
                };
                return Ok(Some(self.cause(at, first, &hosts)));
            }
        }
        Ok(None)
    }

    /// The ops with values that are not finite in a step that is fine.
    fn ordinary(&mut self, hosts: &[Loaded<T>]) -> Result<BTreeSet<OpName>> {
        let mut ordinary = BTreeSet::new();
        for at in 0..self.legs.len() {
            while let Some(First { place, .. }) = self.examine(at, hosts, &ordinary)? {
                let Place::Op {
                    layer, op, backward, ..
                } = place
                else {
                    break;
                };
                let pass = match backward {
                    true => kiln_nn::watch::Pass::Backward,
                    false => kiln_nn::watch::Pass::Forward,
                };
                ordinary.insert(OpName { layer, op, pass });
            }
        }
        Ok(ordinary)
    }

    /// The cause of a value in a step whose first batch is the present one, and its capsule.
    pub(crate) fn cause(&mut self, at: usize, first: First<B>, hosts: &[Loaded<T>]) -> Cause {
        let mut cause = Cause {
            step: self.step,
            epoch: self.epoch,
            batch: self.at_epoch.batches + first.batch as u64 + 1,
            phase: self.legs[at].phase.name.clone(),
            place: first.place,
            capsule: None,
        };
        if let Some(host) = hosts.get(first.batch).filter(|_| self.capsules < CAPSULES) {
            self.capsules += 1;
            // What was found matters more than an error of the capsule, such as a full disk.
            cause.capsule = self.write_capsule(at, &cause, host, first.before).unwrap_or_default();
        }
        cause
    }

    /// Runs forward and backward of a phase on the batches of a step under a watch, and undoes what that changes in the model.
    pub(crate) fn examine(
        &mut self,
        at: usize,
        hosts: &[Loaded<T>],
        ordinary: &BTreeSet<OpName>,
    ) -> Result<Option<First<B>>> {
        let frozen = self.legs[at].phase.freeze(self.model);
        let (buffers, held) = (Buffers::of(&*self.model), self.trainer.host_states.hold());
        let found = hosts.iter().enumerate().find_map(|(batch, host)| {
            let before = StateDict::of(&*self.model);
            let place = self.examine_batch(at, host, ordinary).transpose()?;
            Some(place.map(|place| First { place, batch, before }))
        });
        let restored = buffers.restore(&*self.model);
        self.trainer.host_states.put_back(held);
        crate::phase::unfreeze(self.model, frozen);
        self.at(restored)?;
        found.transpose()
    }

    fn examine_batch(&self, at: usize, host: &Loaded<T>, ordinary: &BTreeSet<OpName>) -> Result<Option<Place>> {
        if let Some(array) = host.first_non_finite() {
            return Ok(Some(Place::Batch { array }));
        }
        let batch = host.to_device(&self.trainer.backend)?;
        let watch = FirstNonFinite {
            ordinary: ordinary.clone(),
            ..Default::default()
        };
        let (passed, watch) = trace::ops(&*self.model, watch, || {
            let loss = self.forward(at, &batch)?.loss;
            self.scale_loss(at, &loss, host.len())?.backward()
        });
        self.at(passed.map(drop))?;
        Ok(watch.first().map(Place::from))
    }
}
