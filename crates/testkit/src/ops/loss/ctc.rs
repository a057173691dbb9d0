//! The CTC loss: against all alignments, against PyTorch, and with bad arguments.

use super::{log_softmax, reduced};
use crate::{Array, Case, Rounding, assert_close, check_with, shapes};
use kiln_core::ops::Op;
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{CtcLossOptions, Indices, Reduction, Tensor};
use proptest::prelude::*;
use serde_json::Value;

/// CTC of the log-softmax of logits: the gradient takes log-probabilities to come from there.
#[derive(Clone, Debug)]
struct Ctc {
    x: Array,
    /// Labels `[N, S]`, row by row.
    targets: Vec<i32>,
    times: Vec<i32>,
    lengths: Vec<i32>,
    /// True to give the labels behind one another.
    flat: bool,
    options: CtcLossOptions,
}

/// The most alignments that are listed.
const LISTED: usize = 5000;

impl Ctc {
    fn labels(&self, n: usize) -> Vec<usize> {
        let stride = self.targets.len() / self.times.len().max(1);
        let row = &self.targets[n * stride..][..self.lengths[n] as usize];
        row.iter().map(|l| *l as usize).collect()
    }

    /// The loss of a sequence with `p[t][c]`.
    fn one(&self, p: &[Vec<f64>], labels: &[usize]) -> f64 {
        let by_states = by_states(p, labels, self.options.blank);
        let classes = self.x.shape[2];
        if classes.checked_pow(p.len() as u32).is_some_and(|count| count <= LISTED) {
            let listed = by_listing(p, labels, self.options.blank);
            assert!(
                (listed - by_states).abs() <= 1e-12 * listed.abs(),
                "{listed} and {by_states}"
            );
        }
        -by_states.ln()
    }

    /// The result, where `loss` gives that of each sequence.
    fn result(&self, loss: impl Fn(usize) -> f64) -> Array {
        let n = self.times.len();
        let over = |i: usize| match self.options.reduction {
            Reduction::Mean => f64::from(self.lengths[i].max(1)),
            _ => 1.0,
        };
        reduced(
            self.options.reduction,
            (0..n).map(|i| loss(i) / over(i)).collect(),
            &[n],
            n as f64,
        )
    }

    /// The logarithms of the probabilities of the steps of a sequence.
    fn steps(&self, x: &Array, n: usize) -> Vec<Vec<f64>> {
        let row = |t: usize| (0..self.x.shape[2]).map(|c| x.at(&[t, n, c])).collect::<Vec<_>>();
        (0..self.times[n] as usize).map(|t| log_softmax(&row(t))).collect()
    }
}

/// The probability of the labels, summed over every alignment of classes to steps.
fn by_listing(p: &[Vec<f64>], labels: &[usize], blank: usize) -> f64 {
    let classes = p.first().map_or(1, Vec::len);
    let mut sum = 0.0;
    for mut number in 0..classes.pow(p.len() as u32) {
        let (mut said, mut before, mut probability) = (Vec::new(), blank, 1.0);
        for p in p {
            let class = number % classes;
            number /= classes;
            probability *= p[class];
            if class != blank && class != before {
                said.push(class);
            }
            before = class;
        }
        sum += if said == labels { probability } else { 0.0 };
    }
    sum
}

/// The probability of the labels by the recursion of the paper, over blanks and labels in turns.
fn by_states(p: &[Vec<f64>], labels: &[usize], blank: usize) -> f64 {
    let class = |s: usize| if s.is_multiple_of(2) { blank } else { labels[s / 2] };
    let states = 2 * labels.len() + 1;
    // Before the first step, every alignment is in the first blank.
    let mut alpha = vec![0.0; states];
    alpha[0] = 1.0;
    for (t, p) in p.iter().enumerate() {
        let next = (0..states).map(|s| {
            let skips = s > 1 && class(s) != blank && class(s) != class(s - 2);
            let before = if s > 0 { alpha[s - 1] } else { 0.0 };
            let other = if skips && t > 0 { alpha[s - 2] } else { 0.0 };
            p[class(s)] * (alpha[s] + before + other)
        });
        alpha = next.collect();
    }
    alpha[states - 1] + if states > 1 { alpha[states - 2] } else { 0.0 }
}

