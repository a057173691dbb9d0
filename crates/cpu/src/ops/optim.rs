//! Optimizer updates: one fused pass over parameter, gradient and state. Elements are independent, so splitting the pass
//! does not change the results.

#[cfg(test)]
mod tests;

use crate::dispatch::float;
use crate::fork::in_pool;
use crate::parallel::join;
use crate::simd::lanes::{from_acc, lanes};
use crate::simd::real::Real;
use crate::{Cpu, CpuBuffer, parallel::THREADS};
use bytemuck::cast_slice;
use half::{bf16, f16};
use kiln_core::ops::{
    AdagradParams, AdamParams, ElementwiseOps, GradNormParams, OptimOps, OptimSlot, Reduce, ReduceOps, ReduceParams,
    RmspropParams, SgdParams,
};
use kiln_core::{Buffer, DType, Element, Float, Result, Shape, checks};
use rayon::prelude::*;

/// The number of elements in one task; an update reads and writes three to seven numbers per element.
const CHUNK: usize = THREADS / 4;

/// The number of elements of all parameters up to which one thread updates them, because starting others takes longer.
const SERIAL_THRESHOLD: usize = THREADS / 2;

type Slots<'s, 'b> = &'s mut [OptimSlot<'b, CpuBuffer>];

/// The copy of a parameter in half precision. A part of it is written after that part of the parameter, which is in cache then.
enum Rounded<'a> {
    None,
    Bf16(&'a mut [bf16]),
    F16(&'a mut [f16]),
}

impl<'a> Rounded<'a> {
    fn of(half: Option<&'a mut CpuBuffer>) -> Self {
        match half {
            Some(half) if half.dtype() == DType::BF16 => Rounded::Bf16(half.as_mut_slice()),
            Some(half) => Rounded::F16(half.as_mut_slice()),
            None => Rounded::None,
        }
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        match self {
            Rounded::None => (Rounded::None, Rounded::None),
            Rounded::Bf16(y) => {
                let (a, b) = y.split_at_mut(middle);
                (Rounded::Bf16(a), Rounded::Bf16(b))
            }
            Rounded::F16(y) => {
                let (a, b) = y.split_at_mut(middle);
                (Rounded::F16(a), Rounded::F16(b))
            }
        }
    }

    /// Writes the values of `param`, which is of f32 where there is a copy.
    fn write<A: Real>(self, param: &[A]) {
        match self {
            Rounded::None => {}
            Rounded::Bf16(y) => from_acc::<bf16>(cast_slice(param), y),
            Rounded::F16(y) => from_acc::<f16>(cast_slice(param), y),
        }
    }
}

/// A loop over one part of a slot: its parameter, gradient and state.
type Part<'f, A, const N: usize> = &'f (dyn Fn(&mut [A], &[A], [&mut [A]; N]) + Sync);

/// `(p, state) = f(p, g, state)` for every element of every slot; `f` must be `#[inline(always)]` and own what it holds,
/// so that the loop can keep that in registers.
fn each<A: Real, const N: usize>(slots: Slots<'_, '_>, f: impl Fn(A, A, [A; N]) -> (A, [A; N]) + Copy + Sync) {
    run(slots, &move |param: &mut [A], grad: &[A], mut state: [&mut [A]; N]| {
        lanes::<A, _>(
            #[inline(always)]
            move || {
                let n = param.len();
                let (param, grad, f) = (&mut param[..n], &grad[..n], f);
                for s in &mut state {
                    *s = &mut std::mem::take(s)[..n];
                }
                for i in 0..n {
                    let mut s = [A::default(); N];
                    for k in 0..N {
                        s[k] = state[k][i];
                    }
                    let (p, s) = f(param[i], grad[i], s);
                    param[i] = p;
                    for k in 0..N {
                        state[k][i] = s[k];
                    }
                }
            },
        );
    });
}

fn run<A: Real, const N: usize>(slots: Slots<'_, '_>, part: Part<'_, A, N>) {
    let alone = slots.iter().map(|s| s.param.len()).sum::<usize>() <= SERIAL_THRESHOLD;
    let task = if alone { SERIAL_THRESHOLD } else { CHUNK };
    let run = |slot: &mut OptimSlot<'_, CpuBuffer>| {
        debug_assert_eq!(slot.state.len(), N);
        let mut state = slot.state.iter_mut();
        let state = [(); N].map(|()| state.next().map_or(&mut [][..], |s| s.as_mut_slice::<A>()));
        let half = Rounded::of(slot.half.as_deref_mut());
        split(task, slot.param.as_mut_slice(), half, slot.grad.as_slice(), state, part);
    };
    if alone {
        slots.iter_mut().for_each(run);
    } else {
        in_pool(|| slots.par_iter_mut().with_max_len(1).for_each(run));
    }
}

