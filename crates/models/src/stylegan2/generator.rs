//! The generator of StyleGAN2: a mapping from latent vectors to styles, and a synthesis of images from styles.

use super::config::StyleGan2Config;
use super::layers::{EqualLinear, GAIN, SLOPE, filter, normal};
use kiln_core::{Backend, Result};
use kiln_nn::layers::Noise;
use kiln_nn::{Init, Layer, Mode, Module, Param, State, Tensor, Walk, WalkMut, Walkable, trace};

/// The multiplier of the mapping's learning rate.
const MAPPING_LR: f64 = 0.01;
/// The share of the average of styles that stays in each step.
const AVERAGE: f64 = 0.995;

/// Dense layers from latent vectors `[N, latent]` to styles `[N, style]` (`MappingNetwork`), named `fc0`, `fc1`, …
#[derive(Clone, Debug)]
pub struct StyleMapping<B: Backend> {
    layers: Vec<EqualLinear<B>>,
    /// The average of the styles in training, towards which styles are truncated.
    w_avg: State<B>,
    mode: Mode,
}

impl<B: Backend> Walkable<B> for StyleMapping<B> {
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        for (i, layer) in self.layers.iter().enumerate() {
            walk.field(&format!("fc{i}"), layer);
        }
        walk.field("w_avg", &self.w_avg);
        walk.field("mode", &self.mode);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        for (i, layer) in self.layers.iter_mut().enumerate() {
            walk.field(&format!("fc{i}"), layer);
        }
        walk.field("w_avg", &mut self.w_avg);
        walk.field("mode", &mut self.mode);
    }
}

impl<B: Backend> StyleMapping<B> {
    fn new(init: &mut Init<B>, config: &StyleGan2Config) -> Result<Self> {
        let layer = |i| {
            let inputs = if i == 0 { config.latent } else { config.style };
            EqualLinear::with(init, [inputs, config.style], true, MAPPING_LR, 0.0)
        };
        let layers = (0..config.mapping_layers).map(layer).collect::<Result<_>>()?;
        let zeros = Tensor::zeros(init.backend(), &[config.style], init.state_dtype())?;
        Ok(StyleMapping {
            layers,
            w_avg: State::new(zeros),
            mode: Mode::default(),
        })
    }

    /// The styles moved towards the average of all: by `psi` 0 to it, by 1 not at all.
    ///
    /// # Errors
    /// Another shape than `[N, style]`, memory.
    pub fn truncate(&self, styles: &Tensor<B>, psi: f64) -> Result<Tensor<B>> {
        let average = self.w_avg.get();
        styles.sub(&average)?.mul_scalar(psi)?.add(&average)
    }
}

impl<B: Backend> Layer<B> for StyleMapping<B> {
    fn call(&self, latent: &Tensor<B>) -> Result<Tensor<B>> {
        let length = latent.square()?.mean(&[1], true)?.add_scalar(1e-8)?.rsqrt()?;
        let mut styles = latent.mul(&length)?;
        for layer in &self.layers {
            styles = layer.forward(&styles)?;
        }
        if self.mode.is_training() {
            self.w_avg.blend(&styles.detach().mean(&[0], false)?, 1.0 - AVERAGE)?;
        }
        Ok(styles)
    }
}

/// A convolution whose input channels a style scales, with noise, bias and activation (`SynthesisLayer`).
#[derive(Clone, Debug, Module)]
pub struct SynthesisLayer<B: Backend> {
    affine: EqualLinear<B>,
    weight: Param<B>,
    noise_strength: Param<B>,
    bias: Param<B>,
    noise_const: State<B>,
    resample_filter: Option<State<B>>,
}

impl<B: Backend> SynthesisLayer<B> {
    /// A layer to images of this side, twice as large as the ones before if it grows.
    fn new(init: &mut Init<B>, style: usize, [inputs, outputs]: [usize; 2], side: usize, grows: bool) -> Result<Self> {
        Ok(SynthesisLayer {
            affine: EqualLinear::with(init, [style, inputs], false, 1.0, 1.0)?,
            weight: Param::kernel(normal(init, &[outputs, 3, 3, inputs], 1.0)?),
            noise_strength: init.constant(&[], 0.0)?,
            bias: init.constant(&[outputs], 0.0)?,
            noise_const: State::new(normal(init, &[side, side], 1.0)?),
            resample_filter: grows.then(|| filter(init).map(State::new)).transpose()?,
        })
    }

