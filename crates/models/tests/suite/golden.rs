//! Networks against their originals in torchvision and transformers, by name and value. `tests/golden/published.py` makes the file of those of
//! published sizes, `golden/bert_heads.py` that of BERT's heads, `golden/images.py` that of families of networks of images, and
//! `golden/videos.py` that of networks of clips;
//! those of detectors are in `golden/detectors.rs`.

mod detectors;

use kiln_core::{DType, Result};
use kiln_cpu::Cpu;
use kiln_models::{
    Bert, BertClassifier, BertConfig, BertReader, BertTagger, ConvLstm, ConvLstmConfig, Gpt2, Gpt2Config, MobileNetV2,
    MobileNetV2Config, MobileNetV2Stage, ResNet, ResNetConfig, Vgg, VggConfig, VggHead, VideoResNet, VideoResNetConfig,
    WideResNet, WideResNetConfig,
};
use kiln_nn::module::StateDict;
use kiln_nn::{Indices, Init, Layer, Layout, LoadOptions, Module, Tensor, weights};

/// The tensors of the golden file.
struct Golden(StateDict<Cpu>);

impl Golden {
    fn read() -> Self {
        Golden::of(include_bytes!("../golden/published.safetensors"))
    }

    fn of(bytes: &[u8]) -> Self {
        Golden(weights::decode(bytes, &Cpu::poisoned()).unwrap().0)
    }

    fn float(&self, name: &str) -> Tensor<Cpu> {
        let found = self.0.float(name).unwrap_or_else(|| panic!("{name}"));
        found.to_dtype(DType::F64).unwrap()
    }

    fn int(&self, name: &str) -> Indices<Cpu> {
        self.0.int(name).unwrap_or_else(|| panic!("{name}")).clone()
    }

    /// The network with the weights of `name`, all of whose entries it has but those that begin as one of `others`.
    fn load<M: Module<Cpu>>(&self, name: &str, others: &[&str], make: impl Fn(Init<Cpu>) -> Result<M>) -> M {
        let mut net = make(Init::new(&Cpu::poisoned(), 0).dtype(DType::F64)).unwrap();
        let options = LoadOptions::partial().layout(Layout::Torch);
        let report = net.load_state_dict(&self.0.part(name), options).unwrap();
        let known = |name: &String| others.iter().any(|other| name.starts_with(other));
        assert!(report.unexpected.iter().all(known), "{name}: {report}");
        // PyTorch's dropouts and frozen batch norms have no counters.
        let counted = |m: &String| m.ends_with("step") || m.ends_with("num_batches_tracked");
        let counters = report.missing.iter().all(counted);
        assert!(counters && report.mismatched.is_empty(), "{name}: {report}");
        net.eval();
        net
    }
}

fn close(got: &Tensor<Cpu>, want: &Tensor<Cpu>, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let want = want.to_f64().unwrap();
    let largest = want.iter().fold(0f64, |a, w| a.max(w.abs()));
    for (g, w) in got.to_f64().unwrap().iter().zip(&want) {
        // Some thousands of operations in f64, and norms of few values.
        assert!((g - w).abs() <= 1e-11 * largest, "{what}: {g}, expected {w}");
    }
}

/// The gradient of `sum(y · w)` for the parameter `name` of a network.
fn gradient(net: &dyn Module<Cpu>, name: &str, y: &Tensor<Cpu>, w: &Tensor<Cpu>) -> Tensor<Cpu> {
    let all = net.named_parameters();
    let (_, of) = all.iter().find(|(n, _)| n == name).unwrap();
    let sum = y.mul(w).unwrap().sum(&[], false).unwrap();
    sum.backward().unwrap().get(of).unwrap().clone()
}

/// Channels last, of images, of clips and of kernels.
fn channels_last(x: &Tensor<Cpu>) -> Tensor<Cpu> {
    let axes: Vec<isize> = [0].into_iter().chain(2..x.rank() as isize).chain([1]).collect();
    x.permute(&axes).unwrap()
}

