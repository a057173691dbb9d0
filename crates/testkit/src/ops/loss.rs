//! Losses: cross-entropy in its forms, and losses with a target of the same shape.

mod composed;
mod ctc;
mod linear;
mod refused;

pub use composed::{composed, composed_refused};
pub use ctc::{ctc, ctc_as_pytorch, ctc_refused};
pub use linear::{linear_cross_entropy, linear_cross_entropy_refused};
pub use refused::refused;

use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::{Backend, DType, Result};
use kiln_nn::{CrossEntropyOptions, Indices, Reduction, Tensor};
use proptest::prelude::*;

fn reduction() -> impl Strategy<Value = Reduction> {
    prop::sample::select(vec![Reduction::Mean, Reduction::Sum, Reduction::None])
}

/// Weights rounded to sixteenths, which half precision holds exactly: options are not rounded for the oracle.
fn sixteenths(w: &Array) -> Array {
    w.map(|v| (v * 16.0).round() / 16.0)
}

/// Reduces losses of `shape`; the mean divides by `weight`.
fn reduced(r: Reduction, losses: Vec<f64>, shape: &[usize], weight: f64) -> Array {
    match r {
        Reduction::Mean => Array::new(&[], vec![losses.iter().sum::<f64>() / weight]),
        Reduction::Sum => Array::new(&[], vec![losses.iter().sum()]),
        Reduction::None => Array::new(shape, losses),
    }
}

fn log_softmax(x: &[f64]) -> Vec<f64> {
    let m = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log_s = x.iter().map(|v| (v - m).exp()).sum::<f64>().ln();
    x.iter().map(|v| v - m - log_s).collect()
}

/// The magnitudes of the terms of log-softmax: an element, the largest element, the logarithm of the sum, and the sum's
/// relative error.
fn log_softmax_terms(x: &[f64]) -> Vec<f64> {
    let m = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log_s = x.iter().map(|v| (v - m).exp()).sum::<f64>().ln();
    x.iter().map(|v| v.abs() + m.abs() + log_s + 1.0).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Given {
    Logits,
    LogProbabilities,
    Probabilities,
}

/// A loss with integer labels.
#[derive(Clone, Debug)]
struct Labelled {
    from: Given,
    x: Array,
    labels: Vec<i32>,
    weight: Option<Array>,
    smoothing: f64,
    ignore: i64,
    reduction: Reduction,
}

impl Case for Labelled {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let x = &x[0];
        let labels = Indices::from_slice(backend, &self.labels, &x.shape()[..x.rank() - 1])?;
        let weight = self
            .weight
            .as_ref()
            .map(|w| Tensor::from_f64(backend, &w.data, &w.shape, x.dtype()));
        let weight = weight.transpose()?;
        let options = CrossEntropyOptions {
            label_smoothing: self.smoothing,
            weight: weight.as_ref(),
            ignore_index: self.ignore,
            reduction: self.reduction,
        };
        match self.from {
            Given::Logits => x.cross_entropy_with(&labels, &options),
            Given::LogProbabilities => x.nll_loss_with(&labels, &options),
            Given::Probabilities => x.cross_entropy_from_probabilities(&labels, self.reduction),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.loss(&x[0], |row| match self.from {
            Given::Logits => log_softmax(row),
            Given::LogProbabilities => row.to_vec(),
            Given::Probabilities => {
                let sum: f64 = row.iter().sum();
                row.iter().map(|p| (p / sum).clamp(1e-7, 1.0 - 1e-7).ln()).collect()
            }
        })
    }

    /// Sums over the classes and over the rows; the absolute error of a logarithm is the relative error of its argument.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let classes = self.x.shape[self.x.shape.len() - 1];
        let magnitude = self.loss(&x[0], |row| match self.from {
            Given::Logits => log_softmax_terms(row).iter().map(|t| -t).collect(),
            Given::LogProbabilities => row.iter().map(|x| -x.abs()).collect(),
            Given::Probabilities => {
                let sum: f64 = row.iter().sum();
                row.iter().map(|p| -(p / sum).ln().abs() - 1.0).collect()
            }
        });
        Rounding::terms((2 * classes + self.labels.len()) as f64 + 12.0, magnitude)
    }

    /// A share minus its target, both up to 1, or the reciprocal of a probability minus that of the sum; times a seed and a
    /// weight of up to 2, and divided by the sum of the weights for a mean.
    fn slope_terms(&self, x: &[Array]) -> f64 {
        let least = x[0].data.iter().fold(1.0, |m: f64, x| m.min(x.abs()));
        let one = 1.5 * 2.0 * 2.0;
        let one = if self.from == Given::Probabilities {
            one / least
        } else {
            one
        };
        match self.reduction {
            Reduction::Mean => one / self.total().max(0.1),
            _ => one,
        }
    }
}

