//! Options that name parameters and layers: freezing, activation checkpointing, norms of gradients.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::LabelledOn;
use kiln_nn::autograd::checkpoint_layers;
use kiln_nn::layers::{BatchNorm, Flatten, Linear};
use kiln_nn::module::NamePattern;
use kiln_nn::optim::{Adam, ByName, Sgd};
use kiln_nn::{Backend, Gradients, Init, Layer, Module, Optimizer, Param, Sequential, Tensor};
use kiln_train::{
    Average, Checkpoint, Checkpoints, Clip, GradNorm, Output, RunFolder, TrainError, TrainOptions, Trainer, Warning,
    check_by_name,
};

fn patterns(texts: &[&str]) -> Vec<NamePattern> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn values(model: &impl Module<Cpu>, name: &str) -> Vec<f64> {
    model.state_dict().float(name).unwrap().to_f64().unwrap()
}

#[test]
fn frozen_parameters_stay_and_their_statistics_move() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 0);
    let mut net = Sequential::new()
        .push(Flatten::default())
        .push_named("body", Linear::new(init, 64, 8).unwrap())
        .unwrap()
        .push_named("norm", BatchNorm::new(init, 8).unwrap())
        .unwrap()
        .push_named("head", Linear::new(init, 8, 4).unwrap())
        .unwrap();
    let before = net.clone();
    let options = TrainOptions {
        freeze: patterns(&["body", "norm.*", "*.bias"]),
        average: Some(Average::Ema { decay: 0.5 }),
        ..Default::default()
    };
    let data = loader(images(32, 0), 8, true, 0);
    let report = Trainer::new(&cpu, options)
        .fit(&mut net, &mut Adam::new(1e-2), step, &data, Some(&data))
        .unwrap();
    assert_eq!(report.steps, 4);
    for name in ["body.weight", "body.bias", "norm.weight", "norm.bias", "head.bias"] {
        assert_eq!(values(&net, name), values(&before, name), "{name}");
    }
    for name in ["head.weight", "norm.running_mean", "norm.running_var"] {
        assert_ne!(values(&net, name), values(&before, name), "{name}");
    }
    assert_eq!(net.num_trainable(), 32);
}

#[test]
fn a_pattern_that_matches_nothing_names_what_is_near() {
    let cpu = Cpu::new();
    let data = loader(images(8, 0), 8, false, 0);
    let refused = |options: TrainOptions| {
        let mut net = Net::new(&cpu, 0);
        let before = bytes(&net);
        let refused = Trainer::new(&cpu, options)
            .fit(&mut net, &mut Sgd::new(0.1), step, &data, None)
            .unwrap_err();
        assert!(before == bytes(&net) && net.num_trainable() == net.num_parameters());
        refused.to_string()
    };
    let message = refused(TrainOptions {
        freeze: patterns(&["dense", "cnov.weight"]),
        ..Default::default()
    });
    assert!(
        message.starts_with("freeze: no parameter of the model is named `cnov.weight`"),
        "{message}"
    );
    assert!(message.contains("the nearest names are `conv.weight`"), "{message}");
    // A parameter is no layer.
    let message = refused(TrainOptions {
        recompute: patterns(&["dense.weight"]),
        ..Default::default()
    });
    assert!(
        message.contains("no layer of the model is named `dense.weight`"),
        "{message}"
    );
    assert!(message.contains("`dense`"), "{message}");
    let mut net = Net::new(&cpu, 0);
    let all = TrainOptions {
        freeze: patterns(&["*"]),
        ..Default::default()
    };
    let refused = Trainer::new(&cpu, all).fit(&mut net, &mut Sgd::new(0.1), step, &data, None);
    assert!(refused.unwrap_err().to_string().contains("freeze = all parameters"));
    let by_name = ByName::new().lr_factor("dens".parse().unwrap(), 0.1);
    assert!(matches!(check_by_name(&net, &by_name), Err(TrainError::NoMatch { .. })));
}

/// Trains with options and returns the weights and the training values of each epoch.
fn run(options: TrainOptions) -> (Vec<u8>, Vec<kiln_train::Values>) {
    let cpu = Cpu::poisoned();
    let mut net = Net::with_dropout(&cpu, 1, 0.2);
    let data = loader(images(30, 0), 7, true, 0);
    let report = Trainer::new(&cpu, options)
        .fit(&mut net, &mut Adam::new(1e-2), step, &data, None)
        .unwrap();
    let values = report.history.epochs().iter().map(|e| e.train.clone()).collect();
    (bytes(&net), values)
}

