//! Recurrent layers: a few sequences of the batch are a task, which goes through all steps by itself. Its products of states read one
//! weight, packed once for all steps; the gates of a state follow while its products are in cache.
//!
//! A result does not depend on the sequences that are in a task with it.

mod backward;
mod call;
mod forward;
mod gates;
#[cfg(test)]
mod tests;

use crate::dispatch::float;
use crate::scalar::{Scalar, Stored};
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use call::Call;
use kiln_core::ops::{RecurrentGrads, RecurrentOperands, RecurrentOps, RecurrentParams};
use kiln_core::{Buffer, Float, Result, checks};

/// Widened operands.
struct Wide<'a, A> {
    w: Upcast<'a, A>,
    bias: Option<Upcast<'a, A>>,
    h0: Upcast<'a, A>,
    c0: Option<Upcast<'a, A>>,
    lengths: Option<&'a [i32]>,
}

impl<'a, A: Scalar> Wide<'a, A> {
    fn new<T: Stored<Acc = A>>(cpu: &Cpu, of: &RecurrentOperands<'a, CpuBuffer>) -> Result<Self> {
        let wide = |x: &'a CpuBuffer| Upcast::new::<T>(cpu, x);
        Ok(Wide {
            w: wide(of.w)?,
            bias: of.bias.map(wide).transpose()?,
            h0: wide(of.h0)?,
            c0: of.c0.map(wide).transpose()?,
            lengths: of.lengths.map(CpuBuffer::as_slice),
        })
    }

    fn call<'s>(&'s self, cpu: &'s Cpu, p: &RecurrentParams) -> Call<'s, A> {
        Call {
            cpu,
            kernels: A::kernels(),
            cell: p.cell(),
            steps: p.steps as usize,
            batch: p.batch as usize,
            hidden: p.hidden as usize,
            reverse: p.reverse == 1,
            last_cells: p.last_cells == 1,
            bias: self.bias.as_ref().map(Upcast::slice),
            h0: self.h0.slice(),
            c0: self.c0.as_ref().map_or(&[], Upcast::slice),
            lengths: self.lengths,
        }
    }
}

impl RecurrentOps for Cpu {
    fn recurrent(
        &self,
        p: &RecurrentParams,
        x: &CpuBuffer,
        of: &RecurrentOperands<'_, CpuBuffer>,
        kept: Option<&mut CpuBuffer>,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        checks::recurrent(self, p, x, of, kept.as_deref(), y)?;
        float!(y.dtype(), T => {
            let (x, wide) = (Upcast::new::<T>(self, x)?, Wide::new::<T>(self, of)?);
            let call = wide.call(self, p);
            let kept = kept.map(|kept| kept.as_mut_slice::<<T as Float>::Acc>());
            write_upcast::<T>(self, y, |y| call.forward(x.slice(), wide.w.slice(), kept, y))
        })
    }

    fn recurrent_grad(
        &self,
        p: &RecurrentParams,
        of: &RecurrentOperands<'_, CpuBuffer>,
        kept: &CpuBuffer,
        y: &CpuBuffer,
        g: &CpuBuffer,
        to: RecurrentGrads<'_, CpuBuffer>,
    ) -> Result<()> {
        checks::recurrent_grad(self, p, of, kept, y, g, &to)?;
        float!(y.dtype(), T => {
            let (y, g, wide) = (Upcast::new::<T>(self, y)?, Upcast::new::<T>(self, g)?, Wide::new::<T>(self, of)?);
            let call = wide.call(self, p);
            let given = backward::Given {
                w: wide.w.slice(),
                kept: kept.as_slice(),
                y: y.slice(),
                g: g.slice(),
            };
            let (mut no_dr, mut no_dc) = (self.scratch(to.dx.dtype(), 0)?, self.scratch(to.dx.dtype(), 0)?);
            let (dr, dc0) = (to.dr.unwrap_or(&mut no_dr), to.dc0.unwrap_or(&mut no_dc));
            write_upcast::<T>(self, to.dx, |dx| write_upcast::<T>(self, dr, |dr| {
                write_upcast::<T>(self, to.before, |before| write_upcast::<T>(self, to.dh0, |dh0| {
                    write_upcast::<T>(self, dc0, |dc0| {
                        call.backward(&given, backward::Grads { dx, dr, before, dh0, dc0 })
                    })
                }))
            }))
        })
    }
}