impl Labelled {
    /// The sum of the weights of the labels that are not ignored.
    fn total(&self) -> f64 {
        let counted = self.labels.iter().filter(|l| i64::from(**l) != self.ignore);
        let weight = |l: &i32| self.weight.as_ref().map_or(1.0, |w| w.data[*l as usize]);
        counted.map(weight).sum()
    }

    /// The loss, where `logs` gives the logarithms of the probabilities of a row, or the magnitudes of their terms.
    fn loss(&self, x: &Array, logs: impl Fn(&[f64]) -> Vec<f64>) -> Array {
        let shape = &x.shape;
        let c = shape[shape.len() - 1];
        let w = |c: usize| self.weight.as_ref().map_or(1.0, |w| w.data[c]);
        let mut losses = Vec::new();
        for (row, &label) in x.data.chunks(c).zip(&self.labels) {
            if i64::from(label) == self.ignore {
                losses.push(0.0);
                continue;
            }
            let t = label as usize;
            let log_p = logs(row);
            let even: f64 = (0..c).map(|i| w(i) * log_p[i]).sum();
            losses.push(-(1.0 - self.smoothing) * w(t) * log_p[t] - self.smoothing / c as f64 * even);
        }
        reduced(self.reduction, losses, &shape[..shape.len() - 1], self.total())
    }
}

fn labelled(from: Given) -> impl Strategy<Value = Labelled> {
    let classes = prop_oneof![4 => 1usize..7, 1 => prop::sample::select(vec![16usize, 33, 127])];
    let lead = prop_oneof![1 => Just(vec![]), 4 => prop::collection::vec(1usize..5, 1..3), 1 => Just(vec![0])];
    let options = (
        any::<bool>(),
        prop::sample::select(vec![0.0, 0.1, 1.0]),
        prop::sample::select(vec![-100i64, 0, 2, i64::MAX]),
        reduction(),
    );
    (lead, classes, options).prop_flat_map(move |(lead, classes, (weighted, smoothing, ignore, reduction))| {
        let plain = from == Given::Probabilities;
        let rows = lead.iter().product::<usize>();
        let shape = [&lead[..], &[classes]].concat();
        let (low, high) = if plain { (0.05, 1.0) } else { (-3.0, 3.0) };
        let labels = prop::collection::vec(0..classes as i32, rows);
        (
            shapes::values(&shape, low, high),
            labels,
            shapes::values(&[classes], 0.1, 2.0).prop_map(|w| sixteenths(&w)),
        )
            .prop_map(move |(x, mut labels, w)| {
                // The first row is not ignored, or a mean would divide by 0.
                if let Some(first) = labels.first_mut() {
                    *first = if ignore == 0 { classes as i32 - 1 } else { 0 };
                }
                let nothing_left = classes == 1 && ignore == 0;
                Labelled {
                    from,
                    x,
                    labels,
                    weight: (weighted && !plain).then_some(w),
                    smoothing: if from == Given::Logits { smoothing } else { 0.0 },
                    ignore: if plain || nothing_left { -100 } else { ignore },
                    reduction,
                }
            })
    })
}

/// Cross-entropy from logits, with every option.
pub fn cross_entropy<B: Backend>(backend: &B) {
    check(backend, labelled(Given::Logits));
}

/// Cross-entropy from probabilities.
pub fn cross_entropy_from_probabilities<B: Backend>(backend: &B) {
    check(backend, labelled(Given::Probabilities));
}

/// The negative log-likelihood.
pub fn nll_loss<B: Backend>(backend: &B) {
    check(backend, labelled(Given::LogProbabilities));
}

#[derive(Clone, Debug)]
enum Pointwise {
    Mse,
    L1,
    Huber(f64),
    SmoothL1(f64),
    Bce,
    BceWithLogits(Option<Array>),
    KlDiv(bool),
    /// Cross-entropy with target distributions, with label smoothing and class weights.
    Soft(f64, Option<Array>),
}

/// A loss with a target of the same shape.
#[derive(Clone, Debug)]
struct Paired {
    f: Pointwise,
    x: Array,
    target: Array,
    reduction: Reduction,
}

