//! Tests of StyleGAN2 at a small size.

use crate::images::Images;
use crate::task::Task;
use crate::{Batches, Model, Net, Steps, StyleGan2, StyleGan2Config, Update};
use kiln_core::DType;
use kiln_cpu::Cpu;
use kiln_data::{LoaderOptions, Sizes, Synthetic};
use kiln_nn::{Init, Module, Rng, Tensor, autocast};
use kiln_train::{TrainOptions, Trainer};
use std::sync::Arc;

const TINY: StyleGan2Config = StyleGan2Config {
    image: [7, 7, 1],
    style: 12,
    mapping_layers: 2,
    channel_base: 64,
    channel_max: 10,
    r1_gamma: 0.1,
    ..StyleGan2Config::SMALL
};

fn small(gan: StyleGan2<Cpu>) -> Task<Cpu, StyleGan2<Cpu>, Images> {
    super::of(gan, &super::SMALL.config)
}

fn tiny() -> StyleGan2<Cpu> {
    StyleGan2::new(Init::new(&Cpu::new(), 3), TINY).unwrap()
}

/// Those of the `paper256` of `stylegan2-ada-pytorch`.
#[test]
fn the_network_as_published_has_as_many_parameters() {
    let gan = StyleGan2::new(Init::new(&Cpu::new(), 0), super::PAPER).unwrap();
    let parts = (gan.generator.num_parameters(), gan.discriminator.num_parameters());
    assert_eq!(parts, (24_767_458, 24_001_089));
    assert_eq!(Model::StyleGan2Large.card().parameters, parts.0 + parts.1);
}

