//! Losses, norms and reductions against the values and gradients that PyTorch gave (`golden/losses.py`).

use crate::{Tolerance, assert_close};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{CrossEntropyOptions, Indices, Reduction, Tensor};
use serde_json::Value;

const EPS: f64 = 1e-3;

fn numbers(v: &Value) -> Vec<f64> {
    let list = v.as_array().expect("a list");
    list.iter().map(|x| x.as_f64().expect("a number")).collect()
}

fn tensor<B: Backend>(backend: &B, v: &Value, dtype: DType) -> Result<Tensor<B>> {
    Tensor::from_f64(backend, &numbers(&v["data"]), &shape(v), dtype)
}

fn shape(v: &Value) -> Vec<usize> {
    numbers(&v["shape"]).into_iter().map(|d| d as usize).collect()
}

fn call<B: Backend>(backend: &B, case: &Value, x: &[Tensor<B>]) -> Result<Tensor<B>> {
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
    let (value, a) = (case["value"].as_f64().unwrap_or(0.0), &x[0]);
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

/// PyTorch's values and gradients in every one of f64 and f32 that the backend has: within [`Tolerance::F64`], and in f32
/// within [`Tolerance::F32`] for values and [`Tolerance::F32_GRADIENT`] for gradients.
///
/// # Panics
/// Naming the case, where a number is off or an op returns an error.
pub fn pytorch<B: Backend>(backend: &B) {
    let cases: Value = serde_json::from_str(include_str!("../golden/losses.json")).expect("JSON");
    let cases = cases.as_array().expect("a list of cases");
    assert!(cases.len() > 80);
    let dtypes = [
        (DType::F64, Tolerance::F64, Tolerance::F64),
        (DType::F32, Tolerance::F32, Tolerance::F32_GRADIENT),
    ];
    for (dtype, value, gradient) in dtypes.into_iter().filter(|(dtype, ..)| backend.supports(*dtype)) {
        for case in cases {
            let name = format!(
                "{dtype} {} {} {} {}",
                case["name"], case["reduction"], case["smoothing"], case["weight"]
            );
            one(backend, case, &name, dtype, value, gradient).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

fn one<B: Backend>(
    backend: &B,
    case: &Value,
    name: &str,
    dtype: DType,
    value: Tolerance,
    gradient: Tolerance,
) -> Result<()> {
    let given = case["inputs"].as_array().expect("inputs").iter();
    let inputs: Vec<_> = given
        .map(|v| Ok(tensor(backend, v, dtype)?.requires_grad()))
        .collect::<Result<_>>()?;
    let y = call(backend, case, &inputs)?;
    let want = &case["output"];
    assert_eq!(y.shape().dims(), shape(want), "{name}");
    assert_close(name, &y.to_f64()?, &numbers(&want["data"]), value);
    let weights: Vec<f64> = (1..=y.size()).map(|i| i as f64).collect();
    let grads = y.backward_with(&Tensor::from_f64(backend, &weights, y.shape(), dtype)?)?;
    for (x, want) in inputs.iter().zip(case["grads"].as_array().expect("gradients")) {
        let got = grads.get(x).map_or(Ok(Vec::new()), Tensor::to_f64)?;
        assert_close(&format!("gradient of {name}"), &got, &numbers(&want["data"]), gradient);
    }
    Ok(())
}
