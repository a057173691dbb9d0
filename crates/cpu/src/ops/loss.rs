//! Softmax cross-entropy: the losses of rows, and their gradient, recomputed from the logits. Half dtypes are widened, and
//! only the gradient of the logits is rounded, after it is multiplied by the gradient of the loss.

mod ctc;

use crate::dispatch::float;
use crate::parallel::{chunks_mut, rows_per_chunk, zip2_mut};
use crate::simd::lanes::{from_acc, lanes};
use crate::simd::real::Real;
use crate::simd::row_reduce::{max_row, sum, sums};
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{CrossEntropyParams, CtcParams, ElementwiseOps, LossOps, Reduce, ReduceOps, ReduceParams};
use kiln_core::{Buffer, DType, Element, Error, Float, Result, Shape, checks};

/// The work of an element relative to one multiplication.
const COST: usize = 8;

/// The values that all rows of one call share.
struct Terms<'a, A> {
    classes: usize,
    stride: usize,
    ignore_index: i64,
    /// 1 − ε
    hard: A,
    /// ε/C
    soft: A,
    weights: Option<&'a [A]>,
    /// Σ w
    total: A,
}

impl<'a, A: Real> Terms<'a, A> {
    fn new(p: &CrossEntropyParams, weights: Option<&'a [A]>) -> Self {
        Terms {
            classes: p.classes as usize,
            stride: p.stride as usize,
            ignore_index: p.ignore_index,
            hard: A::of(1.0 - p.smoothing),
            soft: A::of(p.smoothing / p.classes as f64),
            weights,
            total: weights.map_or(A::of(p.classes as f64), |w| sum(w, |w| w)),
        }
    }

    #[inline(always)]
    fn weight(&self, class: usize) -> A {
        self.weights.map_or(A::ONE, |w| w[class])
    }

    /// The class of a label; `None` if its row is ignored.
    #[inline(always)]
    fn class(&self, label: i32) -> Option<usize> {
        (i64::from(label) != self.ignore_index).then_some(label as usize)
    }

    /// The loss of a row of class `t`.
    #[inline(always)]
    fn loss(&self, x: &[A], t: usize) -> A {
        let m = max_row(x);
        let s = sum(
            x,
            #[inline(always)]
            |x| (x - m).exp(),
        );
        let log_s = s.ln();
        let loss = -(self.hard * self.weight(t) * (x[t] - m - log_s));
        if self.soft > A::ZERO {
            loss - self.soft * self.all(x, m + log_s)
        } else {
            loss
        }
    }

    /// Σ w·ℓ over all classes.
    #[inline(always)]
    fn all(&self, x: &[A], log_sum: A) -> A {
        let Some(w) = self.weights else {
            return sum(
                x,
                #[inline(always)]
                |x| x - log_sum,
            );
        };
        let [all] = sums(
            [x, w],
            #[inline(always)]
            |[x, w]| [w * (x - log_sum)],
        );
        all
    }

    /// The gradient of `g·loss` of a row of class `t`: `g·(p·Σ a − a)`, with the softmax p and target weights a per class.
    #[inline(always)]
    fn grad(&self, x: &[A], t: usize, g: A, dx: &mut [A]) {
        let m = max_row(x);
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = (x - m).exp();
        }
        self.grad_of_powers(t, g, dx);
    }

    /// As [`grad`](Terms::grad), over the logits.
    #[inline(always)]
    fn grad_in_place(&self, t: usize, g: A, x: &mut [A]) {
        let m = max_row(x);
        for x in &mut *x {
            *x = (*x - m).exp();
        }
        self.grad_of_powers(t, g, x);
    }

    /// The gradient from e^(x − max x), over it.
    #[inline(always)]
    fn grad_of_powers(&self, t: usize, g: A, dx: &mut [A]) {
        let s = sum(
            dx,
            #[inline(always)]
            |y| y,
        );
        let label = self.hard * self.weight(t);
        let mass = if self.soft > A::ZERO {
            label + self.soft * self.total
        } else {
            label
        };
        let scale = mass / s;
        // The class of the row has a larger target weight than the others; its softmax term is kept for it.
        let share = dx[t] * scale;
        match self.weights.filter(|_| self.soft > A::ZERO) {
            None => {
                for dx in &mut *dx {
                    *dx = (*dx * scale - self.soft) * g;
                }
            }
            Some(w) => {
                for (dx, &w) in dx.iter_mut().zip(w) {
                    *dx = (*dx * scale - self.soft * w) * g;
                }
            }
        }
        dx[t] = (share - self.soft * self.weight(t) - label) * g;
    }
}

/// The gradients of the losses of rows: one for each, or one for all.
enum Upstream<'a, A> {
    Each(&'a [A]),
    All(A),
}

impl<'a, A: Real + Element> Upstream<'a, A> {
    /// The gradients `g` of the losses; with a total, of their mean.
    fn new(g: &'a CpuBuffer, total: Option<&CpuBuffer>) -> Self {
        let g = g.as_slice::<A>();
        match total {
            None => Upstream::Each(g),
            Some(total) => Upstream::All(g[0] / total.as_slice::<A>()[0]),
        }
    }
}

