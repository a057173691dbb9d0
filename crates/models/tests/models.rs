//! Shapes, sizes, names and gradients of every network.

use kiln_core::DType;
use kiln_cpu::Cpu;
use kiln_models::{
    DataKind, Gpt, GptConfig, Input, InputKind, LanguageModel, MetricKind, Model, Net, OptimizerOptions, ResNet18,
    Sampler, Vgg11,
};
use kiln_nn::trace::trace;
use kiln_nn::{Indices, Init, Layer, Module, Rng, Tensor, no_grad};

/// A batch of random images or tokens, and labels for it.
fn batch(cpu: &Cpu, model: Model, n: usize) -> (Input<Cpu>, Indices<Cpu>) {
    let classes = model.classes();
    match model.input() {
        InputKind::Images([h, w, c]) => {
            let x = Tensor::rand(cpu, &[n, h, w, c], DType::F32, &mut Rng::new(7)).unwrap();
            let labels: Vec<i32> = (0..n).map(|i| (i % classes) as i32).collect();
            (Input::Images(x), Indices::from_slice(cpu, &labels, &[n]).unwrap())
        }
        InputKind::Tokens(t) => {
            let ids: Vec<i32> = (0..n * t + 1).map(|i| (i * i % classes) as i32).collect();
            let of = |ids: &[i32]| Indices::from_slice(cpu, ids, &[n, t]).unwrap();
            (Input::Tokens(of(&ids[..n * t])), of(&ids[1..]))
        }
    }
}

#[test]
fn every_model_has_its_shape_and_pytorchs_number_of_parameters() {
    let cpu = Cpu::new();
    // The numbers of the same networks written in PyTorch.
    let parameters = [93_322, 62_006, 11_173_962, 9_231_114, 10_795_776];
    for (model, parameters) in Model::ALL.into_iter().zip(parameters) {
        let mut net = model.build(&cpu, 0).unwrap();
        assert_eq!(net.num_parameters(), parameters, "{model}");
        assert_eq!(model.card().parameters, parameters, "{model}");
        assert_eq!(Model::from_name(model.name()), Some(model));
        net.eval();
        let y = no_grad(|| net.forward(&model.zeros(&cpu, 1).unwrap())).unwrap();
        let expected = match model.input() {
            InputKind::Images(_) => vec![1, model.classes()],
            InputKind::Tokens(t) => vec![1, t, model.classes()],
        };
        assert_eq!(y.shape().dims(), expected, "{model}");
    }
    assert_eq!(Model::from_name("resnet"), None);
}

/// Every parameter must get a gradient that is not zero; the failure names the one that does not.
#[test]
fn one_step_reaches_every_parameter() {
    let cpu = Cpu::new();
    for model in Model::ALL {
        // The small networks get a batch large enough that no ReLU is zero for all of its images.
        let n = if matches!(model, Model::MnistCnn | Model::Lenet) {
            16
        } else {
            2
        };
        let mut net = model.build(&cpu, 0).unwrap();
        assert_eq!(net.num_trainable(), net.num_parameters(), "{model}");
        let (x, labels) = batch(&cpu, model, n);
        let grads = net
            .forward(&x)
            .unwrap()
            .cross_entropy(&labels)
            .unwrap()
            .backward()
            .unwrap();
        let mut before = Vec::new();
        for (path, parameter) in net.named_parameters() {
            let grad = grads.get(parameter.tensor());
            let grad = grad.unwrap_or_else(|| panic!("{model}: no gradient for {path}"));
            assert_eq!(grad.shape(), parameter.tensor().shape(), "{model}: {path}");
            let grad = grad.to_f64().unwrap();
            assert!(grad.iter().all(|g| g.is_finite()), "{model}: gradient of {path}");
            assert!(grad.iter().any(|&g| g != 0.0), "{model}: gradient of {path} is zero");
            before.push(parameter.tensor().to_f64().unwrap());
        }
        let recipe = model.recipe();
        let mut optimizer = OptimizerOptions {
            lr: 1e-3,
            ..recipe.optimizer
        }
        .build();
        optimizer.step(&mut net, &grads).unwrap();
        for ((path, parameter), before) in net.named_parameters().iter().zip(&before) {
            let after = parameter.tensor().to_f64().unwrap();
            assert!(after.iter().all(|v| v.is_finite()), "{model}: {path}");
            assert_ne!(&after, before, "{model}: {path} did not change");
        }
    }
}

