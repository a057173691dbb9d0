//! A residual network with a feature pyramid.

use super::config::{BodyConfig, FasterRcnnConfig};
use crate::resnet::{ResNetBlock, conv, kaiming};
use kiln_core::{Backend, Result};
use kiln_nn::init::{Nonlinearity, Scaled};
use kiln_nn::layers::{BatchNorm, Conv2d, MaxPool2d};
use kiln_nn::ops::Interpolation;
use kiln_nn::{Init, Initializer, Layer, Module, Scheme, Sequential, Tensor};

/// A ResNet without its head, which gives the result of every stage.
#[derive(Clone, Module)]
pub(super) struct Body<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    maxpool: MaxPool2d,
    layer1: Sequential<B>,
    layer2: Sequential<B>,
    layer3: Sequential<B>,
    layer4: Sequential<B>,
}

impl<B: Backend> Body<B> {
    /// The body with torchvision's initial weights.
    fn new(init: &mut Init<B>, config: BodyConfig) -> Result<Self> {
        init.set_scheme(kaiming());
        let width = config.width;
        let (conv1, bn1) = (conv(init, 3, width, 7, 2)?, BatchNorm::new(init, width)?);
        let mut inputs = width;
        let mut stage = |number: usize| -> Result<Sequential<B>> {
            let mut blocks = Sequential::new();
            for block in 0..config.blocks[number] {
                let stride = if number > 0 && block == 0 { 2 } else { 1 };
                let channels = width << number;
                blocks = match config.bottleneck {
                    true => blocks.push(ResNetBlock::bottleneck(init, inputs, channels, stride)?),
                    false => blocks.push(ResNetBlock::basic(init, inputs, channels, stride)?),
                };
                inputs = outputs(config, number);
            }
            Ok(blocks)
        };
        let [layer1, layer2, layer3, layer4] = [stage(0)?, stage(1)?, stage(2)?, stage(3)?];
        let mut body = Body {
            conv1,
            bn1,
            maxpool: MaxPool2d::new(3).stride(2).padding(1),
            layer1,
            layer2,
            layer3,
            layer4,
        };
        if config.frozen_norm {
            // Nothing else in it differs between training and evaluation.
            body.pin_eval(true);
            body.set_trainable(&|name| name.contains("bn") || name.contains("downsample.1"), false);
        }
        let stages = ["layer4.", "layer3.", "layer2.", "layer1."];
        if config.trained_stages <= stages.len() {
            let trained = &stages[..config.trained_stages];
            body.set_trainable(&|name| !trained.iter().any(|stage| name.starts_with(stage)), false);
        }
        Ok(body)
    }

    /// The results of the four stages, of strides 4, 8, 16 and 32.
    fn stages(&self, x: &Tensor<B>) -> Result<[Tensor<B>; 4]> {
        let x = self.conv1.forward_norm_relu(&self.bn1, x, None)?;
        let c2 = self.layer1.forward(&self.maxpool.forward(&x)?)?;
        let c3 = self.layer2.forward(&c2)?;
        let c4 = self.layer3.forward(&c3)?;
        let c5 = self.layer4.forward(&c4)?;
        Ok([c2, c3, c4, c5])
    }
}

/// Channels of the result of a stage.
fn outputs(config: BodyConfig, stage: usize) -> usize {
    (config.width << stage) * if config.bottleneck { 4 } else { 1 }
}

/// A feature pyramid (Lin et al. 2017): features of one number of channels at every stride, to which coarser ones have been added.
#[derive(Clone, Module)]
pub(super) struct Pyramid<B: Backend> {
    inner_blocks: Vec<Sequential<B>>,
    layer_blocks: Vec<Sequential<B>>,
}

impl<B: Backend> Pyramid<B> {
    fn new(init: &mut Init<B>, inputs: [usize; 4], channels: usize) -> Result<Self> {
        init.set_scheme(Scheme::With {
            weight: Initializer::kaiming_uniform(Scaled::FanIn, Nonlinearity::LeakyRelu(1.0)),
            bias: Initializer::Zeros,
        });
        let (mut inner_blocks, mut layer_blocks) = (Vec::new(), Vec::new());
        for inputs in inputs {
            inner_blocks.push(Sequential::new().push(Conv2d::new(init, inputs, channels, 1)?));
            let layer = Conv2d::builder(channels, channels, 3).padding(1).build(init)?;
            layer_blocks.push(Sequential::new().push(layer));
        }
        Ok(Pyramid {
            inner_blocks,
            layer_blocks,
        })
    }

    /// Features of strides 4 to 64 of the results of the stages.
    fn levels(&self, stages: &[Tensor<B>; 4]) -> Result<Vec<Tensor<B>>> {
        let mut levels = Vec::with_capacity(stages.len() + 1);
        let mut above: Option<Tensor<B>> = None;
        for (x, (inner, layer)) in stages
            .iter()
            .zip(self.inner_blocks.iter().zip(&self.layer_blocks))
            .rev()
        {
            let mut x = inner.forward(x)?;
            if let Some(above) = &above {
                let size = [x.shape()[1], x.shape()[2]];
                x = x.add(&above.interpolate(&size, Interpolation::Nearest)?)?;
            }
            levels.push(layer.forward(&x)?);
            above = Some(x);
        }
        levels.reverse();
        if let Some(coarsest) = levels.last() {
            // Every second position, torchvision's `LastLevelMaxPool`.
            levels.push(coarsest.slice(1, None, None, 2)?.slice(2, None, None, 2)?);
        }
        Ok(levels)
    }
}

/// The features of images.
#[derive(Clone, Module)]
pub(super) struct Backbone<B: Backend> {
    body: Body<B>,
    fpn: Pyramid<B>,
}

impl<B: Backend> Backbone<B> {
    pub(super) fn new(init: &mut Init<B>, config: &FasterRcnnConfig) -> Result<Self> {
        let body = Body::new(init, config.body)?;
        let inputs = [0, 1, 2, 3].map(|stage| outputs(config.body, stage));
        let fpn = Pyramid::new(init, inputs, config.channels)?;
        Ok(Backbone { body, fpn })
    }

    /// The features `[N, H/s, W/s, C]` of images `[N, H, W, 3]`, for the strides s of 4, 8, 16, 32 and 64.
    pub(super) fn levels(&self, images: &Tensor<B>) -> Result<Vec<Tensor<B>>> {
        self.fpn.levels(&self.body.stages(images)?)
    }
}
