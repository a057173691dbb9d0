//! Modules: names, walks, modes, freezing, dtypes, and the derive macro.

use kiln_cpu::Cpu;
use kiln_nn::Walkable;
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, Embedding, Flatten, Linear, MaxPool2d, Relu};
use kiln_nn::optim::{Optimizer, Sgd};
use kiln_nn::{
    Backend, Counter, DType, Error, Init, Layer, Mode, Module, Param, Result, Rng, Sequential, State, Tensor,
};

/// A struct with every kind of field that the derive macro accepts.
#[derive(Module)]
struct Everything<B: Backend> {
    conv: Conv2d<B>,
    blocks: Vec<Linear<B>>,
    pair: [Linear<B>; 2],
    maybe: Option<Linear<B>>,
    nothing: Option<Linear<B>>,
    boxed: Box<dyn Layer<B>>,
    features: Sequential<B>,
    scale: Param<B>,
    running: State<B>,
    count: Counter<B>,
    mode: Mode,
    width: usize,
    label: String,
    #[module(skip)]
    hidden: Linear<B>,
    #[module(rename = "renamed")]
    inner: Inner<B, Linear<B>>,
    r#type: Unnamed<B>,
}

/// A struct with two type parameters that are not the backend, which its where clause names.
#[derive(Module)]
#[module(kind = "Wrapped")]
struct Inner<T, L>
where
    T: kiln_nn::Backend,
    L: Layer<T>,
{
    layer: L,
    extra: Param<T>,
}

#[derive(Module)]
struct Unnamed<B: Backend>(Linear<B>, f64);

fn linear(init: &mut Init<Cpu>) -> Linear<Cpu> {
    Linear::new(init, 2, 3).unwrap()
}

fn everything(cpu: &Cpu) -> Everything<Cpu> {
    let init = &mut Init::new(cpu, 7);
    let param = || Param::new(Tensor::ones(cpu, &[2], DType::F32).unwrap());
    Everything {
        conv: Conv2d::builder(1, 2, 3).bias(false).build(init).unwrap(),
        blocks: vec![linear(init), linear(init)],
        pair: [linear(init), linear(init)],
        maybe: Some(linear(init)),
        nothing: None,
        boxed: Box::new(linear(init)),
        features: Sequential::new()
            .push(linear(init))
            .push(Relu)
            .push_named("head", linear(init))
            .unwrap(),
        scale: param(),
        running: State::new(Tensor::zeros(cpu, &[2], DType::F32).unwrap()),
        count: Counter::new(cpu).unwrap(),
        mode: Mode::default(),
        width: 3,
        label: "x".into(),
        hidden: linear(init),
        inner: Inner {
            layer: linear(init),
            extra: param(),
        },
        r#type: Unnamed(linear(init), 0.5),
    }
}

