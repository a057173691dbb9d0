//! Layers are named by the fields that keep them: in errors and in traces.

use kiln_cpu::Cpu;
use kiln_nn::layers::{Conv2d, Embedding, Flatten, Gelu, GlobalAvgPool2d, Linear, MaxPool2d, Relu};
use kiln_nn::trace::{self, trace};
use kiln_nn::{Backend, DType, Error, Indices, Init, Layer, Module, Result, Sequential, Tensor};

/// A block of two equal layers with activations that have no size.
#[derive(Clone, Module)]
struct Mlp<B: Backend> {
    fc1: Linear<B>,
    act1: Gelu,
    fc2: Linear<B>,
    act2: Gelu,
    #[module(rename = "out")]
    last: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    fn new(init: &mut Init<B>, sizes: [usize; 4]) -> Result<Self> {
        Ok(Mlp {
            fc1: Linear::new(init, sizes[0], sizes[1])?,
            act1: Gelu,
            fc2: Linear::new(init, sizes[1], sizes[2])?,
            act2: Gelu,
            last: Linear::new(init, sizes[2], sizes[3])?,
        })
    }
}

impl<B: Backend> Layer<B> for Mlp<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.act1.forward(&self.fc1.forward(x)?)?;
        let x = self.act2.forward(&self.fc2.forward(&x)?)?;
        self.last.forward(&x)
    }
}

/// A network with every kind of field that can keep a layer.
#[derive(Module)]
struct Net<B: Backend> {
    list: Vec<Mlp<B>>,
    pair: [Linear<B>; 2],
    boxed: Box<dyn Layer<B>>,
    maybe: Option<Box<Linear<B>>>,
    #[module(skip)]
    hidden: Hidden<B>,
}

struct Hidden<B: Backend>(Linear<B>);

fn linear(init: &mut Init<Cpu>, inputs: usize, outputs: usize) -> Linear<Cpu> {
    Linear::new(init, inputs, outputs).unwrap()
}

/// A network whose layers take vectors of 4, but for the one at `wrong`, which takes 5 and fails.
fn net(wrong: &str) -> Net<Cpu> {
    let init = &mut Init::new(&Cpu::poisoned(), 1);
    let size = |place: &str| if place == wrong { 5 } else { 4 };
    let list = (0..3)
        .map(|i| {
            let inner = [size(&format!("list.{i}.fc1")), 4, 4, 4];
            let mut mlp = Mlp::new(init, inner).unwrap();
            mlp.fc2 = linear(init, size(&format!("list.{i}.fc2")), 4);
            mlp.last = linear(init, size(&format!("list.{i}.out")), 4);
            mlp
        })
        .collect();
    let sequence = Sequential::new()
        .push(Relu)
        .push(linear(init, size("boxed.1"), 4))
        .push_named("top", linear(init, size("boxed.top"), 4))
        .unwrap();
    Net {
        list,
        pair: [linear(init, size("pair.0"), 4), linear(init, size("pair.1"), 4)],
        boxed: Box::new(sequence),
        maybe: Some(Box::new(linear(init, size("maybe"), 4))),
        hidden: Hidden(linear(init, size("Linear"), 4)),
    }
}

impl<B: Backend> Layer<B> for Net<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = x.clone();
        for mlp in &self.list {
            x = mlp.forward(&x)?;
        }
        for layer in &self.pair {
            x = layer.forward(&x)?;
        }
        x = self.boxed.forward(&x)?;
        if let Some(layer) = &self.maybe {
            x = layer.forward(&x)?;
        }
        self.hidden.0.forward(&x)
    }
}

fn ones(shape: &[usize]) -> Tensor<Cpu> {
    Tensor::ones(&Cpu::poisoned(), shape, DType::F32).unwrap()
}

