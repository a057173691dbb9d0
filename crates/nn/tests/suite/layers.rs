//! Layers: shapes, gradients of every parameter, agreement with PyTorch, refusal of bad input.

use kiln_core::ops::Activation;
use kiln_cpu::Cpu;
use kiln_nn::layers::*;
use kiln_nn::module::{StateDict, Value};
use kiln_nn::weights::{columns_from_torch, decode};
use kiln_nn::{DType, Error, Indices, Init, Layer, Layout, LoadOptions, Module, Rng, Sequential, Tensor};

fn random(cpu: &Cpu, shape: &[usize], seed: u64) -> Tensor<Cpu> {
    Tensor::randn(cpu, shape, DType::F32, &mut Rng::new(seed)).unwrap()
}

/// A layer, the shape of an input, and that of its output.
type Case = (Box<dyn Layer<Cpu>>, Vec<usize>, Vec<usize>);

/// A case of every layer.
fn layers(init: &mut Init<Cpu>) -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    let mut add = |layer: Box<dyn Layer<Cpu>>, x: &[usize], y: &[usize]| all.push((layer, x.to_vec(), y.to_vec()));
    add(Box::new(Linear::new(init, 5, 3).unwrap()), &[2, 7, 5], &[2, 7, 3]);
    let fused = Linear::builder(5, 3).activation(Activation::Silu).build(init).unwrap();
    add(Box::new(fused), &[4, 5], &[4, 3]);
    add(
        Box::new(Linear::builder(5, 3).bias(false).build(init).unwrap()),
        &[5],
        &[3],
    );
    add(Box::new(Conv1d::new(init, 2, 3, 4).unwrap()), &[2, 9, 2], &[2, 6, 3]);
    let conv = Conv2d::builder(4, 6, [3, 2])
        .stride(2)
        .padding([1, 0])
        .dilation([1, 2])
        .groups(2);
    add(Box::new(conv.build(init).unwrap()), &[2, 7, 8, 4], &[2, 4, 3, 6]);
    let same = Conv2d::builder(2, 4, 3)
        .same()
        .stride(2)
        .activation(Activation::Gelu)
        .build(init)
        .unwrap();
    add(Box::new(same), &[1, 5, 6, 2], &[1, 3, 3, 4]);
    add(
        Box::new(Conv3d::new(init, 1, 2, 2).unwrap()),
        &[1, 3, 4, 5, 1],
        &[1, 2, 3, 4, 2],
    );
    add(
        Box::new(ConvTranspose1d::new(init, 2, 3, 3).unwrap()),
        &[2, 4, 2],
        &[2, 6, 3],
    );
    let transposed = ConvTranspose2d::builder(4, 6, 3)
        .stride(2)
        .padding(1)
        .output_padding(1)
        .groups(2);
    let transposed = transposed.activation(Activation::Tanh).build(init).unwrap();
    add(Box::new(transposed), &[2, 3, 4, 4], &[2, 6, 8, 6]);
    let volume = ConvTranspose3d::builder(1, 2, 2)
        .dilation([1, 2, 1])
        .bias(false)
        .build(init)
        .unwrap();
    add(Box::new(volume), &[1, 2, 2, 2, 1], &[1, 3, 4, 3, 2]);
    add(Box::new(MaxPool1d::new(2)), &[2, 7, 3], &[2, 3, 3]);
    add(
        Box::new(MaxPool2d::new(3).stride(2).padding(1).ceil_mode(true)),
        &[1, 6, 7, 2],
        &[1, 4, 4, 2],
    );
    add(
        Box::new(MaxPool3d::new([1, 2, 2]).dilation([1, 2, 1])),
        &[1, 2, 5, 4, 2],
        &[1, 2, 2, 2, 2],
    );
    add(Box::new(AvgPool1d::new(3).stride(1).same()), &[1, 5, 2], &[1, 5, 2]);
    add(
        Box::new(AvgPool2d::new(2).padding(1).count_include_pad(false)),
        &[1, 4, 4, 2],
        &[1, 3, 3, 2],
    );
    add(Box::new(AvgPool3d::new(2)), &[1, 2, 2, 4, 1], &[1, 1, 1, 2, 1]);
    add(Box::new(AdaptiveAvgPool1d::new(3)), &[2, 7, 2], &[2, 3, 2]);
    add(Box::new(AdaptiveAvgPool2d::new([1, 3])), &[2, 5, 4, 2], &[2, 1, 3, 2]);
    add(Box::new(AdaptiveAvgPool3d::new(1)), &[1, 2, 3, 2, 2], &[1, 1, 1, 1, 2]);
    add(Box::new(GlobalAvgPool::<1>), &[2, 7, 3], &[2, 3]);
    add(Box::new(GlobalAvgPool::<2>), &[2, 3, 4, 5], &[2, 5]);
    add(Box::new(GlobalAvgPool::<3>), &[2, 2, 2, 2, 1], &[2, 1]);
    add(Box::new(BatchNorm::new(init, 3).unwrap()), &[6, 3], &[6, 3]);
    add(Box::new(BatchNorm::new(init, 3).unwrap()), &[2, 4, 5, 3], &[2, 4, 5, 3]);
    add(Box::new(LayerNorm::new(init, &[3, 4]).unwrap()), &[5, 3, 4], &[5, 3, 4]);
    add(Box::new(RmsNorm::new(init, &[4]).unwrap()), &[5, 4], &[5, 4]);
    add(Box::new(GroupNorm::new(init, 2, 6).unwrap()), &[2, 3, 6], &[2, 3, 6]);
    let instance = InstanceNorm::builder(3).affine(true).build(init).unwrap();
    add(Box::new(instance), &[2, 4, 4, 3], &[2, 4, 4, 3]);
    add(Box::new(InstanceNorm::new(init, 3).unwrap()), &[2, 4, 3], &[2, 4, 3]);
    add(Box::new(Dropout::new(init, 0.3).unwrap()), &[5, 7], &[5, 7]);
    add(Box::<Flatten>::default(), &[2, 3, 4, 5], &[2, 60]);
    add(Box::new(Flatten { start: 0, end: -2 }), &[2, 3, 4, 5], &[24, 5]);
    add(Box::new(Relu), &[3, 4], &[3, 4]);
    add(Box::<LeakyRelu>::default(), &[3, 4], &[3, 4]);
    add(Box::<Softplus>::default(), &[3, 4], &[3, 4]);
    add(Box::<Hardtanh>::default(), &[3, 4], &[3, 4]);
    add(Box::new(Hardswish), &[3, 4], &[3, 4]);
    add(Box::new(Relu6), &[3, 4], &[3, 4]);
    add(Box::new(PRelu::new(init, 4).unwrap()), &[3, 4], &[3, 4]);
    add(Box::<Elu>::default(), &[3, 4], &[3, 4]);
    add(Box::new(Gelu), &[3, 4], &[3, 4]);
    add(Box::new(GeluTanh), &[3, 4], &[3, 4]);
    add(Box::new(Silu), &[3, 4], &[3, 4]);
    add(Box::new(Sigmoid), &[3, 4], &[3, 4]);
    add(Box::new(Tanh), &[3, 4], &[3, 4]);
    add(Box::<Softplus>::default(), &[3, 4], &[3, 4]);
    add(Box::<Softmax>::default(), &[3, 4], &[3, 4]);
    add(Box::new(LogSoftmax { axis: 0 }), &[3, 4], &[3, 4]);
    add(Box::new(Identity), &[3, 4], &[3, 4]);
    all
}

