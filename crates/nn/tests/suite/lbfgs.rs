//! L-BFGS against PyTorch; the golden values come from `../golden/lbfgs.py`, in f64.

use kiln_cpu::Cpu;
use kiln_nn::module::{StateDict, Value};
use kiln_nn::optim::Lbfgs;
use kiln_nn::{Backend, DType, Error, Module, Param, Result, Tensor};
use kiln_testkit::Reference;
use serde_json::Value as Json;

#[derive(Module)]
struct Pair<B: Backend> {
    weight: Param<B>,
    bias: Param<B>,
}

fn golden() -> Json {
    serde_json::from_str(include_str!("../golden/lbfgs.json")).unwrap()
}

fn floats(v: &Json) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn start<B: Backend>(b: &B, golden: &Json, dtype: DType) -> Pair<B> {
    let of = |name: &str, shape: &[usize]| {
        Param::new(Tensor::from_f64(b, &floats(&golden["start"][name]), shape, dtype).unwrap())
    };
    Pair {
        weight: of("weight", &[3, 4]),
        bias: of("bias", &[5]),
    }
}

fn optimizer<B: Backend>(options: &Json) -> Lbfgs<B> {
    let number = |name: &str| options[name].as_f64();
    let count = |name: &str| options[name].as_u64().map(|n| n as usize);
    let mut lbfgs = Lbfgs::new(number("lr").unwrap())
        .max_iter(count("max_iter").unwrap_or(20))
        .history_size(count("history_size").unwrap_or(100))
        .tolerance_grad(number("tolerance_grad").unwrap_or(1e-7))
        .tolerance_change(number("tolerance_change").unwrap_or(1e-9))
        .strong_wolfe(options["line_search_fn"].is_string())
        .maximize(options["maximize"].as_bool().unwrap_or(false));
    if let Some(most) = count("max_eval") {
        lbfgs = lbfgs.max_eval(most);
    }
    lbfgs
}

/// The loss of a name, as in `../golden/lbfgs.py`.
fn loss<B: Backend>(name: &str, data: &Json, maximize: bool, model: &Pair<B>) -> Result<Tensor<B>> {
    let b = model.weight.backend();
    let of = |name: &str, shape: &[usize]| Tensor::from_f64(b, &floats(&data[name]), shape, model.weight.dtype());
    let flat = model.weight.reshape(&[12])?;
    let all = Tensor::concat(&[&flat, &model.bias], 0)?;
    let y = match name {
        "regression" => {
            let z = of("x", &[8, 12])?.mul(&flat)?.sum(&[1], false)?;
            let fit = of("sign", &[8])?
                .neg()?
                .mul(&z)?
                .softplus(1.0, 20.0)?
                .mean(&[], false)?;
            let penalty = flat.square()?.sum(&[], false)?.mul_scalar(0.05)?;
            let quartic = model.bias.sub_scalar(0.5)?.square()?.square()?.sum(&[], false)?;
            let small = model.bias.square()?.sum(&[], false)?.mul_scalar(0.1)?;
            fit.add(&penalty)?.add(&quartic)?.add(&small)?
        }
        "rosenbrock" => {
            let (low, high) = (all.narrow(0, 0, 16)?, all.narrow(0, 1, 16)?);
            let valley = high.sub(&low.square()?)?.square()?.mul_scalar(10.0)?;
            valley.add(&low.rsub_scalar(1.0)?.square()?)?.sum(&[], false)?
        }
        _ => {
            let squares = all.sub_scalar(1.0)?.square()?.mul(&of("curve", &[17])?)?;
            squares.sum(&[], false)?.mul_scalar(0.5)?
        }
    };
    if maximize { y.neg() } else { Ok(y) }
}

fn close(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let near = (g - w).abs() <= tolerance * w.abs().max(1.0);
        assert!(near, "{what}[{i}]: {g}, expected {w}");
    }
}

fn values<B: Backend>(model: &Pair<B>) -> Vec<f64> {
    [&model.weight, &model.bias]
        .iter()
        .flat_map(|p| p.to_f64().unwrap())
        .collect()
}

fn step<B: Backend>(lbfgs: &mut Lbfgs<B>, model: &mut Pair<B>, case: &Json, data: &Json) -> Result<f64> {
    let maximize = case["options"]["maximize"].as_bool().unwrap_or(false);
    let name = case["loss"].as_str().unwrap();
    lbfgs.step(model, |model| loss(name, data, maximize, model))
}