impl Case for Ctc {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let n = self.times.len();
        let of = |v: &[i32], shape: &[usize]| Indices::from_slice(backend, v, shape);
        let flat: Vec<i32> = (0..n).flat_map(|n| self.labels(n)).map(|l| l as i32).collect();
        let targets = match self.flat {
            true => of(&flat, &[flat.len()])?,
            false => of(&self.targets, &[n, self.targets.len() / n.max(1)])?,
        };
        // Half precision would round the logarithms in between, and is compared with PyTorch.
        let wide = if x[0].dtype() == DType::F64 {
            DType::F64
        } else {
            DType::F32
        };
        let log_probs = x[0].to_dtype(wide)?.log_softmax(-1)?;
        let loss = log_probs.ctc_loss(
            &targets,
            &of(&self.times, &[n])?,
            &of(&self.lengths, &[n])?,
            &self.options,
        )?;
        loss.to_dtype(x[0].dtype())
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.result(|n| {
            let p: Vec<Vec<f64>> = self
                .steps(&x[0], n)
                .iter()
                .map(|row| row.iter().map(|l| l.exp()).collect())
                .collect();
            self.one(&p, &self.labels(n))
        })
    }

    /// A dozen roundings of each step, of logarithms as large as the sum of all.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let [time, _, classes] = self.x.shape[..] else {
            unreachable!("three dimensions")
        };
        let magnitude = self.result(|n| {
            let largest = |row: &Vec<f64>| row.iter().fold(0.0, |m: f64, l| m.max(l.abs())) + 4.0;
            self.steps(&x[0], n).iter().map(largest).sum::<f64>() + 1.0
        });
        Rounding::terms((12 * time + 2 * classes + self.times.len()) as f64 + 12.0, magnitude)
    }

    /// A share minus a probability, times a seed.
    fn slope_terms(&self, _: &[Array]) -> f64 {
        1.5 * 2.0
    }
}

fn cases(large: bool) -> impl Strategy<Value = Ctc> {
    let sizes = match large {
        false => (1usize..6, 1usize..4, 2usize..5, 0usize..4).boxed(),
        true => (
            33usize..40,
            1usize..3,
            prop::sample::select(vec![2usize, 5, 33, 40]),
            14usize..19,
        )
            .boxed(),
    };
    let reductions = prop::sample::select(vec![Reduction::Mean, Reduction::Sum, Reduction::None]);
    let options = (reductions, any::<[bool; 2]>(), any::<prop::sample::Index>());
    (sizes, options).prop_flat_map(|((time, n, classes, labels), (reduction, [zero, flat], blank))| {
        let blank = blank.index(classes);
        let targets = prop::collection::vec(0..classes as i32 - 1, n * labels);
        let shortened = prop::collection::vec((0..time as i32 + 1, 0..labels as i32 + 1), n);
        (shapes::values(&[time, n, classes], -2.0, 2.0), targets, shortened).prop_map(move |(x, targets, shortened)| {
            // Labels other than the blank.
            let targets: Vec<i32> = targets.iter().map(|l| l + i32::from(*l >= blank as i32)).collect();
            let fits = |n: usize, steps: i32, length: i32| {
                let row = &targets[n * labels..][..length as usize];
                length + row.windows(2).filter(|two| two[0] == two[1]).count() as i32 <= steps
            };
            let mut times = Vec::new();
            let mut lengths = Vec::new();
            for (n, (steps, length)) in shortened.into_iter().enumerate() {
                let length = (0..=length).rev().find(|length| fits(n, steps, *length)).unwrap_or(0);
                times.push(steps);
                lengths.push(length);
            }
            let options = CtcLossOptions {
                blank,
                reduction,
                zero_infinity: zero,
            };
            Ctc {
                x,
                targets,
                times,
                lengths,
                flat,
                options,
            }
        })
    })
}

/// Values, gradients and gradients of gradients, against the sum over all alignments where it is short enough.
pub fn ctc<B: Backend>(backend: &B) {
    check_with(24, backend, cases(false));
    check_with(4, backend, cases(true));
}

fn numbers(v: &Value) -> Vec<f64> {
    let number = |v: &Value| match v {
        Value::String(text) => text.parse().expect("a number"),
        v => v.as_f64().expect("a number"),
    };
    v.as_array().expect("a list").iter().map(number).collect()
}

/// Losses and gradients of PyTorch (`golden/ctc.py`), in every dtype: empty and impossible labels, with and without `zero_infinity`.
pub fn ctc_as_pytorch<B: Backend>(backend: &B) {
    let cases: Value = serde_json::from_str(include_str!("../../../golden/ctc.json")).expect("JSON");
    for case in cases.as_array().expect("a list") {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            if backend.supports_dtype(dtype) {
                as_pytorch(backend, case, dtype).unwrap_or_else(|e| panic!("{dtype} {case}: {e}"));
            }
        }
    }
}