impl Case for Paired {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone(), self.target.clone()]
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let (x, t, r) = (&x[0], &x[1], self.reduction);
        let constant = |w: &Option<Array>| {
            let w = w
                .as_ref()
                .map(|w| Tensor::from_f64(backend, &w.data, &w.shape, x.dtype()));
            w.transpose()
        };
        match &self.f {
            Pointwise::Mse => x.mse_loss(t, r),
            Pointwise::L1 => x.l1_loss(t, r),
            Pointwise::Huber(delta) => x.huber_loss(t, *delta, r),
            Pointwise::SmoothL1(beta) => x.smooth_l1_loss(t, *beta, r),
            Pointwise::Bce => x.bce_loss(t, r),
            Pointwise::BceWithLogits(w) => x.bce_with_logits(t, constant(w)?.as_ref(), r),
            Pointwise::KlDiv(log) => x.kl_div(t, *log, r),
            Pointwise::Soft(smoothing, w) => x.cross_entropy_soft(
                t,
                &CrossEntropyOptions {
                    label_smoothing: *smoothing,
                    weight: constant(w)?.as_ref(),
                    reduction: r,
                    ..Default::default()
                },
            ),
        }
    }

    fn oracle(&self, inputs: &[Array]) -> Array {
        self.loss(inputs, false)
    }

    /// A few roundings of each loss, and sums over classes and losses.
    fn rounding(&self, inputs: &[Array], _: &Array) -> Rounding {
        let shape = &self.x.shape;
        let classes = match self.f {
            Pointwise::Soft(..) => 2 * shape[shape.len() - 1],
            _ => 0,
        };
        let each = if self.reduction == Reduction::None {
            0
        } else {
            self.x.size()
        };
        Rounding::terms((classes + each) as f64 + 12.0, self.loss(inputs, true))
    }

    /// Shares minus targets, logarithms minus inputs, of up to 4: below 8 with weights of up to 2. For binary cross-entropy of
    /// probabilities, which are at least 0.05, divided by p·(1 − p).
    fn slope_terms(&self, _: &[Array]) -> f64 {
        let one = match self.f {
            Pointwise::Bce => 1.5 * 2.0 / (0.05 * 0.95),
            _ => 1.5 * 2.0 * 8.0,
        };
        let rows = match self.f {
            Pointwise::Soft(..) => self.x.size() / self.x.shape[self.x.shape.len() - 1],
            _ => self.x.size(),
        };
        if self.reduction == Reduction::Mean {
            one / rows.max(1) as f64
        } else {
            one
        }
    }
}

impl Paired {
    /// The loss, or with `terms` the magnitudes of its terms.
    fn loss(&self, inputs: &[Array], terms: bool) -> Array {
        let shape = &inputs[0].shape;
        if let Pointwise::Soft(smoothing, w) = &self.f {
            let c = shape[shape.len() - 1];
            let rows = inputs[0].data.chunks(c).zip(inputs[1].data.chunks(c));
            let losses: Vec<f64> = rows
                .map(|(x, t)| {
                    let term = |(i, (l, t)): (usize, (f64, &f64))| {
                        let t = t * (1.0 - smoothing) + smoothing / c as f64;
                        -w.as_ref().map_or(1.0, |w| w.data[i]) * t * l
                    };
                    let logs = match terms {
                        true => log_softmax_terms(x).iter().map(|t| -t).collect(),
                        false => log_softmax(x),
                    };
                    logs.into_iter().zip(t).enumerate().map(term).sum()
                })
                .collect();
            let n = losses.len() as f64;
            return reduced(self.reduction, losses, &shape[..shape.len() - 1], n);
        }
        let losses = Array::from_fn(shape, |at| {
            let (x, t) = (inputs[0].at(at), inputs[1].at(at));
            let d = (x - t).abs();
            let plus = if terms { 1.0 } else { -1.0 };
            match &self.f {
                Pointwise::Mse => d * d,
                Pointwise::L1 => d,
                Pointwise::Huber(delta) if d <= *delta => d * d / 2.0,
                Pointwise::Huber(delta) => delta * (d + plus * delta / 2.0),
                Pointwise::SmoothL1(beta) if d < *beta => d * d / 2.0 / beta,
                Pointwise::SmoothL1(beta) => d + plus * beta / 2.0,
                // The absolute error of a logarithm is the relative error of its argument, here the rounding of 1 − x.
                Pointwise::Bce if terms => t * x.ln().abs() + (1.0 - t) * (1.0 - x).ln().abs() + 1.0,
                Pointwise::Bce => -t * x.ln().max(-100.0) - (1.0 - t) * (1.0 - x).ln().max(-100.0),
                Pointwise::BceWithLogits(w) => {
                    let w = w.as_ref().map_or(1.0, |w| w.broadcast_at(at));
                    // −ln σ(x) = ln(1 + e⁻ˣ), and −ln(1 − σ(x)) = ln(1 + eˣ).
                    let loss = w * t * (-x).exp().ln_1p() + (1.0 - t) * x.exp().ln_1p();
                    // Stable formulas add x to ln(1 + e^−|x|).
                    loss + if terms { (1.0 + w) * x.abs() } else { 0.0 }
                }
                Pointwise::KlDiv(true) if terms => t.exp() * (t.abs() + x.abs() + 1.0),
                Pointwise::KlDiv(true) => t.exp() * (t - x),
                Pointwise::KlDiv(false) if t == 0.0 => 0.0,
                Pointwise::KlDiv(false) if terms => t * (t.ln().abs() + x.abs() + 1.0),
                Pointwise::KlDiv(false) => t * (t.ln() - x),
                Pointwise::Soft(..) => unreachable!("reduced by rows above"),
            }
        });
        let n = losses.size() as f64;
        reduced(self.reduction, losses.data, shape, n)
    }
}