#[test]
fn errors_name_the_field_wherever_it_is_kept() {
    net("").forward(&ones(&[2, 4])).unwrap();
    for wrong in [
        "list.0.fc1",
        "list.1.fc2",
        "list.2.out",
        "pair.0",
        "pair.1",
        "boxed.1",
        "boxed.top",
        "maybe",
        // A layer in a skipped field has no name: the error has its type instead.
        "Linear",
    ] {
        let refused = net(wrong).forward(&ones(&[2, 4])).unwrap_err();
        let start = format!("in `{wrong}` (Linear): linear: shapes");
        assert!(refused.to_string().starts_with(&start), "{wrong}: {refused}");
        // The same inside of a trace, and in a model inside of another.
        let (traced, _) = trace(|| net(wrong).forward(&ones(&[2, 4])).unwrap_err());
        assert_eq!(traced, refused);
        let outer = (Relu, net(wrong));
        let nested = outer.forward(&ones(&[2, 4])).unwrap_err().to_string();
        assert!(nested.starts_with(&format!("in `1.{wrong}` (Linear): ")), "{nested}");
    }
}

#[test]
fn the_layer_that_was_called_first_has_no_name() {
    let init = &mut Init::new(&Cpu::poisoned(), 1);
    let refused = linear(init, 3, 2).forward(&ones(&[2, 4])).unwrap_err();
    assert!(refused.to_string().starts_with("linear: "), "{refused}");
    assert!(matches!(refused.root(), Error::ShapeMismatch { .. }), "{refused:?}");
    let boxed: Box<dyn Layer<Cpu>> = Box::new(Box::new(net("pair.1")));
    let refused = boxed.forward(&ones(&[2, 4])).unwrap_err();
    assert!(refused.to_string().starts_with("in `pair.1` (Linear): "), "{refused}");
}

/// A module that catches an error of one layer; the next error must not mention that layer.
#[derive(Clone, Module)]
struct Careful<B: Backend> {
    wrong: Linear<B>,
    right: Linear<B>,
}

impl<B: Backend> Layer<B> for Careful<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        match self.wrong.forward(x) {
            Err(_) => self.right.forward(x)?.reshape(&[7usize]),
            y => y,
        }
    }
}

#[test]
fn an_error_that_was_caught_is_forgotten() {
    let init = &mut Init::new(&Cpu::poisoned(), 1);
    let careful = Careful {
        wrong: linear(init, 3, 2),
        right: linear(init, 4, 2),
    };
    let model = Sequential::new().push(careful);
    let refused = model.forward(&ones(&[2, 4])).unwrap_err().to_string();
    assert!(refused.starts_with("in `0` (Careful): reshape"), "{refused}");
}

#[test]
fn layers_without_a_size_are_told_apart_by_their_order() {
    let init = &mut Init::new(&Cpu::poisoned(), 1);
    let model = Sequential::new()
        .push(Relu)
        .push(Mlp::new(init, [4, 4, 4, 4]).unwrap())
        .push(Gelu)
        .push(Sequential::new().push(Relu).push(Gelu).push(Relu))
        .push(Relu);
    for _ in 0..2 {
        let (y, calls) = trace(|| model.forward(&ones(&[1, 4])));
        y.unwrap();
        let seen: Vec<_> = calls.iter().map(|c| (c.path.as_str(), c.kind)).collect();
        assert_eq!(
            seen,
            [
                ("0", "Relu"),
                ("1", "Mlp"),
                ("1.fc1", "Linear"),
                ("1.act1", "Gelu"),
                ("1.fc2", "Linear"),
                ("1.act2", "Gelu"),
                ("1.out", "Linear"),
                ("2", "Gelu"),
                ("3", "Sequential"),
                ("3.0", "Relu"),
                ("3.1", "Gelu"),
                ("3.2", "Relu"),
                ("4", "Relu"),
            ]
        );
    }
    // Boxed layers of size zero in a `Sequential`, which knows their names.
    let pools = Sequential::new()
        .push(GlobalAvgPool2d::default())
        .push(GlobalAvgPool2d::default());
    let refused = pools.forward(&ones(&[1, 2, 2, 3])).unwrap_err().to_string();
    assert!(refused.starts_with("in `1` (GlobalAvgPool2d): "), "{refused}");
}

