//! The networks of published sizes, at small ones: shapes, names, numbers of parameters, and a step.

use kiln_core::{DType, Result};
use kiln_cpu::Cpu;
use kiln_models::{Bert, BertConfig, Gpt2, Gpt2Config, LanguageModel, Model, OutputKind, ResNet, ResNetConfig};
use kiln_nn::optim::{AdamW, Optimizer, Sgd};
use kiln_nn::trace::trace;
use kiln_nn::{Indices, Init, Layer, Module, Rng, Tensor, no_grad};

const RESNET: ResNetConfig = ResNetConfig {
    classes: 5,
    width: 4,
    blocks: [2, 1, 1, 1],
    ..ResNetConfig::RESNET50
};
const GPT2: Gpt2Config = Gpt2Config {
    vocabulary: 13,
    context: 8,
    layers: 2,
    heads: 2,
    width: 6,
    dropout: 0.1,
};
const BERT: BertConfig = BertConfig {
    vocabulary: 17,
    context: 8,
    types: 2,
    layers: 2,
    heads: 2,
    width: 6,
    hidden: 10,
    dropout: 0.1,
};

fn resnet(config: ResNetConfig) -> ResNet<Cpu> {
    ResNet::new(Init::new(&Cpu::new(), 3), config).unwrap()
}

fn gpt2(config: Gpt2Config) -> Gpt2<Cpu> {
    Gpt2::new(Init::new(&Cpu::new(), 3), config).unwrap()
}

fn bert(config: BertConfig) -> Bert<Cpu> {
    Bert::new(Init::new(&Cpu::new(), 3), config).unwrap()
}

fn ids(values: &[i32], shape: &[usize]) -> Indices<Cpu> {
    Indices::from_slice(&Cpu::new(), values, shape).unwrap()
}

/// Names and shapes of the parameters, a line each.
fn named(module: &dyn Module<Cpu>) -> String {
    let line = |(name, p): &(String, &kiln_nn::Param<Cpu>)| {
        let shape: Vec<String> = p.shape().iter().map(usize::to_string).collect();
        format!("{name} {}\n", shape.join("x"))
    };
    module.named_parameters().iter().map(line).collect()
}

/// Files with names and shapes of torchvision's and transformers' networks at these sizes. Kernels are channels-last here, and the
/// matrices of GPT-2's blocks are transposed.
#[test]
fn parameters_have_the_names_of_the_originals() {
    assert_eq!(named(&resnet(RESNET)), include_str!("../names/resnet50.txt"));
    assert_eq!(named(&gpt2(GPT2)), include_str!("../names/gpt2.txt"));
    assert_eq!(named(&bert(BERT)), include_str!("../names/bert.txt"));
}

/// The numbers of parameters follow from the sizes: those that the originals have at full size, those of what is built at small ones.
#[test]
fn numbers_of_parameters_are_those_of_the_originals() {
    assert_eq!(Gpt2Config::SMALL.parameters(), 124_439_808);
    assert_eq!(BertConfig::BASE.encoder_parameters(), 109_482_240);
    // `BertForPreTraining` has 110,106,428, of which 1,538 are of its classifier of pairs of sentences.
    assert_eq!(BertConfig::BASE.parameters(), 110_106_428 - 1_538);
    for config in [
        GPT2,
        Gpt2Config {
            layers: 1,
            width: 4,
            ..GPT2
        },
        GPT2.padded(8),
    ] {
        assert_eq!(gpt2(config).num_parameters(), config.parameters(), "{config:?}");
    }
    for config in [
        BERT,
        BertConfig {
            layers: 3,
            hidden: 5,
            ..BERT
        },
    ] {
        assert_eq!(bert(config).num_parameters(), config.parameters(), "{config:?}");
        assert_eq!(bert(config).encoder().num_parameters(), config.encoder_parameters());
    }
    assert_eq!(
        (GPT2.padded(8).vocabulary, GPT2.padded(1), GPT2.padded(0)),
        (16, GPT2, GPT2)
    );
    assert_eq!(Gpt2Config::SMALL.padded(64).vocabulary, 50_304);
}

#[test]
fn results_have_their_shapes() {
    let x = Tensor::zeros(&Cpu::new(), &[2, 64, 64, 3], DType::F32).unwrap();
    let (y, calls) = trace(|| no_grad(|| resnet(RESNET).forward(&x)));
    assert_eq!(y.unwrap().shape().dims(), [2, 5]);
    let shape = |path: &str| calls.iter().find(|c| c.path == path).unwrap().output.dims().to_vec();
    assert_eq!(shape("conv1"), [2, 32, 32, 4]);
    assert_eq!(shape("maxpool"), [2, 16, 16, 4]);
    assert_eq!(shape("layer1.1"), [2, 16, 16, 16]);
    assert_eq!(
        shape("layer2.0.conv1"),
        [2, 16, 16, 8],
        "the stride is in the 3x3 convolution"
    );
    assert_eq!(shape("layer4.0"), [2, 2, 2, 128]);

    let tokens = ids(&[1, 2, 3, 4, 5, 6], &[2, 3]);
    let (y, calls) = trace(|| gpt2(GPT2).forward(&tokens));
    assert_eq!(y.unwrap().shape().dims(), [2, 3, 13]);
    let head = calls.iter().find(|c| c.kind == "TiedHead").unwrap();
    assert_eq!(head.flops, 2 * 6 * 6 * 13, "six vectors of six times thirteen tokens");

    let bert = bert(BERT);
    let positions = ids(&[0, 4, 5], &[3]);
    assert_eq!(bert.forward(&tokens, &positions).unwrap().shape().dims(), [3, 17]);
    let all = bert
        .encoder()
        .forward(&tokens, Some(&ids(&[0, 0, 1, 0, 1, 1], &[2, 3])))
        .unwrap();
    assert_eq!(all.shape().dims(), [2, 3, 6]);
    assert_eq!(bert.encoder().pooled(&all).unwrap().shape().dims(), [2, 6]);
}

