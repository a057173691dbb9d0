//! A small net, watched.

use kiln_core::{Backend, DType, Error, Result};
use kiln_cpu::Cpu;
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, Embedding, Flatten, Linear, MaxPool2d, Relu};
use kiln_nn::optim::{Adam, Optimizer};
use kiln_nn::{Indices, Init, Layer, Module, Rng, Sequential, Tensor};
use kiln_profile::{Mark, Profiled, Row};

fn net<B: Backend>(backend: &B) -> Result<Sequential<B>> {
    let init = &mut Init::new(backend, 3);
    let block = Sequential::new()
        .push(Conv2d::builder(2, 4, 3).same().build(init)?)
        .push(BatchNorm::new(init, 4)?)
        .push(Relu);
    Ok(Sequential::new()
        .push(block)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Dropout::new(init, 0.25)?)
        .push(Linear::new(init, 36, 5)?))
}

fn train<B: Backend>(backend: &B, model: &mut Sequential<B>, adam: &mut Adam<B>) -> Result<f64> {
    let x = Tensor::rand(backend, &[7, 6, 6, 2], DType::F32, &mut Rng::new(1))?;
    let labels = Indices::from_slice(backend, &[0i32, 1, 2, 3, 4, 0, 1], &[7])?;
    let loss = model.forward(&x)?.cross_entropy(&labels)?;
    let grads = loss.backward()?;
    adam.step(model, &grads)?;
    loss.item()
}

fn values<B: Backend>(model: &Sequential<B>) -> Vec<Vec<f64>> {
    let parameters = model.named_parameters();
    parameters.iter().map(|(_, p)| p.tensor().to_f64().unwrap()).collect()
}

#[test]
fn watching_changes_no_bit() {
    let cpu = Cpu::new();
    let watched = Profiled::new(&cpu);
    let (mut plain, mut seen) = (net(&cpu).unwrap(), net(&watched).unwrap());
    let (mut a, mut b) = (Adam::new(1e-2), Adam::new(1e-2));
    for step in 0..4 {
        let expected = train(&cpu, &mut plain, &mut a).unwrap();
        // Every second step is watched.
        let found = match step % 2 {
            0 => train(&watched, &mut seen, &mut b),
            _ => watched.step(|| train(&watched, &mut seen, &mut b)),
        };
        assert_eq!(expected, found.unwrap());
    }
    assert_eq!(values(&plain), values(&seen));
    assert_eq!(watched.timeline().steps.len(), 2);
}

#[test]
fn every_layer_has_its_time_and_every_nanosecond_a_row() {
    let watched = Profiled::new(&Cpu::new());
    let mut model = net(&watched).unwrap();
    let mut adam = Adam::new(1e-2);
    watched.step(|| train(&watched, &mut model, &mut adam)).unwrap();
    let timeline = watched.timeline();
    let rows = timeline.rows(&|cost| cost.seconds(1e9, 1e9));
    let row = |name: &str| rows.iter().find(|r| r.name == name).unwrap();
    for (name, kind) in [
        ("0", "Sequential"),
        ("0.0", "Conv2d"),
        ("0.1", "BatchNorm"),
        ("0.2", "Relu"),
        ("1", "MaxPool2d"),
        ("3", "Dropout"),
        ("4", "Linear"),
    ] {
        assert_eq!((row(name).kind, row(name).calls), (kind, 1), "{name}");
        let ops = u64::from(name != "0");
        assert!(row(name).forward.ops >= ops, "{name}");
        // The zeros of the rectifier's gradient are written by the pooling behind it.
        let ops = if name == "0.2" { 0 } else { ops };
        assert!(row(name).backward.ops >= ops, "{name}");
    }
    assert_eq!(row("0.0").forward.cost.flops, 2 * (7 * 6 * 6 * 4) * 9 * 2);
    assert_eq!(row("4").backward.cost.flops, 2 * 2 * 7 * 36 * 5);
    assert_eq!(row("0.1").output.unwrap().dims(), [7, 6, 6, 4]);
    // Relu: in and out. The gradient of the pooling: two in and one out for the rectifier, gradient and index in and one out.
    let (bytes, pooled) = (4 * 7 * 6 * 6 * 4, 4 * 7 * 3 * 3 * 4);
    assert_eq!(
        (row("0.2").forward.cost.bytes, row("0.2").backward.cost.bytes),
        (2 * bytes, 0)
    );
    assert_eq!(row("1").backward.cost.bytes, 3 * pooled + 2 * pooled + bytes);
    let sum: f64 = rows.iter().map(Row::seconds).sum();
    assert!((sum - timeline.step_seconds()).abs() < 1e-9, "{sum}");
    let in_ops: f64 = rows.iter().map(|r| r.forward.in_ops + r.backward.in_ops).sum();
    assert!(in_ops > 0.0 && in_ops <= sum);
}

#[test]
fn an_embedding_is_a_layer() {
    let watched = Profiled::new(&Cpu::new());
    let table = Embedding::new(&mut Init::new(&watched, 0), 10, 4).unwrap();
    let ids = Indices::from_slice(&watched, &[1i32, 2, 2], &[3]).unwrap();
    watched
        .step(|| -> Result<()> { table.call("wte", &ids)?.sum(&[], false)?.backward().map(drop) })
        .unwrap();
    let rows = watched.timeline().rows(&|_| 0.0);
    let row = rows.iter().find(|r| r.name == "wte").unwrap();
    assert_eq!((row.kind, row.output.unwrap().dims()), ("Embedding", &[3, 4][..]));
    assert!(row.forward.ops > 0 && row.backward.ops > 0);
}

#[test]
fn a_step_that_fails_is_not_kept() {
    let watched = Profiled::new(&Cpu::new());
    let model = net(&watched).unwrap();
    let wrong = Tensor::zeros(&watched, &[1, 6, 6, 3], DType::F32).unwrap();
    let failed: Result<_, Error> = watched.step(|| watched.part("model", || model.forward(&wrong)));
    assert!(failed.unwrap_err().to_string().contains("`0.0` (Conv2d)"));
    let right = Tensor::zeros(&watched, &[1, 6, 6, 2], DType::F32).unwrap();
    watched
        .step(|| watched.part("model", || model.forward(&right)))
        .unwrap();
    let timeline = watched.timeline();
    assert_eq!(timeline.steps.len(), 1);
    // Scopes that the failure left are closed: what is open at each mark nests.
    let mut depth = 0i32;
    for mark in &timeline.steps[0].marks {
        match mark {
            Mark::Enter { .. } => depth += 1,
            Mark::Leave { .. } => depth -= 1,
            Mark::Op { .. } => {}
        }
        assert!(depth >= 0);
    }
    assert_eq!(depth, 0);
}
