//! The update of the parameters of one block: by the backend's op, or by tensor ops.

use super::{Optim, Work};
use crate::optim::algorithm::{Algorithm, Update};
use crate::{Backend, Indices, Result, Tensor, no_grad};
use kiln_core::ops::OptimSlot;

#[compiled_once]
impl<B: Backend, A: Algorithm> Optim<B, A> {
    /// Updates the parameters of one block, where the mask `leaves` is not 1.
    pub(super) fn update(&self, work: &mut [Work<'_, B>], leaves: Option<&Indices<B>>) -> Result<()> {
        let Some(first) = work.first() else { return Ok(()) };
        let block = &self.blocks[first.block];
        let (_, weight_decay) = self.options(block.group);
        let fused = A::FUSED.is_some_and(|op| first.param.has_op(op));
        no_grad(|| {
            let mut scalars = block.scalars.clone();
            if let Some(undecided) = &self.undecided {
                scalars = scalars.index_select(0, undecided.row())?.flatten(0, -1)?;
            }
            if !fused {
                let mut all = work.iter_mut();
                return all.try_for_each(|w| self.update_composed(w, &scalars, weight_decay, leaves));
            }
            if let Some(leaves) = leaves {
                // A scale of NaN is how the backend's op is told to change nothing.
                scalars = scalars.masked_fill(leaves, f64::NAN)?;
            }
            self.update_fused(work, &scalars, weight_decay, leaves.is_some())
        })
    }

    /// Updates them by the backend's op, which may leave them as they are if the device decides.
    fn update_fused(
        &self,
        work: &mut [Work<'_, B>],
        scalars: &Tensor<B>,
        weight_decay: f64,
        may_leave: bool,
    ) -> Result<()> {
        let slots: Result<Vec<_>> = work
            .iter_mut()
            .map(|w| {
                let (param, half) = w.param.buffers_mut(may_leave)?;
                Ok(OptimSlot {
                    param,
                    half,
                    grad: w.grad.buffer(),
                    state: w.state.iter_mut().map(Tensor::buffer_mut).collect::<Result<_>>()?,
                })
            })
            .collect();
        self.algorithm
            .fused(weight_decay, scalars.backend(), scalars.buffer(), &mut slots?)?;
        work.iter().for_each(|w| w.param.updated());
        Ok(())
    }

    /// Updates one of them by tensor ops.
    fn update_composed(
        &self,
        w: &mut Work<'_, B>,
        scalars: &Tensor<B>,
        weight_decay: f64,
        leaves: Option<&Indices<B>>,
    ) -> Result<()> {
        let dtype = scalars.dtype();
        let scalar = |i| scalars.narrow(0, i, 1)?.reshape(());
        let own = (1..scalars.size()).filter(|&i| i != 3).map(scalar);
        // The operands are dropped before the parameter is written: memory that they share would move.
        let (param, state) = self.algorithm.step(&Update {
            param: &w.param.detach().to_dtype(dtype)?,
            grad: &w.grad.detach().to_dtype(dtype)?.mul(&scalar(3)?)?,
            state: &w.state,
            lr: scalar(0)?,
            c: own.collect::<Result<_>>()?,
            weight_decay,
        })?;
        let chosen = |old: &Tensor<B>, new: Tensor<B>| match leaves {
            Some(leaves) => Tensor::where_(leaves, old, &new),
            None => Ok(new),
        };
        let param = chosen(&w.param.detach(), param.to_dtype(w.param.dtype())?)?;
        w.param.assign(&param)?;
        let mut kept = w.state.iter_mut().zip(state);
        kept.try_for_each(|(kept, new)| {
            let new = chosen(kept, new)?;
            kept.assign(&new)
        })
    }
}
