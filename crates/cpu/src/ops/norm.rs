//! Normalisation over the batch ([`batch`]) and within a sample ([`group`]).
//!
//! Statistics are computed over fixed chunks of rows, each in two passes (mean, then squared deviations from it), and
//! combined in order by the formula of Chan, Golub and LeVeque. For a mean of 10⁴ and a deviation of 1 this is as accurate
//! as a plain two-pass variance, and the result is the same on any number of threads.

mod batch;
mod combine;
mod group;

pub(super) use group::{forward_rows as norm_of_rows, grad_rows as grad_of_rows};

use crate::dispatch::float;
use crate::scalar::Stored;
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use batch::{Behind, ResultGrad};
use kiln_core::ops::{
    BatchNormGrads, BatchNormInputs, BatchNormParams, BatchNormTrainParams, GroupNormParams, NormOps, RunningStats,
};
use kiln_core::{Buffer, Element, Float, Result, checks};

/// An optional vector of `n` channels in the accumulation type; filled with `value` if absent.
pub(super) fn channels<'a, T: Stored>(
    cpu: &Cpu,
    v: Option<&'a CpuBuffer>,
    n: u64,
    value: f64,
) -> Result<Upcast<'a, T::Acc>> {
    match v {
        Some(v) if v.dtype() == <T::Acc as Element>::DTYPE => Ok(Upcast::Same(v.as_slice())),
        Some(v) => Upcast::new::<T>(cpu, v),
        None => {
            let mut v = cpu.scratch(<T::Acc as Element>::DTYPE, n as usize)?;
            v.as_mut_slice::<T::Acc>().fill(<T::Acc as Float>::of(value));
            Ok(Upcast::Copy(v))
        }
    }
}

/// Lets `f` write the channels `y` in the accumulation type; then rounds once if `y` is narrower.
pub(super) fn write_channels<T: Stored>(
    cpu: &Cpu,
    y: &mut CpuBuffer,
    f: impl FnOnce(&mut [T::Acc]) -> Result<()>,
) -> Result<()> {
    match y.dtype() == <T::Acc as Element>::DTYPE {
        true => f(y.as_mut_slice()),
        false => write_upcast::<T>(cpu, y, f),
    }
}

/// The moments `[2, channels]` of a tensor that is not empty: the mean of each channel, and the sum of squared deviations from it.
pub(super) fn channel_moments(cpu: &Cpu, channels: u64, x: &CpuBuffer, moments: &mut CpuBuffer) -> Result<()> {
    let p = GroupNormParams::of_channels(x.len() as u64 / channels, channels, 0.0);
    float!(x.dtype(), T => {
        let (mean, m2) = moments.as_mut_slice().split_at_mut(channels as usize);
        batch::moments_of(cpu, &p, x.as_slice::<T>(), mean, m2)
    })
}

/// The first half of [`NormOps::batch_norm_grad`] of `p`: makes the gradient before residual and ReLU of that of the result, which lies in `d`,
/// and its sums, of the accumulation dtype.
pub(super) fn batch_norm_grad_sums(
    cpu: &Cpu,
    p: &BatchNormParams,
    of: &BatchNormInputs<'_, CpuBuffer>,
    more: Option<&CpuBuffer>,
    d: &mut CpuBuffer,
    (dscale, dshift): (&mut CpuBuffer, &mut CpuBuffer),
) -> Result<()> {
    float!(d.dtype(), T => {
        let scale = channels::<T>(cpu, of.scale, p.channels, 1.0)?;
        let shift = channels::<T>(cpu, of.shift, p.channels, 0.0)?;
        let stats = (of.mean.as_slice(), of.rstd.as_slice());
        let grad = ResultGrad {
            g: None,
            more: more.map(|b| b.as_slice()),
            y: of.y.map(|b| b.as_slice()),
            relu: (p.relu == 1).then(|| shift.slice()),
        };
        let (inputs, d) = ((of.x.as_slice::<T>(), grad), d.as_mut_slice::<T>());
        let (dscale, dshift) = (dscale.as_mut_slice(), dshift.as_mut_slice());
        batch::grad_sums(cpu, &p.group_norm(), inputs, scale.slice(), stats, d, dscale, dshift)
    })
}

