//! Optimizers and clipping against PyTorch; the golden values come from `../golden/optimizers.py`, in f64.

#[path = "../golden/optimizers.rs"]
mod cases;

use cases::{Pair, floats, golden, gradients, optimizer, start};
use kiln_cpu::Cpu;
use kiln_nn::layers::BatchNorm;
use kiln_nn::optim::{Adagrad, Adam, AdamW, AveragedModel, Group, Muon, MuonRate, Rmsprop, Sgd};
use kiln_nn::{Backend, DType, Error, Gradients, Init, Layer, LoadOptions, Module, Optimizer, Param, Tensor};
use kiln_testkit::Reference;

fn close(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            (g - w).abs() <= tolerance * w.abs().max(1.0),
            "{what}[{i}]: {g}, expected {w}"
        );
    }
}

fn twenty_steps<B: Backend>(b: &B) {
    let golden = golden();
    for case in golden["optimizers"].as_array().unwrap() {
        for dtype in [DType::F32, DType::F64] {
            let mut model = start(b, &golden, dtype);
            let mut optimizer = optimizer::<B>(case);
            for step in 0..20 {
                let grads = gradients(b, &golden, &model, step, dtype);
                optimizer.step(&mut model, &grads).unwrap();
            }
            for (name, param) in model.named_parameters() {
                let what = format!("{} {} {name} {dtype}", case["name"], case["options"]);
                // Golden values have twelve digits; in f32 twenty steps round a few hundred times.
                let bound = if dtype == DType::F64 { 1e-9 } else { 1e-5 };
                let end = floats(&case["end"][name.as_str()]);
                close(&param.to_f64().unwrap(), &end, bound, &what);
            }
        }
    }
}

#[test]
fn twenty_steps_equal_pytorch() {
    twenty_steps(&Cpu::poisoned());
}

/// The updates in tensor ops, on a backend without fused updates.
#[test]
fn twenty_composed_steps_equal_pytorch() {
    twenty_steps(&Reference);
}

#[test]
fn half_precision_parameters_keep_wide_state() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    for case in golden["optimizers"].as_array().unwrap() {
        let mut model = start(&cpu, &golden, DType::BF16);
        let mut optimizer = optimizer(case);
        let grads = gradients(&cpu, &golden, &model, 0, DType::BF16);
        optimizer.step(&mut model, &grads).unwrap();
        let state = optimizer.state_dict().unwrap();
        assert_eq!(model.weight.dtype(), DType::BF16);
        for (name, value) in state.iter() {
            assert!(!value.dtype().is_float() || value.dtype() == DType::F32, "{name}");
        }
    }
}

#[test]
fn a_saved_state_continues_bit_for_bit() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    for case in golden["optimizers"].as_array().unwrap() {
        let (mut model, mut through) = (start(&cpu, &golden, DType::F32), optimizer(case));
        let (mut copy, mut saved) = (start(&cpu, &golden, DType::F32), None);
        for step in 0..20 {
            if step == 7 {
                copy.load_state_dict(&model.state_dict(), Default::default()).unwrap();
                saved = Some(through.state_dict().unwrap());
            }
            through.set_lr(0.01 * (step + 1) as f64);
            let grads = gradients(&cpu, &golden, &model, step, DType::F32);
            through.step(&mut model, &grads).unwrap();
        }
        let mut resumed = optimizer(case);
        resumed.load_state_dict(&saved.unwrap()).unwrap();
        // The learning rate saved before step 7 is that of step 6.
        assert_eq!(resumed.lr(), 0.01 * 7.0, "{case}");
        let (again, names) = (resumed.state_dict().unwrap(), through.state_dict().unwrap());
        assert!(again.iter().map(|(n, _)| n).eq(names.iter().map(|(n, _)| n)), "{case}");
        for step in 7..20 {
            resumed.set_lr(0.01 * (step + 1) as f64);
            let grads = gradients(&cpu, &golden, &copy, step, DType::F32);
            resumed.step(&mut copy, &grads).unwrap();
        }
        for ((name, a), (_, b)) in model.named_parameters().into_iter().zip(copy.named_parameters()) {
            assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap(), "{name} {case}");
        }
    }
}

