//! Random numbers and dropout: the bits of `kiln_core::philox`.

use super::instance;
use crate::launch::{THREADS, linear};
use crate::tensors::{Tensors, WORDS};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{RandomOps, RandomParams};
use kiln_core::philox::drop_below;
use kiln_core::{Buffer, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::random as kernels;

/// A thread per `each` elements of one Philox block; four waves of blocks at most, which then stride.
fn geometry(cuda: &Cuda, n: u64, each: u64) -> Geometry {
    linear(n.div_ceil(each), THREADS, cuda.multiprocessors() * 32)
}

impl RandomOps for Cuda {
    fn random(&self, p: &RandomParams, step: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::random(self, p, step, y)?;
        debug_assert_eq!(p.n as usize, y.len());
        let kernel = instance(&kernels::RANDOM, y.dtype());
        self.launch(kernel, geometry(self, p.n, 4), &[Arg::value(p), step.arg(), y.out()])
    }

    fn tick(&self, counter: &mut CudaBuffer, ticket: &mut CudaBuffer) -> Result<()> {
        checks::tick(self, counter, ticket)?;
        debug_assert_eq!((counter.len(), ticket.len()), (1, 1));
        self.launch(&kernels::TICK, linear(1, 32, 1), &[counter.out(), ticket.out()])
    }

    fn tick_each(&self, counters: &mut [&mut CudaBuffer], tickets: &mut [&mut CudaBuffer]) -> Result<()> {
        checks::tick_each(self, counters, tickets)?;
        let pairs: Vec<_> = counters.iter().zip(tickets).collect();
        for part in pairs.chunks(WORDS / 4) {
            for (counter, ticket) in part {
                self.keep(counter)?;
                self.keep(ticket)?;
            }
            let (list, _) = Tensors::of(part.iter().map(|(counter, ticket)| {
                let addresses = [counter.block.ptr(), ticket.block.ptr()];
                (addresses.into_iter(), 1, None)
            }));
            self.launch(&kernels::TICK_EACH, linear(1, THREADS, 1), &[Arg::value(&list)])?;
        }
        Ok(())
    }

    fn dropout(&self, p: &RandomParams, step: &CudaBuffer, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::dropout(self, p, step, x, y)?;
        debug_assert_eq!((p.n as usize, x.len()), (y.len(), y.len()));
        let kernel = instance(&kernels::DROPOUT, y.dtype());
        let scale = (1.0 / (1.0 - p.a)) as f32;
        let below = drop_below(p.a);
        let args = [
            Arg::value(p),
            step.arg(),
            x.arg(),
            y.out(),
            Arg::value(&scale),
            Arg::value(&below),
        ];
        self.launch(kernel, geometry(self, p.n, 8), &args)
    }
}