#[test]
fn layers_that_are_computed_again_train_to_the_same_bits() {
    for options in [
        TrainOptions {
            epochs: 2,
            clip: Some(Clip::Norm(0.5)),
            ..Default::default()
        },
        TrainOptions {
            epochs: 2,
            accumulate: 2,
            autocast: Some(kiln_nn::DType::BF16),
            ..Default::default()
        },
    ] {
        let plain = run(options.clone());
        for recompute in [patterns(&["dropout", "dense"]), patterns(&["*"])] {
            let saving = run(TrainOptions {
                recompute,
                ..options.clone()
            });
            assert!(plain == saving);
        }
    }
}

#[test]
fn a_run_warns_of_layers_that_are_not_computed_again() {
    /// A layer that cannot be cloned.
    #[derive(Module)]
    struct Head<B: Backend> {
        fc: Linear<B>,
    }
    impl<B: Backend> Layer<B> for Head<B> {
        fn call(&self, x: &Tensor<B>) -> kiln_nn::Result<Tensor<B>> {
            self.fc.forward(x)?.relu()
        }
    }
    #[derive(Module)]
    struct Model<B: Backend> {
        flatten: Flatten,
        head: Head<B>,
        body: Linear<B>,
    }
    let cpu = Cpu::new();
    let data = loader(images(8, 0), 4, false, 0);
    let fit = |recompute: &[&str]| {
        let init = &mut Init::new(&cpu, 0);
        let mut net = Model {
            flatten: Flatten::default(),
            head: Head {
                fc: Linear::new(init, 8, 4).unwrap(),
            },
            body: Linear::new(init, 64, 8).unwrap(),
        };
        let step = |net: &Model<Cpu>, batch: &LabelledOn<Cpu>| {
            let x = net.body.forward(&net.flatten.forward(&batch.inputs)?)?;
            Ok(Output::new(net.head.forward(&x)?.cross_entropy(&batch.labels)?))
        };
        let options = TrainOptions {
            recompute: patterns(recompute),
            ..Default::default()
        };
        Trainer::new(&cpu, options).fit(&mut net, &mut Sgd::new(0.1), step, &data, None)
    };
    let report = fit(&["*"]).unwrap();
    let [warning] = &report.warnings[..] else {
        panic!("{:?}", report.warnings)
    };
    assert_eq!(
        warning,
        &Warning::NotRecomputed {
            layers: vec!["`head` (Head)".to_string()]
        }
    );
    assert!(
        warning.to_string().starts_with("recompute: `head` (Head) is kept"),
        "{warning}"
    );
    assert!(fit(&["body", "head.fc"]).unwrap().warnings.is_empty());
    // `head` matches what is in it too, of which there are copies; a model of none but such layers is refused.
    let mut only = Head {
        fc: Linear::new(&mut Init::new(&cpu, 0), 64, 4).unwrap(),
    };
    let options = TrainOptions {
        recompute: patterns(&["fcc"]),
        ..Default::default()
    };
    let step = |net: &Head<Cpu>, batch: &LabelledOn<Cpu>| {
        Ok(Output::new(
            net.forward(&batch.inputs.flatten(1, -1)?)?
                .cross_entropy(&batch.labels)?,
        ))
    };
    let refused = Trainer::new(&cpu, options)
        .fit(&mut only, &mut Sgd::new(0.1), step, &data, None)
        .unwrap_err();
    assert!(refused.to_string().contains("the nearest names are `fc`"), "{refused}");
}

#[test]
fn a_pattern_of_layers_without_copies_says_so() {
    /// Neither a layer nor one that can be cloned.
    #[derive(Module)]
    struct Bare<B: Backend> {
        weight: Param<B>,
    }
    #[derive(Module)]
    struct Model<B: Backend> {
        bare: Bare<B>,
    }
    let cpu = Cpu::new();
    let net = Model {
        bare: Bare {
            weight: Init::new(&cpu, 0).kernel(&[4, 64]).unwrap(),
        },
    };
    let options = TrainOptions {
        recompute: patterns(&["ba*"]),
        ..Default::default()
    };
    let refused = options.check_names(&net).unwrap_err();
    assert!(
        matches!(&refused, TrainError::NoCopy { names, .. } if names == "`bare`"),
        "{refused}"
    );
    assert!(refused.to_string().contains("derive `Clone`"), "{refused}");
}

