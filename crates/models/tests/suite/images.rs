//! The families of networks of images at small sizes: names, numbers of parameters, shapes, a step, and what they refuse.

use kiln_core::{DType, Result};
use kiln_cpu::Cpu;
use kiln_models::{
    MobileNetV2, MobileNetV2Config, Model, ResNet, ResNetConfig, Vgg, VggConfig, VggHead, WideResNet, WideResNetConfig,
};
use kiln_nn::optim::{Adam, Optimizer};
use kiln_nn::{Indices, Init, Layer, Module, Rng, Tensor};

const RESNET: ResNetConfig = ResNetConfig {
    classes: 3,
    width: 2,
    blocks: [1, 2, 1, 1],
    ..ResNetConfig::RESNET34
};
const VGG: VggConfig = VggConfig {
    classes: 3,
    width: 2,
    head: VggHead::Large {
        hidden: 16,
        dropout: 0.5,
    },
    ..VggConfig::VGG13
};
const WIDE: WideResNetConfig = WideResNetConfig {
    classes: 3,
    depth: 16,
    width: 2,
    widen: 2,
    dropout: 0.3,
};
const MOBILE: MobileNetV2Config = MobileNetV2Config {
    classes: 3,
    width: 0.125,
    last: 16,
    ..MobileNetV2Config::IMAGENET
};

/// A network, and the number of parameters that its sizes say.
type Built = (Box<dyn Layer<Cpu>>, usize);

/// Makes the networks of all families: each kind of stem, block, norm and head.
fn all() -> Vec<(&'static str, Built)> {
    fn init() -> Init<Cpu> {
        Init::new(&Cpu::new(), 3)
    }
    let resnet = |c: ResNetConfig| -> Built { (Box::new(ResNet::new(init(), c).unwrap()), c.parameters()) };
    let vgg = |c: VggConfig| -> Built { (Box::new(Vgg::new(init(), c).unwrap()), c.parameters()) };
    let wide = |c: WideResNetConfig| -> Built { (Box::new(WideResNet::new(init(), c).unwrap()), c.parameters()) };
    let mobile = |c: MobileNetV2Config| -> Built { (Box::new(MobileNetV2::new(init(), c).unwrap()), c.parameters()) };
    let bottlenecks = ResNetConfig {
        bottleneck: true,
        ..RESNET
    };
    vec![
        ("basic blocks", resnet(RESNET)),
        ("bottlenecks", resnet(bottlenecks)),
        ("basic blocks, small", resnet(RESNET.small(3))),
        ("bottlenecks, small", resnet(bottlenecks.small(3))),
        ("vgg", vgg(VGG)),
        ("vgg with norms", vgg(VGG.with_norm())),
        ("vgg, small", vgg(VGG.small(3))),
        ("wide", wide(WIDE)),
        ("wide by 1", wide(WideResNetConfig { widen: 1, ..WIDE })),
        ("mobile", mobile(MOBILE)),
        ("mobile, small", mobile(MOBILE.small(3))),
    ]
}

#[test]
fn numbers_of_parameters_are_those_of_the_sizes() {
    for (name, (net, parameters)) in all() {
        assert_eq!(net.num_parameters(), parameters, "{name}");
    }
    // torchvision's, and of Wide ResNet the number of the authors' net.
    let published = [
        (Model::ResNet18Large, 11_689_512),
        (Model::ResNet34, 21_797_672),
        (Model::ResNet50, 25_557_032),
        (Model::ResNet101, 44_549_160),
        (Model::ResNet152, 60_192_808),
        (Model::Vgg11Large, 132_863_336),
        (Model::Vgg13, 133_047_848),
        (Model::Vgg16, 138_357_544),
        (Model::Vgg19, 143_667_240),
        (Model::Vgg11Norm, 132_868_840),
        (Model::Vgg13Norm, 133_053_736),
        (Model::Vgg16Norm, 138_365_992),
        (Model::Vgg19Norm, 143_678_248),
        (Model::WideResNet, 36_479_194),
        (Model::MobileNetV2, 3_504_872),
    ];
    for (model, parameters) in published {
        assert_eq!(model.card().parameters, parameters, "{model}");
    }
}