impl NormOps for Cpu {
    fn batch_norm_eval(
        &self,
        p: &BatchNormParams,
        x: &CpuBuffer,
        residual: Option<&CpuBuffer>,
        scale: Option<&CpuBuffer>,
        shift: Option<&CpuBuffer>,
        mean: &CpuBuffer,
        var: &CpuBuffer,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        checks::batch_norm_eval(self, p, x, residual, scale, shift, mean, var, y)?;
        float!(x.dtype(), T => {
            let scale = channels::<T>(self, scale, p.channels, 1.0)?;
            let shift = channels::<T>(self, shift, p.channels, 0.0)?;
            let behind = Behind { residual: residual.map(|r| r.as_slice::<T>()), relu: p.relu == 1 };
            let (affine, stats) = ((scale.slice(), shift.slice()), (mean.as_slice(), var.as_slice()));
            batch::eval(self, p, x.as_slice::<T>(), (affine, behind), stats, y.as_mut_slice::<T>())
        })
    }

    fn batch_norm(
        &self,
        p: &BatchNormTrainParams,
        x: &CpuBuffer,
        moments: Option<&CpuBuffer>,
        residual: Option<&CpuBuffer>,
        scale: Option<&CpuBuffer>,
        shift: Option<&CpuBuffer>,
        y: &mut CpuBuffer,
        mean: &mut CpuBuffer,
        rstd: &mut CpuBuffer,
        running: RunningStats<'_, CpuBuffer>,
    ) -> Result<()> {
        checks::batch_norm(self, p, x, moments, residual, scale, shift, y, mean, rstd, &running)?;
        float!(x.dtype(), T => {
            let scale = channels::<T>(self, scale, p.channels, 1.0)?;
            let shift = channels::<T>(self, shift, p.channels, 0.0)?;
            let behind = Behind { residual: residual.map(|r| r.as_slice::<T>()), relu: p.relu == 1 };
            let (affine, x, y) = ((scale.slice(), shift.slice()), x.as_slice::<T>(), y.as_mut_slice::<T>());
            let (mean, rstd) = (mean.as_mut_slice(), rstd.as_mut_slice());
            let moved = (running.mean.as_mut_slice(), running.var.as_mut_slice());
            let norm = p.batch_norm().group_norm();
            let x = (x, moments.map(|m| m.as_slice()));
            batch::forward(self, &norm, x, (affine, behind), y, mean, rstd, |mean, m2| {
                batch::move_running(p, (mean, m2), moved);
            })?;
        });
        for count in running.batches.as_mut_slice::<i32>() {
            *count = count.wrapping_add(1);
        }
        Ok(())
    }

    fn batch_norm_apply(
        &self,
        p: &BatchNormParams,
        x: &CpuBuffer,
        residual: Option<&CpuBuffer>,
        scale: Option<&CpuBuffer>,
        shift: Option<&CpuBuffer>,
        mean: &CpuBuffer,
        rstd: &CpuBuffer,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        checks::batch_norm_apply(self, p, x, residual, scale, shift, mean, rstd, y)?;
        float!(x.dtype(), T => {
            let scale = channels::<T>(self, scale, p.channels, 1.0)?;
            let shift = channels::<T>(self, shift, p.channels, 0.0)?;
            let behind = Behind { residual: residual.map(|r| r.as_slice::<T>()), relu: p.relu == 1 };
            let (affine, x, c) = ((scale.slice(), shift.slice()), x.as_slice::<T>(), p.channels as usize);
            batch::normalise(self, c, x, (affine, behind), mean.as_slice(), rstd.as_slice(), y.as_mut_slice::<T>())
        })
    }

    fn batch_norm_grad(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, CpuBuffer>,
        g: &CpuBuffer,
        more: Option<&CpuBuffer>,
        to: BatchNormGrads<'_, CpuBuffer>,
    ) -> Result<()> {
        checks::batch_norm_grad(self, p, of, g, more, &to)?;
        float!(g.dtype(), T => {
            let scale = channels::<T>(self, of.scale, p.channels, 1.0)?;
            let shift = channels::<T>(self, of.shift, p.channels, 0.0)?;
            let stats = (of.mean.as_slice(), of.rstd.as_slice());
            let grad = ResultGrad {
                g: Some(g.as_slice::<T>()),
                more: more.map(|b| b.as_slice()),
                y: of.y.map(|b| b.as_slice()),
                relu: (p.relu == 1).then(|| shift.slice()),
            };
            let inputs = (of.x.as_slice::<T>(), grad);
            let outputs = (to.dx.as_mut_slice::<T>(), to.dr.map(|b| b.as_mut_slice()));
            write_channels::<T>(self, to.dscale, |dscale| {
                write_channels::<T>(self, to.dshift, |dshift| {
                    batch::grad(self, &p.group_norm(), inputs, scale.slice(), stats, outputs, dscale, dshift)
                })
            })
        })
    }

