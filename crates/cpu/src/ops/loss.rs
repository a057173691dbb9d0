//! Softmax cross-entropy: one pass over each row gives its loss and its gradient.

use crate::blocks::lanes;
use crate::dispatch::float;
use crate::parallel::{rows_per_chunk, zip3_mut};
use crate::real::Real;
use crate::rows::{max_row, sum, sums};
use crate::wide::{Wide, write_wide};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{CrossEntropyParams, LossOps};
use kiln_core::{Buffer, Error, Result};

/// What one call shares among its rows.
struct Terms<'a, A> {
    /// 1 − ε
    hard: A,
    /// ε/C
    soft: A,
    weights: Option<&'a [A]>,
    /// Σ w
    total: A,
}

impl<A: Real> Terms<'_, A> {
    #[inline(always)]
    fn weight(&self, class: usize) -> A {
        self.weights.map_or(A::ONE, |w| w[class])
    }

    /// The loss of a row with label `t`; its gradient goes to `dx`.
    #[inline(always)]
    fn row(&self, x: &[A], t: usize, dx: &mut [A]) -> A {
        let m = max_row(x);
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = (x - m).exp();
        }
        let s = sum(
            dx,
            #[inline(always)]
            |y| y,
        );
        let log_s = s.ln();
        let label = self.hard * self.weight(t);
        let mut loss = -(label * (x[t] - m - log_s));
        // dx = p·mass − what each class is pulled up by
        if self.soft > A::ZERO {
            self.smooth(x, m + log_s, s, label, dx, &mut loss);
        } else {
            let scale = label / s;
            for dx in &mut *dx {
                *dx = *dx * scale;
            }
        }
        dx[t] = dx[t] - label;
        loss
    }

    /// What smoothing adds to the loss, and the gradient without the label's part, from `dx = eˣ⁻ᵐ`.
    #[inline(always)]
    fn smooth(&self, x: &[A], log_sum: A, s: A, label: A, dx: &mut [A], loss: &mut A) {
        let scale = (label + self.soft * self.total) / s;
        let all = match self.weights {
            None => {
                for dx in dx {
                    *dx = *dx * scale - self.soft;
                }
                sum(
                    x,
                    #[inline(always)]
                    |x| x - log_sum,
                )
            }
            Some(w) => {
                for (dx, &w) in dx.iter_mut().zip(w) {
                    *dx = *dx * scale - self.soft * w;
                }
                let [all] = sums(
                    [x, w],
                    #[inline(always)]
                    |[x, w]| [w * (x - log_sum)],
                );
                all
            }
        };
        *loss = *loss - self.soft * all;
    }
}

fn cross_entropy<A: Real>(
    p: &CrossEntropyParams,
    logits: &[A],
    labels: &[i32],
    weights: Option<&[A]>,
    (loss, weight, dlogits): (&mut [A], &mut [A], &mut [A]),
) {
    let classes = p.classes as usize;
    let terms = Terms {
        hard: A::of(1.0 - p.smoothing),
        soft: A::of(p.smoothing / p.classes as f64),
        weights,
        total: weights.map_or(A::of(p.classes as f64), |w| sum(w, |w| w)),
    };
    let rows = rows_per_chunk(labels.len(), classes, 8);
    let outputs = ((loss, rows), (weight, rows), (dlogits, rows * classes));
    zip3_mut(outputs.0, outputs.1, outputs.2, |chunk, loss, weight, dlogits| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                let outputs = loss.iter_mut().zip(weight).zip(dlogits.chunks_exact_mut(classes));
                for (r, ((loss, weight), dx)) in (chunk * rows..).zip(outputs) {
                    let label = labels[r];
                    if i64::from(label) == p.ignore_index {
                        (*loss, *weight) = (A::ZERO, A::ZERO);
                        dx.fill(A::ZERO);
                        continue;
                    }
                    let t = label as usize;
                    *loss = terms.row(&logits[r * classes..][..classes], t, dx);
                    *weight = terms.weight(t);
                }
            },
        );
    });
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
        dlogits: &mut CpuBuffer,
    ) -> Result<()> {
        debug_assert_eq!((logits.len() as u64, labels.len() as u64), (p.rows * p.classes, p.rows));
        let labels = labels.as_slice::<i32>();
        let valid = |l: i64| (0..p.classes as i64).contains(&l) || l == p.ignore_index;
        if let Some((position, &label)) = labels.iter().enumerate().find(|&(_, &l)| !valid(i64::from(l))) {
            return Err(Error::IndexOutOfRange {
                op: "cross_entropy",
                index: i64::from(label),
                position,
                size: p.classes as usize,
            });
        }
        float!(logits.dtype(), T => {
            let logits = Wide::new::<T>(self, logits)?;
            let class_weights = class_weights.map(|w| Wide::new::<T>(self, w)).transpose()?;
            let weights = class_weights.as_ref().map(Wide::slice);
            write_wide::<T>(self, loss, |loss| {
                write_wide::<T>(self, weight, |weight| {
                    write_wide::<T>(self, dlogits, |dlogits| {
                        cross_entropy(p, logits.slice(), labels, weights, (loss, weight, dlogits));
                        Ok(())
                    })
                })
            })
        })
    }
}
