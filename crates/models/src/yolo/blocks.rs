//! The parts that YOLO is made of.

use kiln_core::{Backend, Result};
use kiln_nn::layers::{BatchNorm, Conv2d, MaxPool2d};
use kiln_nn::{Init, Layer, Module, Tensor};

/// A convolution with batch norm and SiLU.
#[derive(Clone, Debug, Module)]
pub(super) struct ConvNorm<B: Backend> {
    conv: Conv2d<B>,
    bn: BatchNorm<B>,
}

impl<B: Backend> ConvNorm<B> {
    pub(super) fn new(init: &mut Init<B>, inputs: usize, outputs: usize, kernel: usize, stride: usize) -> Result<Self> {
        let conv = Conv2d::builder(inputs, outputs, kernel)
            .stride(stride)
            .padding(kernel / 2)
            .bias(false);
        Ok(ConvNorm {
            conv: conv.build(init)?,
            bn: BatchNorm::builder(outputs).eps(1e-3).momentum(0.03).build(init)?,
        })
    }
}

impl<B: Backend> Layer<B> for ConvNorm<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.conv.forward_norm(&self.bn, x)?.silu()
    }
}

/// Two 3×3 convolutions, with their input added if `shortcut` says so.
#[derive(Clone, Debug, Module)]
struct Bottleneck<B: Backend> {
    cv1: ConvNorm<B>,
    cv2: ConvNorm<B>,
    #[module(skip)]
    shortcut: bool,
}

impl<B: Backend> Layer<B> for Bottleneck<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.cv2.forward(&self.cv1.forward(x)?)?;
        if self.shortcut { y.add(x) } else { Ok(y) }
    }
}

/// A cross-stage partial block: half of the channels pass through bottlenecks, each of which is kept for the last convolution.
#[derive(Clone, Debug, Module)]
pub(super) struct C2f<B: Backend> {
    cv1: ConvNorm<B>,
    cv2: ConvNorm<B>,
    m: Vec<Bottleneck<B>>,
}

impl<B: Backend> C2f<B> {
    pub(super) fn new(init: &mut Init<B>, inputs: usize, outputs: usize, count: usize, shortcut: bool) -> Result<Self> {
        let half = outputs / 2;
        let bottleneck = |init: &mut Init<B>| {
            Ok(Bottleneck {
                cv1: ConvNorm::new(init, half, half, 3, 1)?,
                cv2: ConvNorm::new(init, half, half, 3, 1)?,
                shortcut,
            })
        };
        Ok(C2f {
            cv1: ConvNorm::new(init, inputs, 2 * half, 1, 1)?,
            cv2: ConvNorm::new(init, (2 + count) * half, outputs, 1, 1)?,
            m: (0..count).map(|_| bottleneck(init)).collect::<Result<_>>()?,
        })
    }
}

impl<B: Backend> Layer<B> for C2f<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut parts = self.cv1.forward(x)?.chunk(2, -1)?;
        for block in &self.m {
            if let Some(last) = parts.last() {
                parts.push(block.forward(last)?);
            }
        }
        self.cv2
            .forward(&Tensor::concat(&parts.iter().collect::<Vec<_>>(), -1)?)
    }
}

/// Spatial pyramid pooling: maxima of windows of 5, 9 and 13 positions beside the positions themselves.
#[derive(Clone, Debug, Module)]
pub(super) struct Sppf<B: Backend> {
    cv1: ConvNorm<B>,
    cv2: ConvNorm<B>,
    m: MaxPool2d,
}

impl<B: Backend> Sppf<B> {
    pub(super) fn new(init: &mut Init<B>, channels: usize) -> Result<Self> {
        let half = channels / 2;
        Ok(Sppf {
            cv1: ConvNorm::new(init, channels, half, 1, 1)?,
            cv2: ConvNorm::new(init, 4 * half, channels, 1, 1)?,
            m: MaxPool2d::new(5).stride(1).padding(2),
        })
    }
}

impl<B: Backend> Layer<B> for Sppf<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.cv1.forward(x)?;
        let y1 = self.m.forward(&x)?;
        let y2 = self.m.forward(&y1)?;
        let y3 = self.m.forward(&y2)?;
        self.cv2.forward(&Tensor::concat(&[&x, &y1, &y2, &y3], -1)?)
    }
}
