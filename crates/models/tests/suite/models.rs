//! Shapes, sizes, names and gradients of every network.

use kiln_core::DType;
use kiln_cpu::Cpu;
use kiln_data::{LoaderOptions, Sizes, WINDOWS};
use kiln_models::{
    Batches, Generator, Gpt, Gpt2, Gpt2Config, GptConfig, LanguageModel, Model, Net, OneBatch, OutputKind, ResNet,
    ResNetConfig, Sampler, TextCache, Update, Vgg, VggConfig,
};
use kiln_nn::trace::trace;
use kiln_nn::{Indices, Init, Layer, Module, Tensor, no_grad};

/// The networks that a test can afford to build and to run; the others are tested at smaller sizes in `published.rs` and `images.rs`.
fn affordable() -> impl Iterator<Item = Model> {
    Model::ALL.into_iter().filter(|model| {
        model.card().parameters < 20_000_000
            && model.input().image().is_none_or(|[h, ..]| h <= 32)
            && !matches!(
                model,
                Model::BertMini | Model::BertClassifier | Model::BertTagger | Model::BertReader
            )
    })
}

/// `count` made-up samples of a model as one batch.
fn batches(model: Model, count: usize) -> Batches {
    Batches {
        dataset: model.input().samples(count, model.outputs().max(1), 7).unwrap(),
        options: LoaderOptions {
            batch_size: count,
            ..Default::default()
        },
        transform: model.transform(None).unwrap(),
    }
}

/// What `look` finds in a batch of `count` made-up samples.
fn with_batch<R>(net: &Net<Cpu>, model: Model, count: usize, look: impl Fn(&dyn OneBatch<Cpu>) -> R) -> R {
    let mut found = None;
    let seen = net.each_batch(&Cpu::new(), batches(model, count), &mut |batch| {
        found = Some(look(batch));
        Ok(true)
    });
    seen.unwrap();
    found.unwrap()
}

#[test]
fn every_model_has_its_shape_and_pytorchs_number_of_parameters() {
    let cpu = Cpu::new();
    // The numbers of the same networks written in PyTorch.
    let parameters = [
        93_322, 62_006, 11_173_962, 9_231_114, 10_795_776, 652_824, 550_928, 672_448, 898_304, 1_719_308, 4_801,
        834_845, 1_397_632, 2_236_682, 2_081_016, 1_962_295, 288_024,
    ];
    for (model, parameters) in affordable().zip(parameters) {
        let mut net = model.build(&cpu, 0).unwrap();
        assert_eq!(net.num_parameters(), parameters, "{model}");
        assert_eq!(model.card().parameters, parameters, "{model}");
        assert_eq!(Model::from_name(model.name()), Some(model));
        net.eval();
        let y = with_batch(&net, model, 1, |batch| batch.forward().unwrap());
        match model.card().output {
            OutputKind::Classes(n) | OutputKind::Numbers(n) => assert_eq!(y.shape().dims(), [1, n], "{model}"),
            OutputKind::Characters(n) | OutputKind::Tokens(n) | OutputKind::Vocabulary(n) => {
                assert_eq!(y.shape().dims(), [1, model.input().shape[0], n], "{model}")
            }
            OutputKind::Letters(n) => assert_eq!(y.shape().dims(), [1, model.input().shape[0] / 4, n], "{model}"),
            // A token for the end, and one for the beginning, which is never written.
            OutputKind::Translation(n) => {
                assert_eq!(y.shape().dims(), [1, model.input().shape[0] / 2, n + 2], "{model}")
            }
            OutputKind::Tags(n) => assert_eq!(y.shape().dims()[2], n, "{model}"),
            OutputKind::Spans => assert_eq!(y.shape().dims()[2], 2, "{model}"),
            OutputKind::Images | OutputKind::Boxes(_) => assert_eq!(y.shape()[0], 1, "{model}"),
        }
    }
    assert_eq!(Model::from_name("resnet"), None);
}

