//! Losses: cross-entropy in its forms, and losses against a target of the same shape.

use crate::{Array, Case, check, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{CrossEntropyOptions, Indices, Reduction, Tensor};
use proptest::prelude::*;

fn reduction() -> impl Strategy<Value = Reduction> {
    prop::sample::select(vec![Reduction::Mean, Reduction::Sum, Reduction::None])
}

/// Weights that half precision holds exactly: they are options, which the oracle does not see rounded.
fn sixteenths(w: &Array) -> Array {
    w.map(|v| (v * 16.0).round() / 16.0)
}

/// Reduces losses of `shape`, the mean dividing by `weight`.
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
        let shape = &x[0].shape;
        let c = shape[shape.len() - 1];
        let w = |c: usize| self.weight.as_ref().map_or(1.0, |w| w.data[c]);
        let (mut losses, mut total) = (Vec::new(), 0.0);
        for (row, &label) in x[0].data.chunks(c).zip(&self.labels) {
            if i64::from(label) == self.ignore {
                losses.push(0.0);
                continue;
            }
            let t = label as usize;
            let sum: f64 = row.iter().sum();
            let log_p = match self.from {
                Given::Logits => log_softmax(row),
                Given::LogProbabilities => row.to_vec(),
                Given::Probabilities => row.iter().map(|p| (p / sum).clamp(1e-7, 1.0 - 1e-7).ln()).collect(),
            };
            let even: f64 = (0..c).map(|i| w(i) * log_p[i]).sum();
            losses.push(-(1.0 - self.smoothing) * w(t) * log_p[t] - self.smoothing / c as f64 * even);
            total += w(t);
        }
        reduced(self.reduction, losses, &shape[..shape.len() - 1], total)
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
                // The first row counts, or a mean would have nothing to divide by.
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
    /// Cross-entropy with target distributions: smoothing and class weights.
    Soft(f64, Option<Array>),
}

/// A loss against a target of the same shape.
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
                    log_softmax(x).into_iter().zip(t).enumerate().map(term).sum()
                })
                .collect();
            let n = losses.len() as f64;
            return reduced(self.reduction, losses, &shape[..shape.len() - 1], n);
        }
        let losses = Array::from_fn(shape, |at| {
            let (x, t) = (inputs[0].at(at), inputs[1].at(at));
            let d = (x - t).abs();
            match &self.f {
                Pointwise::Mse => d * d,
                Pointwise::L1 => d,
                Pointwise::Huber(delta) if d <= *delta => d * d / 2.0,
                Pointwise::Huber(delta) => delta * (d - delta / 2.0),
                Pointwise::SmoothL1(beta) if d < *beta => d * d / 2.0 / beta,
                Pointwise::SmoothL1(beta) => d - beta / 2.0,
                Pointwise::Bce => -t * x.ln().max(-100.0) - (1.0 - t) * (1.0 - x).ln().max(-100.0),
                Pointwise::BceWithLogits(w) => {
                    let w = w.as_ref().map_or(1.0, |w| w.broadcast_at(at));
                    // −ln σ(x) = ln(1 + e⁻ˣ), and −ln(1 − σ(x)) the same of −x.
                    w * t * (-x).exp().ln_1p() + (1.0 - t) * x.exp().ln_1p()
                }
                Pointwise::KlDiv(true) => t.exp() * (t - x),
                Pointwise::KlDiv(false) if t == 0.0 => 0.0,
                Pointwise::KlDiv(false) => t * (t.ln() - x),
                Pointwise::Soft(..) => unreachable!("reduced by rows above"),
            }
        });
        let n = losses.size() as f64;
        reduced(self.reduction, losses.data, shape, n)
    }
}

/// Every loss against a target. Values keep away from kinks: a distance of 0, and the ends of 0..1.
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
            // The target starts as a distance from x.
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
                        *t = f64::from((x + sign * *t) as f32);
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

/// What the formulas do at the ends of their domains, as PyTorch.
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

