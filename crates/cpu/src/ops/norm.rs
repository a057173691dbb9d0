//! Normalisation over the batch ([`batch`]) and within a sample ([`group`]).
//!
//! Statistics come from fixed chunks of rows, each in two passes (mean, then squared deviations from it), combined in
//! order by the formula of Chan, Golub and LeVeque: as sound for a mean of 10⁴ and a deviation of 1 as a plain two-pass
//! variance, and the same at any number of threads.

mod batch;
mod group;

use crate::dispatch::float;
use crate::real::Real;
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{BatchNormParams, GroupNormParams, NormOps};
use kiln_core::{Buffer, Result};

/// Adds a set of `n` values with mean `mean` and squared deviations `m2` to one of `count` values.
#[inline(always)]
fn combine<A: Real>(count: A, (mean, m2): (&mut A, &mut A), n: A, (mean_b, m2_b): (A, A)) {
    let delta = mean_b - *mean;
    let share = n / (count + n);
    *mean += delta * share;
    *m2 += m2_b + delta * delta * count * share;
}

impl NormOps for Cpu {
    fn batch_norm(
        &self,
        p: &BatchNormParams,
        x: &CpuBuffer,
        scale: Option<&CpuBuffer>,
        shift: Option<&CpuBuffer>,
        y: &mut CpuBuffer,
        mean: &mut CpuBuffer,
        rstd: &mut CpuBuffer,
    ) -> Result<()> {
        debug_assert_eq!((x.len() as u64, y.len()), (p.rows * p.channels, x.len()));
        float!(x.dtype(), T => batch::forward::<T>(
            self,
            p,
            x.as_slice(),
            (scale.map(|s| s.as_slice()), shift.map(|s| s.as_slice())),
            y.as_mut_slice(),
            mean.as_mut_slice(),
            rstd.as_mut_slice(),
        ))
    }

    fn batch_norm_eval(
        &self,
        p: &BatchNormParams,
        x: &CpuBuffer,
        scale: Option<&CpuBuffer>,
        shift: Option<&CpuBuffer>,
        mean: &CpuBuffer,
        var: &CpuBuffer,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        debug_assert_eq!((x.len() as u64, y.len()), (p.rows * p.channels, x.len()));
        float!(x.dtype(), T => batch::eval::<T>(
            self,
            p,
            x.as_slice(),
            (scale.map(|s| s.as_slice()), shift.map(|s| s.as_slice())),
            (mean.as_slice(), var.as_slice()),
            y.as_mut_slice(),
        ))
    }

    fn batch_norm_grad(
        &self,
        p: &BatchNormParams,
        x: &CpuBuffer,
        scale: Option<&CpuBuffer>,
        mean: &CpuBuffer,
        rstd: &CpuBuffer,
        g: &CpuBuffer,
        dx: &mut CpuBuffer,
        dscale: &mut CpuBuffer,
        dshift: &mut CpuBuffer,
    ) -> Result<()> {
        debug_assert_eq!((x.len() as u64, g.len()), (p.rows * p.channels, x.len()));
        float!(x.dtype(), T => batch::grad::<T>(
            self,
            p,
            (x.as_slice(), g.as_slice()),
            scale.map(|s| s.as_slice()),
            (mean.as_slice(), rstd.as_slice()),
            dx.as_mut_slice(),
            dscale.as_mut_slice(),
            dshift.as_mut_slice(),
        ))
    }

    fn group_norm(
        &self,
        p: &GroupNormParams,
        x: &CpuBuffer,
        scale: Option<&CpuBuffer>,
        shift: Option<&CpuBuffer>,
        y: &mut CpuBuffer,
        mean: &mut CpuBuffer,
        rstd: &mut CpuBuffer,
    ) -> Result<()> {
        debug_assert_eq!((y.len(), mean.len() as u64), (x.len(), p.samples * p.groups));
        if x.is_empty() {
            return Ok(());
        }
        float!(x.dtype(), T => {
            let affine = (scale.map(|s| s.as_slice::<T>()), shift.map(|s| s.as_slice::<T>()));
            let (x, y) = (x.as_slice::<T>(), y.as_mut_slice::<T>());
            let (mean, rstd) = (mean.as_mut_slice(), rstd.as_mut_slice());
            if p.positions == 1 {
                group::forward_rows::<T>(p, x, affine, y, mean, rstd);
                Ok(())
            } else {
                group::forward::<T>(self, p, x, affine, y, mean, rstd)
            }
        })
    }

    fn group_norm_grad(
        &self,
        p: &GroupNormParams,
        x: &CpuBuffer,
        scale: Option<&CpuBuffer>,
        mean: &CpuBuffer,
        rstd: &CpuBuffer,
        g: &CpuBuffer,
        dx: &mut CpuBuffer,
        dscale: &mut CpuBuffer,
        dshift: &mut CpuBuffer,
    ) -> Result<()> {
        debug_assert_eq!((g.len(), dx.len()), (x.len(), x.len()));
        float!(x.dtype(), T => {
            let (dscale, dshift) = (dscale.as_mut_slice::<T>(), dshift.as_mut_slice::<T>());
            if x.is_empty() {
                dscale.fill(bytemuck::Zeroable::zeroed());
                dshift.fill(bytemuck::Zeroable::zeroed());
                return Ok(());
            }
            let scale = scale.map(|s| s.as_slice::<T>());
            let (x, g, dx) = (x.as_slice::<T>(), g.as_slice::<T>(), dx.as_mut_slice::<T>());
            let stats = (mean.as_slice(), rstd.as_slice());
            if p.positions == 1 {
                group::grad_rows::<T>(self, p, (x, g), scale, stats, dx, dscale, dshift)
            } else {
                group::grad::<T>(self, p, (x, g), scale, stats, dx, dscale, dshift)
            }
        })
    }
}