#[test]
fn every_parameter_of_every_layer_gets_a_gradient() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 3);
    for (i, (layer, input, output)) in layers(init).into_iter().enumerate() {
        let x = random(&cpu, &input, i as u64).requires_grad();
        let y = layer.forward(&x).unwrap_or_else(|e| panic!("{}: {e}", layer.kind()));
        assert_eq!(y.shape().dims(), output, "{}", layer.kind());
        // A weighted sum: the gradient of the plain sum of a norm's outputs is zero.
        let loss = y
            .mul(&random(&cpu, &output, 1000 + i as u64))
            .unwrap()
            .sum(&[], false)
            .unwrap();
        let grads = loss.backward().unwrap();
        let named = layer.named_parameters();
        for (name, tensor) in named
            .iter()
            .map(|(n, p)| (n.as_str(), p.tensor()))
            .chain([("input", &x)])
        {
            let what = format!("{} {name}", layer.kind());
            let grad = grads.get(tensor).unwrap_or_else(|| panic!("{what} has no gradient"));
            assert_eq!((grad.shape(), grad.dtype()), (tensor.shape(), tensor.dtype()), "{what}");
            let values = grad.to_f64().unwrap();
            assert!(values.iter().all(|v| v.is_finite()), "{what}: {values:?}");
            assert!(values.iter().any(|v| *v != 0.0), "{what}: all zero");
        }
        assert_eq!(grads.len(), named.len() + 1, "{}", layer.kind());
    }
}

