//! Small networks, small datasets, and helpers of the tests.

use kiln_core::ops::Activation;
use kiln_cpu::Cpu;
use kiln_data::{Dataset, LabelledOn, Loader, LoaderOptions, Sample, Synthetic, ToFloat};
use kiln_nn::layers::{Conv2d, Dropout, Flatten, Linear, MaxPool2d};
use kiln_nn::module::StateDict;
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{Backend, Init, Layer, Module, Result, Scheme, Sequential, Tensor};
use kiln_train::Output;
use std::sync::Arc;

/// A convolution with pooling, dropout and a dense layer, for images `[8, 8, 1]` of four classes.
#[derive(Clone, Module)]
pub(crate) struct Net<B: Backend> {
    conv: Conv2d<B>,
    pool: MaxPool2d,
    flatten: Flatten,
    dropout: Dropout<B>,
    dense: Linear<B>,
}

impl<B: Backend> Net<B> {
    pub(crate) fn new(backend: &B, seed: u64) -> Self {
        Self::with_dropout(backend, seed, 0.0)
    }

    pub(crate) fn with_dropout(backend: &B, seed: u64, p: f64) -> Self {
        let mut init = Init::new(backend, seed);
        Net {
            conv: Conv2d::<B>::builder(1, 6, 3)
                .activation(Activation::Relu)
                .build(&mut init)
                .unwrap(),
            pool: MaxPool2d::new(2),
            flatten: Flatten::default(),
            dropout: Dropout::new(&mut init, p).unwrap(),
            dense: Linear::new(&mut init, 54, 4).unwrap(),
        }
    }
}

impl<B: Backend> Layer<B> for Net<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.pool.forward(&self.conv.forward(x)?)?;
        let x = self.dropout.forward(&self.flatten.forward(&x)?)?;
        self.dense.forward(&x)
    }
}

/// Three convolutions and two dense layers for images `[28, 28, 1]` of ten classes: the `mnist-cnn` of the command
/// line.
pub(crate) fn mnist_cnn(cpu: &Cpu, seed: u64) -> Sequential<Cpu> {
    let init = &mut Init::new(cpu, seed).scheme(Scheme::Keras);
    let mut conv = |inputs, outputs| {
        let builder = Conv2d::<Cpu>::builder(inputs, outputs, 3).activation(Activation::Relu);
        builder.build(init).unwrap()
    };
    let (conv1, conv2, conv3) = (conv(1, 32), conv(32, 64), conv(64, 64));
    let dense = Linear::<Cpu>::builder(576, 64).activation(Activation::Relu);
    Sequential::new()
        .push(conv1)
        .push(MaxPool2d::new(2))
        .push(conv2)
        .push(MaxPool2d::new(2))
        .push(conv3)
        .push(Flatten::default())
        .push(dense.build(init).unwrap())
        .push(Linear::new(init, 64, 10).unwrap())
}

pub(crate) fn step<M: Layer<Cpu>>(model: &M, batch: &LabelledOn<Cpu>) -> Result<Output<Cpu>> {
    let logits = model.forward(&batch.inputs)?;
    Ok(Output::new(logits.cross_entropy(&batch.labels)?).with_scores(logits, &batch.labels))
}

/// Synthetic images that can be learned, `part` 0 to train on and 1 to evaluate on.
pub(crate) fn images(count: usize, part: u32) -> Arc<dyn Dataset<Sample = Sample>> {
    Arc::new(Synthetic::images(count, &[8, 8, 1], 4, 5).unwrap().part(part))
}

/// Synthetic images of the size of digits that can be learned.
pub(crate) fn digits(count: usize) -> Arc<dyn Dataset<Sample = Sample>> {
    Arc::new(Synthetic::images(count, &[28, 28, 1], 10, 5).unwrap())
}

pub(crate) fn loader(
    data: Arc<dyn Dataset<Sample = Sample>>,
    batch_size: usize,
    shuffle: bool,
    workers: usize,
) -> Loader {
    let options = LoaderOptions {
        batch_size,
        shuffle,
        workers,
        seed: 3,
        ..Default::default()
    };
    Loader::new(data, options).unwrap().with_transform(ToFloat)
}

/// The state dictionary of a model as the bytes of a weights file.
pub(crate) fn bytes(model: &impl Module<Cpu>) -> Vec<u8> {
    encode(&StateDict::of(model), &Metadata::new()).unwrap()
}

pub(crate) fn all_finite(model: &Net<Cpu>) -> bool {
    let finite = |t: &Tensor<Cpu>| t.to_f64().unwrap().iter().all(|x| x.is_finite());
    model.named_parameters().iter().all(|(_, p)| finite(p))
}