#[test]
fn parameters_have_the_names_of_the_original() {
    let gan = tiny();
    let state = gan.state_dict();
    let names: Vec<&str> = state.names().collect();
    for name in [
        "generator.mapping.fc0.weight",
        "generator.mapping.fc1.bias",
        "generator.mapping.w_avg",
        "generator.synthesis.b4.const",
        "generator.synthesis.b4.conv1.affine.weight",
        "generator.synthesis.b4.torgb.weight",
        "generator.synthesis.b8.conv0.noise_strength",
        "generator.synthesis.b8.conv0.noise_const",
        "generator.synthesis.b8.conv0.resample_filter",
        "generator.synthesis.b8.torgb.affine.bias",
        "discriminator.b8.fromrgb.weight",
        "discriminator.b8.conv1.resample_filter",
        "discriminator.b8.skip.weight",
        "discriminator.b4.conv.weight",
        "discriminator.b4.fc.weight",
        "discriminator.b4.out.bias",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert!(!names.contains(&"generator.synthesis.b4.conv0.weight") && !names.contains(&"discriminator.b8.skip.bias"));
    let shape = |name: &str| state.float(name).unwrap().shape().dims().to_vec();
    assert_eq!(shape("generator.synthesis.b4.const"), [10, 4, 4]);
    assert_eq!(shape("generator.synthesis.b8.conv0.weight"), [8, 3, 3, 10]);
    assert_eq!(shape("discriminator.b4.fc.weight"), [10, 160]);
}

/// The rates and decays of Adam are those of updates of which a penalty takes one in k + 1.
#[test]
fn lazy_penalties_correct_adam() {
    for phase in Model::StyleGan2.recipe().phases() {
        let every = match (phase.name, phase.shares) {
            ("generator", None) => 4.0,
            ("discriminator", None) => 16.0,
            ("path", Some("generator")) | ("r1", Some("discriminator")) => continue,
            other => panic!("{other:?}"),
        };
        let share: f64 = every / (every + 1.0);
        let [beta1, beta2] = phase.optimizer.betas.unwrap();
        assert!(beta1 == 0.0 && (beta2 - 0.99f64.powf(share)).abs() < 1e-9, "{beta2}");
        assert!((phase.optimizer.lr - 2.5e-3 * share).abs() < 1e-12);
    }
}

fn batches() -> Batches {
    let images = Synthetic::images(64, &[7, 7, 1], 2, 0).unwrap();
    Batches {
        dataset: Arc::new(images),
        options: LoaderOptions {
            batch_size: 8,
            ..Default::default()
        },
        transform: Model::StyleGan2.transform(None).unwrap(),
    }
}

/// A step makes the updates whose turn it is: 16 epochs of 8 steps are 128 steps, with 32 penalties of paths and 8 of slopes.
#[test]
fn losses_are_finite_and_the_discriminator_learns() {
    let cpu = Cpu::new();
    let mut net = Net::new(small(tiny()));
    let phases = Model::StyleGan2.recipe().phases();
    let updates: Vec<Update<Cpu>> = Update::of_each(&phases);
    let mut updates: Vec<Update<Cpu>> = updates
        .into_iter()
        .zip(&phases)
        .map(|(update, phase)| Update {
            every: phase.every,
            ..update
        })
        .collect();
    // The generator stands still, so that what the discriminator learns stays true.
    updates[0].optimizer.set_lr(0.0);
    let options = TrainOptions {
        epochs: 16,
        ..Default::default()
    };
    let report = net
        .fit(&mut Trainer::new(&cpu, options), &mut updates, batches(), None)
        .unwrap();
    let epochs = report.history.epochs();
    let of = |name: &str| -> Vec<f64> {
        epochs
            .iter()
            .filter_map(|epoch| epoch.train.get(name).copied())
            .filter(|v| v.is_finite())
            .collect()
    };
    let losses = of("discriminator/loss");
    assert!(losses.len() == 16 && losses[15] < 0.8 * losses[0], "{losses:?}");
    // The penalty of slopes has its turn in every second epoch, that of paths twice in each.
    assert_eq!((of("r1/loss").len(), of("path/loss").len()), (8, 16));
    assert!(of("path/length").iter().all(|length| *length > 0.0));
    let state = net.state_dict();
    let changed = |name: &str| state.float(name).unwrap().to_f64().unwrap().iter().any(|v| *v != 0.0);
    assert!(changed("pl_mean") && changed("generator.mapping.w_avg"));
    // The penalties go on with the optimizers of the losses.
    for (owner, penalty) in [(0, 1), (2, 3)] {
        let [owner, penalty] = [owner, penalty].map(|i| updates[i].optimizer.state_dict().unwrap());
        let moments = |state: &kiln_nn::module::StateDict<Cpu>| -> Vec<f64> {
            let name = state.names().find(|name| name.ends_with(".exp_avg_sq")).unwrap();
            state.float(name).unwrap().to_f64().unwrap()
        };
        assert_eq!(moments(&owner), moments(&penalty));
    }
}

/// All four updates in mixed precision: finite losses, near those of f32.
#[test]
fn halves_change_losses_little() {
    let cpu = Cpu::new();
    let losses = |dtype: DType| -> Vec<f64> {
        let config = StyleGan2Config {
            image: [28, 28, 1],
            ..TINY
        };
        let gan = StyleGan2::new(Init::new(&cpu, 3), config).unwrap();
        let mut steps = Steps::of(Net::new(small(gan)), &super::SMALL.card, &cpu, 8).unwrap();
        let mut updates = Update::of_each(&Model::StyleGan2.recipe().phases());
        let train = || Ok(steps.train(&mut updates, &|_, part| part()));
        let losses = autocast(dtype, train).unwrap();
        losses.unwrap().iter().map(|loss| loss.item().unwrap()).collect()
    };
    for (half, full) in losses(DType::BF16).into_iter().zip(losses(DType::F32)) {
        assert!((half - full).abs() <= 0.1 * full.abs() + 0.02, "{half} and {full}");
    }
}

/// The same latent vectors give the same images, truncated ones are closer to each other, and a walk begins and ends with new images.
#[test]
fn images_are_drawn_and_walked_between() {
    let cpu = Cpu::new();
    let mut gan = tiny();
    gan.eval();
    let latent = Tensor::randn(&cpu, &[4, TINY.latent], DType::F32, &mut Rng::new(1)).unwrap();
    let of = |truncation| gan.generate(&latent, truncation).unwrap();
    assert_eq!(of(1.0).shape().dims(), [4, 7, 7, 1]);
    assert_eq!(of(1.0).to_f64().unwrap(), of(1.0).to_f64().unwrap());
    let spread = |images: Tensor<Cpu>| {
        images
            .var(&[0], 0, false)
            .unwrap()
            .mean(&[], false)
            .unwrap()
            .item()
            .unwrap()
    };
    assert!(spread(of(0.5)) < spread(of(1.0)) && spread(of(0.0)) < 1e-10);
    let mut net = Net::new(small(gan));
    net.eval();
    let walk = net.walk_between(&cpu, 2, 3, 5).unwrap().unwrap();
    assert_eq!(walk.shape().dims(), [6, 7, 7, 1]);
    let drawn = net.draw(&cpu, 4, 5).unwrap().unwrap();
    for (in_walk, drawn_at) in [(0, 0), (3, 1), (2, 2), (5, 3)] {
        let one = |of: &Tensor<Cpu>, at| of.narrow(0, at, 1).unwrap().to_f64().unwrap();
        let pairs = one(&walk, in_walk).into_iter().zip(one(&drawn, drawn_at));
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-4), "{in_walk}");
    }
}

#[test]
fn sizes_are_checked_and_those_of_the_data_taken() {
    let cpu = Cpu::new();
    for config in [
        StyleGan2Config {
            image: [8, 7, 1],
            ..TINY
        },
        StyleGan2Config {
            image: [4, 4, 1],
            ..TINY
        },
        StyleGan2Config {
            image: [2048, 2048, 1],
            ..TINY
        },
        StyleGan2Config {
            mapping_layers: 0,
            ..TINY
        },
    ] {
        assert!(StyleGan2::new(Init::new(&cpu, 0), config).is_err(), "{config:?}");
    }
    let input = Model::Dcgan.input();
    assert!(input.fits(&[28, 28, 1]) && input.fits(&[32, 32, 3]) && input.fits(&[64, 64, 1]));
    assert!(!input.fits(&[30, 30, 1]) && !input.fits(&[32, 64, 3]) && !input.fits(&[32, 32, 2]));
    for model in [Model::Dcgan, Model::WganGpConv, Model::StyleGan2] {
        let sizes = Sizes {
            image: Some([32, 32, 3]),
            ..Sizes::default()
        };
        let mut net = model.build_for(&cpu, 0, sizes).unwrap();
        net.eval();
        assert_eq!(
            net.draw(&cpu, 2, 0).unwrap().unwrap().shape().dims(),
            [2, 32, 32, 3],
            "{model}"
        );
    }
}
