//! Images that sprites are painted into, for scenes and clips.

use super::objects::{Draws, hue};
use crate::{ByteImages, Dataset, Result, Sample};
use std::ops::Range;

/// Sprites, of which classes are drawn equally often, however many each has.
pub(super) struct Sprites {
    images: ByteImages,
    of_class: Vec<Vec<usize>>,
}

impl Sprites {
    pub(super) fn new(images: ByteImages) -> Self {
        let mut of_class = Vec::new();
        for (sprite, &label) in images.labels().iter().enumerate() {
            let label = usize::from(label);
            if of_class.len() <= label {
                of_class.resize(label + 1, Vec::new());
            }
            of_class[label].push(sprite);
        }
        of_class.retain(|sprites| !sprites.is_empty());
        Sprites { images, of_class }
    }

    /// Reads one of the sprites.
    pub(super) fn draw(&self, draws: &mut Draws, image: &mut Sample) -> Result<()> {
        let of_class = &self.of_class[draws.below(self.of_class.len())];
        self.images.read(of_class[draws.below(of_class.len())], image)
    }
}

/// An image that is painted.
pub(super) struct Canvas<'a> {
    pub(super) pixels: &'a mut [f32],
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

impl Canvas<'_> {
    /// Two colours that go over into each other from one side to the other, with noise.
    pub(super) fn background(&mut self, draws: &mut Draws) {
        let corners: Vec<[f32; 4]> = (0..self.channels)
            .map(|_| std::array::from_fn(|_| draws.between(0.0, 160.0)))
            .collect();
        let noise: Vec<u8> = draws.bytes(self.pixels.len()).collect();
        for (at, (pixel, noise)) in self.pixels.iter_mut().zip(noise).enumerate() {
            let (place, channel) = (at / self.channels, at % self.channels);
            let y = (place / self.width) as f32 / self.height as f32;
            let x = (place % self.width) as f32 / self.width as f32;
            let [a, b, c, d] = corners[channel];
            let colour = (a * (1.0 - x) + b * x) * (1.0 - y) + (c * (1.0 - x) + d * x) * y;
            *pixel = (colour + f32::from(noise) / 16.0).floor();
        }
    }

    fn mix(&mut self, y: usize, x: usize, colour: impl Fn(usize) -> f32, opacity: f32) {
        let at = (y * self.width + x) * self.channels;
        for (channel, pixel) in self.pixels[at..at + self.channels].iter_mut().enumerate() {
            *pixel = (*pixel + (colour(channel) - *pixel) * opacity).round();
        }
    }

    /// A rectangle or a thin bar, half transparent.
    pub(super) fn clutter(&mut self, draws: &mut Draws) {
        let side = self.height.min(self.width);
        let (h, w) = match draws.below(3) {
            0 => (1 + side / 40, side / 6 + draws.below(side / 3)),
            1 => (side / 6 + draws.below(side / 3), 1 + side / 40),
            _ => (side / 10 + draws.below(side / 5), side / 10 + draws.below(side / 5)),
        };
        let (top, left) = (draws.below(self.height - h), draws.below(self.width - w));
        let (tint, opacity) = (draws.between(0.0, 1.0), draws.between(0.2, 0.7));
        for y in top..top + h {
            for x in left..left + w {
                self.mix(y, x, |channel| 0.7 * hue(tint, channel), opacity);
            }
        }
    }

    /// A sprite `[h, w, c]`, scaled to `size` pixels of its longer side, with its left upper corner at `(y, x)`, which may lie outside.
    pub(super) fn sprite(&mut self, sprite: &Sprite<'_>, size: f32, (top, left): (f32, f32), tint: f32) {
        let scale = sprite.height.max(sprite.width) as f32 / size;
        let (y2, x2) = (top + sprite.height as f32 / scale, left + sprite.width as f32 / scale);
        let (rows, columns) = (clip(top, y2, self.height), clip(left, x2, self.width));
        self.paint(sprite, (rows, columns), tint, |y, x| {
            ((y - top) * scale - 0.5, (x - left) * scale - 0.5)
        });
    }

    /// A sprite, scaled to `size` pixels of its longer side, turned clockwise by an angle around its centre, which lies at `(y, x)`.
    pub(super) fn turned(&mut self, sprite: &Sprite<'_>, size: f32, (cy, cx): (f32, f32), angle: f32, tint: f32) {
        let scale = sprite.height.max(sprite.width) as f32 / size;
        let (sin, cos) = angle.sin_cos();
        let (middle, centre) = (sprite.height as f32 / 2.0 - 0.5, sprite.width as f32 / 2.0 - 0.5);
        // Half of a diagonal reaches as far as a corner of a square.
        let reach = size * std::f32::consts::FRAC_1_SQRT_2;
        let (rows, columns) = (
            clip(cy - reach, cy + reach, self.height),
            clip(cx - reach, cx + reach, self.width),
        );
        self.paint(sprite, (rows, columns), tint, |y, x| {
            let (y, x) = ((y - cy) * scale, (x - cx) * scale);
            (y * cos - x * sin + middle, x * cos + y * sin + centre)
        });
    }

    /// The part of a sprite that these rows and columns show, by the point of the sprite that lies at a point of the image.
    fn paint(
        &mut self,
        sprite: &Sprite<'_>,
        (rows, columns): (Range<usize>, Range<usize>),
        tint: f32,
        place: impl Fn(f32, f32) -> (f32, f32),
    ) {
        for y in rows {
            for x in columns.clone() {
                let at = place(y as f32 + 0.5, x as f32 + 0.5);
                let opacity = sprite.at(at, sprite.channels - 1) / 255.0;
                if opacity > 0.0 {
                    let colour = |channel: usize| match sprite.channels {
                        // Between its hue and white, which stands out from the dark ground.
                        1 => 0.6 * hue(tint, channel) + 0.4 * 255.0,
                        _ => sprite.at(at, channel),
                    };
                    self.mix(y, x, colour, opacity);
                }
            }
        }
    }
}