/// A step must change every parameter; the failure names the one that stays.
#[test]
fn one_step_reaches_every_parameter() {
    let cpu = Cpu::new();
    for model in affordable() {
        // The small networks get a batch large enough that no ReLU is zero for all of its images.
        let n = if matches!(
            model,
            Model::ResNet18
                | Model::Vgg11
                | Model::MobileNetV2Small
                | Model::GptMini
                | Model::R3dSmall
                | Model::R2Plus1dSmall
        ) {
            2
        } else {
            16
        };
        let mut steps = model.steps(&cpu, 0, n).unwrap();
        let net = steps.net();
        assert_eq!(net.num_trainable(), net.num_parameters(), "{model}");
        let values = |net: &mut dyn Module<Cpu>| -> Vec<(String, Vec<f64>)> {
            let named = net.named_parameters();
            named
                .into_iter()
                .map(|(path, p)| (path, p.tensor().to_f64().unwrap()))
                .collect()
        };
        let before = values(steps.net());
        let mut phases = model.recipe().phases();
        phases.iter_mut().for_each(|phase| phase.optimizer.lr = 1e-3);
        let mut updates = Update::of_each(&phases);
        let losses = steps.train(&mut updates, &|_, part| part()).unwrap();
        assert_eq!(losses.len(), updates.len(), "{model}");
        assert!(losses.iter().all(|loss| loss.item().unwrap().is_finite()), "{model}");
        for ((path, before), (_, after)) in before.iter().zip(values(steps.net())) {
            assert!(after.iter().all(|v| v.is_finite()), "{model}: {path}");
            assert_ne!(&after, before, "{model}: {path} did not change");
        }
        assert_eq!(steps.net().num_trainable(), steps.net().num_parameters(), "{model}");
        steps.net().eval();
        steps.infer(&|_, part| part()).unwrap();
    }
}

/// Parameters have the names of published weights.
#[test]
fn parameters_have_the_names_of_the_originals() {
    let cpu = Cpu::new();
    let names = |module: &dyn Module<Cpu>| module.state_dict().names().map(str::to_string).collect::<Vec<_>>();
    let resnet = names(&ResNet::new(Init::new(&cpu, 0), ResNetConfig::RESNET18.small(10)).unwrap());
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
    let vgg = names(&Vgg::new(Init::new(&cpu, 0), VggConfig::VGG11.small(10)).unwrap());
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
fn what_fills_in_masks_tells_logits_of_all_tokens() {
    let (cpu, vocabulary) = (Cpu::new(), 40);
    let sizes = Sizes {
        outputs: Some(vocabulary),
        ..Sizes::default()
    };
    let mut net = Model::BertMini.build_for(&cpu, 1, sizes).unwrap();
    net.eval();
    let of = |ids: &[f32], rows: usize| {
        let texts = Tensor::from_slice(&cpu, ids, &[rows, ids.len() / rows]).unwrap();
        no_grad(|| net.of_tokens(&texts).unwrap())
    };
    let (one, two) = ([3.0, 7.0, 1.0, -1.0], [9.0, 39.0, 0.0, -1.0]);
    let both = of(&[one, two].concat(), 2).unwrap();
    assert_eq!(both.shape().dims(), [2, 3, vocabulary]);
    // A text says nothing about another, nor what is behind its end about it.
    for (row, alone) in [(0, of(&one[..3], 1)), (1, of(&two, 1))] {
        let alone = alone.unwrap().to_f64().unwrap();
        let found = both.narrow(0, row, 1).unwrap().to_f64().unwrap();
        assert!(alone.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-5), "{row}");
    }
    assert!(of(&[3.0, 7.0, 1.0, 2.0, -1.0, -1.0], 2).is_err());
    assert!(of(&[-1.0, -1.0], 1).is_err());
}

#[test]
fn a_layer_is_what_images_take() {
    let cpu = Cpu::new();
    let net = ResNet::new(Init::new(&cpu, 0), ResNetConfig::RESNET18.small(3)).unwrap();
    let x = Tensor::zeros(&cpu, &[1, 16, 16, 3], DType::F32).unwrap();
    assert_eq!(no_grad(|| net.forward(&x)).unwrap().shape().dims(), [1, 3]);
    let wrong = Tensor::zeros(&cpu, &[1, 16, 16, 4], DType::F32).unwrap();
    assert!(net.forward(&wrong).unwrap_err().to_string().contains("conv1"));
}

#[test]
fn every_recipe_fits_its_network() {
    let cpu = Cpu::new();
    for model in affordable() {
        let (card, recipe) = (model.card(), model.recipe());
        assert_eq!(recipe.data.card().samples, model.input().kind, "{model}");
        let net = model.build(&cpu, 0).unwrap();
        let names: Vec<&str> = recipe.phases().iter().map(|phase| phase.name).collect();
        assert_eq!(names, net.phases(), "{model}: the phases of recipe and task");
        for phase in recipe.phases() {
            assert_eq!(phase.optimizer.build::<Cpu>().lr(), phase.optimizer.lr, "{model}");
            assert!(phase.every > 0);
        }
        assert!(
            recipe.epochs > 0 && recipe.batch > 0 && recipe.valid_batch > 0,
            "{model}"
        );
        if let (Some((mean, deviation)), Some([.., channels])) = (recipe.normalise, model.input().image()) {
            assert!(
                [1, channels].contains(&mean.len()) && mean.len() == deviation.len(),
                "{model}"
            );
        }
        assert!(
            card.monitored().any(|shown| shown.name == card.monitor.0),
            "{model}: what is monitored is shown"
        );
        // Every network answers with something to look at.
        assert_eq!(
            net.language_model().is_some(),
            model.input().kind == &WINDOWS,
            "{model}"
        );
        assert_eq!(
            net.draw(&cpu, 1, 0).is_some(),
            card.output == OutputKind::Images,
            "{model}"
        );
    }
    // Other numbers of classes, and none.
    let sizes = |outputs| Sizes {
        outputs: Some(outputs),
        ..Sizes::default()
    };
    for model in [Model::MnistCnn, Model::Lenet, Model::Mlp] {
        let net = model.build_for(&cpu, 0, sizes(3)).unwrap();
        let logits = with_batch(&net, model, 2, |batch| batch.forward().unwrap());
        assert_eq!(logits.shape().dims(), [2, 3], "{model}");
        assert!(model.build_for(&cpu, 0, sizes(0)).is_err(), "{model}");
        assert!(model.steps(&cpu, 0, 0).is_err(), "{model}");
    }
}