    fn batch_norm_data_grad(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, CpuBuffer>,
        d: &CpuBuffer,
        dscale: &CpuBuffer,
        dshift: &CpuBuffer,
        dx: &mut CpuBuffer,
    ) -> Result<()> {
        checks::batch_norm_data_grad(self, p, of, d, dscale, dshift, dx)?;
        float!(d.dtype(), T => {
            let scale = channels::<T>(self, of.scale, p.channels, 1.0)?;
            let stats = (of.mean.as_slice(), of.rstd.as_slice());
            let sums = (dscale.as_slice(), dshift.as_slice());
            let inputs = [of.x.as_slice::<T>(), d.as_slice()];
            batch::data_grad(self, &p.group_norm(), inputs, scale.slice(), stats, sums, dx.as_mut_slice::<T>())
        })
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
        checks::group_norm(self, p, x, scale, shift, y, mean, rstd)?;
        debug_assert_eq!((y.len(), mean.len() as u64), (x.len(), p.samples * p.groups));
        if x.is_empty() {
            return Ok(());
        }
        float!(x.dtype(), T => {
            let scale = channels::<T>(self, scale, p.groups * p.width, 1.0)?;
            let shift = channels::<T>(self, shift, p.groups * p.width, 0.0)?;
            let affine = (scale.slice(), shift.slice());
            let (mean, rstd) = (mean.as_mut_slice(), rstd.as_mut_slice());
            if p.is_batch_norm() {
                let (x, y, of) = (x.as_slice::<T>(), y.as_mut_slice::<T>(), (affine, Behind::NOTHING));
                return batch::forward(self, p, (x, None), of, y, mean, rstd, |_, _| ());
            }
            let x = Upcast::new::<T>(self, x)?;
            write_upcast::<T>(self, y, |y| {
                if p.positions == 1 {
                    group::forward_rows(p, x.slice(), affine, y, mean, rstd);
                    Ok(())
                } else {
                    group::forward(self, p, x.slice(), affine, y, mean, rstd)
                }
            })
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
        checks::group_norm_grad(self, p, x, scale, mean, rstd, g, dx, dscale, dshift)?;
        debug_assert_eq!((g.len(), dx.len()), (x.len(), x.len()));
        float!(x.dtype(), T => {
            if x.is_empty() {
                dscale.bytes_mut().fill(0);
                dshift.bytes_mut().fill(0);
                return Ok(());
            }
            let scale = channels::<T>(self, scale, p.groups * p.width, 1.0)?;
            let stats = (mean.as_slice(), rstd.as_slice());
            if p.is_batch_norm() {
                return write_channels::<T>(self, dscale, |dscale| {
                    write_channels::<T>(self, dshift, |dshift| {
                        let grad = ResultGrad { g: Some(g.as_slice::<T>()), more: None, y: None, relu: None };
                        let (inputs, outputs) = ((x.as_slice::<T>(), grad), (dx.as_mut_slice::<T>(), None));
                        batch::grad(self, p, inputs, scale.slice(), stats, outputs, dscale, dshift)
                    })
                });
            }
            let (x, g) = (Upcast::new::<T>(self, x)?, Upcast::new::<T>(self, g)?);
            write_upcast::<T>(self, dx, |dx| {
                write_channels::<T>(self, dscale, |dscale| {
                    write_channels::<T>(self, dshift, |dshift| {
                        let (x, scale) = ((x.slice(), g.slice()), scale.slice());
                        if p.positions == 1 {
                            group::grad_rows(self, p, x, scale, stats, dx, dscale, dshift)
                        } else {
                            group::grad(self, p, x, scale, stats, dx, dscale, dshift)
                        }
                    })
                })
            })
        })
    }
}
