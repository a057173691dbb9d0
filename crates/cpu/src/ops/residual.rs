//! Sums of a residual stream and their layer norm, by the loops of norms and of dropout.

use super::norm::{channels, grad_of_rows, norm_of_rows, write_channels};
use super::random::with_halves;
use crate::parallel::chunks_mut;
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{GroupNormParams, ResidualNormGrads, ResidualNormInputs, ResidualOps, ResidualParams};
use kiln_core::philox::{Key, drop_below};
use kiln_core::{Buffer, DType, Float, Result, checks};

/// Runs a body for the dtypes of a stream and of its branches, which have one accumulation type.
macro_rules! pair {
    ($stream:expr, $half:expr, ($W:ident, $H:ident) => $body:expr) => {
        match ($stream, $half) {
            (DType::F32, DType::BF16) => {
                type $W = f32;
                type $H = half::bf16;
                $body
            }
            (DType::F32, DType::F16) => {
                type $W = f32;
                type $H = half::f16;
                $body
            }
            (DType::BF16, _) => {
                type $W = half::bf16;
                type $H = half::bf16;
                $body
            }
            (DType::F16, _) => {
                type $W = half::f16;
                type $H = half::f16;
                $body
            }
            (DType::F64, _) => {
                type $W = f64;
                type $H = f64;
                $body
            }
            _ => {
                type $W = f32;
                type $H = f32;
                $body
            }
        }
    };
}

/// The dropout of a call: its key and the number below which an element is dropped. `None` where there is none.
fn drawn(p: &ResidualParams, step: Option<&CpuBuffer>) -> Option<(Key, u32)> {
    let step = step.filter(|_| p.drop > 0.0)?;
    let key = Key::new(p.seed, p.stream, step.as_slice::<i32>()[0] as u32);
    Some((key, drop_below(p.drop)))
}

/// `s = x + dropout(y)`.
fn add<A: Real, W: Float<Acc = A>, H: Float<Acc = A>>(
    p: &ResidualParams,
    (x, y): (&[W], &[H]),
    step: Option<&CpuBuffer>,
    s: &mut [W],
) {
    let Some((key, below)) = drawn(p, step) else {
        chunks_mut(s, 1, 1, |at, s| {
            lanes::<A, _>(
                #[inline(always)]
                || {
                    for ((s, x), y) in s.iter_mut().zip(&x[at..]).zip(&y[at..]) {
                        *s = W::from_acc(x.to_acc() + y.to_acc());
                    }
                },
            );
        });
        return;
    };
    let (scale, zero) = (A::of(p.scale()), A::of(0.0));
    with_halves(
        key,
        s,
        #[inline(always)]
        |at, halves, s| {
            for (((s, x), y), &half) in s.iter_mut().zip(&x[at..]).zip(&y[at..]).zip(halves) {
                let kept = y.to_acc() * scale;
                *s = W::from_acc(x.to_acc() + if half < below { zero } else { kept });
            }
        },
    );
}

/// `dy = dropout(g)`.
fn dropped<A: Real, W: Float<Acc = A>, H: Float<Acc = A>>(
    p: &ResidualParams,
    g: &[W],
    step: Option<&CpuBuffer>,
    dy: &mut [H],
) {
    let Some((key, below)) = drawn(p, step) else {
        chunks_mut(dy, 1, 1, |at, dy| {
            for (dy, g) in dy.iter_mut().zip(&g[at..]) {
                *dy = H::from_acc(g.to_acc());
            }
        });
        return;
    };
    let (scale, zero) = (A::of(p.scale()), A::of(0.0));
    with_halves(
        key,
        dy,
        #[inline(always)]
        |at, halves, dy| {
            for ((dy, g), &half) in dy.iter_mut().zip(&g[at..]).zip(halves) {
                let kept = g.to_acc() * scale;
                *dy = H::from_acc(if half < below { zero } else { kept });
            }
        },
    );
}

/// The layer norm of the rows.
fn rows(p: &ResidualParams) -> GroupNormParams {
    GroupNormParams {
        samples: p.rows,
        positions: 1,
        groups: 1,
        width: p.width,
        eps: p.eps,
        rms: 0,
        pad: 0,
    }
}

