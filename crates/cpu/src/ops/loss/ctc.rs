//! The CTC loss. A step's states are its blanks and behind them its labels, so that a recursion is a loop over two arrays:
//!
//!   blank[k] = p(blank)·(blank[k] + label[k − 1])
//!   label[k] = p(label k)·(label[k] + blank[k] + label[k − 1] where it is another one)
//!
//! in logarithms, from the first step to the last. The way back has the probabilities of what follows a step, without the step's own, so
//! their product with the way there, over the probability of the labels, is the share of the alignments that pass a state.

use crate::CpuBuffer;
use crate::parallel::{chunks_mut, rows_per_chunk, zip2_mut};
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use kiln_core::ops::CtcParams;
use kiln_core::{Element, Result};

/// The work of a state, and of an element of the gradient, relative to one multiplication.
const COST: usize = 24;
const GRADIENT_COST: usize = 8;

/// Labels and lengths that fit the parameters.
pub(super) struct Sequences<'a> {
    p: &'a CtcParams,
    labels: &'a [i32],
    times: &'a [i32],
    lengths: &'a [i32],
}

impl<'a> Sequences<'a> {
    /// Looks at all lengths, and at the labels within them.
    pub(super) fn checked(
        p: &'a CtcParams,
        labels: &'a CpuBuffer,
        times: &'a CpuBuffer,
        lengths: &'a CpuBuffer,
    ) -> Result<Self> {
        let all = Sequences {
            p,
            labels: labels.as_slice(),
            times: times.as_slice(),
            lengths: lengths.as_slice(),
        };
        let outside = |length: i32, most: u64| u64::try_from(length).map_or(true, |length| length > most);
        for n in 0..p.batch as usize {
            let (time, length) = (all.times[n], all.lengths[n]);
            if outside(time, p.time) {
                return Err(CtcParams::input_length_error(p.time, time.into(), n as u64));
            }
            if outside(length, p.labels) {
                return Err(CtcParams::target_length_error(p.labels, length.into(), n as u64));
            }
            let labels = all.sequence(n).labels;
            let wrong = |label: i32| outside(label, p.classes - 1) || label as u64 == p.blank;
            if let Some(k) = labels.iter().position(|l| wrong(*l)) {
                let position = n as u64 * p.labels + k as u64;
                return Err(CtcParams::label_error(p.classes, p.blank, labels[k].into(), position));
            }
        }
        Ok(all)
    }

    fn sequence(&self, n: usize) -> Sequence<'a> {
        let (stride, classes) = (self.p.labels as usize, self.p.classes as usize);
        Sequence {
            labels: &self.labels[n * stride..][..self.lengths[n] as usize],
            time: self.times[n] as usize,
            states: self.p.states() as usize,
            blank: self.p.blank as usize,
            start: n * classes,
            step: self.p.batch as usize * classes,
            classes,
        }
    }

    /// The states of all steps of a sequence.
    fn size(&self) -> usize {
        (self.p.time * self.p.states()) as usize
    }

    fn zero_infinity(&self) -> bool {
        self.p.zero_infinity != 0
    }
}

/// One sequence: its labels, and where its log-probabilities are.
struct Sequence<'a> {
    labels: &'a [i32],
    time: usize,
    /// The states of a step in memory.
    states: usize,
    blank: usize,
    start: usize,
    step: usize,
    classes: usize,
}