/// The whole numbers between two others that lie in `0..most`.
fn clip(low: f32, high: f32, most: usize) -> Range<usize> {
    let low = low.floor().clamp(0.0, most as f32) as usize;
    low..(high.ceil().clamp(0.0, most as f32) as usize).max(low)
}

/// The pixels of a sprite: its last channel is the opacity.
pub(super) struct Sprite<'a> {
    pixels: &'a [f32],
    pub(super) height: usize,
    pub(super) width: usize,
    channels: usize,
}

impl<'a> Sprite<'a> {
    /// The pixels of an image.
    pub(super) fn of(image: &'a Sample) -> Result<Self> {
        let [height, width, channels] = image.image("sprite")?;
        Ok(Sprite {
            pixels: &image.input,
            height,
            width,
            channels,
        })
    }

    /// A channel between pixels; transparent outside.
    fn at(&self, (y, x): (f32, f32), channel: usize) -> f32 {
        let pixel = |y: f32, x: f32| {
            let inside = y >= 0.0 && x >= 0.0 && y < self.height as f32 && x < self.width as f32;
            match inside {
                true => self.pixels[(y as usize * self.width + x as usize) * self.channels + channel],
                false => 0.0,
            }
        };
        let (y0, x0) = (y.floor(), x.floor());
        let (fy, fx) = (y - y0, x - x0);
        let row = |y: f32| pixel(y, x0) * (1.0 - fx) + pixel(y, x0 + 1.0) * fx;
        row(y0) * (1.0 - fy) + row(y0 + 1.0) * fy
    }

    /// The left, upper, right and lower edge of what is at least a quarter opaque; `None` if nothing is.
    pub(super) fn ink(&self) -> Option<[f32; 4]> {
        let mut edges: Option<[usize; 4]> = None;
        for (place, pixel) in self.pixels.chunks_exact(self.channels).enumerate() {
            if pixel[self.channels - 1] >= 64.0 {
                let (y, x) = (place / self.width, place % self.width);
                let [x1, y1, x2, y2] = edges.unwrap_or([x, y, x + 1, y + 1]);
                edges = Some([x1.min(x), y1.min(y), x2.max(x + 1), y2.max(y + 1)]);
            }
        }
        edges.map(|edges| edges.map(|edge| edge as f32))
    }
}