/// The derivatives of Σ weights·y with respect to every value of one entry of the layer's dictionary, by central differences.
fn slopes(
    layer: &mut dyn Layer<Cpu>,
    start: &StateDict<Cpu>,
    name: &str,
    x: &Tensor<Cpu>,
    w: &Tensor<Cpu>,
) -> Vec<f64> {
    const STEP: f64 = 1e-6;
    let (cpu, entry) = (x.backend(), start.float(name).unwrap());
    let at = entry.to_f64().unwrap();
    let mut loss = |i: usize, step: f64| {
        let mut moved = at.clone();
        moved[i] += step;
        let mut dict = start.clone();
        let moved = Tensor::from_f64(cpu, &moved, entry.shape(), DType::F64).unwrap();
        dict.insert(name, Value::Float(moved));
        layer.load_state_dict(&dict, LoadOptions::strict()).unwrap();
        let y = layer.forward(x).unwrap();
        y.mul(w).unwrap().sum(&[], false).unwrap().item().unwrap()
    };
    (0..at.len())
        .map(|i| (loss(i, STEP) - loss(i, -STEP)) / (2.0 * STEP))
        .collect()
}

#[test]
fn gradients_of_parameters_equal_central_differences() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 3).dtype(DType::F64);
    let mut checked = 0;
    for (i, (mut layer, input, output)) in layers(init).into_iter().enumerate() {
        let double = |shape: &[usize], seed| Tensor::randn(&cpu, shape, DType::F64, &mut Rng::new(seed)).unwrap();
        let (x, w) = (double(&input, i as u64), double(&output, 1000 + i as u64));
        let start = layer.state_dict();
        let y = layer.forward(&x).unwrap();
        let loss = y.mul(&w).unwrap().sum(&[], false).unwrap();
        let named: Vec<_> = layer.named_parameters().iter().map(|(n, _)| n.clone()).collect();
        if named.is_empty() {
            continue;
        }
        let grads = loss.backward().unwrap();
        let found = layer.named_parameters();
        let found: Vec<_> = found
            .iter()
            .map(|(_, p)| grads.get(p).unwrap().to_f64().unwrap())
            .collect();
        for (name, found) in named.iter().zip(found) {
            let want = slopes(&mut *layer, &start, name, &x, &w);
            assert_eq!(found.len(), want.len());
            for (j, (g, s)) in found.iter().zip(&want).enumerate() {
                let what = format!("{} {name}[{j}]", layer.kind());
                assert!(
                    (g - s).abs() <= 1e-6 * s.abs().max(1.0),
                    "{what}: {g}, differences give {s}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn every_layer_goes_through_its_dictionary() {
    let cpu = Cpu::poisoned();
    let (from, to) = (layers(&mut Init::new(&cpu, 1)), layers(&mut Init::new(&cpu, 2)));
    for ((mut a, shape, _), (mut b, ..)) in from.into_iter().zip(to) {
        let x = random(&cpu, &shape, 5);
        // One training pass moves the running statistics.
        a.forward(&x).unwrap();
        let report = b.load_state_dict(&a.state_dict(), LoadOptions::strict()).unwrap();
        assert!(report.is_exact() && report.counters_kept.is_empty(), "{}", a.kind());
        a.eval();
        b.eval();
        let (ya, yb) = (
            a.forward(&x).unwrap().to_vec::<f32>(),
            b.forward(&x).unwrap().to_vec::<f32>(),
        );
        assert_eq!(ya.unwrap(), yb.unwrap(), "{}", a.kind());
    }
}

#[test]
fn embeddings_look_up_and_learn() {
    let cpu = Cpu::poisoned();
    let made = || Embedding::new(&mut Init::new(&cpu, 1), 5, 3).unwrap();
    let embedding = made().padding_id(2).unwrap();
    // The padding row is zero, the others are unchanged.
    let (plain, padded) = (made().weight.to_vec::<f32>(), embedding.weight.to_vec::<f32>());
    let (mut plain, padded) = (plain.unwrap(), padded.unwrap());
    plain[6..9].fill(0.0);
    assert_eq!(padded, plain);
    assert_eq!(refused(made().padding_id(5)), ("embedding", "padding_id"));
    let ids = Indices::from_slice(&cpu, &[4i32, 2, 4], &[1, 3]).unwrap();
    let y = embedding.forward(&ids).unwrap();
    assert_eq!(y.shape().dims(), [1, 3, 3]);
    let table = embedding.weight.to_vec::<f32>().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap()[3..6], table[6..9]);
    let grads = y.sum(&[], false).unwrap().backward().unwrap();
    let want = [0.0, 0.0, 0.0, 0.0, 2.0].map(|g| [g; 3]).concat();
    assert_eq!(grads.get(&embedding.weight).unwrap().to_f64().unwrap(), want);
}

fn close(got: &Tensor<Cpu>, want: &Tensor<Cpu>, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    for (g, w) in got.to_f64().unwrap().iter().zip(want.to_f64().unwrap()) {
        assert!((g - w).abs() <= 1e-5 + 1e-4 * w.abs(), "{what}: {g}, expected {w}");
    }
}

/// The network of `../golden/torch_net.py`, with PyTorch's own weights, input and outputs.
#[test]
fn a_network_of_pytorch_gives_its_outputs() {
    let cpu = Cpu::poisoned();
    let (mut dict, metadata) = decode(include_bytes!("../golden/torch_net.safetensors"), &cpu).unwrap();
    assert!(metadata.contains_key("torch"));
    let mut io = |name: &str| match dict.remove(name).unwrap() {
        Value::Float(t) => t,
        Value::Int(_) => panic!("{name}"),
    };
    let (x, trained, evaluated) = (io("io.x"), io("io.train"), io("io.eval"));
    let x = x.permute(&[0, 2, 3, 1]).unwrap();
    let columns = columns_from_torch(dict.float("8.weight").unwrap(), 16, 4).unwrap();
    dict.insert("8.weight", Value::Float(columns));
    let init = &mut Init::new(&cpu, 0);
    let transposed = ConvTranspose2d::builder(6, 4, 3).stride(2).padding(1).output_padding(1);
    let mut net = Sequential::new()
        .push(
            Conv2d::builder(3, 6, 3)
                .stride(2)
                .padding(1)
                .groups(3)
                .build(init)
                .unwrap(),
        )
        .push(BatchNorm::new(init, 6).unwrap())
        .push(Relu)
        .push(transposed.build(init).unwrap())
        .push(GroupNorm::new(init, 2, 4).unwrap())
        .push(MaxPool2d::new(2))
        .push(InstanceNorm::builder(4).affine(true).build(init).unwrap())
        .push(Flatten::default())
        .push(Linear::new(init, 64, 5).unwrap())
        .push(LayerNorm::new(init, &[5]).unwrap())
        .push(Gelu);
    // Only parameters are loaded; the statistics must come out of one training pass as they did in PyTorch.
    let mut parameters = dict.clone();
    let statistics = ["1.running_mean", "1.running_var", "1.num_batches_tracked"];
    let outcome = statistics.map(|n| parameters.remove(n).unwrap());
    let report = net
        .load_state_dict(&parameters, LoadOptions::partial().layout(Layout::Torch))
        .unwrap();
    assert_eq!(
        (report.missing.len(), report.unexpected.len(), report.mismatched.len()),
        (2, 0, 0),
        "{report}"
    );
    close(&net.forward(&x).unwrap(), &trained, "training");
    let after = net.state_dict();
    for (name, want) in statistics.iter().zip(&outcome) {
        match want {
            Value::Float(want) => close(after.float(name).unwrap(), want, name),
            Value::Int(want) => {
                assert_eq!(
                    after.int(name).unwrap().to_vec::<i32>().unwrap(),
                    want.to_vec::<i32>().unwrap()
                );
            }
        }
    }
    net.eval();
    close(&net.forward(&x).unwrap(), &evaluated, "evaluation");
    let report = net
        .load_state_dict(&dict, LoadOptions::strict().layout(Layout::Torch))
        .unwrap();
    assert!(report.is_exact(), "{report}");
    close(&net.forward(&x).unwrap(), &evaluated, "loaded whole");
    assert_eq!(
        after.int("1.num_batches_tracked").unwrap().to_vec::<i32>().unwrap(),
        [1]
    );
}

#[test]
fn batch_norm_without_tracking_uses_the_batch_always() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 1);
    let mut layer = BatchNorm::builder(2)
        .track_running_stats(false)
        .affine(false)
        .build(init)
        .unwrap();
    let x = random(&cpu, &[8, 2], 1);
    let trained = layer.forward(&x).unwrap().to_vec::<f32>().unwrap();
    layer.eval();
    assert_eq!(layer.forward(&x).unwrap().to_vec::<f32>().unwrap(), trained);
    assert!(layer.state_dict().is_empty() && layer.running().is_none());
    // Evaluation changes nothing.
    let mut tracked = BatchNorm::new(init, 2).unwrap();
    tracked.eval();
    let before = host(&tracked.state_dict());
    tracked.forward(&x).unwrap();
    assert_eq!(host(&tracked.state_dict()), before);
}

