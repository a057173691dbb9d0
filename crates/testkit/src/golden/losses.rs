//! The ops of `golden/losses.py`.

use super::values::{EPS, number, numbers};
use kiln_core::{Backend, Error, Result};
use kiln_nn::{CrossEntropyOptions, Indices, Reduction, Tensor};
use serde_json::Value;

pub(super) fn call<B: Backend>(backend: &B, case: &Value, x: &[Tensor<B>]) -> Result<Tensor<B>> {
    let r = match case["reduction"].as_str() {
        Some("sum") => Reduction::Sum,
        Some("none") => Reduction::None,
        _ => Reduction::Mean,
    };
    let vector = |v: &Value| Tensor::from_f64(backend, &numbers(v), &[numbers(v).len()], x[0].dtype());
    let weight = case["weight"].as_array().map(|_| vector(&case["weight"])).transpose()?;
    let options = CrossEntropyOptions {
        label_smoothing: case["smoothing"].as_f64().unwrap_or(0.0),
        weight: weight.as_ref(),
        ignore_index: case["ignore"].as_i64().unwrap_or(-100),
        reduction: r,
    };
    let labels = || {
        let labels: Vec<i32> = numbers(&case["labels"]).into_iter().map(|l| l as i32).collect();
        Indices::from_slice(backend, &labels, &[labels.len()])
    };
    let value = if case["value"].is_null() {
        0.0
    } else {
        number(&case["value"])
    };
    let a = &x[0];
    match case["name"].as_str().expect("a name") {
        "cross_entropy" => a.cross_entropy_with(&labels()?, &options),
        "nll_loss" => a.nll_loss_with(&labels()?, &options),
        "cross_entropy_soft" => a.cross_entropy_soft(&x[1], &options),
        "mse_loss" => a.mse_loss(&x[1], r),
        "l1_loss" => a.l1_loss(&x[1], r),
        "huber_loss" => a.huber_loss(&x[1], value, r),
        "smooth_l1_loss" => a.smooth_l1_loss(&x[1], value, r),
        "bce_loss" => a.bce_loss(&x[1], r),
        "kl_div" => a.kl_div(&x[1], false, r),
        "kl_div_log" => a.kl_div(&x[1], true, r),
        "bce_with_logits" => a.bce_with_logits(&x[1], weight.as_ref(), r),
        "batch_norm" => Ok(a.batch_norm(Some(&x[1]), Some(&x[2]), EPS)?.0),
        "group_norm" => a.group_norm(3, Some(&x[1]), Some(&x[2]), EPS),
        "instance_norm" => a.instance_norm(Some(&x[1]), Some(&x[2]), EPS),
        "layer_norm" => a.layer_norm(&[6], Some(&x[1]), Some(&x[2]), EPS),
        "rms_norm" => a.rms_norm(&[6], Some(&x[1]), EPS),
        "max" => a.max(&[1], false),
        "min" => a.min(&[0], false),
        "var" => a.var(&[1], 1, false),
        "std" => a.std(&[1], 0, false),
        "norm" => a.norm(2.0, &[1], false),
        "logsumexp" => a.logsumexp(&[1], false),
        "cumsum" => a.cumsum(1),
        "top_k" => Ok(a.top_k(4, 2, true)?.0),
        "log_softmax" => a.log_softmax(1),
        other => Err(Error::invalid("golden", "name", other, "an op this test knows")),
    }
}