impl ResidualOps for Cpu {
    fn residual_add(
        &self,
        p: &ResidualParams,
        x: &CpuBuffer,
        y: &CpuBuffer,
        step: Option<&CpuBuffer>,
        s: &mut CpuBuffer,
    ) -> Result<()> {
        checks::residual_add(self, p, x, y, step, s)?;
        pair!(x.dtype(), y.dtype(), (W, H) => {
            add::<<W as Float>::Acc, W, H>(p, (x.as_slice(), y.as_slice()), step, s.as_mut_slice());
        });
        Ok(())
    }

    fn residual_add_grad(
        &self,
        p: &ResidualParams,
        g: &CpuBuffer,
        step: Option<&CpuBuffer>,
        dy: &mut CpuBuffer,
    ) -> Result<()> {
        checks::residual_add_grad(self, p, g, step, dy)?;
        pair!(g.dtype(), dy.dtype(), (W, H) => {
            dropped::<<W as Float>::Acc, W, H>(p, g.as_slice(), step, dy.as_mut_slice());
        });
        Ok(())
    }

    fn residual_norm(
        &self,
        p: &ResidualParams,
        x: &CpuBuffer,
        branch: Option<(&CpuBuffer, &mut CpuBuffer)>,
        step: Option<&CpuBuffer>,
        scale: &CpuBuffer,
        shift: &CpuBuffer,
        n: &mut CpuBuffer,
        mean: &mut CpuBuffer,
        rstd: &mut CpuBuffer,
    ) -> Result<()> {
        checks::residual_norm(
            self,
            p,
            x,
            branch.as_ref().map(|(y, s)| (*y, &**s)),
            step,
            scale,
            shift,
            n,
            mean,
            rstd,
        )?;
        if x.is_empty() {
            return Ok(());
        }
        pair!(x.dtype(), n.dtype(), (W, H) => {
            let s = match branch {
                Some((y, s)) => {
                    add::<<W as Float>::Acc, W, H>(p, (x.as_slice(), y.as_slice()), step, s.as_mut_slice());
                    &*s
                }
                None => x,
            };
            let scale = channels::<W>(self, Some(scale), p.width, 1.0)?;
            let shift = channels::<W>(self, Some(shift), p.width, 0.0)?;
            let (s, affine) = (Upcast::new::<W>(self, s)?, (scale.slice(), shift.slice()));
            write_upcast::<H>(self, n, |n| {
                norm_of_rows(&rows(p), s.slice(), affine, n, mean.as_mut_slice(), rstd.as_mut_slice());
                Ok(())
            })
        })
    }

    fn residual_norm_grad(
        &self,
        p: &ResidualParams,
        of: &ResidualNormInputs<'_, CpuBuffer>,
        to: ResidualNormGrads<'_, CpuBuffer>,
    ) -> Result<()> {
        checks::residual_norm_grad(self, p, of, &to)?;
        let &ResidualNormInputs { s, mean, rstd, g, .. } = of;
        let ResidualNormGrads { ds, dy, dscale, dshift } = to;
        if s.is_empty() {
            dscale.bytes_mut().fill(0);
            dshift.bytes_mut().fill(0);
            return Ok(());
        }
        pair!(s.dtype(), g.dtype(), (W, H) => {
            type A = <W as Float>::Acc;
            let scale = channels::<W>(self, Some(of.scale), p.width, 1.0)?;
            let (s, g) = (Upcast::new::<W>(self, s)?, Upcast::new::<H>(self, g)?);
            let g = g.plus::<H>(self, of.more)?;
            write_upcast::<W>(self, ds, |ds| {
                write_channels::<W>(self, dscale, |dscale| {
                    write_channels::<W>(self, dshift, |dshift| {
                        let stats = (mean.as_slice(), rstd.as_slice());
                        grad_of_rows(self, &rows(p), (s.slice(), g.slice()), scale.slice(), stats, ds, dscale, dshift)
                    })
                })?;
                if let Some(sum) = of.sum {
                    let sum = sum.as_slice::<W>();
                    chunks_mut(ds, 1, 1, |at, ds| {
                        for (ds, sum) in ds.iter_mut().zip(&sum[at..]) {
                            *ds += sum.to_acc();
                        }
                    });
                }
                if let Some(dy) = dy {
                    dropped::<A, A, H>(p, ds, of.step, dy.as_mut_slice());
                }
                Ok(())
            })
        })
    }
}