fn host(dict: &StateDict<Cpu>) -> Vec<(String, String)> {
    dict.iter().map(|(n, v)| (n.to_string(), format!("{v:?}"))).collect()
}

#[test]
fn dropout_resumes_where_it_was() {
    let cpu = Cpu::poisoned();
    let draw = |layer: &Dropout<Cpu>, n: usize| -> Vec<Vec<f32>> {
        let x = Tensor::ones(&cpu, &[33], DType::F32).unwrap();
        (0..n).map(|_| layer.forward(&x).unwrap().to_vec().unwrap()).collect()
    };
    let layer = Dropout::new(&mut Init::new(&cpu, 4), 0.5).unwrap();
    draw(&layer, 3);
    let saved = layer.state_dict();
    let through = draw(&layer, 3);
    assert!(through[0] != through[1] && through[1] != through[2]);
    let mut resumed = Dropout::new(&mut Init::new(&cpu, 4), 0.5).unwrap();
    resumed.load_state_dict(&saved, LoadOptions::strict()).unwrap();
    assert_eq!(draw(&resumed, 3), through);
    let other = Dropout::new(&mut Init::new(&cpu, 5), 0.5).unwrap();
    assert_ne!(
        draw(&other, 1)[0],
        draw(&Dropout::new(&mut Init::new(&cpu, 4), 0.5).unwrap(), 1)[0]
    );
    // The mask of the backward pass is that of the forward pass, whatever was drawn between.
    let x = Tensor::ones(&cpu, &[33], DType::F32).unwrap().requires_grad();
    let y = resumed.forward(&x).unwrap();
    draw(&resumed, 2);
    let grads = y.sum(&[], false).unwrap().backward().unwrap();
    assert_eq!(
        grads.get(&x).unwrap().to_vec::<f32>().unwrap(),
        y.to_vec::<f32>().unwrap()
    );
    for (p, want) in [(0.0, 1.0), (1.0, 0.0)] {
        let layer = Dropout::new(&mut Init::new(&cpu, 4), p).unwrap();
        assert_eq!(draw(&layer, 1)[0], vec![want; 33]);
    }
}

