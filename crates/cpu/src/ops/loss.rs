//! Softmax cross-entropy: one pass over each row gives its loss and its gradient.

use crate::dispatch::float;
use crate::math::Math;
use crate::parallel::{rows_per_chunk, zip3_mut};
use crate::real::Real;
use crate::rows::{max_row, sum_row, sum_row2};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{CrossEntropyParams, LossOps};
use kiln_core::{Buffer, Error, Float, Result};

/// What one call shares among its rows.
struct Terms<'a, T: Float> {
    /// 1 − ε
    hard: T::Acc,
    /// ε/C
    soft: T::Acc,
    weights: Option<&'a [T]>,
    /// Σ w
    total: T::Acc,
}

impl<T: Float> Terms<'_, T>
where
    T::Acc: Real,
{
    #[inline(always)]
    fn weight(&self, class: usize) -> T::Acc {
        self.weights.map_or(T::Acc::ONE, |w| w[class].wide())
    }

    /// The loss of a row with label `t`; its gradient goes to `dx`.
    fn row(&self, x: &[T], t: usize, dx: &mut [T]) -> T::Acc {
        let m = max_row(x);
        let s = sum_row(x.len(), |i| (x[i].wide() - m).exp());
        let log_s = s.ln();
        let log_p = |i: usize| x[i].wide() - m - log_s;
        let label = self.hard * self.weight(t);
        let mut loss = -(label * log_p(t));
        // dx = p·mass − what each class is pulled up by
        let mut mass = label;
        if self.soft > T::Acc::ZERO {
            let all = match self.weights {
                None => sum_row(x.len(), log_p),
                Some(_) => sum_row2(x.len(), |i| (self.weight(i) * log_p(i), T::Acc::ZERO)).0,
            };
            loss = loss - self.soft * all;
            mass += self.soft * self.total;
        }
        let scale = mass / s;
        for (i, (dx, &x)) in dx.iter_mut().zip(x).enumerate() {
            let pull = if self.soft > T::Acc::ZERO {
                self.soft * self.weight(i)
            } else {
                T::Acc::ZERO
            };
            let pull = if i == t { pull + label } else { pull };
            *dx = T::narrow((x.wide() - m).exp() * scale - pull);
        }
        loss
    }
}

fn cross_entropy<T: Float>(
    p: &CrossEntropyParams,
    logits: &[T],
    labels: &[i32],
    weights: Option<&[T]>,
    loss: &mut [T],
    weight: &mut [T],
    dlogits: &mut [T],
) where
    T::Acc: Real,
{
    let classes = p.classes as usize;
    let terms = Terms {
        hard: T::Acc::of(1.0 - p.smoothing),
        soft: T::Acc::of(p.smoothing / p.classes as f64),
        weights,
        total: weights.map_or(T::Acc::of(p.classes as f64), |w| sum_row(w.len(), |i| w[i].wide())),
    };
    let rows = rows_per_chunk(classes, 16);
    let outputs = ((loss, rows), (weight, rows), (dlogits, rows * classes));
    zip3_mut(outputs.0, outputs.1, outputs.2, |chunk, loss, weight, dlogits| {
        let outputs = loss.iter_mut().zip(weight).zip(dlogits.chunks_exact_mut(classes));
        for (r, ((loss, weight), dx)) in (chunk * rows..).zip(outputs) {
            let label = labels[r];
            if i64::from(label) == p.ignore_index {
                (*loss, *weight) = (T::of(0.0), T::of(0.0));
                dx.fill(T::of(0.0));
                continue;
            }
            let t = label as usize;
            *loss = T::narrow(terms.row(&logits[r * classes..][..classes], t, dx));
            *weight = T::narrow(terms.weight(t));
        }
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
        float!(logits.dtype(), T => cross_entropy::<T>(
            p,
            logits.as_slice(),
            labels,
            class_weights.map(|w| w.as_slice()),
            loss.as_mut_slice(),
            weight.as_mut_slice(),
            dlogits.as_mut_slice(),
        ));
        Ok(())
    }
}