/// Halves a slot, whose copy is `half`, until each part has at most `task` elements, and runs `part` on each.
fn split<A: Real, const N: usize>(
    task: usize,
    param: &mut [A],
    half: Rounded<'_>,
    grad: &[A],
    state: [&mut [A]; N],
    part: Part<'_, A, N>,
) {
    let n = param.len();
    debug_assert!(grad.len() == n && state.iter().all(|s| s.len() == n));
    if n <= task {
        part(param, grad, state);
        return half.write(param);
    }
    let middle = (n / 2).next_multiple_of(task);
    let (p0, p1) = param.split_at_mut(middle);
    let (h0, h1) = half.split_at(middle);
    let (g0, g1) = grad.split_at(middle);
    let mut right = [const { None }; N];
    let mut k = 0;
    let left = state.map(|s| {
        let (a, b) = s.split_at_mut(middle);
        right[k] = Some(b);
        k += 1;
        a
    });
    let right = right.map(|b| b.unwrap_or_default());
    join(
        || split(task, p0, h0, g0, left, part),
        || split(task, p1, h1, g1, right, part),
    );
}

/// Reads `[lr, c1, c2, scale]` from the device.
fn scalars<A: Float>(buffer: &CpuBuffer) -> [A; 4] {
    let s = buffer.as_slice::<A>();
    [s[0], s[1], s[2], s[3]]
}

/// True if the scale says that nothing is to change.
fn left_out(s: &CpuBuffer) -> bool {
    match s.dtype() {
        DType::F64 => s.as_slice::<f64>()[3].is_nan(),
        _ => s.as_slice::<f32>()[3].is_nan(),
    }
}

fn sgd<A: Real>(p: &SgdParams, s: &CpuBuffer, slots: Slots<'_, '_>) {
    let [lr, first, _, scale] = scalars::<A>(s);
    let (decay, momentum, fresh) = (A::of(p.weight_decay), A::of(p.momentum), A::of(1.0 - p.dampening));
    let nesterov = p.nesterov != 0;
    if p.momentum == 0.0 {
        each::<A, 0>(
            slots,
            #[inline(always)]
            move |w, g, []| (w - lr * (scale * g + decay * w), []),
        );
    } else {
        let first = first == A::ONE;
        each::<A, 1>(
            slots,
            #[inline(always)]
            move |w, g, [v]| {
                let g = scale * g + decay * w;
                let v = if first { g } else { momentum * v + fresh * g };
                let step = if nesterov { g + momentum * v } else { v };
                (w - lr * step, [v])
            },
        );
    }
}

fn adam<A: Real>(p: &AdamParams, s: &CpuBuffer, slots: Slots<'_, '_>) {
    let [lr, c1, c2, scale] = scalars::<A>(s);
    let (beta1, fresh1) = (A::of(p.beta1), A::of(1.0 - p.beta1));
    let (beta2, fresh2) = (A::of(p.beta2), A::of(1.0 - p.beta2));
    let (eps, decay, rate) = (A::of(p.eps), A::of(p.weight_decay), lr / c1);
    let (shrink, penalty) = match p.decoupled {
        0 => (A::ONE, decay),
        _ => (A::ONE - lr * decay, A::ZERO),
    };
    let moments = move |w: A, g: A, m: A, v: A| {
        let g = scale * g + penalty * w;
        (beta1 * m + fresh1 * g, beta2 * v + fresh2 * (g * g))
    };
    let update = move |w: A, m: A, v: A| shrink * w - rate * (m / (v.sqrt() / c2 + eps));
    if p.amsgrad == 0 {
        each::<A, 2>(
            slots,
            #[inline(always)]
            move |w, g, [m, v]| {
                let (m, v) = moments(w, g, m, v);
                (update(w, m, v), [m, v])
            },
        );
    } else {
        each::<A, 3>(
            slots,
            #[inline(always)]
            move |w, g, [m, v, top]| {
                let (m, v) = moments(w, g, m, v);
                let top = if v <= top { top } else { v };
                (update(w, m, top), [m, v, top])
            },
        );
    }
}