#[test]
fn a_state_of_another_optimizer_is_refused() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let mut model = start(&cpu, &golden, DType::F32);
    let grads = gradients(&cpu, &golden, &model, 0, DType::F32);
    let mut adam: Adam<Cpu> = Adam::new(0.1);
    adam.step(&mut model, &grads).unwrap();
    let state = adam.state_dict().unwrap();
    let refused = Sgd::<Cpu>::new(0.1).momentum(0.9).load_state_dict(&state).unwrap_err();
    assert!(
        matches!(refused, Error::InvalidArgument { argument: "state", .. }),
        "{refused}"
    );
    let mut incomplete = state.clone();
    incomplete.remove("weight.exp_avg_sq").unwrap();
    let refused = Adam::<Cpu>::new(0.1).load_state_dict(&incomplete).unwrap_err();
    assert!(refused.to_string().contains("weight.exp_avg_sq"), "{refused}");
    for missing in ["weight.step", "lr"] {
        let mut lacking = state.clone();
        lacking.remove(missing).unwrap();
        let mut fresh = Adam::<Cpu>::new(0.5);
        match fresh.load_state_dict(&lacking) {
            Err(Error::InvalidArgument { argument, value, .. }) => {
                assert_eq!((argument, value.as_str()), ("state", missing));
            }
            other => panic!("{missing}: {other:?}"),
        }
        assert!(
            fresh.lr() == 0.5 && fresh.state_dict().unwrap().is_empty(),
            "nothing changed"
        );
    }
}

#[test]
fn updates_happen_in_place() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let mut model = start(&cpu, &golden, DType::F32);
    let mut adam: Adam<Cpu> = Adam::new(0.1);
    let grads = gradients(&cpu, &golden, &model, 0, DType::F32);
    adam.step(&mut model, &grads).unwrap();
    let id = model.weight.id();
    let snapshot = model.state_dict();
    let kept = snapshot.float("weight").unwrap().to_vec::<f32>().unwrap();
    let before = kiln_core::Runtime::memory(&cpu).live;
    adam.step(&mut model, &grads).unwrap();
    assert_eq!(model.weight.id(), id, "the parameter is the same leaf");
    // The snapshot keeps the old values; the model moved to memory of its own.
    assert_eq!(snapshot.float("weight").unwrap().to_vec::<f32>().unwrap(), kept);
    drop(snapshot);
    let after = kiln_core::Runtime::memory(&cpu).live;
    assert!(after <= before, "{after} > {before}");
    adam.step(&mut model, &grads).unwrap();
    assert_eq!(
        kiln_core::Runtime::memory(&cpu).live,
        after,
        "a step leaves nothing behind"
    );
}

#[test]
fn a_trainable_parameter_without_a_gradient_is_an_error() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let mut model = start(&cpu, &golden, DType::F32);
    let mut grads = gradients(&cpu, &golden, &model, 0, DType::F32);
    grads.remove(&model.bias).unwrap();
    let before = model.weight.to_vec::<f32>().unwrap();
    let mut sgd: Sgd<Cpu> = Sgd::new(0.1);
    let refused = sgd.step(&mut model, &grads).unwrap_err();
    assert_eq!(
        refused,
        Error::MissingGradient {
            parameter: "bias".into()
        }
    );
    assert_eq!(model.weight.to_vec::<f32>().unwrap(), before, "nothing changed");
    let mut lenient: Sgd<Cpu> = Sgd::new(0.1).skip_missing_gradients();
    lenient.step(&mut model, &grads).unwrap();
    assert_ne!(model.weight.to_vec::<f32>().unwrap(), before);
    // A frozen parameter needs no gradient.
    model.bias.set_trainable(false);
    sgd.step(&mut model, &grads).unwrap();
}

#[test]
fn a_skipped_parameter_counts_its_own_steps() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let (mut model, mut late) = (start(&cpu, &golden, DType::F32), start(&cpu, &golden, DType::F32));
    let mut adam: Adam<Cpu> = Adam::new(0.1).skip_missing_gradients();
    let mut grads = gradients(&cpu, &golden, &model, 0, DType::F32);
    grads.remove(&model.bias).unwrap();
    adam.step(&mut model, &grads).unwrap();
    let grads = gradients(&cpu, &golden, &model, 1, DType::F32);
    adam.step(&mut model, &grads).unwrap();
    // The bias has made one step, and so has this optimizer.
    let mut fresh: Adam<Cpu> = Adam::new(0.1);
    let grads = gradients(&cpu, &golden, &late, 1, DType::F32);
    fresh.step(&mut late, &grads).unwrap();
    assert_eq!(model.bias.to_vec::<f32>().unwrap(), late.bias.to_vec::<f32>().unwrap());
    assert_ne!(
        model.weight.to_vec::<f32>().unwrap(),
        late.weight.to_vec::<f32>().unwrap()
    );
}

