//! Steps that the device decides about: an update whose loss or gradient is not finite changes nothing, and the host learns of
//! it when it reads the losses.

use crate::buffers::Buffers;
use crate::grad_norm::StepNorms;
use crate::group::Came;
use crate::losses::Verdict;
use crate::run::{ADVICE, Run};
use crate::{NonFinite, Result, TrainError};
use kiln_core::Backend;
use kiln_data::Batch;
use kiln_nn::optim::Applied;
use kiln_nn::{DType, Gradients, Module, Tensor};

/// The number of steps in a row whose gradients may overflow while the scale of the loss shrinks; from 2¹⁶ by halves that is to 2⁻¹⁶.
const OVERFLOWS: u64 = 32;

/// The scale of a loss after an overflow at a scale of 1, which is one of the gradients themselves.
const SMALL: f64 = 0.5;

/// The effect of an update on the device.
pub(crate) struct Changed<B: Backend> {
    /// The parameters.
    pub(crate) applied: Applied,
    /// 1 if the device has skipped the update and 0 if not, for the host to read: `[1]`, f32.
    pub(crate) skipped: Option<Tensor<B>>,
    /// The norms of the gradients, if they are measured.
    pub(crate) norms: Option<StepNorms<B>>,
}

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// True if the device decides about updates.
    pub(crate) fn decides(&self) -> bool {
        self.trainer.options.decides()
    }

    /// Clips the gradients and updates the model, all on the device and only where everything is finite, if the device decides:
    /// else buffers and counters are those of `before` again.
    pub(crate) fn change(
        &mut self,
        at: usize,
        mut grads: Gradients<B>,
        samples: usize,
        losses: &[Tensor<B>],
        before: Option<Buffers<B>>,
    ) -> kiln_core::Result<Changed<B>> {
        let skips = self.trainer.options.skips();
        if let Some(scaler) = &mut self.legs[at].scaler {
            let losses: Vec<&Tensor<B>> = losses.iter().filter(|_| skips).collect();
            scaler.unscale_and_check(&mut grads, self.model.parameters(), &losses)?;
        }
        let norms = self.finish_gradients(&mut grads, samples)?;
        let leg = &mut self.legs[at];
        let Some(scaler) = &mut leg.scaler else {
            return Ok(Changed {
                applied: leg.phase.optimizer.apply(self.model, &grads)?,
                skipped: None,
                norms,
            });
        };
        let optimizer = &mut *leg.phase.optimizer;
        let applied = optimizer.apply_if_finite(self.model, &grads, scaler.found_inf())?;
        if let Some(before) = before {
            before.restore_where(self.model, scaler.found_inf())?;
        }
        scaler.update()?;
        Ok(Changed {
            applied,
            skipped: Some(scaler.found_inf().to_float(DType::F32)?),
            norms,
        })
    }

    /// The number of consecutive updates that may be skipped.
    fn most_skipped(&self) -> u64 {
        let overflows = if self.trainer.options.scales() { OVERFLOWS } else { 0 };
        match self.trainer.options.non_finite {
            NonFinite::Skip { in_a_row } => in_a_row.max(overflows),
            NonFinite::Stop | NonFinite::Rollback { .. } => overflows,
        }
    }

    /// True if losses are read after each step, for what the device has decided: where that waits for nothing, and where weights are
    /// averaged, which a skipped step is no part of.
    fn reads_each_step(&self) -> bool {
        self.decides() && (!B::CAPTURES || self.trainer.options.average.is_some())
    }

    /// The verdict on a step, as far as it is read now.
    pub(crate) fn decided(&mut self, came: Came) -> Result<Came> {
        match self.reads_each_step() && self.read_verdicts()? > 0 {
            true => {
                self.put_back_host_states();
                Ok(Came::Skipped)
            }
            false => Ok(came),
        }
    }

    /// Reads the losses of all phases, and returns the number of steps that were skipped. A loss that is not finite waits to be looked
    /// for, unless it is one that may be skipped.
    pub(crate) fn read_verdicts(&mut self) -> Result<u64> {
        let (skips, scales) = (self.trainer.options.skips(), self.trainer.options.scales());
        let mut verdicts = Vec::new();
        for (at, leg) in self.legs.iter_mut().enumerate() {
            let read = leg.losses.read()?;
            if !skips && self.unseen.is_none() {
                self.unseen = read.bad;
            }
            if !read.verdicts.is_empty() {
                leg.phase.optimizer.settle()?;
            }
            let bad = read.bad.map(|bad| bad.step);
            let mut skipped = read.verdicts.iter().filter(|v| v.skipped);
            let first = match (&leg.scaler, scales) {
                // A gradient in f16 that overflows while the scale falls is an ordinary event; a loss that does is not.
                (Some(scaler), true) => {
                    let last = skipped.clone().next_back();
                    let narrow = match last {
                        Some(_) => scaler.state()?.scale <= SMALL,
                        None => false,
                    };
                    skipped.find(|v| bad == Some(v.step)).or(last.filter(|_| narrow))
                }
                _ => skipped.next(),
            };
            let first = first.map(|v| (v.step, at));
            // Of several phases that skipped the same step, the last one.
            let earlier = |(step, _): &(u64, usize)| self.skipped.is_none_or(|(known, _)| *step <= known);
            self.skipped = first.filter(earlier).or(self.skipped);
            verdicts.extend(read.verdicts);
        }
        self.count_verdicts(verdicts)
    }

    /// Counts what was read of all phases: steps made and skipped.
    fn count_verdicts(&mut self, mut verdicts: Vec<Verdict>) -> Result<u64> {
        let mut count = 0;
        // Those of a phase are in order, and phases follow each other within a step.
        verdicts.sort_by_key(|v| v.step);
        for step in verdicts.chunk_by(|a, b| a.step == b.step) {
            for verdict in step {
                self.skipped_in_a_row = if verdict.skipped { self.skipped_in_a_row + 1 } else { 0 };
                if self.skipped_in_a_row > self.most_skipped() {
                    return Err(TrainError::TooManySkipped {
                        step: verdict.step,
                        epoch: self.epoch,
                        count: self.skipped_in_a_row,
                        cause: None,
                        advice: ADVICE,
                    });
                }
            }
            count += u64::from(step.iter().any(|v| v.skipped));
        }
        self.updates -= count;
        Ok(count)
    }
}
