//! Optimizer updates: one launch for all parameters of a group.
//!
//! The list of tensors travels inside the launch's parameters, so nothing is uploaded and a captured step keeps it. What
//! fits in 4 KiB is one launch: 125 parameters without state, 83 with two moments; longer lists take several.

use super::instance;
use crate::{Cuda, CudaBuffer};
use bytemuck::{Pod, Zeroable};
use kiln_core::ops::{AdagradParams, AdamParams, OptimOps, OptimSlot, RmspropParams, SgdParams};
use kiln_core::{Buffer, Error, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{PerFloat, optim as kernels};

/// Elements of one block's work: `CHUNK` of the kernels.
const CHUNK: u64 = 4096;
/// Words of a launch's list.
const WORDS: usize = 500;

/// A launch's list: records of `[param, grad, state…, elements, first chunk]`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Tensors {
    count: u64,
    words: [u64; WORDS],
}
const _: () = assert!(size_of::<Tensors>() == 4008);

impl Tensors {
    /// The list of `slots`, with the number of chunks they have together.
    fn of(slots: &[&mut OptimSlot<'_, CudaBuffer>]) -> (Self, u64) {
        let mut list = Tensors::zeroed();
        let (mut words, mut chunks) = (list.words.iter_mut(), 0);
        for slot in slots {
            let state = slot.state.iter().map(|s| s.block.ptr());
            let addresses = [slot.param.block.ptr(), slot.grad.block.ptr()].into_iter().chain(state);
            let n = slot.param.len() as u64;
            // The values are the first side of the zip: when they end, no word has been taken.
            for (value, word) in addresses.chain([n, chunks]).zip(words.by_ref()) {
                *word = value;
            }
            chunks += n.div_ceil(CHUNK);
        }
        list.count = slots.len() as u64;
        (list, chunks)
    }
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
        for part in slots.chunks_mut(WORDS / (states + 4)) {
            for slot in part.iter() {
                let of_slot = [&*slot.param, slot.grad]
                    .into_iter()
                    .chain(slot.state.iter().map(|s| &**s));
                of_slot.into_iter().try_for_each(|buffer| self.keep(buffer))?;
            }
            let (list, chunks) = Tensors::of(part);
            let blocks = u32::try_from(chunks).map_err(|_| Error::TooLarge {
                op: "optimizer step",
                dims: part.iter().map(|s| s.param.len()).collect(),
            })?;
            let geometry = Geometry {
                grid: [blocks, 1, 1],
                block: [256, 1, 1],
                shared: 0,
            };
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
}