#[test]
fn groups_have_their_own_rate_and_decay() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let (mut model, mut plain) = (start(&cpu, &golden, DType::F64), start(&cpu, &golden, DType::F64));
    let bias = Group::new(|name| name.ends_with("bias"))
        .lr_factor(0.5)
        .weight_decay(0.0);
    let mut grouped: Sgd<Cpu> = Sgd::new(0.2).weight_decay(0.3).group(bias);
    let grads = gradients(&cpu, &golden, &model, 0, DType::F64);
    grouped.step(&mut model, &grads).unwrap();
    let mut half: Sgd<Cpu> = Sgd::new(0.1);
    let grads = gradients(&cpu, &golden, &plain, 0, DType::F64);
    half.step(&mut plain, &grads).unwrap();
    close(
        &model.bias.to_f64().unwrap(),
        &plain.bias.to_f64().unwrap(),
        1e-15,
        "bias",
    );
    let (p, g) = (
        floats(&golden["start"]["weight"]),
        floats(&golden["grads"]["weight"][0]),
    );
    let want: Vec<f64> = p.iter().zip(&g).map(|(p, g)| p - 0.2 * (g + 0.3 * p)).collect();
    close(&model.weight.to_f64().unwrap(), &want, 1e-14, "weight");
}

#[test]
fn options_outside_their_domain_are_refused() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let mut model = start(&cpu, &golden, DType::F32);
    let grads = gradients(&cpu, &golden, &model, 0, DType::F32);
    let cases: Vec<(&str, Box<dyn Optimizer<Cpu>>)> = vec![
        ("lr", Box::new(Sgd::new(-0.1))),
        ("lr", Box::new(Adam::new(f64::NAN))),
        ("lr", Box::new(Adam::new(f64::INFINITY))),
        ("momentum", Box::new(Sgd::new(0.1).nesterov(true))),
        (
            "momentum",
            Box::new(Sgd::new(0.1).momentum(0.9).dampening(0.1).nesterov(true)),
        ),
        ("beta1", Box::new(Adam::new(0.1).betas(1.0, 0.9))),
        ("beta2", Box::new(AdamW::new(0.1).betas(0.9, -0.1))),
        ("eps", Box::new(Adam::new(0.1).eps(-1.0))),
        ("weight_decay", Box::new(AdamW::new(0.1).weight_decay(-1.0))),
        ("alpha", Box::new(Rmsprop::new(0.1).alpha(1.5))),
        ("lr_decay", Box::new(Adagrad::new(0.1).lr_decay(-1.0))),
        (
            "lr_factor",
            Box::new(Sgd::new(0.1).group(Group::new(|_| true).lr_factor(-1.0))),
        ),
    ];
    for (name, mut optimizer) in cases {
        let before = model.weight.to_vec::<f32>().unwrap();
        match optimizer.step(&mut model, &grads) {
            Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, name),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(model.weight.to_vec::<f32>().unwrap(), before);
    }
}

#[test]
fn clipping_equals_pytorch() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let model = start(&cpu, &golden, DType::F32);
    for case in golden["clipping"].as_array().unwrap() {
        let mut grads = gradients(&cpu, &golden, &model, 0, DType::F32);
        let limit = case["limit"].as_f64().unwrap();
        if case["kind"] == "norm" {
            let norm = grads.clip_norm(model.parameters(), limit).unwrap().item().unwrap();
            close(&[norm], &[case["norm"].as_f64().unwrap()], 1e-6, "norm");
        } else {
            grads.clip_value(model.parameters(), limit).unwrap();
        }
        for (name, param) in model.named_parameters() {
            let got = grads.get(param).unwrap().to_f64().unwrap();
            close(&got, &floats(&case["grads"][name.as_str()]), 1e-6, &format!("{case}"));
        }
    }
    let mut grads = gradients(&cpu, &golden, &model, 0, DType::F32);
    let all = model.parameters();
    assert!(grads.clip_norm(all.clone(), -1.0).is_err() && grads.clip_value(all.clone(), f64::NAN).is_err());
    assert!(grads.scale(f64::NAN).is_err());
    assert!(Gradients::<Cpu>::default().clip_norm(all, 1.0).is_err());
}