/// Every loss with a target of the same shape. Values are away from kinks: a distance of 0, and the ends of 0..1.
pub fn pointwise<B: Backend>(backend: &B) {
    let choice = (
        shapes::shape(3),
        0usize..8,
        any::<[bool; 2]>(),
        prop::sample::select(vec![0.5, 1.0, f64::INFINITY]),
        reduction(),
    );
    let strategy = choice.prop_flat_map(|(mut shape, f, [flag, signs], scale, reduction)| {
        if f == 7 {
            shape.push(3);
        }
        let last: Vec<usize> = shape.last().copied().into_iter().collect();
        let (x, t) = match f {
            4 => ((0.05, 0.95), (0.0, 1.0)),
            5 => ((-4.0, 4.0), (0.0, 1.0)),
            6 if flag => ((-3.0, 0.0), (-3.0, 0.0)),
            6 | 7 => ((-3.0, 3.0), (0.05, 1.0)),
            // The target is drawn as a distance from x.
            _ => ((-2.0, 2.0), (0.05, 2.0)),
        };
        let weights = shapes::values(&last, 0.3, 2.0).prop_map(|w| sixteenths(&w));
        (
            shapes::values(&shape, x.0, x.1),
            shapes::values(&shape, t.0, t.1),
            weights,
        )
            .prop_map(move |(x, mut t, w)| {
                let w = flag.then_some(w);
                let f = match f {
                    0 => Pointwise::Mse,
                    1 => Pointwise::L1,
                    2 => Pointwise::Huber(scale),
                    3 => Pointwise::SmoothL1(if flag { scale } else { 0.0 }),
                    4 => Pointwise::Bce,
                    5 => Pointwise::BceWithLogits(w),
                    6 => Pointwise::KlDiv(flag),
                    _ => Pointwise::Soft(if signs { 0.2 } else { 0.0 }, w),
                };
                if let Pointwise::Mse | Pointwise::L1 | Pointwise::Huber(_) | Pointwise::SmoothL1(_) = f {
                    for (i, (t, x)) in t.data.iter_mut().zip(&x.data).enumerate() {
                        let sign = if (i % 2 == 0) == signs { 1.0 } else { -1.0 };
                        // Differences must not reach over the place where the formula changes.
                        let distance = if (*t - scale).abs() < 0.01 { scale + 0.01 } else { *t };
                        *t = f64::from((x + sign * distance) as f32);
                    }
                }
                Paired {
                    f,
                    x,
                    target: t,
                    reduction,
                }
            })
    });
    check(backend, strategy);
}

/// Values at the ends of the formulas' domains are those of PyTorch.
pub fn limits<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let of = |v: &[f64]| Tensor::from_f64(backend, v, &[v.len()], DType::F32);
        let (x, t) = (of(&[0.0, 1.0, 0.0, 1.0])?.requires_grad(), of(&[1.0, 0.0, 0.0, 1.0])?);
        assert_eq!(x.bce_loss(&t, Reduction::None)?.to_f64()?, [100.0, 100.0, 0.0, 0.0]);
        let grads = x.bce_loss(&t, Reduction::Sum)?.backward()?;
        let g = grads.get(&x).map_or(Ok(Vec::new()), Tensor::to_f64)?;
        assert!(g.len() == 4 && g.iter().all(|g| g.is_finite()), "{g:?}");
        let far = of(&[-1e4, 1e4])?;
        assert_eq!(
            far.bce_with_logits(&of(&[1.0, 0.0])?, None, Reduction::Sum)?.item()?,
            2e4
        );
        assert_eq!(far.kl_div(&of(&[0.0, 0.0])?, false, Reduction::Sum)?.item()?, 0.0);
        let ignored = Indices::from_slice(backend, &[-100i32, -100], &[2])?;
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let logits = Tensor::ones(backend, &[2, 3], dtype)?.requires_grad();
            let loss = logits.cross_entropy(&ignored)?;
            assert!(loss.item()?.is_nan());
            let g = loss
                .backward()?
                .remove(&logits)
                .map_or(Ok(Vec::new()), |g| g.to_f64())?;
            assert_eq!(g, [0.0; 6], "{dtype}: rows that count for nothing");
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}