/// The labels of a window of ids are the next ids, those of images their classes.
#[test]
fn a_loss_is_what_a_loader_gives_the_samples_for() {
    let cpu = Cpu::new();
    let mut net = Model::GptMini.build(&cpu, 3).unwrap();
    net.eval();
    let samples = batches(Model::GptMini, 1).dataset;
    let ids: Vec<i32> = samples.get(0).unwrap().input.iter().map(|&id| id as i32).collect();
    let of = |ids: &[i32]| Indices::from_slice(&cpu, ids, &[1, ids.len()]).unwrap();
    let (input, next) = (of(&ids[..ids.len() - 1]), of(&ids[1..]));
    let logits = no_grad(|| net.language_model().unwrap().forward(&input)).unwrap();
    let expected = logits.cross_entropy(&next).unwrap().item().unwrap();
    let loss = with_batch(&net, Model::GptMini, 1, |batch| {
        batch.measure().unwrap().loss.item().unwrap()
    });
    assert_eq!(loss, expected);

    let lenet = Model::Lenet.build(&cpu, 0).unwrap();
    with_batch(&lenet, Model::Lenet, 3, |batch| {
        let output = batch.measure().unwrap();
        let (scores, labels) = (output.floats("scores").unwrap(), output.integers("labels").unwrap());
        let expected = scores.cross_entropy(labels).unwrap().item().unwrap();
        assert_eq!(output.loss.item().unwrap(), expected);
        assert_eq!(batch.forward().unwrap().to_f64().unwrap(), scores.to_f64().unwrap());
    });
}

fn small_gpt2() -> Gpt2Config {
    Gpt2Config {
        vocabulary: 11,
        context: 8,
        layers: 2,
        heads: 2,
        width: 8,
        dropout: 0.1,
    }
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
    assert!(Sampler::new(1).draw(&logits, &[]).unwrap() < 11);
    assert!(gpt.next_logits(&[]).is_err());
    assert!(gpt.next_logits(&[11]).unwrap_err().to_string().contains("wte"));
}

/// A text that is read in pieces has the logits of one that is read at once, whichever the pieces.
#[test]
fn a_cache_gives_the_logits_of_the_whole_text() {
    let cpu = Cpu::new();
    let mut gpt = Gpt::new(Init::new(&cpu, 3), small()).unwrap();
    let mut gpt2 = Gpt2::new(Init::new(&cpu, 4), small_gpt2()).unwrap();
    gpt.eval();
    gpt2.eval();
    let nets: [&dyn LanguageModel<Cpu>; 2] = [&gpt, &gpt2];
    let text: [[i32; 8]; 2] = [[1, 5, 3, 10, 0, 7, 2, 4], [9, 9, 1, 0, 3, 8, 6, 5]];
    let ids = |from: usize, to: usize| {
        let ids: Vec<i32> = text.iter().flat_map(|t| t[from..to].to_vec()).collect();
        Indices::from_slice(&cpu, &ids, &[2, to - from]).unwrap()
    };
    for net in nets {
        let whole = net.forward(&ids(0, 8)).unwrap();
        for pieces in [&[8][..], &[1, 1, 1, 1, 1, 1, 1, 1], &[3, 5], &[5, 1, 2], &[7, 1]] {
            let (mut cache, mut seen) = (net.cache(), 0);
            for piece in pieces {
                let logits = net.next(&ids(seen, seen + piece), &mut cache).unwrap();
                seen += piece;
                assert_eq!(cache.len(), seen);
                assert_eq!(logits.shape().dims(), [2, 11]);
                let expected = whole.narrow(1, seen - 1, 1).unwrap().squeeze(1).unwrap();
                let (logits, expected) = (logits.to_f64().unwrap(), expected.to_f64().unwrap());
                for (a, b) in logits.iter().zip(&expected) {
                    assert!((a - b).abs() < 1e-5, "{pieces:?} at {seen}: {a} for {b}");
                }
            }
            // A full cache takes no more, and is as it was.
            let full = net.next(&ids(0, 1), &mut cache).unwrap_err().to_string();
            assert!(full.contains("at most 0, behind 8 of 8"), "{full}");
            assert_eq!(cache.len(), 8);
        }
        assert!(net.next(&ids(0, 0), &mut net.cache()).is_err());
        let one = Indices::from_slice(&cpu, &[1], &[1, 1]).unwrap();
        let mut cache = net.cache();
        net.next(&ids(0, 2), &mut cache).unwrap();
        assert!(net.next(&one, &mut cache).unwrap_err().to_string().contains("cache"));
        let of_one = &mut TextCache::new(1);
        assert!(net.next(&one, of_one).unwrap_err().to_string().contains("1 layers"));
    }
}

