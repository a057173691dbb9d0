//! The networks of Simonyan and Zisserman 2014, with and without batch norm, for large and for small images.

use crate::classes::Row;
use crate::resnet::kaiming;
use crate::{NetSizes, Recipe, classes};
use kiln_core::{Backend, ModuleId, Result, Shape};
use kiln_nn::layers::{AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, Flatten, Linear, MaxPool2d, Relu};
use kiln_nn::module::Runnable;
use kiln_nn::{Init, Initializer, Layer, Module, Scheme, Sequential, Tensor, Walk, WalkMut, Walkable};

/// The rows of the table of models.
pub(crate) const SMALL_11: Row<VggConfig> = Row {
    card: classes::card(
        "VGG-11 with batch norm, for 32x32 colour images",
        &[32, 32, 3],
        10,
        VggConfig::VGG11.small(10).parameters(),
        Recipe::cifar(0.05),
    ),
    config: VggConfig::VGG11.small(10),
};
pub(crate) const V11: Row<VggConfig> = large("VGG-11 for 224x224 colour images", VggConfig::VGG11);
pub(crate) const V13: Row<VggConfig> = large("VGG-13 for 224x224 colour images", VggConfig::VGG13);
pub(crate) const V16: Row<VggConfig> = large("VGG-16 for 224x224 colour images", VggConfig::VGG16);
pub(crate) const V19: Row<VggConfig> = large("VGG-19 for 224x224 colour images", VggConfig::VGG19);
pub(crate) const V11_BN: Row<VggConfig> = large(
    "VGG-11 with batch norm, for 224x224 colour images",
    VggConfig::VGG11.with_norm(),
);
pub(crate) const V13_BN: Row<VggConfig> = large(
    "VGG-13 with batch norm, for 224x224 colour images",
    VggConfig::VGG13.with_norm(),
);
pub(crate) const V16_BN: Row<VggConfig> = large(
    "VGG-16 with batch norm, for 224x224 colour images",
    VggConfig::VGG16.with_norm(),
);
pub(crate) const V19_BN: Row<VggConfig> = large(
    "VGG-19 with batch norm, for 224x224 colour images",
    VggConfig::VGG19.with_norm(),
);

/// A row of ImageNet with the learning rate and the weight decay of the paper.
const fn large(description: &'static str, config: VggConfig) -> Row<VggConfig> {
    Row {
        card: classes::card(
            description,
            &[224, 224, 3],
            config.classes,
            config.parameters(),
            Recipe::imagenet(0.01, 5e-4),
        ),
        config,
    }
}

/// The network of a row with its task.
pub(crate) fn task<B: Backend>(row: &Row<VggConfig>, init: Init<B>, sizes: NetSizes) -> Result<classes::Task<B>> {
    let config = VggConfig {
        classes: sizes.outputs,
        ..row.config
    };
    Ok(classes::task(Vgg::new(init, config)?))
}

/// The dense layers of a [`Vgg`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VggHead {
    /// The mean over each of 7×7 parts of the image, and three dense layers of which two have a ReLU and dropout behind.
    Large {
        /// Outputs of the first two layers.
        hidden: usize,
        /// Probability of the dropout.
        dropout: f64,
    },
    /// One dense layer, for images of 32×32, of which the max-pools leave one position.
    Small,
}

/// The sizes of a [`Vgg`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VggConfig {
    /// Number of classes.
    pub classes: usize,
    /// Channels of the first stage; the others have twice, four times and, both of the last two, eight times as many.
    pub width: usize,
    /// Convolutions of each stage.
    pub convolutions: [usize; 5],
    /// True for batch norm behind each convolution.
    pub norm: bool,
    /// The dense layers.
    pub head: VggHead,
}

impl VggConfig {
    /// Configuration A of the paper for ImageNet: 11 layers with weights.
    pub const VGG11: VggConfig = VggConfig {
        classes: 1000,
        width: 64,
        convolutions: [1, 1, 2, 2, 2],
        norm: false,
        head: VggHead::Large {
            hidden: 4096,
            dropout: 0.5,
        },
    };
    /// Configuration B: 13 layers.
    pub const VGG13: VggConfig = VggConfig {
        convolutions: [2, 2, 2, 2, 2],
        ..VggConfig::VGG11
    };
    /// Configuration D: 16 layers.
    pub const VGG16: VggConfig = VggConfig {
        convolutions: [2, 2, 3, 3, 3],
        ..VggConfig::VGG11
    };
    /// Configuration E: 19 layers.
    pub const VGG19: VggConfig = VggConfig {
        convolutions: [2, 2, 4, 4, 4],
        ..VggConfig::VGG11
    };

    /// The same net with batch norm behind each convolution, torchvision's `vgg11_bn` and its siblings.
    pub const fn with_norm(self) -> VggConfig {
        VggConfig { norm: true, ..self }
    }

    /// The same convolutions with batch norm and one dense layer to so many classes, for images of 32×32.
    pub const fn small(self, classes: usize) -> VggConfig {
        VggConfig {
            classes,
            norm: true,
            head: VggHead::Small,
            ..self
        }
    }

    /// Channels of a stage.
    const fn channels(&self, stage: usize) -> usize {
        self.width << (if stage < 3 { stage } else { 3 })
    }

