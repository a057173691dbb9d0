//! Profiles of training steps of small networks.

use kiln_core::ops::ElementwiseOps;
use kiln_core::{Backend, DType, Error, Result, Runtime};
use kiln_cpu::Cpu;
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, Embedding, Flatten, Linear, MaxPool2d, Relu};
use kiln_nn::optim::{Adam, Optimizer};
use kiln_nn::{Indices, Init, Layer, Module, Rng, Sequential, Tensor, trace};
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
        // Every second step is profiled.
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
fn a_wrong_operand_is_refused_alike_whether_the_step_is_profiled_or_not() {
    let refused = |backend: &Profiled<Cpu>| {
        let mut y = backend.alloc(DType::F32, 2)?;
        backend.fill(0.0, &mut y)?;
        backend.upload_bytes(&[0; 12], &mut y)
    };
    let watched = Profiled::new(&Cpu::new());
    let plain = refused(&watched).unwrap_err().to_string();
    let profiled = watched.step(|| refused(&watched)).unwrap_err().to_string();
    assert_eq!(plain, profiled);
    assert!(watched.timeline().steps.is_empty(), "a step that fails is not kept");
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
        ("0.1+2", "BatchNorm+Relu"),
        ("1", "MaxPool2d"),
        ("3", "Dropout"),
        ("4", "Linear"),
    ] {
        assert_eq!((row(name).kind, row(name).calls), (kind, 1), "{name}");
        let ops = u64::from(name != "0");
        assert!(row(name).forward.ops >= ops, "{name}");
        assert!(row(name).backward.ops >= ops, "{name}");
    }
    assert_eq!(row("0.0").forward.cost.flops, 2 * (7 * 6 * 6 * 4) * 9 * 2);
    assert_eq!(row("4").backward.cost.flops, 2 * 2 * 7 * 36 * 5);
    assert_eq!(row("0.1+2").output.unwrap().dims(), [7, 6, 6, 4]);
    // Batch norm with the ReLU behind it: one tensor in and one out, scale, shift and two statistics, and two running ones and a count
    // both ways. Its gradient: two in and one out, and five of channels, because the zeros of the ReLU's are written by the pooling.
    // That of the pooling: gradient, result and index in, and one out.
    let (bytes, pooled, channels) = (4 * 7 * 6 * 6 * 4, 4 * 7 * 3 * 3 * 4, 4 * 4);
    assert_eq!(
        (row("0.1+2").forward.cost.bytes, row("0.1+2").backward.cost.bytes),
        (
            2 * bytes + 4 * channels + 2 * (2 * channels + 4),
            3 * bytes + 5 * channels
        )
    );
    assert_eq!(row("1").backward.cost.bytes, 3 * pooled + bytes);
    let sum: f64 = rows.iter().map(Row::seconds).sum();
    assert!((sum - timeline.step_seconds()).abs() < 1e-9, "{sum}");
    let in_ops: f64 = rows.iter().map(|r| r.forward.in_ops + r.backward.in_ops).sum();
    assert!(in_ops > 0.0 && in_ops <= sum);
}

/// A model of tokens with every kind of field that can keep a layer.
#[derive(Module)]
struct Tokens<B: Backend> {
    wte: Embedding<B>,
    blocks: Vec<Block<B>>,
    act: Box<dyn Layer<B>>,
    head: Option<Linear<B>>,
}

#[derive(Module)]
struct Block<B: Backend> {
    fc: Linear<B>,
    first: Relu,
    second: Relu,
}

impl<B: Backend> Layer<B> for Block<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.first.forward(&self.fc.forward(x)?)?;
        self.second.forward(&self.fc.forward(&x)?)
    }
}

impl<B: Backend> Tokens<B> {
    fn new(backend: &B) -> Result<Self> {
        let init = &mut Init::new(backend, 0);
        let mut block = || -> Result<Block<B>> {
            Ok(Block {
                fc: Linear::new(init, 4, 4)?,
                first: Relu,
                second: Relu,
            })
        };
        let blocks = vec![block()?, block()?];
        Ok(Tokens {
            wte: Embedding::new(init, 10, 4)?,
            blocks,
            act: Box::new(Relu),
            head: Some(Linear::new(init, 4, 2)?),
        })
    }

    fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || {
            let mut x = self.wte.forward(ids)?;
            for block in &self.blocks {
                x = block.forward(&x)?;
            }
            let x = self.act.forward(&x)?;
            self.head.as_ref().map_or(Ok(x.clone()), |head| head.forward(&x))
        })
    }
}

#[test]
fn a_profile_and_a_trace_see_the_same_layers() {
    let watched = Profiled::new(&Cpu::new());
    let net = Tokens::new(&watched).unwrap();
    let ids = Indices::from_slice(&watched, &[1i32, 2, 2], &[3]).unwrap();
    watched
        .step(|| -> Result<()> { net.forward(&ids)?.sum(&[], false)?.backward().map(drop) })
        .unwrap();
    let rows = watched.timeline().rows(&|_| 0.0);
    let (y, calls) = trace::trace(|| net.forward(&ids));
    y.unwrap();
    let profiled: Vec<_> = rows.iter().filter(|r| r.is_layer()).collect();
    let mut traced: Vec<_> = calls.iter().map(|c| (c.path.as_str(), c.kind)).collect();
    // A profile has one row for both calls of a layer.
    assert_eq!(traced.iter().filter(|(path, _)| *path == "blocks.1.fc").count(), 2);
    let mut seen = Vec::new();
    traced.retain(|call| {
        !seen.contains(call) && {
            seen.push(*call);
            true
        }
    });
    assert_eq!(
        profiled.iter().map(|r| (r.name.as_str(), r.kind)).collect::<Vec<_>>(),
        traced
    );
    assert_eq!(
        traced,
        [
            ("wte", "Embedding"),
            ("blocks.0", "Block"),
            ("blocks.0.fc", "Linear"),
            ("blocks.0.first", "Relu"),
            ("blocks.0.second", "Relu"),
            ("blocks.1", "Block"),
            ("blocks.1.fc", "Linear"),
            ("blocks.1.first", "Relu"),
            ("blocks.1.second", "Relu"),
            ("act", "Relu"),
            ("head", "Linear"),
        ]
    );
    assert_eq!(profiled[0].output.unwrap().dims(), [3, 4]);
    assert!(profiled[0].forward.ops > 0 && profiled[0].backward.ops > 0);
    assert_eq!(profiled[2].calls, 2);
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
    // The scopes that the failure left open are closed, so the marks nest.
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
