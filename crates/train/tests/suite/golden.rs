//! Golden values of the metrics, and metrics measured over batches.

use kiln_cpu::Cpu;
use kiln_nn::{DType, Indices, Tensor};
use kiln_train::{Metric, Output, Running, Values};
use serde_json::Value;

/// The part of `golden/{file}.json` by this name.
pub(crate) fn golden(file: &str, part: &str) -> Vec<Value> {
    let text = match file {
        "coco" => include_str!("../golden/coco.json"),
        "metrics" => include_str!("../golden/metrics.json"),
        other => panic!("no golden file {other}"),
    };
    let all: Value = serde_json::from_str(text).unwrap();
    all[part].as_array().unwrap().clone()
}

pub(crate) fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

pub(crate) fn integers(value: &Value) -> Vec<i32> {
    let of = |x: &Value| x.as_i64().unwrap() as i32;
    value.as_array().unwrap().iter().map(of).collect()
}

pub(crate) fn sizes(value: &Value) -> Vec<usize> {
    integers(value).into_iter().map(|x| x as usize).collect()
}

pub(crate) fn tensor(values: &[f64], shape: &[usize]) -> Tensor<Cpu> {
    Tensor::from_f64(&Cpu::new(), values, shape, DType::F32).unwrap()
}

pub(crate) fn indices(values: &[i32], shape: &[usize]) -> Indices<Cpu> {
    Indices::from_slice(&Cpu::new(), values, shape).unwrap()
}

/// An output with a loss of 0.
pub(crate) fn output() -> Output<Cpu> {
    Output::new(tensor(&[0.0], &[]))
}

/// The ranges of batches of `n` samples, `size` each.
pub(crate) fn batches(n: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n)
        .step_by(size.max(1))
        .map(move |from| (from, (from + size.max(1)).min(n)))
}

/// The values of a metric over `n` samples in batches of `size`, of which `batch` makes the output.
pub(crate) fn values(
    metric: &mut dyn Metric<Cpu>,
    n: usize,
    size: usize,
    batch: impl Fn(usize, usize) -> Output<Cpu>,
) -> kiln_nn::Result<Values> {
    let mut running = Running::new();
    for (from, to) in batches(n, size) {
        running.add(metric, &batch(from, to), to - from)?;
    }
    running.finish(metric)
}

/// The value of a metric over batches.
pub(crate) fn measured(
    metric: &mut dyn Metric<Cpu>,
    n: usize,
    size: usize,
    batch: impl Fn(usize, usize) -> Output<Cpu>,
) -> f64 {
    values(metric, n, size, batch).unwrap()[&metric.name()]
}

/// The relative difference of two values, the absolute one below 1; 0 if both are NaN.
pub(crate) fn difference(a: f64, b: f64) -> f64 {
    match a.is_nan() && b.is_nan() {
        true => 0.0,
        false => (a - b).abs() / b.abs().max(1.0),
    }
}

#[track_caller]
pub(crate) fn assert_near(a: f64, b: f64, tolerance: f64) {
    let apart = difference(a, b);
    assert!(apart <= tolerance, "{a} and {b} differ by {apart:e}");
}