/// With weights of 16 bits, logits are those of f32 but for roundings, whether keys and values are kept or not, and a generator draws from them.
#[test]
fn language_models_write_in_half_dtypes() {
    let cpu = Cpu::new();
    let init = || Init::new(&cpu, 3);
    let mut gpt = Gpt::new(init(), small()).unwrap();
    let mut gpt2 = Gpt2::new(init(), small_gpt2()).unwrap();
    let nets: [&mut dyn LanguageModel<Cpu>; 2] = [&mut gpt, &mut gpt2];
    for net in nets {
        net.eval();
        let text = [3, 1, 4, 1, 5, 9];
        let of_f32 = net.next_logits(&text).unwrap();
        let size = of_f32.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (dtype, rounding) in [(DType::F16, 2e-3), (DType::BF16, 1.6e-2)] {
            net.to_dtype(dtype).unwrap();
            let mut cache = net.cache();
            let mut next = |ids: &[i32]| {
                let ids = Indices::from_slice(&cpu, ids, &[1, ids.len()]).unwrap();
                let logits = net.next(&ids, &mut cache).unwrap();
                assert_eq!(logits.dtype(), dtype);
                logits.to_f64().unwrap()
            };
            next(&text[..4]);
            let kept = [&text[4..5], &text[5..]].map(&mut next);
            let whole = net.next_logits(&text).unwrap();
            for ((&expected, &a), &b) in of_f32.iter().zip(&whole).zip(&kept[1]) {
                let near = |x: f32| (x - expected).abs() <= 4.0 * rounding * size;
                assert!(near(a) && near(b as f32), "{dtype}: {a}, {b} for {expected}, of {size}");
            }
            let drawn = Generator::new(&*net, Sampler::new(0), &text).unwrap().take(20);
            assert_eq!(drawn.filter(|token| token.is_ok()).count(), 20);
        }
    }
}

/// Greedy tokens of a generator are those of the whole text's logits as long as it fits the context, and go on behind that.
#[test]
fn a_generator_goes_on_past_the_context() {
    let cpu = Cpu::new();
    let mut gpt = Gpt::new(Init::new(&cpu, 3), small()).unwrap();
    gpt.eval();
    let greedy = || Sampler::new(0).temperature(0.0).unwrap();
    let write = |prompt: &[i32], count: usize| -> Vec<i32> {
        let tokens = Generator::new(&gpt, greedy(), prompt).unwrap().take(count);
        tokens.collect::<Result<_, _>>().unwrap()
    };
    let mut text = vec![1, 2];
    for token in write(&[1, 2], 7) {
        let expected = greedy().draw(&gpt.next_logits(&text).unwrap(), &[]).unwrap();
        assert_eq!(token, expected as i32, "behind {text:?}");
        text.push(token);
    }
    // The context of 8 is full: the last four tokens are read again.
    let expected = greedy().draw(&gpt.next_logits(&text[5..]).unwrap(), &[]).unwrap();
    assert_eq!(write(&[1, 2], 8)[7], expected as i32);
    assert_eq!(write(&[1, 2], 40).len(), 40);
    // Of a longer prompt, the tokens that fit.
    let long: Vec<i32> = (0..20).map(|i| i % 11).collect();
    let expected = greedy().draw(&gpt.next_logits(&long).unwrap(), &[]).unwrap();
    assert_eq!(write(&long, 1), [expected as i32]);
    assert!(Generator::new(&gpt, greedy(), &[]).is_err());
    let mut few = Generator::new(&gpt, Sampler::new(0), &[1]).unwrap().vocabulary(3);
    assert!((0..30).all(|_| few.next().unwrap().unwrap() < 3));
}