/// A step reaches every parameter.
#[test]
fn one_step_reaches_every_parameter() {
    let cpu = Cpu::new();
    let x = Tensor::rand(&cpu, &[4, 32, 32, 3], DType::F32, &mut Rng::new(1)).unwrap();
    let labels = Indices::from_slice(&cpu, &[0, 1, 2, 0], &[4]).unwrap();
    for (name, (mut net, _)) in all() {
        let values = |net: &dyn Layer<Cpu>| -> Vec<(String, Vec<f64>)> {
            let named = net.named_parameters().into_iter();
            named.map(|(path, p)| (path, p.to_f64().unwrap())).collect()
        };
        let before = values(&*net);
        let y = net.forward(&x).unwrap();
        assert_eq!(y.shape().dims(), [4, 3], "{name}");
        let loss = y.cross_entropy(&labels).unwrap();
        Adam::new(1e-2).step(&mut net, &loss.backward().unwrap()).unwrap();
        for ((path, before), (_, after)) in before.iter().zip(values(&*net)) {
            assert!(after.iter().all(|v| v.is_finite()), "{name}: {path}");
            assert_ne!(&after, before, "{name}: {path} did not change");
        }
    }
}

#[test]
fn parameters_have_torchvisions_names() {
    let named = |net: &dyn Layer<Cpu>| -> Vec<String> { net.state_dict().names().map(str::to_string).collect() };
    let init = || Init::new(&Cpu::new(), 0);
    let expect = |names: Vec<String>, wanted: &[&str]| {
        for name in wanted {
            assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
        }
    };
    let names = named(&ResNet::new(init(), RESNET).unwrap());
    assert!(
        !names
            .iter()
            .any(|n| n.contains("conv3") || n.starts_with("layer1.0.downsample"))
    );
    expect(
        names,
        &[
            "conv1.weight",
            "layer2.1.bn2.running_var",
            "layer2.0.downsample.0.weight",
            "fc.bias",
        ],
    );
    expect(
        named(&Vgg::new(init(), VGG).unwrap()),
        &[
            "features.0.bias",
            "features.2.weight",
            "features.22.weight",
            "classifier.0.weight",
            "classifier.6.bias",
        ],
    );
    expect(
        named(&Vgg::new(init(), VGG.small(3)).unwrap()),
        &["features.1.running_mean", "features.31.weight", "classifier.bias"],
    );
    expect(
        named(&MobileNetV2::new(init(), MOBILE).unwrap()),
        &[
            "features.0.0.weight",
            "features.0.1.running_mean",
            "features.1.conv.0.0.weight",
            "features.1.conv.1.weight",
            "features.1.conv.2.bias",
            "features.2.conv.2.weight",
            "features.17.conv.3.num_batches_tracked",
            "features.18.1.weight",
            "classifier.1.weight",
        ],
    );
}

#[test]
fn what_a_net_does_not_take_is_refused() {
    let cpu = Cpu::new();
    let init = || Init::new(&cpu, 0);
    fn refused<T>(made: Result<T>, part: &str) {
        let message = made.map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    for depth in [0, 4, 12, 27] {
        refused(WideResNet::new(init(), WideResNetConfig { depth, ..WIDE }), "depth");
    }
    refused(
        WideResNet::new(init(), WideResNetConfig { dropout: 1.5, ..WIDE }),
        "p = 1.5",
    );
    for width in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(MobileNetV2::new(init(), MobileNetV2Config { width, ..MOBILE }), "width");
    }
    refused(
        MobileNetV2::new(init(), MobileNetV2Config { classes: 0, ..MOBILE }),
        "0",
    );
    refused(ResNet::new(init(), ResNetConfig { width: 0, ..RESNET }), "0");
    refused(Vgg::new(init(), VggConfig { classes: 0, ..VGG }), "0");
    // An image of 31 pixels has none left behind five max-pools, and one of 64 has four.
    let image = |side: usize| Tensor::zeros(&cpu, &[1, side, side, 3], DType::F32).unwrap();
    let mut net = Vgg::new(init(), VGG.small(3)).unwrap();
    net.eval();
    refused(net.forward(&image(31)), "features.34");
    refused(net.forward(&image(64)), "classifier");
    assert!(Vgg::new(init(), VGG).unwrap().forward(&image(64)).is_ok());
}

/// Dropout is on in training alone.
#[test]
fn dropout_is_off_in_evaluation() {
    let cpu = Cpu::new();
    let x = Tensor::rand(&cpu, &[2, 32, 32, 3], DType::F32, &mut Rng::new(1)).unwrap();
    let with_dropout = ["vgg", "wide", "mobile"];
    for (name, (mut net, _)) in all().into_iter().filter(|(name, _)| with_dropout.contains(name)) {
        let logits = |net: &dyn Layer<Cpu>| net.forward(&x).unwrap().to_f64().unwrap();
        assert_ne!(logits(&*net), logits(&*net), "{name}");
        net.eval();
        assert_eq!(logits(&*net), logits(&*net), "{name}");
    }
}