fn rmsprop<A: Real>(p: &RmspropParams, s: &CpuBuffer, slots: Slots<'_, '_>) {
    let [lr, _, _, scale] = scalars::<A>(s);
    let (alpha, fresh, eps) = (A::of(p.alpha), A::of(1.0 - p.alpha), A::of(p.eps));
    let (decay, momentum) = (A::of(p.weight_decay), A::of(p.momentum));
    // Returns the scaled gradient and the new mean square.
    let square = move |w: A, g: A, s: A| {
        let g = scale * g + decay * w;
        (g, alpha * s + fresh * (g * g))
    };
    let mean = move |a: A, g: A| alpha * a + fresh * g;
    // The variance, which can be rounded below zero; NaN fails the comparison and stays.
    let variance = move |s: A, a: A| {
        let v = s - a * a;
        if v < A::ZERO { A::ZERO } else { v }
    };
    match (p.momentum != 0.0, p.centered != 0) {
        (false, false) => each::<A, 1>(
            slots,
            #[inline(always)]
            move |w, g, [s]| {
                let (g, s) = square(w, g, s);
                (w - lr * (g / (s.sqrt() + eps)), [s])
            },
        ),
        (true, false) => each::<A, 2>(
            slots,
            #[inline(always)]
            move |w, g, [s, b]| {
                let (g, s) = square(w, g, s);
                let b = momentum * b + g / (s.sqrt() + eps);
                (w - lr * b, [s, b])
            },
        ),
        (false, true) => each::<A, 2>(
            slots,
            #[inline(always)]
            move |w, g, [s, a]| {
                let (g, s) = square(w, g, s);
                let a = mean(a, g);
                (w - lr * (g / (variance(s, a).sqrt() + eps)), [s, a])
            },
        ),
        (true, true) => each::<A, 3>(
            slots,
            #[inline(always)]
            move |w, g, [s, b, a]| {
                let (g, s) = square(w, g, s);
                let a = mean(a, g);
                let b = momentum * b + g / (variance(s, a).sqrt() + eps);
                (w - lr * b, [s, b, a])
            },
        ),
    }
}

fn adagrad<A: Real>(p: &AdagradParams, s: &CpuBuffer, slots: Slots<'_, '_>) {
    let [lr, _, _, scale] = scalars::<A>(s);
    let (eps, decay) = (A::of(p.eps), A::of(p.weight_decay));
    each::<A, 1>(
        slots,
        #[inline(always)]
        move |w, g, [s]| {
            let g = scale * g + decay * w;
            let s = s + g * g;
            (w - lr * (g / (s.sqrt() + eps)), [s])
        },
    );
}

impl Cpu {
    /// Runs an update in the dtype of the state: half dtypes are widened to scratch and rounded once. The
    /// parameters of one call share their dtype; a call without parameters, or with a scale of NaN, does nothing.
    fn update(
        &self,
        s: &CpuBuffer,
        slots: Slots<'_, '_>,
        single: impl FnOnce(Slots<'_, '_>),
        double: impl FnOnce(Slots<'_, '_>),
    ) -> Result<()> {
        match slots.first().map(|s| s.param.dtype()) {
            None => {}
            Some(_) if left_out(s) => {}
            Some(DType::F64) => double(slots),
            Some(DType::F32) => single(slots),
            Some(_) => {
                let wide = |x: &CpuBuffer| {
                    let mut y = self.scratch(DType::F32, x.len())?;
                    self.cast(x, &mut y)?;
                    Ok(y)
                };
                let mut params = slots.iter().map(|s| wide(s.param)).collect::<Result<Vec<_>>>()?;
                let grads = slots.iter().map(|s| wide(s.grad)).collect::<Result<Vec<_>>>()?;
                let operands = params.iter_mut().zip(&grads);
                let mut wide: Vec<_> = operands
                    .zip(&mut *slots)
                    .map(|((param, grad), slot)| OptimSlot {
                        param,
                        half: None,
                        grad,
                        state: slot.state.iter_mut().map(|s| &mut **s).collect(),
                    })
                    .collect();
                single(&mut wide);
                drop(wide);
                for (slot, param) in slots.iter_mut().zip(&params) {
                    self.cast(param, slot.param)?;
                }
            }
        }
        Ok(())
    }
}

/// `g *= inverse`; true if all products are finite.
fn unscale<T: Float>(grad: &mut [T], inverse: T::Acc) -> bool {
    let writes = inverse != <T::Acc as Float>::of(1.0);
    let mut finite = true;
    for g in grad {
        let y = T::from_acc(g.to_acc() * inverse);
        finite &= y.f64().is_finite();
        if writes {
            *g = y;
        }
    }
    finite
}

