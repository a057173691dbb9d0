//! Optimizer updates: one launch for all parameters of a group.
//!
//! A list of tensors ([`crate::tensors`]) has room for 125 parameters without state, 83 with two moments, 71 with copies in half
//! precision as well, 166 gradients to unscale or to take the norm of; longer lists take several launches.

use super::instance;
use crate::tensors::{CHUNK, Tensors, WORDS, chunks_of};
use crate::{Cuda, CudaBuffer};
use bytemuck::Pod;
use kiln_core::ops::{AdagradParams, AdamParams, GradNormParams, OptimOps, OptimSlot, RmspropParams, SgdParams};
use kiln_core::{Buffer, DType, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{PerFloat, optim as kernels};

/// The word of a copy in half precision: its address, a multiple of 16, and 1 for bf16 or 2 for f16; 0 without one.
fn half_word(half: Option<&CudaBuffer>) -> u64 {
    half.map_or(0, |half| {
        let code = if half.dtype() == DType::BF16 { 1 } else { 2 };
        half.block.ptr() | code
    })
}

impl Cuda {
    /// Launches `kernels` over all slots, each with `states` state buffers.
    fn update<P: Pod>(
        &self,
        kernels: &PerFloat,
        p: &P,
        states: usize,
        scalars: &CudaBuffer,
        slots: &mut [OptimSlot<'_, CudaBuffer>],
    ) -> Result<()> {
        let Some(dtype) = slots.first().map(|s| s.param.dtype()) else {
            return Ok(());
        };
        let mut slots: Vec<_> = slots.iter_mut().filter(|s| !s.param.is_empty()).collect();
        debug_assert!(slots.iter().all(|s| {
            let n = s.param.len();
            s.state.len() == states && s.grad.len() == n && s.state.iter().all(|state| state.len() == n)
        }));
        let halves = slots.iter().any(|s| s.half.is_some());
        for part in slots.chunks_mut(WORDS / (states + 4 + usize::from(halves))) {
            for slot in part.iter() {
                let of_slot = [&*slot.param, slot.grad]
                    .into_iter()
                    .chain(slot.half.as_deref())
                    .chain(slot.state.iter().map(|s| &**s));
                of_slot.into_iter().try_for_each(|buffer| self.keep(buffer))?;
            }
            let addresses = |s: &OptimSlot<'_, CudaBuffer>| {
                let state: Vec<_> = s.state.iter().map(|s| s.block.ptr()).collect();
                [s.param.block.ptr(), s.grad.block.ptr()].into_iter().chain(state)
            };
            let (list, chunks) = Tensors::of(part.iter().map(|s| {
                let half = halves.then(|| half_word(s.half.as_deref()));
                (addresses(s), s.param.len(), half)
            }));
            let geometry = chunks_of("optimizer step", chunks, || {
                part.iter().map(|s| s.param.len()).collect()
            })?;
            let args = [Arg::value(p), Arg::value(&list), scalars.arg()];
            self.launch(instance(kernels, dtype), geometry, &args)?;
        }
        Ok(())
    }
}

impl OptimOps for Cuda {
    fn sgd(&self, p: &SgdParams, scalars: &CudaBuffer, slots: &mut [OptimSlot<'_, CudaBuffer>]) -> Result<()> {
        checks::sgd(self, p, scalars, slots)?;
        let (kernels, states) = match p.momentum != 0.0 {
            false => (&kernels::SGD, 0),
            true => (&kernels::SGD_MOMENTUM, 1),
        };
        self.update(kernels, p, states, scalars, slots)
    }

    fn adam(&self, p: &AdamParams, scalars: &CudaBuffer, slots: &mut [OptimSlot<'_, CudaBuffer>]) -> Result<()> {
        checks::adam(self, p, scalars, slots)?;
        let (kernels, states) = match p.amsgrad {
            0 => (&kernels::ADAM, 2),
            _ => (&kernels::ADAM_AMSGRAD, 3),
        };
        self.update(kernels, p, states, scalars, slots)
    }

    fn rmsprop(&self, p: &RmspropParams, scalars: &CudaBuffer, slots: &mut [OptimSlot<'_, CudaBuffer>]) -> Result<()> {
        checks::rmsprop(self, p, scalars, slots)?;
        let (kernels, states) = match (p.momentum != 0.0, p.centered != 0) {
            (false, false) => (&kernels::RMSPROP, 1),
            (true, false) => (&kernels::RMSPROP_MOMENTUM, 2),
            (false, true) => (&kernels::RMSPROP_CENTERED, 2),
            (true, true) => (&kernels::RMSPROP_MOMENTUM_CENTERED, 3),
        };
        self.update(kernels, p, states, scalars, slots)
    }

    fn adagrad(&self, p: &AdagradParams, scalars: &CudaBuffer, slots: &mut [OptimSlot<'_, CudaBuffer>]) -> Result<()> {
        checks::adagrad(self, p, scalars, slots)?;
        self.update(&kernels::ADAGRAD, p, 1, scalars, slots)
    }

    fn grad_norm(
        &self,
        p: &GradNormParams,
        grads: &[&CudaBuffer],
        norm: &mut CudaBuffer,
        factor: &mut CudaBuffer,
    ) -> Result<()> {
        checks::grad_norm(self, p, grads, norm, factor)?;
        let grads: Vec<_> = grads.iter().filter(|g| !g.is_empty()).collect();
        let parts: u64 = grads.iter().map(|g| (g.len() as u64).div_ceil(CHUNK)).sum();
        let mut partial = self.scratch(DType::F32, parts.max(1) as usize)?;
        let mut first = 0u64;
        for part in grads.chunks(WORDS / 3) {
            part.iter().try_for_each(|g| self.keep(g))?;
            let (list, chunks) = Tensors::of(part.iter().map(|g| (std::iter::once(g.block.ptr()), g.len(), None)));
            let geometry = chunks_of("optimizer step", chunks, || part.iter().map(|g| g.len()).collect())?;
            let args = [Arg::value(&list), partial.out(), Arg::value(&first)];
            self.launch(instance(&kernels::GRAD_SQUARES, part[0].dtype()), geometry, &args)?;
            first += chunks;
        }
        let one = Geometry {
            grid: [1, 1, 1],
            block: [1024, 1, 1],
            shared: 0,
        };
        let args = [
            Arg::value(p),
            partial.arg(),
            Arg::value(&parts),
            norm.out(),
            factor.out(),
        ];
        self.launch(&kernels::GRAD_NORM, one, &args)
    }

    fn unscale(&self, inverse: &CudaBuffer, grads: &mut [&mut CudaBuffer], found: &mut CudaBuffer) -> Result<()> {
        checks::unscale(self, inverse, grads, found)?;
        let Some(dtype) = grads.first().map(|g| g.dtype()) else {
            return Ok(());
        };
        let grads: Vec<_> = grads.iter().filter(|g| !g.is_empty()).collect();
        for part in grads.chunks(WORDS / 3) {
            part.iter().try_for_each(|g| self.keep(g))?;
            let (list, chunks) = Tensors::of(part.iter().map(|g| (std::iter::once(g.block.ptr()), g.len(), None)));
            let geometry = chunks_of("optimizer step", chunks, || part.iter().map(|g| g.len()).collect())?;
            let args = [Arg::value(&list), inverse.arg(), found.out()];
            self.launch(instance(&kernels::UNSCALE, dtype), geometry, &args)?;
        }
        Ok(())
    }
}
