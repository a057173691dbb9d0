//! The discriminator of StyleGAN2: residual blocks, and the deviation of a minibatch.

use super::config::StyleGan2Config;
use super::layers::{EqualConv, EqualLinear};
use kiln_core::{Backend, Result};
use kiln_nn::{Init, Layer, Module, Tensor, Walk, WalkMut, Walkable};

/// The most images of a group whose deviation is measured.
const GROUP: usize = 4;

/// A residual block that halves images (`DiscriminatorBlock`); the first one takes the images themselves.
#[derive(Clone, Debug, Module)]
pub struct DiscriminatorBlock<B: Backend> {
    fromrgb: Option<EqualConv<B>>,
    conv0: EqualConv<B>,
    conv1: EqualConv<B>,
    skip: EqualConv<B>,
}

impl<B: Backend> DiscriminatorBlock<B> {
    fn new(init: &mut Init<B>, config: &StyleGan2Config, side: usize) -> Result<Self> {
        let (channels, next) = (config.channels(side), config.channels(side / 2));
        let first = side == config.side();
        Ok(DiscriminatorBlock {
            fromrgb: match first {
                true => Some(EqualConv::new(init, [config.image[2], channels], 1)?),
                false => None,
            },
            conv0: EqualConv::new(init, [channels, channels], 3)?,
            conv1: EqualConv::halving(init, [channels, next], 3)?,
            skip: EqualConv::halving(init, [channels, next], 1)?.skip(),
        })
    }
}

impl<B: Backend> Layer<B> for DiscriminatorBlock<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = match &self.fromrgb {
            Some(fromrgb) => fromrgb.forward(x)?,
            None => x.clone(),
        };
        let y = self.conv1.forward(&self.conv0.forward(&x)?)?;
        self.skip.forward(&x)?.add(&y)
    }
}

/// The end of the discriminator (`DiscriminatorEpilogue`): features `[N, 4, 4, C]` to logits `[N, 1]`.
#[derive(Clone, Debug, Module)]
pub struct DiscriminatorEpilogue<B: Backend> {
    conv: EqualConv<B>,
    fc: EqualLinear<B>,
    out: EqualLinear<B>,
}

impl<B: Backend> DiscriminatorEpilogue<B> {
    fn new(init: &mut Init<B>, channels: usize) -> Result<Self> {
        Ok(DiscriminatorEpilogue {
            conv: EqualConv::new(init, [channels + 1, channels], 3)?,
            fc: EqualLinear::new(init, [channels * 16, channels], true)?,
            out: EqualLinear::new(init, [channels, 1], false)?,
        })
    }
}

/// The features with one more channel: the mean deviation of each from those of the same group (`MinibatchStdLayer`). An image's group
/// has at most four of the batch, at equal distances.
fn with_deviation<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    let [n, h, w, c] = [0, 1, 2, 3].map(|i| x.shape()[i]);
    let group = (1..=GROUP.min(n))
        .rev()
        .find(|group| n.is_multiple_of(*group))
        .unwrap_or(1);
    let groups = n / group;
    let apart = x.reshape(&[group, groups, h, w, c])?;
    let apart = apart.sub(&apart.mean(&[0], true)?)?;
    let deviation = apart.square()?.mean(&[0], false)?.add_scalar(1e-8)?.sqrt()?;
    let mean = deviation.mean(&[1, 2, 3], false)?.reshape(&[1, groups, 1, 1, 1])?;
    let channel = mean.broadcast_to(&[group, groups, h, w, 1])?.reshape(&[n, h, w, 1])?;
    Tensor::concat(&[x, &channel], 3)
}

impl<B: Backend> Layer<B> for DiscriminatorEpilogue<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.conv.forward(&with_deviation(x)?)?;
        // The original's columns are of channels, rows and columns of pixels.
        let x = x.permute(&[0, 3, 1, 2])?.flatten(1, -1)?;
        self.out.forward(&self.fc.forward(&x)?)
    }
}

/// The discriminator of StyleGAN2 (Karras et al. 2020) with residual blocks: images `[N, H, W, C]` around 0 to logits `[N, 1]` that they
/// are real. Blocks are named after the resolution, the last one is `b4`; parameters have the names of `stylegan2-ada-pytorch`.
#[derive(Clone, Debug)]
pub struct StyleDiscriminator<B: Backend> {
    blocks: Vec<(usize, DiscriminatorBlock<B>)>,
    end: DiscriminatorEpilogue<B>,
}

impl<B: Backend> Walkable<B> for StyleDiscriminator<B> {
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        for (side, block) in &self.blocks {
            walk.field(&format!("b{side}"), block);
        }
        walk.field("b4", &self.end);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        for (side, block) in &mut self.blocks {
            walk.field(&format!("b{side}"), block);
        }
        walk.field("b4", &mut self.end);
    }
}

impl<B: Backend> StyleDiscriminator<B> {
    pub(crate) fn new(init: &mut Init<B>, config: &StyleGan2Config) -> Result<Self> {
        let mut blocks = Vec::new();
        for side in config.sides().rev().filter(|&side| side > 4) {
            blocks.push((side, DiscriminatorBlock::new(init, config, side)?));
        }
        Ok(StyleDiscriminator {
            blocks,
            end: DiscriminatorEpilogue::new(init, config.channels(4))?,
        })
    }
}

impl<B: Backend> Layer<B> for StyleDiscriminator<B> {
    fn call(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = images.clone();
        for (_, block) in &self.blocks {
            x = block.forward(&x)?;
        }
        self.end.forward(&x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_cpu::Cpu;

    /// In a group of images that are all the same nothing deviates, and two values that are 2 apart deviate by 1.
    #[test]
    fn the_deviation_of_a_group_is_a_channel() {
        let of = |values: &[f32]| {
            let x = Tensor::from_slice(&Cpu::new(), values, &[values.len(), 1, 1, 1]).unwrap();
            let y = with_deviation(&x).unwrap();
            assert_eq!(y.shape().dims(), [values.len(), 1, 1, 2]);
            let pairs = y.to_f64().unwrap();
            pairs
                .chunks(2)
                .map(|pair| (pair[1] * 100.0).round() / 100.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[3.0, 3.0]), [0.0, 0.0]);
        assert_eq!(of(&[1.0, 3.0]), [1.0, 1.0]);
        // Six images are two groups of three: those with even numbers, and the others.
        assert_eq!(of(&[1.0, 7.0, 1.0, 7.0, 1.0, 7.0]), [0.0; 6]);
        // Five are five groups.
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0, 5.0]), [0.0; 5]);
    }
}
