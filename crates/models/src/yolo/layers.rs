//! The layers of the network, numbered as in its configuration.

use super::blocks::{C2f, ConvNorm, Sppf};
use super::config::YoloConfig;
use kiln_core::{Backend, Result};
use kiln_nn::layers::Conv2d;
use kiln_nn::ops::Interpolation;
use kiln_nn::{Init, Layer, Module, Sequential, Tensor};

/// The strides of the three levels.
pub(super) const STRIDES: [usize; 3] = [8, 16, 32];

/// The decoupled head: for each level a branch for the distances to the sides of boxes, and one for classes.
#[derive(Clone, Module)]
struct Detect<B: Backend> {
    cv2: Vec<Sequential<B>>,
    cv3: Vec<Sequential<B>>,
}

impl<B: Backend> Detect<B> {
    fn new(init: &mut Init<B>, inputs: [usize; 3], config: &YoloConfig) -> Result<Self> {
        let sides = 4 * config.bins;
        let box_width = 16.max(inputs[0] / 4).max(sides);
        let class_width = inputs[0].max(config.classes.min(100));
        let branch = |init: &mut Init<B>, inputs, width, outputs, bias: f64| {
            let mut last = Conv2d::new(init, width, outputs, 1)?;
            last.bias = Some(init.constant(&[outputs], bias)?);
            let convs = (
                ConvNorm::new(init, inputs, width, 3, 1)?,
                ConvNorm::new(init, width, width, 3, 1)?,
            );
            Ok(Sequential::new().push(convs.0).push(convs.1).push(last))
        };
        let (mut cv2, mut cv3) = (Vec::new(), Vec::new());
        for (inputs, stride) in inputs.into_iter().zip(STRIDES) {
            cv2.push(branch(init, inputs, box_width, sides, 1.0)?);
            // About five objects in an image of 640 pixels.
            let positions = (640.0 / stride as f64).powi(2);
            let bias = (5.0 / config.classes as f64 / positions).ln();
            cv3.push(branch(init, inputs, class_width, config.classes, bias)?);
        }
        Ok(Detect { cv2, cv3 })
    }
}

/// Layers 0 to 22; those without parameters, 10, 11, 13, 14, 17 and 20, are in the forward pass.
#[derive(Clone, Module)]
pub(super) struct Layers<B: Backend> {
    #[module(rename = "0")]
    l0: ConvNorm<B>,
    #[module(rename = "1")]
    l1: ConvNorm<B>,
    #[module(rename = "2")]
    l2: C2f<B>,
    #[module(rename = "3")]
    l3: ConvNorm<B>,
    #[module(rename = "4")]
    l4: C2f<B>,
    #[module(rename = "5")]
    l5: ConvNorm<B>,
    #[module(rename = "6")]
    l6: C2f<B>,
    #[module(rename = "7")]
    l7: ConvNorm<B>,
    #[module(rename = "8")]
    l8: C2f<B>,
    #[module(rename = "9")]
    l9: Sppf<B>,
    #[module(rename = "12")]
    l12: C2f<B>,
    #[module(rename = "15")]
    l15: C2f<B>,
    #[module(rename = "16")]
    l16: ConvNorm<B>,
    #[module(rename = "18")]
    l18: C2f<B>,
    #[module(rename = "19")]
    l19: ConvNorm<B>,
    #[module(rename = "21")]
    l21: C2f<B>,
    #[module(rename = "22")]
    detect: Detect<B>,
}

/// The results of the head at one level: distances `[N, h, w, 4·bins]` and logits `[N, h, w, classes]`.
pub(super) struct Level<B: Backend> {
    pub(super) sides: Tensor<B>,
    pub(super) logits: Tensor<B>,
}

impl<B: Backend> Layers<B> {
    pub(super) fn new(init: &mut Init<B>, config: &YoloConfig) -> Result<Self> {
        let [c1, c2, c3, c4, c5] = [64, 128, 256, 512, 1024].map(|channels| config.channels(channels));
        let (few, many) = (config.repeats(3), config.repeats(6));
        Ok(Layers {
            l0: ConvNorm::new(init, 3, c1, 3, 2)?,
            l1: ConvNorm::new(init, c1, c2, 3, 2)?,
            l2: C2f::new(init, c2, c2, few, true)?,
            l3: ConvNorm::new(init, c2, c3, 3, 2)?,
            l4: C2f::new(init, c3, c3, many, true)?,
            l5: ConvNorm::new(init, c3, c4, 3, 2)?,
            l6: C2f::new(init, c4, c4, many, true)?,
            l7: ConvNorm::new(init, c4, c5, 3, 2)?,
            l8: C2f::new(init, c5, c5, few, true)?,
            l9: Sppf::new(init, c5)?,
            l12: C2f::new(init, c5 + c4, c4, few, false)?,
            l15: C2f::new(init, c4 + c3, c3, few, false)?,
            l16: ConvNorm::new(init, c3, c3, 3, 2)?,
            l18: C2f::new(init, c3 + c4, c4, few, false)?,
            l19: ConvNorm::new(init, c4, c4, 3, 2)?,
            l21: C2f::new(init, c4 + c5, c5, few, false)?,
            detect: Detect::new(init, [c3, c4, c5], config)?,
        })
    }

    /// The results at strides 8, 16 and 32 of images `[N, H, W, 3]`.
    pub(super) fn levels(&self, images: &Tensor<B>) -> Result<[Level<B>; 3]> {
        let x = self.l2.forward(&self.l1.forward(&self.l0.forward(images)?)?)?;
        let p3 = self.l4.forward(&self.l3.forward(&x)?)?;
        let p4 = self.l6.forward(&self.l5.forward(&p3)?)?;
        let p5 = self.l9.forward(&self.l8.forward(&self.l7.forward(&p4)?)?)?;
        // Down the pyramid and up again.
        let n4 = self.l12.forward(&beside(&enlarged(&p5, &p4)?, &p4)?)?;
        let n3 = self.l15.forward(&beside(&enlarged(&n4, &p3)?, &p3)?)?;
        let n4 = self.l18.forward(&beside(&self.l16.forward(&n3)?, &n4)?)?;
        let n5 = self.l21.forward(&beside(&self.l19.forward(&n4)?, &p5)?)?;
        let level = |i: usize, x: &Tensor<B>| {
            Ok(Level {
                sides: self.detect.cv2[i].forward(x)?,
                logits: self.detect.cv3[i].forward(x)?,
            })
        };
        Ok([level(0, &n3)?, level(1, &n4)?, level(2, &n5)?])
    }
}

/// Channels beside channels.
fn beside<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    Tensor::concat(&[a, b], -1)
}

/// Features at the size of others.
fn enlarged<B: Backend>(x: &Tensor<B>, like: &Tensor<B>) -> Result<Tensor<B>> {
    x.interpolate(&[like.shape()[1], like.shape()[2]], Interpolation::Nearest)
}