    fn forward(&self, x: &Tensor<B>, style: &Tensor<B>, noise: Option<&Noise<B>>) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let styles = self.affine.forward(style)?;
            let filter = self.resample_filter.as_ref().map(State::get);
            let y = x.modulated_conv2d(&self.weight, &styles, true, filter.as_ref())?;
            let y = y.to_dtype(x.dtype())?;
            let (n, side) = (y.shape()[0], y.shape()[1]);
            let noise = match noise {
                Some(noise) => noise.randn(&[n, side, side, 1], y.dtype())?,
                None => self.noise_const.get().reshape(&[1, side, side, 1])?,
            };
            let y = y.add(&noise.mul(&self.noise_strength)?)?.add(&self.bias)?;
            y.leaky_relu(SLOPE)?.mul_scalar(GAIN)
        })
    }
}

/// A convolution of single pixels to the channels of an image (`ToRGBLayer`).
#[derive(Clone, Debug, Module)]
pub struct ToRgb<B: Backend> {
    affine: EqualLinear<B>,
    weight: Param<B>,
    bias: Param<B>,
}

impl<B: Backend> ToRgb<B> {
    fn new(init: &mut Init<B>, style: usize, [inputs, outputs]: [usize; 2]) -> Result<Self> {
        Ok(ToRgb {
            affine: EqualLinear::with(init, [style, inputs], false, 1.0, 1.0)?,
            weight: Param::kernel(normal(init, &[outputs, 1, 1, inputs], 1.0)?),
            bias: init.constant(&[outputs], 0.0)?,
        })
    }

    fn forward(&self, x: &Tensor<B>, style: &Tensor<B>) -> Result<Tensor<B>> {
        trace::scope(self, x, || {
            let gain = 1.0 / (self.weight.shape()[3] as f64).sqrt();
            let styles = self.affine.forward(style)?.mul_scalar(gain)?;
            let y = x.modulated_conv2d(&self.weight, &styles, false, None)?;
            y.to_dtype(x.dtype())?.add(&self.bias)
        })
    }
}

/// The layers of one resolution (`SynthesisBlock` of the architecture `skip`): the first has a constant in the place of a layer.
#[derive(Clone, Debug, Module)]
pub struct SynthesisBlock<B: Backend> {
    /// The image `[C, 4, 4]` that all images grow from.
    #[module(rename = "const")]
    start: Option<Param<B>>,
    conv0: Option<SynthesisLayer<B>>,
    conv1: SynthesisLayer<B>,
    torgb: ToRgb<B>,
    resample_filter: State<B>,
}

impl<B: Backend> SynthesisBlock<B> {
    fn new(init: &mut Init<B>, config: &StyleGan2Config, side: usize) -> Result<Self> {
        let (style, channels) = (config.style, config.channels(side));
        let first = side == 4;
        Ok(SynthesisBlock {
            start: match first {
                true => Some(Param::new(normal(init, &[channels, 4, 4], 1.0)?)),
                false => None,
            },
            conv0: match first {
                true => None,
                false => {
                    let widths = [config.channels(side / 2), channels];
                    Some(SynthesisLayer::new(init, style, widths, side, true)?)
                }
            },
            conv1: SynthesisLayer::new(init, style, [channels, channels], side, false)?,
            torgb: ToRgb::new(init, style, [channels, config.image[2]])?,
            resample_filter: State::new(filter(init)?),
        })
    }