/// Like `clip_grad_norm_(generator.parameters(), …)`: gradients of a critic and of an input neither count for the norm nor
/// change.
#[test]
fn clipping_is_about_the_parameters_given() -> Result<(), Error> {
    let cpu = Cpu::poisoned();
    let leaf = |values: &[f64]| Tensor::from_slice(&cpu, values, &[values.len()]);
    let (generator, critic) = ([Param::new(leaf(&[1.0, 1.0])?)], Param::new(leaf(&[3.0, 4.0])?));
    let input = leaf(&[2.0, 1.0])?.requires_grad();
    let loss = || generator[0].mul(&input)?.mul(&critic)?.sum(&[], false)?.backward();
    let read = |grads: &Gradients<Cpu>, t: &Tensor<Cpu>| grads.get(t).expect("a gradient").to_f64();
    let mut grads = loss()?;
    // The generator's gradient is (6, 4), the critic's (2, 1), the input's (3, 4).
    let parameters = || Module::<Cpu>::parameters(&generator);
    let norm = 52f64.sqrt();
    assert_eq!(grads.norm(parameters())?.item()?, norm);
    assert_eq!(grads.norm([&input])?.item()?, 5.0);
    assert_eq!(
        grads.norm([&*critic, &*generator[0], &*critic])?.item()?,
        57f64.sqrt(),
        "each of them once"
    );
    assert_eq!(grads.clip_norm(parameters(), 1.0)?.item()?, norm);
    close(&[grads.norm(parameters())?.item()?], &[1.0], 1e-6, "the norm after");
    assert_eq!(
        (read(&grads, &critic)?, read(&grads, &input)?),
        (vec![2.0, 1.0], vec![3.0, 4.0])
    );
    let mut grads = loss()?;
    grads.clip_value(parameters(), 5.0)?;
    assert_eq!(
        (read(&grads, &generator[0])?, read(&grads, &input)?),
        (vec![5.0, 4.0], vec![3.0, 4.0])
    );
    let frozen = leaf(&[1.0, 1.0])?;
    assert!(matches!(
        grads.norm([&frozen]),
        Err(Error::InvalidArgument { op: "norm", .. })
    ));
    Ok(())
}

#[test]
fn an_optimizer_belongs_to_the_parameters_it_has_stepped() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let model = || start(&cpu, &golden, DType::F32);
    let (mut a, mut b) = (model(), model());
    let grads = |model: &Pair<Cpu>| gradients(&cpu, &golden, model, 0, DType::F32);
    let (of_a, of_b) = (grads(&a), grads(&b));
    let values = |model: &Pair<Cpu>| model.weight.to_vec::<f32>().unwrap();
    let mut adam = Adam::new(0.1);
    adam.step(&mut a, &of_a).unwrap();
    let (before, state) = (values(&b), adam.state_dict().unwrap());
    let refused = adam.step(&mut b, &of_b).unwrap_err();
    assert!(matches!(refused, Error::OtherParameter { op: "adam", .. }), "{refused}");
    assert!(refused.to_string().contains("load_state_dict"), "{refused}");
    assert_eq!(values(&b), before);
    // After the refusal its state is unchanged, and it still steps its own model.
    let steps = |adam: &Adam<Cpu>| adam.state_dict().unwrap().int("weight.step").unwrap().to_vec::<i32>();
    assert_eq!(steps(&adam).unwrap(), [1]);
    adam.step(&mut a, &of_a).unwrap();
    assert_eq!(steps(&adam).unwrap(), [2]);
    // Preparing one model and applying the update to another is refused too.
    let mut sgd = Sgd::new(0.1);
    sgd.prepare(&a).unwrap();
    assert!(sgd.apply(&mut b, &of_b).is_err());
    // A loaded state belongs to the model that is stepped next, in the same process or another.
    let mut resumed = Adam::new(0.1);
    resumed.load_state_dict(&state).unwrap();
    resumed.step(&mut b, &of_b).unwrap();
    assert!(matches!(resumed.step(&mut a, &of_a), Err(Error::OtherParameter { .. })));
    adam.load_state_dict(&state).unwrap();
    adam.step(&mut b, &of_b).unwrap();
}