impl<A: Real> Upstream<'_, A> {
    #[inline(always)]
    fn of(&self, row: usize) -> A {
        match self {
            Upstream::Each(g) => g[row],
            Upstream::All(g) => *g,
        }
    }
}

fn losses<A: Real>(terms: &Terms<'_, A>, logits: &[A], labels: &[i32], loss: &mut [A], weight: &mut [A]) {
    let (classes, stride) = (terms.classes, terms.stride);
    let rows = rows_per_chunk(labels.len(), classes, COST);
    zip2_mut((loss, rows), (weight, rows), |chunk, loss, weight| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (r, (loss, weight)) in (chunk * rows..).zip(loss.iter_mut().zip(weight)) {
                    (*loss, *weight) = match terms.class(labels[r]) {
                        Some(t) => (terms.loss(&logits[r * stride..][..classes], t), terms.weight(t)),
                        None => (A::ZERO, A::ZERO),
                    };
                }
            },
        );
    });
}

fn gradient<A: Real>(terms: &Terms<'_, A>, logits: &[A], labels: &[i32], g: &Upstream<'_, A>, dlogits: &mut [A]) {
    let (classes, stride) = (terms.classes, terms.stride);
    chunks_mut(dlogits, stride, COST, |at, dlogits| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (r, row) in (at / stride..).zip(dlogits.chunks_exact_mut(stride)) {
                    let dx = &mut row[..classes];
                    match terms.class(labels[r]) {
                        Some(t) => terms.grad(&logits[r * stride..][..classes], t, g.of(r), dx),
                        None => dx.fill(A::ZERO),
                    }
                }
            },
        );
    });
}

fn gradient_in_place<A: Real>(terms: &Terms<'_, A>, labels: &[i32], g: &Upstream<'_, A>, logits: &mut [A]) {
    let (classes, stride) = (terms.classes, terms.stride);
    chunks_mut(logits, stride, COST, |at, logits| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (r, row) in (at / stride..).zip(logits.chunks_exact_mut(stride)) {
                    let x = &mut row[..classes];
                    match terms.class(labels[r]) {
                        Some(t) => terms.grad_in_place(t, g.of(r), x),
                        None => x.fill(A::ZERO),
                    }
                }
            },
        );
    });
}

/// Returns the labels after checking that each is a class or ignored.
fn checked<'a>(p: &CrossEntropyParams, labels: &'a CpuBuffer) -> Result<&'a [i32]> {
    let labels = labels.as_slice::<i32>();
    let valid = |l: i64| (0..p.classes as i64).contains(&l) || l == p.ignore_index;
    match labels.iter().position(|&l| !valid(i64::from(l))) {
        Some(position) => Err(Error::IndexOutOfRange {
            op: "cross_entropy",
            index: i64::from(labels[position]),
            position,
            size: p.classes as usize,
        }),
        None => Ok(labels),
    }
}

impl LossOps for Cpu {
    fn cross_entropy(
        &self,
        p: &CrossEntropyParams,
        logits: &CpuBuffer,
        labels: &CpuBuffer,
        class_weights: Option<&CpuBuffer>,
        loss: &mut CpuBuffer,
        weight: &mut CpuBuffer,
    ) -> Result<()> {
        checks::cross_entropy(self, p, logits, labels, class_weights, loss, weight)?;
        debug_assert_eq!((logits.len() as u64, labels.len() as u64), (p.rows * p.stride, p.rows));
        let labels = checked(p, labels)?;
        float!(logits.dtype(), T => {
            let logits = Upcast::new::<T>(self, logits)?;
            let class_weights = class_weights.map(|w| Upcast::new::<T>(self, w)).transpose()?;
            let terms = Terms::new(p, class_weights.as_ref().map(Upcast::slice));
            losses(&terms, logits.slice(), labels, loss.as_mut_slice(), weight.as_mut_slice());
        });
        Ok(())
    }

    fn cross_entropy_mean(
        &self,
        p: &CrossEntropyParams,
        logits: &CpuBuffer,
        labels: &CpuBuffer,
        class_weights: Option<&CpuBuffer>,
        loss: &mut CpuBuffer,
        total: &mut CpuBuffer,
    ) -> Result<()> {
        checks::cross_entropy_mean(self, p, logits, labels, class_weights, loss, total)?;
        let rows = p.rows as usize;
        let (mut losses, mut weights) = (self.scratch(loss.dtype(), rows)?, self.scratch(loss.dtype(), rows)?);
        self.cross_entropy(p, logits, labels, class_weights, &mut losses, &mut weights)?;
        let (sum, _) = ReduceParams::new("cross_entropy", Reduce::Sum, &Shape::new(&[rows])?, &[], false)?;
        self.reduce(&sum, &losses, loss)?;
        self.reduce(&sum, &weights, total)?;
        match loss.dtype() {
            DType::F64 => loss.as_mut_slice::<f64>()[0] /= total.as_slice::<f64>()[0],
            _ => loss.as_mut_slice::<f32>()[0] /= total.as_slice::<f32>()[0],
        }
        Ok(())
    }

