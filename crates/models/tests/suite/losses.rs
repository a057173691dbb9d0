//! Fifty training steps of every network but the largest, whose losses repeat bit for bit.
//!
//! `tests/losses/SET.txt` holds the losses for one instruction set, one line for each network; on a processor without a file
//! the first steps are compared within a tolerance. After an intended change of the arithmetic,
//! `KILN_RECORD=1 cargo test -p kiln-models --test suite losses` records new losses; its commit says why.

use kiln_core::DType;
use kiln_cpu::Cpu;
use kiln_models::{Model, Net, OutputKind, Update};
use kiln_nn::optim::{Adam, Optimizer, Sgd};
use kiln_nn::{Indices, Rng, Tensor};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

const STEPS: usize = 50;
/// The instruction set whose losses are compared on a processor without a file of its own.
const REFERENCE: &str = "avx512";
/// The number of first steps that are compared with another instruction set's losses, and their tolerance.
const ALIKE: usize = 5;
const TOLERANCE: f32 = 1e-2;

/// The networks whose steps a test can afford, of images those of small ones. Those of speech and of pairs of texts are tested by what they
/// learn, in `speech.rs` and beside their task, GANs of convolutions by a step and beside their task, and MobileNetV2 and networks of clips by their values, in
/// `golden.rs`.
fn affordable() -> impl Iterator<Item = Model> {
    Model::ALL
        .into_iter()
        .filter(|model| model.card().parameters < 20_000_000 && model.input().image().is_none_or(|[h, ..]| h <= 32))
        .filter(|model| !matches!(model.card().output, OutputKind::Letters(_) | OutputKind::Translation(_)))
        .filter(|model| model.input().clip().is_none())
        .filter(|model| !matches!(model, Model::WganGpConv | Model::Dcgan | Model::StyleGan2))
        .filter(|model| {
            !matches!(
                model,
                Model::BertMini
                    | Model::BertClassifier
                    | Model::BertTagger
                    | Model::BertReader
                    | Model::MobileNetV2Small
            )
        })
}

fn record(set: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/losses/{set}.txt"))
}

/// The loss of batch `step`: `n` images, brighter for higher labels, or a sequence that repeats with a period.
fn loss(net: &Net<Cpu>, model: Model, n: usize, step: usize) -> Tensor<Cpu> {
    let cpu = &Cpu::new();
    let classes = model.outputs();
    match model.input().image() {
        Some([h, w, c]) => {
            let noise = Tensor::rand(cpu, &[n, h, w, c], DType::F32, &mut Rng::new(step as u64)).unwrap();
            let labels: Vec<i32> = (0..n).map(|i| ((i + step) % classes) as i32).collect();
            let light: Vec<f32> = labels.iter().map(|&l| l as f32 / classes as f32).collect();
            let light = Tensor::from_slice(cpu, &light, &[n, 1, 1, 1]).unwrap();
            let x = noise.mul(&light).unwrap();
            let labels = Indices::from_slice(cpu, &labels, &[n]).unwrap();
            net.classify(&x).unwrap().unwrap().cross_entropy(&labels).unwrap()
        }
        None => {
            const T: usize = 24;
            let ids: Vec<i32> = (0..n * T + 1).map(|i| ((i + step) * 7 % 13) as i32).collect();
            let of = |ids: &[i32]| Indices::from_slice(cpu, ids, &[n, T]).unwrap();
            let logits = net.language_model().unwrap().forward(&of(&ids[..n * T])).unwrap();
            logits.cross_entropy(&of(&ids[1..])).unwrap()
        }
    }
}

/// The losses of a network without logits: those of its first phase on one batch, by the optimizers of its recipe.
fn losses_of_steps(model: Model) -> Vec<f32> {
    let mut steps = model.steps(&Cpu::new(), 0, 16).unwrap();
    let mut updates: Vec<Update<Cpu>> = Update::of_each(&model.recipe().phases());
    let mut step = || steps.train(&mut updates, &|_, part| part()).unwrap()[0].item().unwrap() as f32;
    (0..STEPS).map(|_| step()).collect()
}

fn losses(model: Model) -> Vec<f32> {
    if matches!(model.card().output, OutputKind::Images | OutputKind::Numbers(_)) {
        return losses_of_steps(model);
    }
    let cpu = Cpu::new();
    let mut net: Net<Cpu> = model.build(&cpu, 0).unwrap();
    let (n, mut optimizer): (usize, Box<dyn Optimizer<Cpu>>) = match model {
        Model::MnistCnn => (16, Box::new(Adam::new(1e-3))),
        Model::Lenet => (16, Box::new(Sgd::new(1e-2).momentum(0.9))),
        Model::ResNet18 | Model::Vgg11 => (2, Box::new(Sgd::new(1e-2).momentum(0.9).weight_decay(5e-4))),
        Model::GptMini => (2, Box::new(Adam::new(1e-4))),
        _ => unreachable!("{model} has no logits, or is too large"),
    };
    let step = |step| {
        let loss = loss(&net, model, n, step);
        let value = loss.item().unwrap();
        optimizer.step(&mut net, &loss.backward().unwrap()).unwrap();
        value as f32
    };
    (0..STEPS).map(step).collect()
}

#[test]
fn fifty_losses_of_every_net_are_as_recorded() {
    let set = kiln_cpu::Machine::this().instruction_set;
    let mut found = String::new();
    let mut all = Vec::new();
    for model in affordable() {
        let losses = losses(model);
        assert!(losses.iter().all(|l| l.is_finite()), "{model}: {losses:?}");
        write!(found, "{model}").unwrap();
        for loss in &losses {
            write!(found, " {:08x}", loss.to_bits()).unwrap();
        }
        found.push('\n');
        all.push(losses);
    }
    if std::env::var_os("KILN_RECORD").is_some() {
        fs::write(record(set), &found).unwrap();
    }
    let own = record(set).is_file();
    let recorded = fs::read_to_string(record(if own { set } else { REFERENCE })).unwrap();
    assert_eq!(recorded.lines().count(), all.len());
    for ((model, losses), line) in affordable().zip(all).zip(recorded.lines()) {
        let (name, values) = line.split_once(' ').unwrap();
        assert_eq!(name, model.name());
        let expected: Vec<f32> = values
            .split(' ')
            .map(|hex| f32::from_bits(u32::from_str_radix(hex, 16).unwrap()))
            .collect();
        assert_eq!(expected.len(), STEPS, "{model}");
        if own {
            let differs = losses
                .iter()
                .zip(&expected)
                .position(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(
                differs, None,
                "{model}: the first step whose loss differs from {set}'s record"
            );
        } else {
            for (step, (a, b)) in losses.iter().zip(&expected).take(ALIKE).enumerate() {
                assert!(
                    (a - b).abs() <= TOLERANCE * b.abs(),
                    "{model}, step {step}: {a} and {b}"
                );
            }
        }
    }
}