    /// Number of values in all parameters.
    pub const fn parameters(&self) -> usize {
        let (mut sum, mut inputs, mut stage) = (0, 3, 0);
        while stage < self.convolutions.len() {
            let (outputs, mut number) = (self.channels(stage), 0);
            while number < self.convolutions[stage] {
                sum += 9 * inputs * outputs + outputs + if self.norm { 2 * outputs } else { 0 };
                (inputs, number) = (outputs, number + 1);
            }
            stage += 1;
        }
        sum + match self.head {
            VggHead::Large { hidden, .. } => {
                (49 * inputs + 1) * hidden + (hidden + 1) * hidden + (hidden + 1) * self.classes
            }
            VggHead::Small => (inputs + 1) * self.classes,
        }
    }
}

/// A network of 3×3 convolutions and five 2×2 max-pools (Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
/// Recognition", 2014) as torchvision has it. Images `[N, H, W, 3]` of at least 32 pixels on each side, of exactly 32 for
/// [`VggHead::Small`], to logits `[N, classes]`. Parameters have torchvision's names; the dense layers read channels first, as
/// torchvision's do.
///
/// ```
/// use kiln_models::{Vgg, VggConfig};
/// use kiln_nn::{DType, Init, Layer, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let config = VggConfig { width: 4, ..VggConfig::VGG11.small(10) };
/// let net = Vgg::new(Init::new(&cpu, 0), config)?;
/// let images = Tensor::zeros(&cpu, &[2, 32, 32, 3], DType::F32)?;
/// assert_eq!(net.forward(&images)?.shape().dims(), [2, 10]);
/// # Ok::<(), kiln_core::Error>(())
/// ```
#[derive(Clone, Module)]
pub struct Vgg<B: Backend> {
    features: Sequential<B>,
    avgpool: Option<AdaptiveAvgPool2d>,
    flatten: Flatten,
    classifier: Classifier<B>,
}

/// The dense layers, whose names have a number only where they are several.
#[derive(Clone)]
enum Classifier<B: Backend> {
    One(Linear<B>),
    Several(Sequential<B>),
}

impl<B: Backend> Classifier<B> {
    fn layer(&self) -> &dyn Layer<B> {
        match self {
            Classifier::One(layer) => layer,
            Classifier::Several(layers) => layers,
        }
    }
}

impl<B: Backend> Walkable<B> for Classifier<B> {
    fn kind(&self) -> &'static str {
        self.layer().kind()
    }
    fn module_id(&self) -> ModuleId {
        self.layer().module_id()
    }
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        self.layer().copied()
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        self.layer().walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        match self {
            Classifier::One(layer) => layer.walk_mut(walk),
            Classifier::Several(layers) => layers.walk_mut(walk),
        }
    }
}

impl<B: Backend> Layer<B> for Classifier<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.layer().call(x)
    }
    fn flops(&self, input: &Shape, output: &Shape) -> u64 {
        self.layer().flops(input, output)
    }
}

impl<B: Backend> Vgg<B> {
    /// The net with initial weights of `init`'s seed: torchvision's with the large head, PyTorch's default ones with the small head.
    ///
    /// # Errors
    /// No classes, a size of 0, a probability outside `0..=1`, memory.
    pub fn new(mut init: Init<B>, config: VggConfig) -> Result<Self> {
        let init = &mut init;
        let large = config.head != VggHead::Small;
        if large {
            init.set_scheme(kaiming());
        }
        let (mut features, mut inputs) = (Sequential::new(), 3);
        for (stage, &convolutions) in config.convolutions.iter().enumerate() {
            let outputs = config.channels(stage);
            for _ in 0..convolutions {
                features = features.push(Conv2d::builder(inputs, outputs, 3).padding(1).build(init)?);
                if config.norm {
                    features = features.push(BatchNorm::new(init, outputs)?);
                }
                features = features.push(Relu);
                inputs = outputs;
            }
            features = features.push(MaxPool2d::new(2));
        }
        let classifier = match config.head {
            VggHead::Large { hidden, dropout } => {
                init.set_scheme(Scheme::With {
                    weight: Initializer::Normal { mean: 0.0, std: 0.01 },
                    bias: Initializer::Zeros,
                });
                let mut layers = Sequential::new();
                for inputs in [49 * inputs, hidden] {
                    layers = layers.push(Linear::new(init, inputs, hidden)?).push(Relu);
                    layers = layers.push(Dropout::new(init, dropout)?);
                }
                Classifier::Several(layers.push(Linear::new(init, hidden, config.classes)?))
            }
            VggHead::Small => Classifier::One(Linear::new(init, inputs, config.classes)?),
        };
        Ok(Vgg {
            features,
            avgpool: large.then(|| AdaptiveAvgPool2d::new(7)),
            flatten: Flatten::default(),
            classifier,
        })
    }
}

impl<B: Backend> Layer<B> for Vgg<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = self.features.forward(x)?;
        if let Some(pool) = &self.avgpool {
            x = pool.forward(&x)?.permute(&[0, 3, 1, 2])?;
        }
        self.classifier.forward(&self.flatten.forward(&x)?)
    }
}