    fn cross_entropy_grad(
        &self,
        p: &CrossEntropyParams,
        logits: &CpuBuffer,
        labels: &CpuBuffer,
        class_weights: Option<&CpuBuffer>,
        g: &CpuBuffer,
        total: Option<&CpuBuffer>,
        dlogits: &mut CpuBuffer,
    ) -> Result<()> {
        checks::cross_entropy_grad(self, p, logits, labels, class_weights, g, total, dlogits)?;
        let labels = checked(p, labels)?;
        float!(logits.dtype(), T => {
            let logits = Upcast::new::<T>(self, logits)?;
            let class_weights = class_weights.map(|w| Upcast::new::<T>(self, w)).transpose()?;
            let terms = Terms::new(p, class_weights.as_ref().map(Upcast::slice));
            write_upcast::<T>(self, dlogits, |dlogits| {
                gradient(&terms, logits.slice(), labels, &Upstream::new(g, total), dlogits);
                Ok(())
            })
        })
    }

    fn cross_entropy_grad_in_place(
        &self,
        p: &CrossEntropyParams,
        logits: &mut CpuBuffer,
        labels: &CpuBuffer,
        class_weights: Option<&CpuBuffer>,
        g: &CpuBuffer,
        total: Option<&CpuBuffer>,
    ) -> Result<()> {
        checks::cross_entropy_grad_in_place(self, p, logits, labels, class_weights, g, total)?;
        let labels = checked(p, labels)?;
        float!(logits.dtype(), T => {
            let class_weights = class_weights.map(|w| Upcast::new::<T>(self, w)).transpose()?;
            let terms = Terms::new(p, class_weights.as_ref().map(Upcast::slice));
            match Upcast::new::<T>(self, logits)? {
                Upcast::Same(_) => gradient_in_place(&terms, labels, &Upstream::new(g, total), logits.as_mut_slice()),
                Upcast::Copy(mut wide) => {
                    gradient_in_place(&terms, labels, &Upstream::new(g, total), wide.as_mut_slice());
                    let wide = wide.as_slice::<<T as Float>::Acc>();
                    chunks_mut(logits.as_mut_slice::<T>(), 1, 1, |at, x| from_acc(&wide[at..at + x.len()], x));
                }
            }
        });
        Ok(())
    }

    fn cross_entropy_with_grad(
        &self,
        p: &CrossEntropyParams,
        logits: &mut CpuBuffer,
        labels: &CpuBuffer,
        class_weights: Option<&CpuBuffer>,
        loss: &mut CpuBuffer,
        weight: &mut CpuBuffer,
    ) -> Result<()> {
        checks::cross_entropy_with_grad(self, p, logits, labels, class_weights, loss, weight)?;
        self.cross_entropy(p, logits, labels, class_weights, loss, weight)?;
        let mut ones = self.scratch(loss.dtype(), p.rows as usize)?;
        self.fill(1.0, &mut ones)?;
        self.cross_entropy_grad_in_place(p, logits, labels, class_weights, &ones, None)
    }

    fn ctc_loss(
        &self,
        p: &CtcParams,
        log_probs: &CpuBuffer,
        targets: &CpuBuffer,
        input_lengths: &CpuBuffer,
        target_lengths: &CpuBuffer,
        loss: &mut CpuBuffer,
        alpha: &mut CpuBuffer,
    ) -> Result<()> {
        checks::ctc_loss(self, p, log_probs, targets, input_lengths, target_lengths, loss, alpha)?;
        let sequences = ctc::Sequences::checked(p, targets, input_lengths, target_lengths)?;
        float!(log_probs.dtype(), T => {
            let log_probs = Upcast::new::<T>(self, log_probs)?;
            ctc::losses(&sequences, log_probs.slice(), loss.as_mut_slice(), alpha.as_mut_slice());
        });
        Ok(())
    }

    fn ctc_loss_grad(
        &self,
        p: &CtcParams,
        log_probs: &CpuBuffer,
        targets: &CpuBuffer,
        input_lengths: &CpuBuffer,
        target_lengths: &CpuBuffer,
        alpha: &CpuBuffer,
        g: &CpuBuffer,
        dlog_probs: &mut CpuBuffer,
    ) -> Result<()> {
        checks::ctc_loss_grad(
            self,
            p,
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            alpha,
            g,
            dlog_probs,
        )?;
        let sequences = ctc::Sequences::checked(p, targets, input_lengths, target_lengths)?;
        let mut shares = self.scratch(alpha.dtype(), alpha.len())?;
        let mut beta = self.scratch(alpha.dtype(), 2 * (p.batch * p.states()) as usize)?;
        float!(log_probs.dtype(), T => {
            let log_probs = Upcast::new::<T>(self, log_probs)?;
            let (x, alpha) = (log_probs.slice(), alpha.as_slice());
            ctc::shares(&sequences, x, alpha, shares.as_mut_slice(), beta.as_mut_slice());
            let shares = shares.as_slice();
            write_upcast::<T>(self, dlog_probs, |dx| {
                ctc::gradient(&sequences, x, alpha, shares, g.as_slice(), dx);
                Ok(())
            })
        })
    }
}