/// The op and the argument that the error of a builder names.
fn refused<T>(made: kiln_nn::Result<T>) -> (&'static str, &'static str) {
    match made.err() {
        Some(Error::InvalidArgument { op, argument, .. }) => (op, argument),
        other => panic!("{other:?}"),
    }
}

#[test]
fn builders_refuse_what_cannot_work() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 1);
    assert_eq!(refused(Linear::new(init, 0, 3)), ("linear", "inputs"));
    assert_eq!(refused(Linear::new(init, 3, 0)), ("linear", "outputs"));
    assert_eq!(refused(Conv2d::new(init, 1, 2, 0)), ("conv2d", "kernel"));
    assert_eq!(
        refused(Conv2d::builder(1, 2, 3).stride([1, 0]).build(init)),
        ("conv2d", "stride")
    );
    assert_eq!(
        refused(Conv1d::builder(1, 2, 3).dilation(0).build(init)),
        ("conv1d", "dilation")
    );
    assert_eq!(
        refused(Conv3d::builder(4, 6, 3).groups(4).build(init)),
        ("conv3d", "groups")
    );
    assert_eq!(
        refused(Conv2d::builder(4, 6, 3).groups(0).build(init)),
        ("conv2d", "groups")
    );
    assert_eq!(refused(Conv2d::new(init, 0, 2, 3)), ("conv2d", "in_channels"));
    assert_eq!(refused(Conv2d::new(init, 1, 0, 3)), ("conv2d", "out_channels"));
    assert_eq!(
        refused(ConvTranspose2d::builder(3, 2, 3).groups(2).build(init)),
        ("conv_transpose2d", "groups")
    );
    assert_eq!(
        refused(Conv2d::builder(1, 2, 3).padding(usize::MAX).build(init)),
        ("conv2d", "padding")
    );
    assert_eq!(refused(Dropout::new(init, 2.0)), ("dropout", "p"));
    assert_eq!(refused(Dropout::new(init, f64::NAN)), ("dropout", "p"));
    assert_eq!(refused(Embedding::new(init, 0, 3)), ("embedding", "count"));
    assert_eq!(refused(BatchNorm::new(init, 0)), ("batch_norm", "channels"));
    assert_eq!(
        refused(BatchNorm::builder(3).momentum(1.5).build(init)),
        ("batch_norm", "momentum")
    );
    assert_eq!(
        refused(BatchNorm::builder(3).eps(-1.0).build(init)),
        ("batch_norm", "eps")
    );
    assert_eq!(refused(GroupNorm::new(init, 4, 6)), ("group_norm", "groups"));
    assert_eq!(refused(GroupNorm::new(init, 0, 6)), ("group_norm", "groups"));
    assert_eq!(refused(LayerNorm::new(init, &[])), ("layer_norm", "normalized_shape"));
    assert_eq!(
        refused(LayerNorm::builder(&[3]).eps(f64::NAN).build(init)),
        ("layer_norm", "eps")
    );
    assert_eq!(refused(RmsNorm::new(init, &[3, 0])), ("rms_norm", "normalized_shape"));
    assert_eq!(refused(InstanceNorm::new(init, 0)), ("instance_norm", "channels"));
    assert!(Linear::new(init, usize::MAX, 2).is_err());
    assert!(Conv2d::new(init, usize::MAX, 2, 3).is_err());
}