#[test]
fn what_a_net_does_not_take_is_refused() {
    let long = ids(&[0; 9], &[1, 9]);
    let refused = |e: Result<Tensor<Cpu>>, part: &str| {
        let message = e.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    refused(gpt2(GPT2).forward(&long), "at most 8");
    refused(bert(BERT).forward(&long, &ids(&[0], &[1])), "at most 8");
    refused(gpt2(GPT2).forward(&ids(&[13], &[1, 1])), "wte");
    let init = || Init::new(&Cpu::new(), 0);
    assert!(Gpt2::new(init(), Gpt2Config { heads: 4, ..GPT2 }).is_err());
    assert!(Gpt2::new(init(), Gpt2Config { dropout: 1.5, ..GPT2 }).is_err());
    assert!(Bert::new(init(), BertConfig { heads: 0, ..BERT }).is_err());
}

/// A changed token changes no logits before it, and those from its position on; a BERT sees both sides.
#[test]
fn a_gpt_sees_the_past_and_a_bert_both_sides() {
    let mut net = gpt2(GPT2);
    net.eval();
    let logits = |tokens: &[i32]| net.forward(&ids(tokens, &[1, tokens.len()])).unwrap().to_f64().unwrap();
    let (one, other) = (logits(&[1, 2, 3, 4, 5]), logits(&[1, 2, 9, 4, 5]));
    assert_eq!(one[..26], other[..26]);
    assert!(one[26..].iter().zip(&other[26..]).all(|(a, b)| a != b));
    assert_eq!(net.next_logits(&[1, 2, 3, 4, 5]).unwrap().len(), 13);

    let mut net = bert(BERT);
    net.eval();
    let logits = |tokens: &[i32]| {
        let positions = ids(&[0], &[1]);
        net.forward(&ids(tokens, &[1, tokens.len()]), &positions)
            .unwrap()
            .to_f64()
            .unwrap()
    };
    assert_ne!(logits(&[1, 2, 3]), logits(&[1, 2, 4]));
}

/// Every trainable parameter moves in a step, and none that is frozen; the loss of the same batch falls.
fn moves<M: Module<Cpu>>(mut net: M, loss: impl Fn(&M) -> Tensor<Cpu>, mut optimizer: impl Optimizer<Cpu>) {
    let values = |net: &M| -> Vec<(String, bool, Vec<f64>)> {
        let named = net.named_parameters().into_iter();
        named
            .map(|(name, p)| (name, p.is_trainable(), p.to_f64().unwrap()))
            .collect()
    };
    let (before, first) = (values(&net), loss(&net));
    optimizer.step(&mut net, &first.backward().unwrap()).unwrap();
    for ((name, trains, before), (_, _, after)) in before.iter().zip(values(&net)) {
        assert!(after.iter().all(|v| v.is_finite()), "{name}");
        assert_eq!(*trains, &after != before, "{name}");
    }
    assert!(loss(&net).item().unwrap() < first.item().unwrap());
}

#[test]
fn one_step_reaches_every_parameter() {
    let x = Tensor::rand(&Cpu::new(), &[4, 64, 64, 3], DType::F32, &mut Rng::new(1)).unwrap();
    let labels = ids(&[0, 1, 2, 3], &[4]);
    let loss = |net: &ResNet<Cpu>| net.forward(&x).unwrap().cross_entropy(&labels).unwrap();
    moves(resnet(RESNET), loss, Sgd::new(1e-3));

    let (tokens, next) = (
        ids(&[1, 2, 3, 4, 5, 6, 7, 8], &[1, 8]),
        ids(&[2, 3, 4, 5, 6, 7, 8, 9], &[1, 8]),
    );
    let plain = Gpt2Config { dropout: 0.0, ..GPT2 };
    let loss = |net: &Gpt2<Cpu>| net.forward(&tokens).unwrap().cross_entropy(&next).unwrap();
    moves(gpt2(plain), loss, AdamW::new(1e-3));

    let (positions, labels) = (ids(&[1, 5], &[2]), ids(&[4, 9], &[2]));
    let loss = |net: &Bert<Cpu>| {
        net.forward(&tokens, &positions)
            .unwrap()
            .cross_entropy(&labels)
            .unwrap()
    };
    let plain = BertConfig { dropout: 0.0, ..BERT };
    moves(bert(plain), loss, AdamW::new(1e-3));
}

/// Dropout is on in training alone.
#[test]
fn dropout_is_off_in_evaluation() {
    let tokens = ids(&[1, 2, 3, 4], &[1, 4]);
    let mut net = gpt2(Gpt2Config { dropout: 0.5, ..GPT2 });
    let logits = |net: &Gpt2<Cpu>| net.forward(&tokens).unwrap().to_f64().unwrap();
    assert_ne!(logits(&net), logits(&net));
    net.eval();
    assert_eq!(logits(&net), logits(&net));
}

/// The table has these networks with their full sizes, and what their data has fits them.
#[test]
fn cards_are_those_of_the_full_sizes() {
    for (model, context, tokens) in [(Model::Gpt2, 1024, 50_257), (Model::BertBase, 512, 30_522)] {
        assert_eq!(model.input().shape, [context], "{model}");
        assert_eq!(model.card().output, OutputKind::Tokens(tokens), "{model}");
    }
    assert_eq!(Model::ResNet50.card().output, OutputKind::Classes(1000));
    assert_eq!(Model::ResNet50.input().image(), Some([224, 224, 3]));
}