fn as_pytorch<B: Backend>(backend: &B, case: &Value, dtype: DType) -> Result<()> {
    let sizes = |v: &Value| numbers(v).into_iter().map(|v| v as usize).collect::<Vec<_>>();
    let indices = |v: &Value, shape: &[usize]| {
        let values: Vec<i32> = numbers(v).into_iter().map(|v| v as i32).collect();
        Indices::from_slice(backend, &values, shape)
    };
    let shape = sizes(&case["shape"]);
    let x = Tensor::from_f64(backend, &numbers(&case["x"]), &shape, dtype)?.requires_grad();
    let options = CtcLossOptions {
        blank: case["blank"].as_u64().expect("a class") as usize,
        reduction: match case["reduction"].as_str() {
            Some("mean") => Reduction::Mean,
            Some("sum") => Reduction::Sum,
            _ => Reduction::None,
        },
        zero_infinity: case["zero_infinity"].as_bool().expect("a flag"),
    };
    let targets = indices(&case["targets"], &sizes(&case["targets_shape"]))?;
    let (times, lengths) = (
        indices(&case["times"], &[shape[1]])?,
        indices(&case["lengths"], &[shape[1]])?,
    );
    let y = x.ctc_loss(&targets, &times, &lengths, &options)?;
    let want = numbers(&case["output"]);
    let (steps, last) = match dtype {
        DType::F64 => (1e-11, 0.0),
        DType::F32 => (2e-6 * shape[0] as f64, 0.0),
        // One rounding of a result, and of the seeds.
        DType::F16 => (2e-6 * shape[0] as f64, 2f64.powi(-10)),
        _ => (2e-6 * shape[0] as f64, 2f64.powi(-7)),
    };
    let bounds =
        |want: &[f64]| -> Vec<f64> { want.iter().map(|w| steps * w.abs().max(4.0) + last * w.abs()).collect() };
    let name = format!("{dtype} {case}");
    assert_close(&name, &y.to_f64()?, &want, &bounds(&want));
    if !backend.supports(Op::CtcLoss, dtype) && want.iter().any(|w| w.is_infinite()) {
        // The composed form has no NaN there.
        return Ok(());
    }
    let seeds: Vec<f64> = (1..=want.len()).map(|i| i as f64).collect();
    let grads = y.backward_with(&Tensor::from_f64(backend, &seeds, y.shape(), dtype)?)?;
    let g = grads.get(&x).map_or(Ok(Vec::new()), Tensor::to_f64)?;
    let want = numbers(&case["grad"]);
    // A probability and a share of up to 1, times a seed.
    assert_close(&name, &g, &want, &bounds(&want));
    Ok(())
}

/// Bad arguments are typed errors.
pub fn ctc_refused<B: Backend>(backend: &B) {
    let of = |v: &[i32], shape: &[usize]| Indices::from_slice(backend, v, shape).unwrap_or_else(|e| panic!("{e}"));
    let x = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let options = CtcLossOptions::default();
    let good = (
        x(&[4, 2, 3]),
        of(&[1, 2, 2, 1], &[2, 2]),
        of(&[4, 3], &[2]),
        of(&[2, 1], &[2]),
    );
    let call = |x: &Tensor<B>, t: &Indices<B>, times: &Indices<B>, lengths: &Indices<B>, options: &CtcLossOptions| {
        // A kernel's errors are met when a result is read.
        x.ctc_loss(t, times, lengths, options).and_then(|loss| loss.to_f64())
    };
    let run = |t: &Indices<B>, times: &Indices<B>, lengths: &Indices<B>| call(&good.0, t, times, lengths, &options);
    let argument = |name: &str, r: Result<Vec<f64>>| match r {
        Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, name),
        other => panic!("{name}: {other:?}"),
    };
    assert!(run(&good.1, &good.2, &good.3).is_ok());
    // Beyond a length anything may stand.
    assert!(run(&of(&[1, 2, 2, -7], &[2, 2]), &good.2, &good.3).is_ok());
    for bad in [5, -1, i32::MAX] {
        argument("input_lengths", run(&good.1, &of(&[4, bad], &[2]), &good.3));
    }
    for bad in [3, -1, i32::MAX] {
        argument("target_lengths", run(&good.1, &good.2, &of(&[bad, 1], &[2])));
        argument("target_lengths", run(&of(&[1, 2], &[2]), &good.2, &of(&[1, bad], &[2])));
    }
    for bad in [3, -1, i32::MIN] {
        let r = run(&of(&[1, bad, 1, 1], &[2, 2]), &good.2, &good.3);
        let found =
            matches!(r, Err(Error::IndexOutOfRange { index, position: 1, size: 3, .. }) if index == i64::from(bad));
        assert!(found, "{bad}: {r:?}");
    }
    argument("targets", run(&of(&[1, 2, 0, 1], &[2, 2]), &good.2, &good.3));
    argument("targets", run(&of(&[1, 2, 1, 1], &[4]), &good.2, &good.3));
    let other = CtcLossOptions { blank: 3, ..options };
    argument("blank", call(&good.0, &good.1, &good.2, &good.3, &other));
    let other = CtcLossOptions { blank: 2, ..options };
    argument("targets", call(&good.0, &good.1, &good.2, &good.3, &other));
    let shape = |r: Result<Vec<f64>>| assert!(matches!(r, Err(Error::ShapeMismatch { .. })), "{r:?}");
    shape(run(&of(&[1, 2, 2], &[3, 1]), &good.2, &good.3));
    shape(run(&good.1, &of(&[4], &[1]), &good.3));
    shape(run(&good.1, &good.2, &of(&[1, 1, 1], &[3])));
    let r = call(&x(&[4, 3]), &good.1, &good.2, &good.3, &options);
    assert!(matches!(r, Err(Error::Rank { rank: 2, .. })), "{r:?}");
    let mask = Indices::from_slice(backend, &[1u8, 1], &[2]).unwrap_or_else(|e| panic!("{e}"));
    let r = run(&good.1, &mask, &good.3);
    assert!(matches!(r, Err(Error::UnsupportedDType { .. })), "{r:?}");
}