#[test]
fn walks_name_everything_in_order() {
    let cpu = Cpu::poisoned();
    let mut model = everything(&cpu);
    let names: Vec<String> = model.named_parameters().into_iter().map(|(n, _)| n).collect();
    let want = [
        "conv.weight",
        "blocks.0.weight",
        "blocks.0.bias",
        "blocks.1.weight",
        "blocks.1.bias",
        "pair.0.weight",
        "pair.0.bias",
        "pair.1.weight",
        "pair.1.bias",
        "maybe.weight",
        "maybe.bias",
        "boxed.weight",
        "boxed.bias",
        "features.0.weight",
        "features.0.bias",
        "features.head.weight",
        "features.head.bias",
        "scale",
        "renamed.layer.weight",
        "renamed.layer.bias",
        "renamed.extra",
        "type.0.weight",
        "type.0.bias",
    ];
    assert_eq!(names, want);
    let mutable: Vec<String> = model.named_parameters_mut().into_iter().map(|(n, _)| n).collect();
    assert_eq!(mutable, want);
    let dict = model.state_dict();
    assert_eq!(dict.len(), want.len() + 2);
    assert!(dict.float("running").is_some() && dict.int("count").is_some());
    assert_eq!(model.num_parameters(), 18 + 10 * 9 + 4);
    assert_eq!((model.width, model.label.as_str(), model.r#type.1), (3, "x", 0.5));
    assert!(model.nothing.is_none() && model.hidden.weight.size() == 6);
}

#[test]
fn kinds_are_type_names() {
    let cpu = Cpu::poisoned();
    let model = everything(&cpu);
    assert_eq!(model.kind(), "Everything");
    assert_eq!(model.inner.kind(), "Wrapped");
    assert_eq!(model.conv.kind(), "Conv2d");
    assert_eq!(model.boxed.kind(), "Linear");
    assert_eq!(Walkable::<Cpu>::kind(&MaxPool2d::new(2)), "MaxPool2d");
    assert_eq!(Walkable::<Cpu>::kind(&vec![Relu]), "Vec");
}

#[test]
fn freezing_selects_by_name() {
    let cpu = Cpu::poisoned();
    let mut model = everything(&cpu);
    let all = model.num_parameters();
    assert_eq!(model.set_trainable(&|n| n.starts_with("blocks."), false), 4);
    assert_eq!(model.num_trainable(), all - 18);
    assert!(!model.blocks[0].weight.is_tracked());
    model.freeze();
    assert_eq!(model.num_trainable(), 0);
    assert!(model.named_parameters().iter().all(|(_, p)| !p.is_tracked()));
    model.unfreeze();
    assert_eq!(model.num_trainable(), all);
    assert!(model.named_parameters().iter().all(|(_, p)| p.is_tracked()));
}

#[test]
fn modes_reach_every_layer() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 1);
    let mut model = Sequential::new().push(Sequential::new().push(Dropout::new(init, 0.5).unwrap()));
    let x = Tensor::ones(&cpu, &[64], DType::F32).unwrap();
    assert_ne!(model.forward(&x).unwrap().to_vec::<f32>().unwrap(), vec![1.0; 64]);
    model.eval();
    assert_eq!(model.forward(&x).unwrap().to_vec::<f32>().unwrap(), vec![1.0; 64]);
    model.train();
    assert_ne!(model.forward(&x).unwrap().to_vec::<f32>().unwrap(), vec![1.0; 64]);
}

#[test]
fn dtypes_convert_parameters_and_keep_statistics_wide() {
    let cpu = Cpu::poisoned();
    let mut model = everything(&cpu);
    model.to_dtype(DType::BF16).unwrap();
    assert!(
        model
            .named_parameters()
            .iter()
            .all(|(_, p)| p.dtype() == DType::BF16 && p.is_tracked())
    );
    assert_eq!(model.running.get().dtype(), DType::F32);
    model.to_dtype(DType::F64).unwrap();
    assert_eq!(model.running.get().dtype(), DType::F64);
    let refused = model.to_dtype(DType::I32).unwrap_err();
    assert!(matches!(refused.root(), Error::UnsupportedDType { .. }), "{refused}");
    assert!(refused.to_string().contains("conv.weight"), "{refused}");
}

#[test]
fn states_update_behind_a_shared_reference() {
    let cpu = Cpu::poisoned();
    let state = State::new(Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[2]).unwrap());
    let before = state.get();
    let target = Tensor::from_slice(&cpu, &[3.0f32, 6.0], &[2]).unwrap();
    state.blend(&target, 0.25).unwrap();
    assert_eq!(state.get().to_vec::<f32>().unwrap(), [1.5, 3.0]);
    assert_eq!(
        before.to_vec::<f32>().unwrap(),
        [1.0, 2.0],
        "what was read before stands"
    );
    let wrong = Tensor::from_slice(&cpu, &[3.0f32], &[1]).unwrap();
    assert!(matches!(state.blend(&wrong, 0.5), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(state.assign(&wrong), Err(Error::ShapeMismatch { .. })));

    let counter = Counter::new(&cpu).unwrap();
    for want in 0..3 {
        assert_eq!(counter.tick().unwrap().to_vec::<i32>().unwrap(), [want]);
    }
    let (first, second) = (counter.tick().unwrap(), counter.tick().unwrap());
    assert_eq!(
        first.to_vec::<i32>().unwrap(),
        [3],
        "tickets do not change when others are drawn"
    );
    assert_eq!(second.to_vec::<i32>().unwrap(), [4]);
    let other = Counter::new(&cpu).unwrap();
    other.assign(&counter.get()).unwrap();
    assert_eq!(other.tick().unwrap().to_vec::<i32>().unwrap(), [5]);
}

