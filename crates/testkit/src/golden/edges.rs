//! The ops of `golden/edges.py`: those of `golden/losses.py` and others.

use super::losses;
use super::values::{EPS, number, numbers, shape};
use kiln_core::ops::{Activation, Window};
use kiln_core::{Backend, Result};
use kiln_nn::{Indices, Pad, Tensor};
use serde_json::Value;

pub(super) fn call<B: Backend>(backend: &B, case: &Value, x: &[Tensor<B>]) -> Result<Tensor<B>> {
    let a = &x[0];
    let size = |name: &str| case[name].as_u64().expect("a size") as usize;
    let value = || number(&case["value"]);
    match case["name"].as_str().expect("a name") {
        "abs" => a.abs(),
        "exp" => a.exp(),
        "log" => a.log(),
        "sqrt" => a.sqrt(),
        "rsqrt" => a.rsqrt(),
        "square" => a.square(),
        "reciprocal" => a.reciprocal(),
        "tanh" => a.tanh(),
        "sigmoid" => a.sigmoid(),
        "relu" => a.relu(),
        "leaky_relu" => a.leaky_relu(0.1),
        "elu" => a.elu(1.0),
        "softplus" => a.softplus(1.0, 20.0),
        "erf" => a.erf(),
        "sign" => a.sign(),
        "silu" => a.silu(),
        "gelu" => a.gelu(),
        "gelu_tanh" => a.gelu_tanh(),
        "clamp" => clamp(a, number(&case["low"]), number(&case["high"])),
        "powf" => a.powf(value()),
        "maximum" => a.maximum(&x[1]),
        "minimum" => a.minimum(&x[1]),
        "div" => a.div(&x[1]),
        "pow" => a.pow(&x[1]),
        "sum" => a.sum(&[1], false),
        "mean" => a.mean(&[1], false),
        "max" => a.max(&[1], false),
        "min" => a.min(&[1], false),
        "var" => a.var(&[1], size("correction"), false),
        "std" => a.std(&[1], size("correction"), false),
        "norm" => a.norm(value(), &[1], false),
        "softmax" => a.softmax(1),
        "max_pool" => a.max_pool(&window(case), true),
        "avg_pool" => a.avg_pool(&window(case), true, case["count_include_pad"] == true),
        "batch_norm_eval" => {
            let of = |name: &str| Tensor::from_f64(backend, &numbers(&case[name]), &[4], a.dtype());
            a.batch_norm_eval(&of("mean")?, &of("var")?, Some(&x[1]), Some(&x[2]), EPS)
        }
        "layer_norm" => a.layer_norm(&[4], Some(&x[1]), Some(&x[2]), EPS),
        "rms_norm" => a.rms_norm(&[4], Some(&x[1]), EPS),
        "group_norm" => a.group_norm(2, Some(&x[1]), Some(&x[2]), EPS),
        "gather" => a.gather(size("axis") as isize, &indices(backend, case)?),
        "scatter_add" => a.scatter_add(size("axis") as isize, &indices(backend, case)?, &x[1]),
        "pad" => {
            let ends = numbers(&case["pad"]);
            let mode = if case["mode"] == "reflect" {
                Pad::Reflect
            } else {
                Pad::Replicate
            };
            a.pad(&[(0, 0), (0, 0), (ends[0] as isize, ends[1] as isize)], mode)
        }
        "conv" => a.conv(&x[1], x.get(2), &Window::new([2, 2]), 1, Activation::None),
        _ => losses::call(backend, case, x),
    }
}

/// Clamps by the method for the bounds that are finite.
fn clamp<B: Backend>(x: &Tensor<B>, low: f64, high: f64) -> Result<Tensor<B>> {
    match (low.is_finite(), high.is_finite()) {
        (true, true) => x.clamp(low, high),
        (true, false) => x.clamp_min(low),
        _ => x.clamp_max(high),
    }
}

fn window(case: &Value) -> Window {
    let of = |name: &str| [case[name].as_u64().expect("a size") as usize; 2];
    Window::new(of("kernel")).stride(of("stride")).padding(of("padding"))
}

fn indices<B: Backend>(backend: &B, case: &Value) -> Result<Indices<B>> {
    let index: Vec<i32> = numbers(&case["index"]["data"]).into_iter().map(|i| i as i32).collect();
    Indices::from_slice(backend, &index, &shape(&case["index"]))
}