/// Compares the logits of a step in training, the gradient of the kernel `first`, and the logits of evaluation behind that step.
fn of_images<M: Layer<Cpu>>(golden: &Golden, name: &str, first: &str, make: impl Fn(Init<Cpu>) -> Result<M>) {
    let mut net = golden.load(name, &[], make);
    let of = |part: &str| golden.float(&format!("{name}-{part}"));
    let x = channels_last(&of("x"));
    net.train();
    let y = net.forward(&x).unwrap();
    close(&y, &of("train"), &format!("{name} in training"));
    let dw = gradient(&net, &format!("{first}.weight"), &y, &of("w"));
    let want = of(if name == "resnet50" { "conv1" } else { "first" });
    close(&dw, &channels_last(&want), &format!("gradient of {name}"));
    // With the running statistics that the step has moved.
    net.eval();
    close(&net.forward(&x).unwrap(), &of("eval"), &format!("{name} in evaluation"));
}

#[test]
fn networks_of_clips_equal_torchvisions() {
    let golden = Golden::of(include_bytes!("../golden/videos.safetensors"));
    let whole = VideoResNetConfig {
        classes: 5,
        width: 2,
        blocks: [2, 1, 1, 1],
        factored: false,
    };
    let factored = VideoResNetConfig {
        width: 3,
        factored: true,
        ..whole
    };
    of_images(&golden, "r3d", "stem.0", |init| VideoResNet::new(init, whole));
    of_images(&golden, "r2plus1d", "stem.0", |init| VideoResNet::new(init, factored));
    let recurrent = ConvLstmConfig {
        classes: 5,
        channels: [2, 3, 4],
        grid: 2,
        features: 6,
        hidden: 3,
    };
    of_images(&golden, "conv-lstm", "conv1", |init| ConvLstm::new(init, recurrent));
}

#[test]
fn networks_of_images_equal_torchvisions() {
    let bottlenecks = ResNetConfig {
        classes: 5,
        width: 4,
        blocks: [2, 1, 1, 1],
        ..ResNetConfig::RESNET50
    };
    of_images(&Golden::read(), "resnet50", "conv1", |init| {
        ResNet::new(init, bottlenecks)
    });
    let golden = Golden::of(include_bytes!("../golden/images.safetensors"));
    let basic = ResNetConfig {
        width: 2,
        bottleneck: false,
        ..bottlenecks
    };
    of_images(&golden, "resnet", "conv1", |init| ResNet::new(init, basic));
    let vgg = VggConfig {
        classes: 5,
        width: 1,
        head: VggHead::Large {
            hidden: 6,
            dropout: 0.0,
        },
        ..VggConfig::VGG11
    };
    of_images(&golden, "vgg", "features.0", |init| Vgg::new(init, vgg));
    of_images(&golden, "vgg-bn", "features.0", |init| Vgg::new(init, vgg.with_norm()));
    let stage = |expansion, channels, blocks, stride| MobileNetV2Stage {
        expansion,
        channels,
        blocks,
        stride,
    };
    let mobile = MobileNetV2Config {
        classes: 5,
        width: 0.5,
        stride: 2,
        stages: [
            stage(1, 8, 1, 1),
            stage(3, 16, 2, 2),
            stage(2, 16, 1, 1),
            stage(2, 16, 1, 1),
            stage(2, 16, 1, 1),
            stage(2, 16, 1, 1),
            stage(2, 24, 1, 2),
        ],
        last: 16,
        dropout: 0.0,
    };
    of_images(&golden, "mobilenet", "features.0.0", |init| {
        MobileNetV2::new(init, mobile)
    });
    let wide = WideResNetConfig {
        classes: 5,
        depth: 16,
        width: 2,
        widen: 2,
        dropout: 0.0,
    };
    of_images(&golden, "wide-resnet", "conv1", |init| WideResNet::new(init, wide));
}