/// Bad arguments are typed errors.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(backend, shape, dtype).unwrap_or_else(|e| panic!("{e}"));
    let f32 = |shape: &[usize]| zeros(shape, DType::F32);
    let labels = |v: &[i32], shape: &[usize]| Indices::from_slice(backend, v, shape).unwrap_or_else(|e| panic!("{e}"));
    let shape = |r: Result<Tensor<B>>| assert!(matches!(r, Err(Error::ShapeMismatch { .. })), "{r:?}");
    let dtype = |r: Result<Tensor<B>>| assert!(matches!(r, Err(Error::DTypeMismatch { .. })), "{r:?}");
    let argument = |name: &str, r: Result<Tensor<B>>| match r {
        Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, name),
        other => panic!("{other:?}"),
    };
    let (logits, good) = (f32(&[3, 10]), labels(&[0, 9, 5], &[3]));
    let every = |x: &Tensor<B>, l: &Indices<B>| {
        [
            x.cross_entropy(l),
            x.nll_loss(l),
            x.cross_entropy_from_probabilities(l, Reduction::Mean),
        ]
    };
    for bad in [10, -1, i32::MAX, i32::MIN] {
        for r in every(&logits, &labels(&[1, 2, bad], &[3])) {
            match r {
                Err(Error::IndexOutOfRange {
                    index, position, size, ..
                }) => {
                    assert_eq!((index, position, size), (i64::from(bad), 2, 10));
                }
                other => panic!("label {bad}: {other:?}"),
            }
        }
    }
    for bad in [
        labels(&[0, 1], &[2]),
        labels(&[0; 3], &[3, 1]),
        labels(&[0], &[]),
        labels(&[], &[0]),
    ] {
        every(&logits, &bad).into_iter().for_each(shape);
    }
    every(&f32(&[3, 0]), &good)
        .into_iter()
        .for_each(|r| argument("classes", r));
    for r in every(&f32(&[]), &labels(&[0], &[])) {
        assert!(matches!(r, Err(Error::Rank { .. })), "{r:?}");
    }
    for rank in 1..=6 {
        let lead = &[1, 2, 1, 2, 1][..rank - 1];
        let x = f32(&[lead, &[4]].concat());
        let n = lead.iter().product::<usize>();
        every(&x, &labels(&vec![3; n], lead))
            .into_iter()
            .for_each(|r| assert!(r.is_ok(), "rank {rank}: {r:?}"));
        every(&x, &labels(&vec![3; n], &[lead, &[1]].concat()))
            .into_iter()
            .for_each(shape);
    }
    let mask = Indices::from_slice(backend, &[0u8; 3], &[3]).unwrap_or_else(|e| panic!("{e}"));
    every(&logits, &mask)
        .into_iter()
        .for_each(|r| assert!(matches!(r, Err(Error::UnsupportedDType { .. })), "{r:?}"));
    let with = |smoothing: f64, weight: Option<&Tensor<B>>| {
        let options = CrossEntropyOptions {
            label_smoothing: smoothing,
            weight,
            ..Default::default()
        };
        [
            logits.cross_entropy_with(&good, &options),
            logits.nll_loss_with(&good, &options),
            logits.cross_entropy_soft(&logits, &options),
        ]
    };
    for bad in [2.0, -0.1, f64::NAN, f64::INFINITY] {
        with(bad, None).into_iter().for_each(|r| argument("label_smoothing", r));
    }
    for bad in [f32(&[9]), f32(&[1, 10]), f32(&[]), f32(&[0])] {
        with(0.0, Some(&bad)).into_iter().for_each(shape);
    }
    with(0.0, Some(&zeros(&[10], DType::BF16))).into_iter().for_each(dtype);
    let tracked = f32(&[10]).requires_grad();
    with(0.0, Some(&tracked))
        .into_iter()
        .for_each(|r| assert!(matches!(r, Err(Error::NoGradient { .. })), "{r:?}"));
    let r = Reduction::Mean;
    let pairs = |x: &Tensor<B>, t: &Tensor<B>| {
        [
            x.mse_loss(t, r),
            x.l1_loss(t, r),
            x.huber_loss(t, 1.0, r),
            x.smooth_l1_loss(t, 0.0, r),
            x.smooth_l1_loss(t, 1.0, r),
            x.bce_loss(t, r),
            x.bce_with_logits(t, None, r),
            x.kl_div(t, false, r),
            x.cross_entropy_soft(t, &CrossEntropyOptions::default()),
        ]
    };
    for bad in [f32(&[3]), f32(&[3, 1]), f32(&[10, 3]), f32(&[])] {
        pairs(&logits, &bad).into_iter().for_each(shape);
    }
    pairs(&logits, &zeros(&[3, 10], DType::BF16))
        .into_iter()
        .for_each(dtype);
    for bad in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        argument("delta", logits.huber_loss(&logits, bad, r));
    }
    for bad in [-1.0, f64::NAN, f64::NEG_INFINITY] {
        argument("beta", logits.smooth_l1_loss(&logits, bad, r));
    }
    shape(logits.bce_with_logits(&logits, Some(&f32(&[3])), r));
    shape(logits.bce_with_logits(&logits, Some(&f32(&[2, 3, 10])), r));
    dtype(logits.bce_with_logits(&logits, Some(&zeros(&[10], DType::BF16)), r));
}