impl OptimOps for Cpu {
    fn sgd(&self, p: &SgdParams, s: &CpuBuffer, slots: Slots<'_, '_>) -> Result<()> {
        checks::sgd(self, p, s, slots)?;
        self.update(
            s,
            slots,
            |slots| sgd::<f32>(p, s, slots),
            |slots| sgd::<f64>(p, s, slots),
        )
    }

    fn adam(&self, p: &AdamParams, s: &CpuBuffer, slots: Slots<'_, '_>) -> Result<()> {
        checks::adam(self, p, s, slots)?;
        self.update(
            s,
            slots,
            |slots| adam::<f32>(p, s, slots),
            |slots| adam::<f64>(p, s, slots),
        )
    }

    fn rmsprop(&self, p: &RmspropParams, s: &CpuBuffer, slots: Slots<'_, '_>) -> Result<()> {
        checks::rmsprop(self, p, s, slots)?;
        self.update(
            s,
            slots,
            |slots| rmsprop::<f32>(p, s, slots),
            |slots| rmsprop::<f64>(p, s, slots),
        )
    }

    fn adagrad(&self, p: &AdagradParams, s: &CpuBuffer, slots: Slots<'_, '_>) -> Result<()> {
        checks::adagrad(self, p, s, slots)?;
        self.update(
            s,
            slots,
            |slots| adagrad::<f32>(p, s, slots),
            |slots| adagrad::<f64>(p, s, slots),
        )
    }

    fn grad_norm(
        &self,
        p: &GradNormParams,
        grads: &[&CpuBuffer],
        norm: &mut CpuBuffer,
        factor: &mut CpuBuffer,
    ) -> Result<()> {
        checks::grad_norm(self, p, grads, norm, factor)?;
        let Some(dtype) = grads.first().map(|g| g.dtype()) else {
            return self.fill(0.0, norm).and_then(|()| self.fill(1.0, factor));
        };
        float!(dtype, T => {
            type Acc = <T as Float>::Acc;
            let mut one = self.scratch(<Acc as Element>::DTYPE, 1)?;
            let mut total = Acc::of(0.0);
            for grad in grads.iter().filter(|g| !g.is_empty()) {
                let shape = Shape::new(&[grad.len()])?;
                let (reduce, _) = ReduceParams::new("grad_norm", Reduce::SumSquares, &shape, &[], false)?;
                match dtype == <Acc as Element>::DTYPE {
                    true => self.reduce(&reduce, grad, &mut one)?,
                    false => {
                        let mut wide = self.scratch(<Acc as Element>::DTYPE, grad.len())?;
                        self.cast(grad, &mut wide)?;
                        self.reduce(&reduce, &wide, &mut one)?;
                    }
                }
                total += one.as_slice::<Acc>()[0];
            }
            let root = total.sqrt();
            let limit = Acc::of(p.max_norm) / (root + Acc::of(1e-6));
            norm.as_mut_slice::<Acc>()[0] = root;
            factor.as_mut_slice::<Acc>()[0] = if limit > Acc::of(1.0) { Acc::of(1.0) } else { limit };
        });
        Ok(())
    }

    fn unscale(&self, inverse: &CpuBuffer, grads: &mut [&mut CpuBuffer], found: &mut CpuBuffer) -> Result<()> {
        checks::unscale(self, inverse, grads, found)?;
        let Some(dtype) = grads.first().map(|g| g.dtype()) else {
            return Ok(());
        };
        let alone = grads.iter().map(|g| g.len()).sum::<usize>() <= SERIAL_THRESHOLD;
        let finite = float!(dtype, T => {
            let inverse = inverse.as_slice::<<T as Float>::Acc>()[0];
            if alone {
                grads.iter_mut().fold(true, |finite, g| unscale(g.as_mut_slice::<T>(), inverse) & finite)
            } else {
                let one = |g: &mut &mut CpuBuffer| {
                    let parts = g.as_mut_slice::<T>().par_chunks_mut(CHUNK);
                    parts.map(|part| unscale(part, inverse)).reduce(|| true, |a, b| a & b)
                };
                in_pool(|| grads.par_iter_mut().map(one).reduce(|| true, |a, b| a & b))
            }
        });
        if !finite {
            found.as_mut_slice::<i32>()[0] = 1;
        }
        Ok(())
    }
}