#[test]
fn norms_of_gradients_are_those_of_a_loop() {
    let cpu = Cpu::poisoned();
    let (mut net, mut adam) = (Net::with_dropout(&cpu, 1, 0.2), Adam::new(1e-2));
    let data = loader(images(30, 0), 7, true, 0);
    let mut expected: Vec<(f64, f64)> = Vec::new();
    for batch in data.epoch(0).unwrap() {
        let batch: LabelledOn<Cpu> = batch.unwrap().to_device(&cpu).unwrap();
        let mut grads: Gradients<Cpu> = step(&net, &batch).unwrap().loss.backward().unwrap();
        let norm = grads.norm(net.parameters()).unwrap().item().unwrap();
        let conv: f64 = [&net.parameters()[0], &net.parameters()[1]]
            .iter()
            .flat_map(|p| grads.get(p).unwrap().to_f64().unwrap())
            .map(|g| g * g)
            .sum();
        expected.push((norm, conv.sqrt()));
        grads.clip_norm(net.parameters(), 0.3).unwrap();
        adam.step(&mut net, &grads).unwrap();
    }
    let options = TrainOptions {
        clip: Some(Clip::Norm(0.3)),
        grad_norm: GradNorm::Layers,
        log_every: 2,
        ..Default::default()
    };
    let (weights, values) = run(options.clone());
    assert!(weights == bytes(&net), "measuring changes nothing");
    let close = |name: &str, value: f64| {
        let found = values[0][name];
        assert!((found - value).abs() < 1e-5 * value, "{name}: {found} {value}");
    };
    let steps = expected.len() as f64;
    close("grad_norm", expected.iter().map(|e| e.0).sum::<f64>() / steps);
    close("grad_norm_max", expected.iter().map(|e| e.0).fold(0.0, f64::max));
    close("grad_norm/conv", expected.iter().map(|e| e.1).sum::<f64>() / steps);
    assert!(values[0].contains_key("grad_norm/dense"));
    let (_, values) = run(TrainOptions {
        grad_norm: GradNorm::Off,
        ..options
    });
    assert!(values[0].keys().all(|name| !name.starts_with("grad_norm")));
}

#[test]
fn a_resumed_run_goes_on_with_the_same_norms_and_freezes_the_same() {
    let parent = tempfile::tempdir().unwrap();
    let options = TrainOptions {
        epochs: 2,
        freeze: patterns(&["conv.bias"]),
        grad_norm: GradNorm::Layers,
        log_every: 3,
        checkpoints: Some(Checkpoints {
            every_steps: Some(2),
            ..Default::default()
        }),
        ..Default::default()
    };
    let (weights, values) = run(options.clone());
    let cpu = Cpu::poisoned();
    let data = loader(images(30, 0), 7, true, 0);
    let fit = |folder: RunFolder, options: TrainOptions, resume: bool| {
        let checkpoint = resume.then(|| Checkpoint::latest(&folder).unwrap());
        let mut net = Net::with_dropout(&cpu, 1, 0.2);
        let mut trainer = Trainer::new(&cpu, options).folder(folder);
        if let Some(checkpoint) = checkpoint {
            trainer = trainer.resume(checkpoint);
        }
        trainer
            .fit(&mut net, &mut Adam::new(1e-2), step, &data, None)
            .map(|report| (bytes(&net), report))
    };
    let path = parent.path().join("run");
    let cut = TrainOptions {
        max_steps: Some(7),
        ..options.clone()
    };
    fit(RunFolder::create(&path).unwrap(), cut, false).unwrap();
    let other = TrainOptions {
        freeze: Vec::new(),
        ..options.clone()
    };
    let refused = fit(RunFolder::reopen(&path).unwrap(), other, true).unwrap_err();
    assert!(refused.to_string().contains("frozen"), "{refused}");
    let (again, report) = fit(RunFolder::reopen(&path).unwrap(), options, true).unwrap();
    assert!(weights == again);
    let resumed: Vec<_> = report.history.epochs().iter().map(|e| e.train.clone()).collect();
    assert_eq!(resumed, values);
    let table = std::fs::read_to_string(path.join(RunFolder::TABLE)).unwrap();
    assert!(
        table.lines().next().unwrap().contains("train/grad_norm/conv,"),
        "{table}"
    );
}

/// A layer of the model runs by the names of the options alone: outside of a run nothing is selected.
#[test]
fn a_selection_ends_with_its_closure() {
    let cpu = Cpu::new();
    let net = Net::new(&cpu, 0);
    let data = loader(images(4, 0), 4, false, 0);
    let batch: LabelledOn<Cpu> = data.epoch(0).unwrap().next().unwrap().unwrap().to_device(&cpu).unwrap();
    let inner = checkpoint_layers(
        &net,
        |_| true,
        || {
            let failed: kiln_nn::Result<()> = checkpoint_layers(
                &net,
                |_| true,
                || Err(kiln_nn::Error::invalid("test", "x", 0, "an error")),
            );
            assert!(failed.is_err());
            net.forward(&batch.inputs)
        },
    );
    let outer = net.forward(&batch.inputs);
    assert_eq!(inner.unwrap().to_f64().unwrap(), outer.unwrap().to_f64().unwrap());
}