fn trajectories<B: Backend>(b: &B) {
    let golden = golden();
    for case in golden["cases"].as_array().unwrap() {
        let mut model = start(b, &golden, DType::F64);
        let mut lbfgs = optimizer::<B>(&case["options"]);
        for (i, want) in floats(&case["losses"]).into_iter().enumerate() {
            let what = format!("{} {} step {i}", case["loss"], case["options"]);
            let first = step(&mut lbfgs, &mut model, case, &golden["data"]).unwrap();
            close(&[first], &[want], 1e-9, &format!("the loss of {what}"));
            close(&values(&model), &floats(&case["ends"][i]), 1e-9, &what);
            let counts = [lbfgs.iterations() as f64, lbfgs.evaluations() as f64];
            assert_eq!(counts.to_vec(), floats(&case["counts"][i]), "{what}");
        }
    }
}

#[test]
fn four_steps_equal_pytorch() {
    trajectories(&Cpu::poisoned());
}

#[test]
fn four_steps_of_the_reference_equal_pytorch() {
    trajectories(&Reference);
}

/// Parameters of every dtype reach the least value of a bowl.
#[test]
fn every_dtype_descends() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    for (dtype, near) in [(DType::F32, 1e-3), (DType::F16, 0.02), (DType::BF16, 0.1)] {
        for search in [false, true] {
            let mut model = start(&cpu, &golden, dtype);
            let mut lbfgs = Lbfgs::new(1.0).max_iter(40).strong_wolfe(search);
            for _ in 0..3 {
                let bowl = |m: &Pair<Cpu>| {
                    let all = Tensor::concat(&[&m.weight.reshape(&[12])?, &m.bias], 0)?;
                    all.to_dtype(DType::F32)?.sub_scalar(1.0)?.square()?.mean(&[], false)
                };
                lbfgs.step(&mut model, bowl).unwrap();
            }
            let state = lbfgs.state_dict().unwrap();
            assert_eq!(state.get("d").map(Value::dtype), Some(DType::F32));
            close(&values(&model), &[1.0; 17], near, &format!("{dtype} {search}"));
        }
    }
}

#[test]
fn a_saved_state_continues_bit_for_bit() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    for case in golden["cases"].as_array().unwrap() {
        let (mut model, mut through) = (start(&cpu, &golden, DType::F64), optimizer(&case["options"]));
        let mut copy = start(&cpu, &golden, DType::F64);
        step(&mut through, &mut model, case, &golden["data"]).unwrap();
        copy.load_state_dict(&model.state_dict(), Default::default()).unwrap();
        let mut resumed = optimizer(&case["options"]);
        resumed.set_lr(7.0);
        resumed.load_state_dict(&through.state_dict().unwrap()).unwrap();
        assert_eq!(resumed.lr(), through.lr());
        for _ in 0..2 {
            let losses = [
                step(&mut through, &mut model, case, &golden["data"]).unwrap(),
                step(&mut resumed, &mut copy, case, &golden["data"]).unwrap(),
            ];
            assert_eq!(losses[0], losses[1], "{case}");
        }
        assert_eq!(values(&model), values(&copy), "{case}");
        assert_eq!(resumed.evaluations(), through.evaluations(), "{case}");
    }
}

#[test]
fn states_that_are_not_its_own_are_refused() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let case = &golden["cases"][1];
    let (mut model, mut lbfgs) = (start(&cpu, &golden, DType::F64), optimizer::<Cpu>(&case["options"]));
    assert!(lbfgs.state_dict().unwrap().is_empty());
    step(&mut lbfgs, &mut model, case, &golden["data"]).unwrap();
    let state = lbfgs.state_dict().unwrap();
    let names: Vec<String> = state.names().map(String::from).collect();
    let refused = |state: &StateDict<Cpu>, what: &str| {
        let mut fresh = Lbfgs::<Cpu>::new(0.5);
        let e = fresh.load_state_dict(state).unwrap_err();
        assert!(
            matches!(e, Error::InvalidArgument { argument: "state", .. }),
            "{what}: {e}"
        );
        assert!(
            fresh.lr() == 0.5 && fresh.state_dict().unwrap().is_empty(),
            "nothing changed"
        );
    };
    for name in &names {
        let mut lacking = state.clone();
        lacking.remove(name).unwrap();
        refused(&lacking, name);
        let mut wrong = state.clone();
        wrong.insert(name, Value::Float(Tensor::ones(&cpu, &[3], DType::F64).unwrap()));
        refused(&wrong, name);
    }
    let mut more = state.clone();
    more.insert("weight.exp_avg", state.get("d").unwrap().clone());
    refused(&more, "another entry");
    // A loaded state belongs to the next model of its size, and then to that model alone.
    lbfgs.load_state_dict(&state).unwrap();
    step(&mut lbfgs, &mut model, case, &golden["data"]).unwrap();
    let mut other = start(&cpu, &golden, DType::F64);
    let e = step(&mut lbfgs, &mut other, case, &golden["data"]).unwrap_err();
    assert!(matches!(e, Error::OtherParameter { .. }), "{e}");
    model.bias.set_trainable(false);
    let e = step(&mut lbfgs, &mut model, case, &golden["data"]).unwrap_err();
    assert!(matches!(e, Error::InvalidArgument { argument: "model", .. }), "{e}");
}