impl Sequence<'_> {
    fn log_probs<'x, A>(&self, x: &'x [A], t: usize) -> &'x [A] {
        &x[self.start + t * self.step..][..self.classes]
    }

    /// The blanks and the labels of a step.
    fn split<'s, A>(&self, step: &'s [A]) -> (&'s [A], &'s [A]) {
        let (blanks, labels) = step.split_at(self.states / 2 + 1);
        let count = self.labels.len();
        (&blanks[..count + 1], &labels[..count])
    }

    fn split_mut<'s, A>(&self, step: &'s mut [A]) -> (&'s mut [A], &'s mut [A]) {
        let (blanks, labels) = step.split_at_mut(self.states / 2 + 1);
        let count = self.labels.len();
        (&mut blanks[..count + 1], &mut labels[..count])
    }

    /// The logarithms of the probabilities of all beginnings; every step's states lie in `alpha`.
    #[inline(always)]
    fn forward<A: Real>(&self, x: &[A], alpha: &mut [A]) {
        for t in 0..self.time {
            let (before, row) = alpha.split_at_mut(t * self.states);
            let (blanks, labels) = self.split_mut(&mut row[..self.states]);
            let x = self.log_probs(x, t);
            for (y, &label) in labels.iter_mut().zip(self.labels) {
                *y = x[label as usize];
            }
            if t == 0 {
                blanks.fill(A::NEG_INFINITY);
                blanks[0] = x[self.blank];
                if let Some((_, behind)) = labels.split_first_mut() {
                    behind.fill(A::NEG_INFINITY);
                }
                continue;
            }
            let (old_blanks, old_labels) = self.split(&before[(t - 1) * self.states..]);
            let of_blank = x[self.blank];
            blanks[0] = old_blanks[0] + of_blank;
            let Some((first, behind)) = labels.split_first_mut() else {
                continue;
            };
            for (y, (&a, &b)) in blanks[1..].iter_mut().zip(old_blanks[1..].iter().zip(old_labels)) {
                *y = of_blank + log_add(a, b);
            }
            *first += log_add(old_labels[0], old_blanks[0]);
            let count = behind.len();
            let (stayed, blank, earlier) = (
                &old_labels[1..][..count],
                &old_blanks[1..][..count],
                &old_labels[..count],
            );
            let (this, other) = (&self.labels[1..][..count], &self.labels[..count]);
            for k in 0..count {
                let earlier = if this[k] != other[k] {
                    earlier[k]
                } else {
                    A::NEG_INFINITY
                };
                behind[k] += log_add_3(stayed[k], blank[k], earlier);
            }
        }
    }

    /// The logarithm of the probability of the labels.
    fn log_likelihood<A: Real>(&self, alpha: &[A]) -> A {
        let Some(last) = self.time.checked_sub(1) else {
            // No step has one alignment, that of no labels.
            return if self.labels.is_empty() {
                A::ZERO
            } else {
                A::NEG_INFINITY
            };
        };
        let (blanks, labels) = self.split(&alpha[last * self.states..]);
        let end = blanks[labels.len()];
        labels.last().map_or(end, |&label| log_add(end, label))
    }

    /// The share of the alignments that pass each state, from `alpha`; `beta` is memory for two steps.
    #[inline(always)]
    fn shares<A: Real>(&self, x: &[A], alpha: &[A], shares: &mut [A], beta: &mut [A]) {
        let total = self.log_likelihood(alpha);
        if self.time == 0 || total == A::NEG_INFINITY {
            return;
        }
        let count = self.labels.len();
        let (next, beta) = beta.split_at_mut(self.states);
        for t in (0..self.time).rev() {
            let (blanks, labels) = self.split_mut(beta);
            if t + 1 == self.time {
                blanks.fill(A::NEG_INFINITY);
                labels.fill(A::NEG_INFINITY);
                blanks[count] = A::ZERO;
                if let Some(last) = labels.last_mut() {
                    *last = A::ZERO;
                }
            } else {
                // The probabilities of the step behind and of what follows it.
                let (next_blanks, next_labels) = self.split_mut(next);
                let x = self.log_probs(x, t + 1);
                for (y, &b) in next_blanks.iter_mut().zip(&*blanks) {
                    *y = b + x[self.blank];
                }
                for (y, (&b, &label)) in next_labels.iter_mut().zip(labels.iter().zip(self.labels)) {
                    *y = b + x[label as usize];
                }
                blanks[count] = next_blanks[count];
                for (y, (&a, &b)) in blanks.iter_mut().zip(next_blanks.iter().zip(&*next_labels)) {
                    *y = log_add(a, b);
                }
                if let Some(last) = count.checked_sub(1) {
                    labels[last] = log_add(next_labels[last], next_blanks[count]);
                    let (stays, blank, later) = (
                        &next_labels[..last],
                        &next_blanks[1..][..last],
                        &next_labels[1..][..last],
                    );
                    let (this, other) = (&self.labels[..last], &self.labels[1..][..last]);
                    let labels = &mut labels[..last];
                    for k in 0..last {
                        let later = if this[k] != other[k] { later[k] } else { A::NEG_INFINITY };
                        labels[k] = log_add_3(stays[k], blank[k], later);
                    }
                }
            }
            let at = t * self.states;
            let (to, from) = (self.split_mut(&mut shares[at..]), self.split(&alpha[at..]));
            for (y, (&a, &b)) in to.0.iter_mut().zip(from.0.iter().zip(&*blanks)) {
                *y = (a + b - total).exp();
            }
            for (y, (&a, &b)) in to.1.iter_mut().zip(from.1.iter().zip(&*labels)) {
                *y = (a + b - total).exp();
            }
        }
    }

    /// The gradient of one step for that of the loss.
    #[inline(always)]
    fn gradient<A: Real>(&self, x: &[A], shares: &[A], g: A, dx: &mut [A]) {
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = x.exp();
        }
        let (blanks, labels) = self.split(shares);
        let mut blank = A::ZERO;
        for &share in blanks {
            blank += share;
        }
        dx[self.blank] = dx[self.blank] - blank;
        for (&share, &label) in labels.iter().zip(self.labels) {
            dx[label as usize] = dx[label as usize] - share;
        }
        for dx in dx {
            *dx = *dx * g;
        }
    }
}