/// A module that uses one layer twice, and another one that it makes in the forward pass.
#[derive(Clone, Module)]
struct Twice<B: Backend> {
    conv: Conv2d<B>,
    pool: MaxPool2d,
    flatten: Flatten,
}

impl<B: Backend> Layer<B> for Twice<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.conv.forward_pooled(&self.pool, x)?;
        let x = self.conv.forward_pooled(&self.pool, &x)?;
        let act: Box<dyn Layer<B>> = Box::new(Relu);
        self.flatten.forward(&act.forward(&x)?)
    }
}

#[test]
fn a_layer_that_is_used_twice_keeps_its_name() {
    let init = &mut Init::new(&Cpu::poisoned(), 1);
    let twice = Twice {
        conv: Conv2d::new(init, 2, 2, 3).unwrap(),
        pool: MaxPool2d::new(2),
        flatten: Flatten::default(),
    };
    let (y, calls) = trace(|| twice.forward(&ones(&[1, 10, 10, 2])));
    assert_eq!(y.unwrap().shape().dims(), [1, 2]);
    let seen: Vec<_> = calls.iter().map(|c| c.path.as_str()).collect();
    assert_eq!(seen, ["conv", "pool", "conv", "pool", "Relu", "flatten"]);
    assert!(calls.iter().all(|c| c.depth == 0 && !c.container));
    let small = twice.forward(&ones(&[1, 4, 4, 2])).unwrap_err().to_string();
    assert!(small.starts_with("in `conv+pool` (Conv2d+MaxPool2d): "), "{small}");
    let small = Sequential::new().push(twice).forward(&ones(&[1, 4, 4, 2])).unwrap_err();
    assert!(
        small.to_string().starts_with("in `0.conv+pool` (Conv2d+MaxPool2d): "),
        "{small}"
    );
}

/// A module whose input is a tensor of token ids.
#[derive(Clone, Module)]
struct Tokens<B: Backend> {
    embed: Embedding<B>,
    head: Linear<B>,
}

impl<B: Backend> Tokens<B> {
    fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || self.head.forward(&self.embed.forward(ids)?))
    }
}

#[test]
fn modules_that_take_something_else_name_their_layers_too() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 1);
    let model = Tokens {
        embed: Embedding::new(init, 4, 2).unwrap(),
        head: linear(init, 2, 3),
    };
    let ids = |id: i32| Indices::from_slice(&cpu, &[id], &[1]).unwrap();
    let refused = model.forward(&ids(4)).unwrap_err().to_string();
    assert!(
        refused.starts_with("in `embed` (Embedding): ") && refused.contains("index 4 at position 0"),
        "{refused}"
    );
    let (y, calls) = trace(|| model.forward(&ids(3)));
    y.unwrap();
    let seen: Vec<_> = calls
        .iter()
        .map(|c| (c.path.as_str(), c.input.dims(), c.parameters))
        .collect();
    assert_eq!(seen, [("embed", &[1][..], 8), ("head", &[1, 2][..], 9)]);
}

/// A module whose forward pass can panic; later passes must still name their layers correctly.
#[derive(Clone, Module)]
struct Panics<B: Backend> {
    fc: Linear<B>,
}

impl<B: Backend> Layer<B> for Panics<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        assert!(x.size() != 8, "eight");
        self.fc.forward(x)
    }
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let model = Sequential::new().push(Panics {
        fc: linear(&mut Init::new(&Cpu::poisoned(), 1), 4, 2),
    });
    let (_, calls) = trace(|| {
        let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.forward(&ones(&[2, 4])).is_ok()));
        assert!(wrong.is_err());
        model.forward(&ones(&[1, 4])).unwrap()
    });
    let seen: Vec<_> = calls.iter().map(|c| (c.path.as_str(), c.depth)).collect();
    assert_eq!(seen, [("0", 0), ("0", 0), ("0.fc", 1)]);
}