/// Parameters have the names of published weights.
#[test]
fn parameters_have_the_names_of_the_originals() {
    let cpu = Cpu::new();
    let names = |module: &dyn Module<Cpu>| module.state_dict().names().map(str::to_string).collect::<Vec<_>>();
    let resnet = names(&ResNet18::new(Init::new(&cpu, 0), 10).unwrap());
    for name in [
        "conv1.weight",
        "bn1.running_var",
        "layer1.1.conv2.weight",
        "layer2.0.downsample.0.weight",
        "layer4.0.downsample.1.num_batches_tracked",
        "fc.bias",
    ] {
        assert!(resnet.iter().any(|n| n == name), "{name}");
    }
    assert!(!resnet.iter().any(|n| n.starts_with("layer1.0.downsample")));
    let vgg = names(&Vgg11::new(Init::new(&cpu, 0), 10).unwrap());
    for name in [
        "features.0.bias",
        "features.25.weight",
        "features.26.running_mean",
        "classifier.weight",
    ] {
        assert!(vgg.iter().any(|n| n == name), "{name} in {vgg:?}");
    }
}

fn small() -> GptConfig {
    GptConfig {
        vocabulary: 11,
        context: 8,
        layers: 2,
        heads: 2,
        width: 6,
    }
}

/// A changed token changes no logits before it, and those from its position on.
#[test]
fn a_gpt_sees_the_past_alone() {
    let cpu = Cpu::new();
    let gpt = Gpt::new(Init::new(&cpu, 3), small()).unwrap();
    let logits = |ids: &[i32]| {
        let ids = Indices::from_slice(&cpu, ids, &[1, ids.len()]).unwrap();
        gpt.forward(&ids).unwrap().to_f64().unwrap()
    };
    let (one, other) = (logits(&[1, 2, 3, 4, 5]), logits(&[1, 2, 9, 4, 5]));
    assert_eq!(one[..22], other[..22]);
    assert!(one[22..].iter().zip(&other[22..]).all(|(a, b)| a != b));
    // A shorter sequence is a prefix of a longer one.
    let short = logits(&[1, 2]);
    assert!(short.iter().zip(&one).all(|(a, b)| (a - b).abs() < 1e-6));
}

#[test]
fn what_a_net_does_not_take_is_refused() {
    let cpu = Cpu::new();
    let gpt = Gpt::new(Init::new(&cpu, 0), small()).unwrap();
    let long = Indices::from_slice(&cpu, &[0i32; 9], &[1, 9]).unwrap();
    assert!(gpt.forward(&long).unwrap_err().to_string().contains("at most 8"));
    let odd = GptConfig { heads: 4, ..small() };
    assert!(
        Gpt::new(Init::new(&cpu, 0), odd)
            .unwrap_err()
            .to_string()
            .contains("heads")
    );

    let net = Net::Tokens(Box::new(gpt));
    let images = Model::Lenet.zeros(&cpu, 1).unwrap();
    assert!(net.forward(&images).unwrap_err().to_string().contains("token ids"));
    let lenet = Model::Lenet.build(&cpu, 0).unwrap();
    assert!(
        lenet
            .forward(&Input::Tokens(long))
            .unwrap_err()
            .to_string()
            .contains("images")
    );
}

/// The expected number of operations is counted by hand.
#[test]
fn flops_of_a_gpt_count_attention() {
    let cpu = Cpu::new();
    let gpt = Gpt::new(Init::new(&cpu, 0), small()).unwrap();
    let ids = Indices::from_slice(&cpu, &[1i32; 16], &[2, 8]).unwrap();
    let (y, calls) = trace(|| gpt.forward(&ids));
    y.unwrap();
    let flops: u64 = calls.iter().filter(|c| c.depth == 0).map(|c| c.flops).sum();
    let (rows, width) = (16, 6);
    let dense = 2 * rows * width * (3 + 1 + 4 + 4) * width;
    // Two products for two sequences, over the 8·9/2 pairs of positions that the causal mask allows.
    let attention = 2 * 2 * 2 * 36 * width;
    assert_eq!(flops, 2 * (dense + attention) + 2 * rows * width * 11);
}