#[test]
fn a_parameter_stays_itself() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let (mut model, other) = (start(&cpu, &golden, DType::F32), start(&cpu, &golden, DType::F32));
    let mut adam = Adam::new(0.1).skip_missing_gradients();
    let mut step = |model: &mut Pair<Cpu>, dtype| {
        let grads = gradients(&cpu, &golden, model, 0, dtype);
        adam.step(model, &grads).unwrap();
    };
    step(&mut model, DType::F32);
    // The parameter takes other values, another precision, is frozen and unfrozen, and moves.
    model
        .load_state_dict(&other.state_dict(), LoadOptions::default())
        .unwrap();
    step(&mut model, DType::F32);
    model.to_dtype(DType::BF16).unwrap();
    step(&mut model, DType::BF16);
    model.to_dtype(DType::F32).unwrap();
    model.freeze();
    model.unfreeze();
    let mut moved = Box::new(model);
    step(&mut moved, DType::F32);
    assert_eq!(
        adam.state_dict()
            .unwrap()
            .int("bias.step")
            .unwrap()
            .to_vec::<i32>()
            .unwrap(),
        [4]
    );
}

#[test]
fn gradients_are_like_their_tensors() -> Result<(), Error> {
    let cpu = Cpu::poisoned();
    let w = Tensor::zeros(&cpu, &[3], DType::F32)?.requires_grad();
    let of = |shape: &[usize], dtype| Tensor::ones(&cpu, shape, dtype);
    let mut grads = Gradients::default();
    for (shape, dtype) in [(&[1][..], DType::F32), (&[3, 1], DType::F32), (&[], DType::F32)] {
        let refused = grads.insert(&w, of(shape, dtype)?).unwrap_err();
        assert!(
            matches!(refused, Error::ShapeMismatch { op: "insert", .. }),
            "{refused}"
        );
    }
    let refused = grads.insert(&w, of(&[3], DType::F64)?).unwrap_err();
    assert!(
        matches!(refused, Error::DTypeMismatch { op: "insert", .. }),
        "{refused}"
    );
    let refused = grads.insert(&w.detach(), of(&[3], DType::F32)?).unwrap_err();
    assert!(
        matches!(refused, Error::InvalidArgument { op: "insert", .. }),
        "{refused}"
    );
    assert!(grads.is_empty());
    assert!(grads.insert(&w, of(&[3], DType::F32)?)?.is_none());
    grads.accumulate(w.sum(&[], false)?.backward()?)?;
    assert_eq!(grads.insert(&w, of(&[3], DType::F32)?)?.unwrap().to_f64()?, [2.0; 3]);
    Ok(())
}

#[test]
fn accumulated_micro_batches_equal_one_batch() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let model = start(&cpu, &golden, DType::F64);
    let mut sum = gradients(&cpu, &golden, &model, 0, DType::F64);
    sum.accumulate(gradients(&cpu, &golden, &model, 1, DType::F64)).unwrap();
    sum.scale(0.5).unwrap();
    let grads = &golden["grads"]["weight"];
    let pairs = floats(&grads[0]).into_iter().zip(floats(&grads[1]));
    let want: Vec<f64> = pairs.map(|(a, b)| (a + b) / 2.0).collect();
    close(&sum.get(&model.weight).unwrap().to_f64().unwrap(), &want, 1e-15, "mean");
}

/// The average of `n` equal steps is the geometric sum, buffers follow the model, and strangers are refused.
#[test]
fn a_moving_average_follows_a_model() {
    let cpu = Cpu::poisoned();
    let new = |channels| BatchNorm::<Cpu>::new(&mut Init::new(&cpu, 0).dtype(DType::F64), channels).unwrap();
    let mut model = new(3);
    let mut ema = AveragedModel::ema(&model, 0.9).unwrap();
    let mut mean = 0.5;
    for step in 1..=5 {
        let x = Tensor::full(&cpu, &[4, 3], DType::F64, f64::from(step)).unwrap();
        model.forward(&x).unwrap();
        for p in model.named_parameters_mut() {
            let values = Tensor::full(&cpu, &[3], DType::F64, f64::from(step) * 0.5).unwrap();
            p.1.assign(&values).unwrap();
        }
        ema.update(&model).unwrap();
        mean += 0.1 * (f64::from(step) * 0.5 - mean);
    }
    let average = ema.state_dict();
    for got in average.float("weight").unwrap().to_f64().unwrap() {
        assert!((got - mean).abs() < 1e-14, "{got}, expected {mean}");
    }
    let (got, want) = (average.float("running_mean").unwrap(), model.running().unwrap().0);
    assert_eq!(got.to_f64().unwrap(), want.to_f64().unwrap());
    let mut resumed = AveragedModel::ema(&model, 0.0).unwrap();
    resumed.load_state_dict(&average, 5).unwrap();
    resumed.update(&model).unwrap();
    assert_eq!(
        resumed.state_dict().float("weight").unwrap().to_f64().unwrap(),
        [2.5; 3]
    );
    assert!(ema.update(&new(4)).unwrap_err().to_string().contains("averaged_model"));
    assert!(ema.copy_to(&mut new(4)).is_err());
    let mut other = new(3);
    ema.copy_to(&mut other).unwrap();
    close(
        &other.weight.as_ref().unwrap().to_f64().unwrap(),
        &[mean; 3],
        1e-14,
        "copied",
    );
    assert!(AveragedModel::ema(&model, 1.5).is_err());
}