#[test]
fn after_an_error_nothing_has_changed() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let mut model = start(&cpu, &golden, DType::F64);
    let before = values(&model);
    let sum = |m: &Pair<Cpu>| {
        m.weight
            .square()?
            .sum(&[], false)?
            .add(&m.bias.square()?.sum(&[], false)?)
    };
    for bad in [
        Lbfgs::new(-1.0),
        Lbfgs::new(f64::NAN),
        Lbfgs::new(1.0).max_iter(0),
        Lbfgs::new(1.0).max_eval(0),
        Lbfgs::new(1.0).history_size(0),
        Lbfgs::new(1.0).tolerance_grad(-1.0),
        Lbfgs::new(1.0).tolerance_change(f64::INFINITY),
    ] {
        let mut bad = bad;
        let e = bad.step(&mut model, sum).unwrap_err();
        assert!(matches!(e, Error::InvalidArgument { op: "lbfgs", .. }), "{e}");
    }
    for search in [false, true] {
        let new = || Lbfgs::new(1.0).strong_wolfe(search);
        let e = new().step(&mut model, |m| sum(m)?.mul_scalar(f64::NAN)).unwrap_err();
        assert!(matches!(e, Error::InvalidArgument { argument: "loss", .. }), "{e}");
        let e = new()
            .step(&mut model, |m| {
                m.weight
                    .sum(&[], false)?
                    .add(&m.bias.abs()?.mul_scalar(0.0)?.sqrt()?.sum(&[], false)?)
            })
            .unwrap_err();
        assert!(
            matches!(
                e,
                Error::InvalidArgument {
                    argument: "gradient",
                    ..
                }
            ),
            "{e}"
        );
        let e = new().step(&mut model, |m| m.weight.sum(&[], false)).unwrap_err();
        assert!(matches!(e, Error::MissingGradient { .. }), "{e}");
        assert!(new().step(&mut model, |m| Ok(m.bias.detach())).is_err());
        // The second evaluation goes wrong: parameters and state are those of before the step.
        let mut lbfgs = new();
        lbfgs.step(&mut model, sum).unwrap();
        let (now, evaluations) = (values(&model), lbfgs.evaluations());
        let mut calls = 0;
        let broken = |m: &Pair<Cpu>| {
            calls += 1;
            let shifted = sum(&Pair {
                weight: Param::new(m.weight.detach()),
                bias: Param::new(m.bias.detach()),
            })?;
            let y = m
                .weight
                .sub_scalar(3.0)?
                .square()?
                .sum(&[], false)?
                .add(&m.bias.sum(&[], false)?)?;
            if calls == 2 {
                y.add(&shifted.mul_scalar(f64::NAN)?)
            } else {
                Ok(y)
            }
        };
        lbfgs.step(&mut model, broken).unwrap_err();
        assert_eq!((values(&model), lbfgs.evaluations()), (now, evaluations));
        let weight = Tensor::from_f64(&cpu, &before[..12], &[3, 4], DType::F64).unwrap();
        model.weight.assign(&weight).unwrap();
        model
            .bias
            .assign(&Tensor::from_f64(&cpu, &before[12..], &[5], DType::F64).unwrap())
            .unwrap();
    }
    // A search steps back from where the loss is infinite.
    let mut x = Param::new(Tensor::full(&cpu, &[1], DType::F64, 1.0).unwrap());
    let wall = |x: &Param<Cpu>| {
        x.sub_scalar(1.75)?
            .mul_scalar(400.0)?
            .exp()?
            .sub(&x.mul_scalar(4.0)?)?
            .sum(&[], false)
    };
    let mut lbfgs = Lbfgs::new(100.0).max_eval(400).strong_wolfe(true);
    lbfgs.step(&mut x, wall).unwrap();
    let (x, least) = (x.item().unwrap(), 1.75 - 100f64.ln() / 400.0);
    assert!((x - least).abs() < 1e-6, "{x}, expected {least}");
    // Without a parameter to train there is a loss alone.
    model.weight.set_trainable(false);
    model.bias.set_trainable(false);
    assert!(new_loss(&mut model) > 0.0);
    assert_eq!(values(&model), before);
}

fn new_loss(model: &mut Pair<Cpu>) -> f64 {
    let sum = |m: &Pair<Cpu>| m.weight.square()?.sum(&[], false);
    Lbfgs::new(1.0).step(model, sum).unwrap()
}
