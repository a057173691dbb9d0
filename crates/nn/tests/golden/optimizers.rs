//! Golden values of optimizers, and the parameters, gradients and optimizers that they are of.

use kiln_nn::optim::{Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Asgd, NAdam, RAdam, Rmsprop, Rprop, Sgd};
use kiln_nn::{Backend, DType, Gradients, Module, Optimizer, Param, Tensor};
use serde_json::Value;

#[derive(Module)]
pub(crate) struct Pair<B: Backend> {
    pub(crate) weight: Param<B>,
    pub(crate) bias: Param<B>,
}

pub(crate) fn golden() -> Value {
    serde_json::from_str(include_str!("optimizers.json")).unwrap()
}

pub(crate) fn floats(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn tensor<B: Backend>(b: &B, golden: &Value, name: &str, values: &Value, dtype: DType) -> Tensor<B> {
    let shape: Vec<usize> = floats(&golden["shapes"][name]).iter().map(|&d| d as usize).collect();
    Tensor::from_f64(b, &floats(values), &shape, dtype).unwrap()
}

pub(crate) fn start<B: Backend>(b: &B, golden: &Value, dtype: DType) -> Pair<B> {
    let param = |name| Param::new(tensor(b, golden, name, &golden["start"][name], dtype));
    Pair {
        weight: param("weight"),
        bias: param("bias"),
    }
}

pub(crate) fn gradients<B: Backend>(b: &B, golden: &Value, model: &Pair<B>, step: usize, dtype: DType) -> Gradients<B> {
    let mut grads = Gradients::default();
    for (name, param) in model.named_parameters() {
        let grad = tensor(b, golden, &name, &golden["grads"][name.as_str()][step], dtype);
        grads.insert(param, grad).unwrap();
    }
    grads
}

/// The optimizer that a golden case describes.
pub(crate) fn optimizer<B: Backend>(case: &Value) -> Box<dyn Optimizer<B>> {
    let options = &case["options"];
    let number = |name: &str| options[name].as_f64();
    let flag = |name: &str| options[name].as_bool().unwrap_or(false);
    let lr = number("lr").unwrap();
    let or = |name: &str, default: f64| number(name).unwrap_or(default);
    let pair = |name: &str, default: [f64; 2]| {
        let of = |i: usize| options[name][i].as_f64();
        [0, 1].map(|i| of(i).unwrap_or(default[i]))
    };
    let [first, second] = pair("betas", [0.9, 0.999]);
    let (decay, eps) = (or("weight_decay", 0.0), or("eps", 1e-8));
    let maximize = flag("maximize");
    macro_rules! build {
        ($optimizer:ident $(, $option:ident($($value:expr),*))*) => {
            Box::new($optimizer::new(lr)$(.$option($($value),*))*.maximize(maximize))
        };
    }
    match case["name"].as_str().unwrap() {
        "sgd" => build!(
            Sgd,
            momentum(or("momentum", 0.0)),
            dampening(or("dampening", 0.0)),
            weight_decay(decay),
            nesterov(flag("nesterov"))
        ),
        "adam" => build!(
            Adam,
            betas(first, second),
            eps(eps),
            weight_decay(decay),
            amsgrad(flag("amsgrad"))
        ),
        "adamw" => {
            let decay = or("weight_decay", 0.01);
            build!(
                AdamW,
                betas(first, second),
                eps(eps),
                weight_decay(decay),
                amsgrad(flag("amsgrad"))
            )
        }
        "rmsprop" => build!(
            Rmsprop,
            alpha(or("alpha", 0.99)),
            eps(eps),
            weight_decay(decay),
            momentum(or("momentum", 0.0)),
            centered(flag("centered"))
        ),
        "adagrad" => build!(
            Adagrad,
            lr_decay(or("lr_decay", 0.0)),
            eps(or("eps", 1e-10)),
            weight_decay(decay),
            initial_accumulator(or("initial_accumulator_value", 0.0))
        ),
        "nadam" => build!(
            NAdam,
            betas(first, second),
            eps(eps),
            weight_decay(decay),
            momentum_decay(or("momentum_decay", 4e-3)),
            decoupled_weight_decay(flag("decoupled_weight_decay"))
        ),
        "radam" => build!(
            RAdam,
            betas(first, second),
            eps(eps),
            weight_decay(decay),
            decoupled_weight_decay(flag("decoupled_weight_decay"))
        ),
        "adadelta" => build!(Adadelta, rho(or("rho", 0.9)), eps(or("eps", 1e-6)), weight_decay(decay)),
        "adamax" => build!(Adamax, betas(first, second), eps(eps), weight_decay(decay)),
        "rprop" => build!(
            Rprop,
            etas(pair("etas", [0.5, 1.2]).into()),
            step_sizes(pair("step_sizes", [1e-6, 50.0]).into())
        ),
        "asgd" => build!(
            Asgd,
            lambd(or("lambd", 1e-4)),
            alpha(or("alpha", 0.75)),
            t0(or("t0", 1e6)),
            weight_decay(decay)
        ),
        "adafactor" => build!(
            Adafactor,
            beta2_decay(or("beta2_decay", -0.8)),
            eps((options["eps"][0].as_f64(), pair("eps", [0.0, 1e-3])[1])),
            d(or("d", 1.0)),
            weight_decay(decay)
        ),
        other => panic!("no optimizer {other}"),
    }
}
