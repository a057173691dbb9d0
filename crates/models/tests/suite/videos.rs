//! Networks of clips: names, numbers of parameters, what they learn and what they refuse.

use kiln_core::{DType, Result};
use kiln_cpu::Cpu;
use kiln_models::{ConvLstm, ConvLstmConfig, Model, VideoResNet, VideoResNetConfig};
use kiln_nn::optim::{Adam, Optimizer};
use kiln_nn::{Indices, Init, Layer, Module, Rng, Tensor};

const R3D: VideoResNetConfig = VideoResNetConfig {
    classes: 3,
    width: 4,
    blocks: [2, 1, 1, 1],
    factored: false,
};
const R2PLUS1D: VideoResNetConfig = VideoResNetConfig { factored: true, ..R3D };
const RECURRENT: ConvLstmConfig = ConvLstmConfig {
    classes: 3,
    channels: [4, 6, 8],
    grid: 2,
    features: 10,
    hidden: 12,
};

/// Makes the networks of all kinds, with the numbers of parameters that their sizes say.
fn all() -> Vec<(&'static str, Box<dyn Layer<Cpu>>, usize)> {
    let init = || Init::new(&Cpu::new(), 3);
    let resnet = |config| Box::new(VideoResNet::new(init(), config).unwrap());
    vec![
        ("r3d", resnet(R3D), R3D.parameters()),
        ("r2plus1d", resnet(R2PLUS1D), R2PLUS1D.parameters()),
        (
            "conv-lstm",
            Box::new(ConvLstm::new(init(), RECURRENT).unwrap()),
            RECURRENT.parameters(),
        ),
    ]
}

#[test]
fn sizes_and_names_are_those_of_the_originals() {
    for (name, net, parameters) in all() {
        assert_eq!(net.num_parameters(), parameters, "{name}");
    }
    // torchvision's.
    assert_eq!(Model::R3d18.card().parameters, 33_371_472);
    assert_eq!(Model::R2Plus1d18.card().parameters, 31_505_325);
    let names = |net: &dyn Module<Cpu>| net.state_dict().names().map(str::to_string).collect::<Vec<_>>();
    let [(_, whole, _), (_, factored, _), (_, recurrent, _)] = &all()[..] else {
        panic!("three networks")
    };
    for (net, expected) in [
        (
            names(whole),
            &[
                "stem.0.weight",
                "stem.1.running_mean",
                "layer1.0.conv1.0.weight",
                "layer1.1.conv2.1.bias",
                "layer2.0.downsample.0.weight",
                "layer4.0.downsample.1.num_batches_tracked",
                "fc.weight",
            ][..],
        ),
        (
            names(factored),
            &[
                "stem.3.weight",
                "stem.4.running_var",
                "layer1.0.conv1.0.0.weight",
                "layer1.0.conv1.0.1.weight",
                "layer2.0.conv2.0.3.weight",
                "layer2.0.conv2.1.weight",
            ],
        ),
        (
            names(recurrent),
            &[
                "conv1.weight",
                "bn3.bias",
                "fc1.bias",
                "lstm.weight_ih_l0",
                "fc2.weight",
            ],
        ),
    ] {
        for name in expected {
            assert!(net.iter().any(|n| n == name), "{name} in {net:?}");
        }
    }
}

/// Clips `[n, 4, 16, 16, 3]` of a bright column that moves to the right, to the left, or stays.
fn moving(n: usize, seed: u64) -> Result<(Tensor<Cpu>, Indices<Cpu>)> {
    let cpu = Cpu::new();
    let noise = Tensor::rand(&cpu, &[n, 4, 16, 16, 3], DType::F32, &mut Rng::new(seed))?;
    let labels: Vec<i32> = (0..n).map(|i| (i % 3) as i32).collect();
    let mut light = vec![0f32; n * 4 * 16];
    for (clip, &label) in labels.iter().enumerate() {
        for frame in 0..4 {
            let at = [6 + 2 * frame, 12 - 2 * frame, 9][label as usize];
            light[(clip * 4 + frame) * 16 + at] = 3.0;
        }
    }
    let light = Tensor::from_slice(&cpu, &light, &[n, 4, 1, 16, 1])?;
    Ok((noise.add(&light)?, Indices::from_slice(&cpu, &labels, &[n])?))
}

#[test]
fn motions_are_learned() {
    for (name, mut net, _) in all() {
        let mut optimizer = Adam::new(1e-2);
        let (x, labels) = moving(12, 1).unwrap();
        let mut losses = Vec::new();
        for _ in 0..25 {
            let loss = net.forward(&x).unwrap().cross_entropy(&labels).unwrap();
            losses.push(loss.item().unwrap());
            optimizer.step(&mut net, &loss.backward().unwrap()).unwrap();
        }
        let last = losses[losses.len() - 1];
        assert!((losses[0] - 3f64.ln()).abs() < 0.8 && last < 0.3, "{name}: {losses:?}");
    }
}

#[test]
fn what_is_no_clip_is_refused() {
    let cpu = Cpu::new();
    for (name, net, _) in all() {
        let of = |shape: &[usize]| net.forward(&Tensor::zeros(&cpu, shape, DType::F32).unwrap());
        assert_eq!(of(&[1, 5, 18, 22, 3]).unwrap().shape().dims(), [1, 3], "{name}");
        for wrong in [&[1, 16, 16, 3][..], &[1, 4, 16, 16, 1], &[1, 0, 16, 16, 3]] {
            assert!(of(wrong).is_err(), "{name}: {wrong:?}");
        }
        let init = Init::new(&cpu, 0);
        assert!(VideoResNet::new(init, VideoResNetConfig { classes: 0, ..R3D }).is_err());
    }
}