#[test]
fn a_layer_is_what_images_take() {
    let cpu = Cpu::new();
    let net = ResNet18::new(Init::new(&cpu, 0), 3).unwrap();
    let x = Tensor::zeros(&cpu, &[1, 16, 16, 3], DType::F32).unwrap();
    assert_eq!(no_grad(|| net.forward(&x)).unwrap().shape().dims(), [1, 3]);
    let wrong = Tensor::zeros(&cpu, &[1, 16, 16, 4], DType::F32).unwrap();
    assert!(net.forward(&wrong).unwrap_err().to_string().contains("conv1"));
}

#[test]
fn every_recipe_fits_its_network() {
    let cpu = Cpu::new();
    for model in Model::ALL {
        let recipe = model.recipe();
        let tokens = matches!(model.input(), InputKind::Tokens(_));
        assert_eq!(recipe.data == DataKind::Text, tokens, "{model}");
        assert_eq!(recipe.metric == MetricKind::Perplexity, tokens, "{model}");
        let optimizer = recipe.optimizer.build::<Cpu>();
        assert_eq!(optimizer.lr(), recipe.optimizer.lr, "{model}");
        assert!(recipe.epochs > 0 && recipe.batch > 0, "{model}");
        if let (Some((mean, deviation)), InputKind::Images([.., channels])) = (recipe.normalise, model.input()) {
            assert!(
                [1, channels].contains(&mean.len()) && mean.len() == deviation.len(),
                "{model}"
            );
        }
    }
    // Other numbers of classes, and none.
    for model in [Model::MnistCnn, Model::Lenet] {
        let net = model.build_for(&cpu, 0, 3).unwrap();
        let logits = net.forward(&model.zeros(&cpu, 2).unwrap()).unwrap();
        assert_eq!(logits.shape().dims(), [2, 3], "{model}");
        assert!(model.build_for(&cpu, 0, 0).is_err(), "{model}");
    }
}

/// The labels of a window of ids are the next ids, those of images their classes.
#[test]
fn a_loss_is_what_a_loader_gives_the_samples_for() {
    let cpu = Cpu::new();
    let gpt = Gpt::new(Init::new(&cpu, 3), small()).unwrap();
    let window = [1, 2, 3, 4, 5, 6i32];
    let of = |ids: &[i32]| Indices::from_slice(&cpu, ids, &[1, ids.len()]).unwrap();
    let expected = gpt
        .forward(&of(&window[..5]))
        .unwrap()
        .cross_entropy(&of(&window[1..]))
        .unwrap();
    let net = Net::Tokens(Box::new(gpt));
    let none = Indices::from_slice(&cpu, &[0i32], &[1]).unwrap();
    let (loss, logits) = net.loss(&of(&window).to_float(DType::F32).unwrap(), &none).unwrap();
    assert_eq!(loss.item().unwrap(), expected.item().unwrap());
    assert_eq!(logits.shape().dims(), [1, 5, 11]);
    let short = Tensor::zeros(&cpu, &[1, 1], DType::F32).unwrap();
    assert!(net.loss(&short, &none).unwrap_err().to_string().contains("T + 1"));

    let lenet = Model::Lenet.build(&cpu, 0).unwrap();
    let Input::Images(x) = Model::Lenet.zeros(&cpu, 1).unwrap() else {
        panic!("lenet takes images")
    };
    let (loss, logits) = lenet.loss(&x, &none).unwrap();
    assert_eq!(
        loss.item().unwrap(),
        logits.cross_entropy(&none).unwrap().item().unwrap()
    );
}

#[test]
fn text_is_drawn_from_what_fits_the_context() {
    let cpu = Cpu::new();
    let mut gpt = Gpt::new(Init::new(&cpu, 3), small()).unwrap();
    gpt.eval();
    let long: Vec<i32> = (0..20).map(|i| i % 11).collect();
    let logits = gpt.next_logits(&long).unwrap();
    assert_eq!(logits.len(), 11);
    assert_eq!(logits, gpt.next_logits(&long[12..]).unwrap());
    assert_ne!(logits, gpt.next_logits(&long[13..]).unwrap());
    assert!(Sampler::new(1).draw(&logits).unwrap() < 11);
    assert!(gpt.next_logits(&[]).is_err());
    assert!(gpt.next_logits(&[11]).unwrap_err().to_string().contains("wte"));
}
