//! The sizes of a StyleGAN2.

use kiln_core::{Error, Result};

/// Sizes of a [`StyleGan2`](crate::StyleGan2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StyleGan2Config {
    /// The shape of the images, `[H, W, C]`: squares of 5 to 1024 pixels a side. Where the side is no power of 2, the network has black
    /// pixels around them.
    pub image: [usize; 3],
    /// Elements of a latent vector (`z_dim`).
    pub latent: usize,
    /// Elements of a style (`w_dim`).
    pub style: usize,
    /// Dense layers from latent vectors to styles.
    pub mapping_layers: usize,
    /// The channels of a resolution are this number divided by its side (`channel_base`),
    pub channel_base: usize,
    /// and at most so many (`channel_max`).
    pub channel_max: usize,
    /// The factor of the penalty of the discriminator's slopes at real images (`r1_gamma`).
    pub r1_gamma: f64,
}

impl StyleGan2Config {
    /// For digits of 28×28.
    pub const SMALL: StyleGan2Config = StyleGan2Config {
        image: [28, 28, 1],
        latent: 128,
        style: 128,
        mapping_layers: 8,
        channel_base: 1024,
        channel_max: 128,
        // With 0.1 and 1 the discriminator is so far ahead that all images stay alike.
        r1_gamma: 10.0,
    };

    /// The configuration `paper256` of `stylegan2-ada-pytorch`, for images of this side in colour.
    pub const fn paper(side: usize) -> Self {
        StyleGan2Config {
            image: [side, side, 3],
            latent: 512,
            style: 512,
            mapping_layers: 8,
            channel_base: 16384,
            channel_max: 512,
            r1_gamma: 1.0,
        }
    }

    /// The side of the network's images.
    pub(crate) fn side(&self) -> usize {
        self.image[0].next_power_of_two()
    }

    /// The sides of its feature maps, from 4 on.
    pub(crate) fn sides(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        (2..=self.side().ilog2()).map(|power| 1 << power)
    }

    /// The channels of the feature maps of this side.
    pub(crate) fn channels(&self, side: usize) -> usize {
        (self.channel_base / side).clamp(1, self.channel_max.max(1))
    }

    /// Refuses images that are no squares, sides that are too small or too large, and a mapping without layers.
    pub(super) fn check(&self) -> Result<()> {
        let [height, width, _] = self.image;
        let wrong = |argument, found: String, expected| Err(Error::invalid("stylegan2", argument, found, expected));
        if height != width || !(5..=1024).contains(&height) {
            let expected = "a square with 5 to 1024 pixels a side";
            return wrong("image", format!("{:?}", self.image), expected);
        }
        if self.mapping_layers == 0 {
            return wrong("mapping_layers", "0".to_string(), "at least 1");
        }
        Ok(())
    }
}