#[test]
fn sequential_names_are_unique() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 1);
    let base = || Sequential::<Cpu>::new().push_named("a", Relu).unwrap();
    for name in ["a", "", "1", "a.b"] {
        let refused = base().push_named(name, Relu).err();
        assert!(
            matches!(refused, Some(Error::InvalidArgument { argument: "name", .. })),
            "{name}"
        );
    }
    let x = Tensor::ones(&cpu, &[2, 2], DType::F32).unwrap();
    assert_eq!(
        Sequential::new().forward(&x).unwrap().to_vec::<f32>().unwrap(),
        [1.0; 4]
    );
    let model = base().push(linear(init));
    assert_eq!(
        model.iter().map(|(n, l)| (n, l.kind())).collect::<Vec<_>>(),
        [("a", "Relu"), ("1", "Linear")]
    );
}

/// A model as users write them.
#[derive(Module)]
struct Net<B: Backend> {
    features: Sequential<B>,
    embed: Embedding<B>,
    head: Linear<B>,
}

impl<B: Backend> Layer<B> for Net<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.head.forward(&self.features.forward(x)?)
    }
}

fn net(cpu: &Cpu) -> Net<Cpu> {
    let init = &mut Init::new(cpu, 3);
    let features = Sequential::new()
        .push(Conv2d::new(init, 1, 4, 3).unwrap())
        .push(MaxPool2d::new(2))
        .push(Relu)
        .push(Conv2d::new(init, 4, 2, [2, 2]).unwrap())
        .push(Flatten::default());
    Net {
        features,
        embed: Embedding::new(init, 4, 2).unwrap(),
        head: Linear::new(init, 2 * 2 * 2, 3).unwrap(),
    }
}

#[test]
fn errors_carry_the_path_through_nested_models() {
    let cpu = Cpu::poisoned();
    let model = net(&cpu);
    let say = |shape: &[usize]| {
        let x = Tensor::zeros(&cpu, shape, DType::F32).unwrap();
        model.forward(&x).unwrap_err().to_string()
    };
    let small = say(&[1, 4, 4, 1]);
    assert!(
        small.starts_with("in `features.3` (Conv2d): conv: kernel = 2"),
        "{small}"
    );
    let channels = say(&[1, 8, 8, 2]);
    assert!(channels.starts_with("in `features.0` (Conv2d): "), "{channels}");
    let wide = say(&[1, 12, 12, 1]);
    assert!(wide.starts_with("in `head` (Linear): linear: shapes"), "{wide}");
}

#[test]
fn traces_report_layers() {
    let cpu = Cpu::poisoned();
    let model = net(&cpu);
    let x = Tensor::zeros(&cpu, &[2, 8, 8, 1], DType::F32).unwrap();
    let (y, calls) = kiln_nn::trace::trace(|| model.forward(&x));
    assert_eq!(y.unwrap().shape().dims(), [2, 3]);
    let seen: Vec<_> = calls
        .iter()
        .map(|c| (c.path.as_str(), c.kind, c.depth, c.container))
        .collect();
    let want = [
        ("features", "Sequential", 0, true),
        ("features.0", "Conv2d", 1, false),
        ("features.1", "MaxPool2d", 1, false),
        ("features.2", "Relu", 1, false),
        ("features.3", "Conv2d", 1, false),
        ("features.4", "Flatten", 1, false),
        ("head", "Linear", 0, false),
    ];
    assert_eq!(seen, want);
    let conv = &calls[1];
    assert_eq!(
        (conv.input.dims(), conv.output.dims()),
        (&[2, 8, 8, 1][..], &[2, 6, 6, 4][..])
    );
    assert_eq!(
        (conv.parameters, conv.flops, conv.output_bytes),
        (40, 2 * 2 * 36 * 4 * 9, 2 * 36 * 4 * 4)
    );
    let (second, head) = (2 * 2 * 4 * 2 * 4 * 4, 2 * 2 * 3 * 8);
    assert_eq!(calls[4].flops, second);
    assert_eq!(calls[0].flops, conv.flops + second);
    assert_eq!(calls[6].flops, head);
    assert_eq!(calls[0].parameters, model.features.num_parameters());
    // Outside of a trace nothing is kept, and a failing layer leaves the trace whole.
    model.forward(&x).unwrap();
    let bad = Tensor::zeros(&cpu, &[2, 4, 4, 1], DType::F32).unwrap();
    let (failed, calls) = kiln_nn::trace::trace(|| (model.forward(&bad).is_err(), model.forward(&x).is_ok()));
    assert_eq!(failed, (true, true));
    assert_eq!(calls.last().unwrap().path, "head");
}