/// A layer with the shape of an input that it refuses.
type Misfit = (Box<dyn Layer<Cpu>>, &'static [usize]);

#[test]
fn bad_input_names_the_layer() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 1);
    let cases: Vec<Misfit> = vec![
        (Box::new(Linear::new(init, 4, 3).unwrap()), &[2, 5]),
        (Box::new(Conv2d::new(init, 1, 2, 5).unwrap()), &[1, 4, 4, 1]),
        (Box::new(Conv2d::new(init, 3, 2, 1).unwrap()), &[1, 4, 4, 1]),
        (Box::new(Conv2d::new(init, 1, 2, 1).unwrap()), &[4, 4, 1]),
        (
            Box::new(ConvTranspose2d::builder(1, 1, 2).output_padding(3).build(init).unwrap()),
            &[1, 4, 4, 1],
        ),
        (Box::new(MaxPool2d::new(0)), &[1, 4, 4, 1]),
        (Box::new(MaxPool2d::new(2).stride(0)), &[1, 4, 4, 1]),
        (Box::new(AvgPool2d::new(2).padding(2)), &[1, 4, 4, 1]),
        (Box::new(MaxPool2d::new(5)), &[1, 4, 4, 1]),
        (Box::new(AdaptiveAvgPool2d::new(0)), &[1, 4, 4, 1]),
        (Box::new(GlobalAvgPool::<2>), &[1, 4, 1]),
        (Box::new(BatchNorm::new(init, 3).unwrap()), &[5, 4]),
        (Box::new(BatchNorm::new(init, 3).unwrap()), &[1, 3]),
        (Box::new(LayerNorm::new(init, &[3]).unwrap()), &[5, 4]),
        (Box::new(GroupNorm::new(init, 2, 4).unwrap()), &[2, 5, 6]),
        (Box::new(InstanceNorm::new(init, 3).unwrap()), &[2, 4, 4]),
        (Box::new(Flatten { start: 2, end: 1 }), &[2, 3, 4]),
        (Box::new(Softmax { axis: 2 }), &[2, 3]),
    ];
    for (layer, shape) in cases {
        let (kind, model) = (layer.kind(), vec![vec![layer]]);
        let x = Tensor::zeros(&cpu, shape, DType::F32).unwrap();
        let refused = model.forward(&x).expect_err(kind);
        match &refused {
            Error::In { path, layer, .. } => assert_eq!((path.as_str(), *layer), ("0.0", kind), "{refused}"),
            other => panic!("{kind}: {other}"),
        }
    }
}