/// A matrix, and the other way round one with more rows than columns.
#[derive(Module)]
struct Matrix<B: Backend> {
    weight: Param<B>,
}

#[test]
fn twenty_steps_of_muon_equal_pytorchs() {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let turned = |values: &serde_json::Value, tall: bool| {
        let x = Tensor::from_f64(&cpu, &floats(values), &[3, 4], DType::F64).unwrap();
        if tall { x.transpose(0, 1).unwrap() } else { x }
    };
    for case in golden["muon"].as_array().unwrap() {
        let (options, tall) = (&case["options"], case["tall"].as_bool().unwrap());
        let mut model = Matrix {
            weight: Param::new(turned(&golden["start"]["weight"], tall)),
        };
        let mut muon = Muon::new(options["lr"].as_f64().unwrap());
        if let Some(momentum) = options["momentum"].as_f64() {
            muon = muon.momentum(momentum);
        }
        if let Some(decay) = options["weight_decay"].as_f64() {
            muon = muon.weight_decay(decay);
        }
        muon = muon.nesterov(options["nesterov"].as_bool().unwrap_or(true));
        muon = muon.steps(options["ns_steps"].as_u64().unwrap_or(5) as usize);
        muon = muon.adjust(match options["adjust_lr_fn"].as_str() {
            None => MuonRate::Original,
            Some("match_rms_adamw") => MuonRate::MatchRmsAdamw,
            Some(_) => MuonRate::SpectralUnclamped,
        });
        for step in 0..20 {
            let mut grads = Gradients::default();
            let grad = turned(&golden["grads"]["weight"][step], tall);
            grads.insert(&model.weight, grad).unwrap();
            muon.step(&mut model, &grads).unwrap();
        }
        let got = model.weight.to_f64().unwrap();
        close(&got, &floats(&case["end"]), 1e-9, &format!("{case}"));
    }
}

/// Kernels are matrices of their first dimension; vectors are refused, and left to another optimizer.
#[test]
fn muon_takes_matrices_alone() {
    let cpu = Cpu::poisoned();
    let mut model = Matrix {
        weight: Param::new(Tensor::ones(&cpu, &[2, 3, 2], DType::F32).unwrap()),
    };
    let step = |model: &mut Matrix<Cpu>, muon: &mut Muon<Cpu>| {
        let loss = model.weight.square().unwrap().sum(&[], false).unwrap();
        muon.step(model, &loss.backward().unwrap())
    };
    let mut muon = Muon::new(0.1).weight_decay(0.0);
    step(&mut model, &mut muon).unwrap();
    // Of rank 1, so the step is the same for all twelve: σ/√12 with a singular value near 1.
    let moved: Vec<f64> = model
        .weight
        .to_f64()
        .unwrap()
        .iter()
        .map(|w| (1.0 - w) * 12f64.sqrt() / 0.1)
        .collect();
    assert!(moved.iter().all(|m| (0.6..1.3).contains(m)), "{moved:?}");
    model.weight = Param::new(Tensor::ones(&cpu, &[3], DType::F32).unwrap());
    let error = step(&mut model, &mut Muon::new(0.1)).unwrap_err().to_string();
    assert!(error.contains("another optimizer"), "{error}");
    assert!(step(&mut model, &mut Muon::new(0.1).momentum(1.5)).is_err());
}