#[test]
fn tuples_are_modules_that_run_in_order() -> kiln_nn::Result<()> {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 1);
    let model = (Linear::new(init, 2, 3)?, Relu, (Linear::new(init, 3, 1)?,));
    let names: Vec<String> = model.named_parameters().into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["0.weight", "0.bias", "2.0.weight", "2.0.bias"]);
    let x = Tensor::ones(&cpu, &[4, 2], DType::F32)?;
    let y = model.2.0.forward(&model.0.forward(&x)?.relu()?)?;
    assert_eq!(model.forward(&x)?.to_vec::<f32>()?, y.to_vec::<f32>()?);
    let refused = model
        .forward(&Tensor::ones(&cpu, &[4, 3], DType::F32)?)
        .unwrap_err()
        .to_string();
    assert!(refused.starts_with("in `0` (Linear): "), "{refused}");
    let wrong = (Relu, (Linear::new(init, 2, 3)?, Linear::new(init, 2, 3)?));
    let refused = wrong.forward(&x).unwrap_err().to_string();
    assert!(refused.starts_with("in `1.1` (Linear): "), "{refused}");
    Ok(())
}

/// A clone starts with the same values, and neither sees what the other learns.
#[test]
fn a_clone_is_a_model_of_its_own() {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let frozen = Sequential::new().push(Linear::new(init, 3, 3).unwrap());
    let mut net = Sequential::new()
        .push_named("fc", Linear::new(init, 4, 3).unwrap())
        .unwrap()
        .push(BatchNorm::new(init, 3).unwrap())
        .push(frozen);
    net.set_trainable(&|name| name.starts_with("2."), false);
    let mut copy = net.clone();
    let names = |net: &Sequential<Cpu>| {
        net.named_parameters()
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&copy), names(&net));
    assert_eq!(copy.num_trainable(), net.num_trainable());
    let identities = |net: &Sequential<Cpu>| -> Vec<_> { net.parameters().into_iter().map(Param::identity).collect() };
    assert!(identities(&copy).iter().all(|id| !identities(&net).contains(id)));
    let values = |net: &Sequential<Cpu>| -> Vec<Vec<f64>> {
        let dict = net.state_dict();
        dict.iter()
            .filter_map(|(name, _)| Some(dict.float(name)?.to_f64().unwrap()))
            .collect()
    };
    let before = values(&net);
    assert_eq!(values(&copy), before);

    let x = Tensor::randn(&cpu, &[8, 4], DType::F32, &mut Rng::new(1)).unwrap();
    let loss = copy.forward(&x).unwrap().square().unwrap().sum(&[], false).unwrap();
    let grads = loss.backward().unwrap();
    assert!(net.parameters().iter().all(|p| grads.get(p).is_none()));
    Sgd::new(0.1).step(&mut copy, &grads).unwrap();
    assert_eq!(values(&net), before, "the original has changed");
    assert_ne!(values(&copy), before, "the clone has not");

    // The other way round, with a counter.
    let dropout = Dropout::new(init, 0.5).unwrap();
    let twin = dropout.clone();
    let ones = Tensor::ones(&cpu, &[64], DType::F32).unwrap();
    let [first, second] = [&dropout, &twin].map(|d| d.forward(&ones).unwrap().to_f64().unwrap());
    assert_eq!(first, second, "both draw by their own counts");
    let loss = net.forward(&x).unwrap().square().unwrap().sum(&[], false).unwrap();
    let after = values(&copy);
    Sgd::new(0.1).step(&mut net, &loss.backward().unwrap()).unwrap();
    assert_eq!(values(&copy), after);
}