/// ln(eᵃ + eᵇ), also of −∞.
#[inline(always)]
fn log_add<A: Real>(a: A, b: A) -> A {
    let m = finite(if a > b { a } else { b });
    m + ((a - m).exp() + (b - m).exp()).ln()
}

/// ln(eᵃ + eᵇ + eᶜ), also of −∞.
#[inline(always)]
fn log_add_3<A: Real>(a: A, b: A, c: A) -> A {
    let m = if a > b { a } else { b };
    let m = finite(if m > c { m } else { c });
    m + ((a - m).exp() + (b - m).exp() + (c - m).exp()).ln()
}

/// 0 in place of −∞, from which nothing can be subtracted.
#[inline(always)]
fn finite<A: Real>(m: A) -> A {
    if m == A::NEG_INFINITY { A::ZERO } else { m }
}

pub(super) fn losses<A: Real + Element>(all: &Sequences<'_>, x: &[A], loss: &mut [A], alpha: &mut [A]) {
    let size = all.size();
    let rows = rows_per_chunk(loss.len(), size, COST);
    let infinity = if all.zero_infinity() { A::ZERO } else { A::INFINITY };
    let one = |n: usize, loss: &mut A, alpha: &mut [A]| {
        let sequence = all.sequence(n);
        lanes::<A, _>(
            #[inline(always)]
            || sequence.forward(x, alpha),
        );
        let total = sequence.log_likelihood(alpha);
        *loss = if total == A::NEG_INFINITY { infinity } else { -total };
    };
    if size == 0 {
        for (n, loss) in loss.iter_mut().enumerate() {
            one(n, loss, &mut []);
        }
        return;
    }
    zip2_mut((loss, rows), (alpha, rows * size), |chunk, loss, alpha| {
        for (i, (loss, alpha)) in loss.iter_mut().zip(alpha.chunks_exact_mut(size)).enumerate() {
            one(chunk * rows + i, loss, alpha);
        }
    });
}

pub(super) fn shares<A: Real + Element>(all: &Sequences<'_>, x: &[A], alpha: &[A], shares: &mut [A], beta: &mut [A]) {
    let (size, states) = (all.size(), all.p.states() as usize);
    if size == 0 {
        return;
    }
    let rows = rows_per_chunk(all.times.len(), size, COST);
    zip2_mut(
        (shares, rows * size),
        (beta, rows * 2 * states),
        |chunk, shares, beta| {
            let both = shares.chunks_exact_mut(size).zip(beta.chunks_exact_mut(2 * states));
            for (i, (shares, beta)) in both.enumerate() {
                let n = chunk * rows + i;
                let (sequence, alpha) = (all.sequence(n), &alpha[n * size..][..size]);
                lanes::<A, _>(
                    #[inline(always)]
                    || sequence.shares(x, alpha, shares, beta),
                );
            }
        },
    );
}

pub(super) fn gradient<A: Real + Element>(
    all: &Sequences<'_>,
    x: &[A],
    alpha: &[A],
    shares: &[A],
    g: &[A],
    dx: &mut [A],
) {
    let (classes, batch, size) = (all.p.classes as usize, all.p.batch as usize, all.size());
    chunks_mut(dx, classes, GRADIENT_COST, |at, dx| {
        for (row, dx) in (at / classes..).zip(dx.chunks_exact_mut(classes)) {
            let (t, n) = (row / batch, row % batch);
            let sequence = all.sequence(n);
            if t >= sequence.time {
                dx.fill(A::ZERO);
                continue;
            }
            if sequence.log_likelihood(&alpha[n * size..][..size]) == A::NEG_INFINITY {
                dx.fill(if all.zero_infinity() { A::ZERO } else { A::of(f64::NAN) });
                continue;
            }
            let shares = &shares[n * size + t * sequence.states..];
            lanes::<A, _>(
                #[inline(always)]
                || sequence.gradient(sequence.log_probs(x, t), shares, g[n], dx),
            );
        }
    });
}
