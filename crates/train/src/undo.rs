//! The state before a step of several phases: what the phases have done is undone if a later one is interrupted.

use crate::Result;
use crate::metrics::Mark;
use crate::run::{Leg, Run};
use kiln_core::Backend;
use kiln_data::Batch;
use kiln_nn::module::StateDict;
use kiln_nn::optim::GradScalerState;
use kiln_nn::{LoadOptions, Module};
use std::time::Duration;

/// The share of the grace of a request to stop that a step may take before the next one can be undone: one part of this many.
const SHARE: u32 = 4;

/// The state of a run before a step. Its memory is shared with the run until that changes.
pub(crate) struct Undo<B: Backend> {
    model: StateDict<B>,
    phases: Vec<PhaseBefore<B>>,
    metrics: Vec<Mark<B>>,
}

struct PhaseBefore<B: Backend> {
    optimizer: StateDict<B>,
    scaler: Option<GradScalerState>,
    attempts: u64,
    losses: (usize, usize),
    norms: usize,
    eager: u64,
}

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// The state before a step that runs op by op, if several phases take their turn in it and steps are so long that one may have to
    /// be given up: a copy of all state is made when the step changes it.
    pub(crate) fn undo(&self) -> Result<Option<Undo<B>>> {
        let turns = (0..self.legs.len()).filter(|&at| self.is_turn(at)).count();
        let short = |took: Duration| took.saturating_mul(SHARE) < self.trainer.grace;
        if B::CAPTURES || turns < 2 || self.step_took.is_some_and(short) {
            return Ok(None);
        }
        let phase = |leg: &Leg<'_, B, M, T>| -> Result<_> {
            Ok(PhaseBefore {
                optimizer: leg.phase.optimizer.state_dict()?,
                scaler: leg.scaler.as_ref().map(|scaler| scaler.state()).transpose()?,
                attempts: leg.attempts,
                losses: leg.losses.mark(),
                norms: leg.norms.mark(),
                eager: leg.recorder.execution.eager,
            })
        };
        Ok(Some(Undo {
            model: StateDict::of(&*self.model),
            phases: self.legs.iter().map(phase).collect::<Result<_>>()?,
            metrics: self.running.iter().map(|running| running.mark()).collect(),
        }))
    }

    /// Goes back to before a step.
    pub(crate) fn undo_step(&mut self, before: Undo<B>) -> Result<()> {
        self.model
            .load_state_dict(&before.model, LoadOptions::strict().allow_non_finite())?;
        for (leg, phase) in self.legs.iter_mut().zip(before.phases) {
            leg.phase.optimizer.load_state_dict(&phase.optimizer)?;
            if let (Some(scaler), Some(state)) = (&mut leg.scaler, phase.scaler) {
                scaler.set_state(state)?;
            }
            leg.attempts = phase.attempts;
            leg.losses.rewind(phase.losses);
            leg.norms.rewind(phase.norms);
            leg.recorder.execution.eager = phase.eager;
        }
        for (running, mark) in self.running.iter_mut().zip(before.metrics) {
            running.rewind(mark);
        }
        Ok(())
    }
}