    /// The features and the image so far, from those of half the size.
    fn forward(
        &self,
        before: Option<(Tensor<B>, Tensor<B>)>,
        styles: &[Tensor<B>],
        noise: Option<&Noise<B>>,
    ) -> Result<(Tensor<B>, Tensor<B>)> {
        let (x, smaller) = match (before, &self.start) {
            (Some((x, image)), _) => (x, Some(image)),
            (None, Some(start)) => {
                let [c, h, w] = [0, 1, 2].map(|i| start.shape()[i]);
                let start = start.permute(&[1, 2, 0])?.reshape(&[1, h, w, c])?;
                (start.broadcast_to(&[styles[0].shape()[0], h, w, c])?, None)
            }
            (None, None) => unreachable!("a block begins with a constant or with what is before it"),
        };
        let x = match &self.conv0 {
            Some(conv0) => conv0.forward(&x, &styles[0], noise)?,
            None => x,
        };
        let x = self.conv1.forward(&x, &styles[self.layers() - 1], noise)?;
        let made = self.torgb.forward(&x, &styles[self.layers()])?;
        let Some(smaller) = smaller else { return Ok((x, made)) };
        let larger = smaller.upfirdn2d(&self.resample_filter.get(), (2, 1), [(2, 1), (2, 1)], 4.0)?;
        Ok((x, larger.to_dtype(made.dtype())?.add(&made)?))
    }

    /// The layers that have a style of their own; that of `torgb` is the one of the next block's first.
    fn layers(&self) -> usize {
        1 + usize::from(self.conv0.is_some())
    }
}

/// Blocks from styles to images (`SynthesisNetwork`), named after the resolution: `b4`, `b8`, …
#[derive(Clone, Debug)]
pub struct Synthesis<B: Backend> {
    blocks: Vec<SynthesisBlock<B>>,
}

impl<B: Backend> Walkable<B> for Synthesis<B> {
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        for (i, block) in self.blocks.iter().enumerate() {
            walk.field(&format!("b{}", 4usize << i), block);
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        for (i, block) in self.blocks.iter_mut().enumerate() {
            walk.field(&format!("b{}", 4usize << i), block);
        }
    }
}

impl<B: Backend> Synthesis<B> {
    /// The number of styles that an image takes.
    pub(crate) fn styles(&self) -> usize {
        self.blocks.iter().map(SynthesisBlock::layers).sum::<usize>() + 1
    }

    /// The images `[N, H, W, C]`, around 0, of styles `[N, styles, style]`: with new noise, or with that which belongs to the layers.
    pub(crate) fn forward(&self, styles: &Tensor<B>, noise: Option<&Noise<B>>) -> Result<Tensor<B>> {
        trace::scope(self, styles, || {
            let all = styles.unbind(1)?;
            let (mut before, mut at) = (None, 0);
            for block in &self.blocks {
                before = Some(block.forward(before, &all[at..=at + block.layers()], noise)?);
                at += block.layers();
            }
            before.map_or_else(|| unreachable!("there is a block"), |(_, image)| Ok(image))
        })
    }
}

/// The generator of StyleGAN2 (Karras et al. 2020) with skips: latent vectors to styles, and these to images. Parameters have the names of
/// `stylegan2-ada-pytorch`.
#[derive(Clone, Debug, Module)]
pub struct StyleGenerator<B: Backend> {
    /// Latent vectors to styles.
    pub mapping: StyleMapping<B>,
    pub(crate) synthesis: Synthesis<B>,
}

impl<B: Backend> StyleGenerator<B> {
    pub(crate) fn new(init: &mut Init<B>, config: &StyleGan2Config) -> Result<Self> {
        let mapping = StyleMapping::new(init, config)?;
        let blocks = config.sides().map(|side| SynthesisBlock::new(init, config, side));
        Ok(StyleGenerator {
            mapping,
            synthesis: Synthesis {
                blocks: blocks.collect::<Result<_>>()?,
            },
        })
    }

    /// The same style `[N, style]` for every layer: `[N, styles, style]`.
    pub(crate) fn for_all(&self, style: &Tensor<B>) -> Result<Tensor<B>> {
        let (n, width) = (style.shape()[0], style.shape()[1]);
        style
            .reshape(&[n, 1, width])?
            .broadcast_to(&[n, self.synthesis.styles(), width])
    }
}