#[test]
fn gpt2_equals_that_of_transformers() {
    let golden = Golden::read();
    let config = Gpt2Config {
        vocabulary: 13,
        context: 8,
        layers: 2,
        heads: 2,
        width: 6,
        dropout: 0.1,
    };
    // The head is the table of the tokens, under a second name.
    let net: Gpt2<Cpu> = golden.load("gpt2", &["lm_head"], |init| Gpt2::new(init, config));
    let y = net.forward(&golden.int("gpt2-ids")).unwrap();
    close(&y, &golden.float("gpt2-y"), "logits");
    let dw = gradient(&net, "transformer.wte.weight", &y, &golden.float("gpt2-w"));
    close(&dw, &golden.float("gpt2-table"), "gradient");
}

#[test]
fn bert_equals_that_of_transformers() {
    let golden = Golden::read();
    let others = ["cls.predictions.decoder", "cls.seq_relationship"];
    let net: Bert<Cpu> = golden.load("bert", &others, |init| Bert::new(init, SMALL));
    let ids = golden.int("bert-ids");
    let positions: Vec<i32> = (0..12).collect();
    let positions = Indices::from_slice(&Cpu::poisoned(), &positions, &[12]).unwrap();
    let y = net.forward(&ids, &positions).unwrap();
    let (want, w) = (golden.float("bert-y"), golden.float("bert-w"));
    close(&y, &want.reshape(&[12, 17]).unwrap(), "logits");
    let dw = gradient(
        &net,
        "bert.embeddings.word_embeddings.weight",
        &y,
        &w.reshape(&[12, 17]).unwrap(),
    );
    close(&dw, &golden.float("bert-table"), "gradient");

    let encoded = net.encoder().forward(&ids, Some(&golden.int("bert-types"))).unwrap();
    close(&encoded, &golden.float("bert-encoded"), "vectors");
    close(
        &net.encoder().pooled(&encoded).unwrap(),
        &golden.float("bert-pooled"),
        "pooled",
    );
}

/// A small BERT.
const SMALL: BertConfig = BertConfig {
    vocabulary: 17,
    context: 8,
    types: 2,
    layers: 2,
    heads: 2,
    width: 6,
    hidden: 10,
    dropout: 0.1,
};

/// Compares logits, the loss and the gradient of the table with those of a head.
fn of_head(golden: &Golden, name: &str, net: &dyn Module<Cpu>, y: &Tensor<Cpu>, loss: &Tensor<Cpu>) {
    close(y, &golden.float(&format!("{name}-y")), "logits");
    close(loss, &golden.float(&format!("{name}-loss")), "loss");
    let one = Tensor::ones(&Cpu::poisoned(), &[], DType::F64).unwrap();
    let dw = gradient(net, "bert.embeddings.word_embeddings.weight", loss, &one);
    close(&dw, &golden.float(&format!("{name}-table")), "gradient");
}

#[test]
fn heads_of_bert_equal_those_of_transformers_on_padded_sequences() {
    let golden = Golden::of(include_bytes!("../golden/bert_heads.safetensors"));
    let (ids, mask) = (golden.int("ids"), golden.int("mask"));
    let net: BertClassifier<Cpu> = golden.load("classifier", &[], |init| BertClassifier::new(init, SMALL, 3));
    let y = net.forward(&ids, &mask).unwrap();
    let classes = Indices::from_slice(&Cpu::poisoned(), &[2, 0, 1], &[3]).unwrap();
    of_head(&golden, "classifier", &net, &y, &y.cross_entropy(&classes).unwrap());
    let net: BertTagger<Cpu> = golden.load("tagger", &[], |init| BertTagger::new(init, SMALL, 3));
    let y = net.forward(&ids, &mask).unwrap();
    of_head(
        &golden,
        "tagger",
        &net,
        &y,
        &y.cross_entropy(&golden.int("tags")).unwrap(),
    );
    let net: BertReader<Cpu> = golden.load("reader", &[], |init| BertReader::new(init, SMALL));
    let y = net.forward(&ids, &golden.int("types"), &mask).unwrap();
    let loss = BertReader::loss(&y, &golden.int("starts"), &golden.int("ends")).unwrap();
    of_head(&golden, "reader", &net, &y, &loss);
}
