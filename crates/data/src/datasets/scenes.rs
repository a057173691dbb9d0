//! Scenes in the table of datasets: sprites at random places on a background, with their boxes, for detectors.

use super::card::{DatasetCard, Request};
use super::images::dimensions;
use super::objects::{self, Draws, OBJECTS, covered, hue};
use super::opened::Opened;
use super::sprites;
use crate::dataset::check_index;
use crate::{ByteImages, DataError, Dataset, Object, Result, Sample, Split, mnist, streams};
use kiln_core::Shape;
use std::sync::Arc;

/// Scenes to train on, and those that are held back.
const TRAIN: usize = 2000;
const HELD_BACK: usize = 200;

/// The most objects of a scene.
const MOST: usize = 6;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "scenes",
    description: "2,000 scenes to train on and 200 held back, each with up to six pictures in random sizes and places, partly covered, among \
                  clutter: the digits inside kiln, or those of a sheet (a folder of one PNG with opacity, and labels.csv)",
    files: "scenes of",
    ships: Some("scenes of the MNIST digits inside kiln"),
    obtain: "nothing has to be downloaded",
    example: "emoji",
    samples: &OBJECTS,
    shape: None,
    classes: &[],
    has_target: false,
    facts: &[],
    recognises: sprites::is_sheet,
    open: |request| {
        let sprites = sprites_of(request)?;
        let train = Scenes::new(sprites.train, request.shape, 0, TRAIN)?;
        Ok(Opened {
            facts: objects::facts(&train),
            train: Arc::new(train),
            test: Arc::new(Scenes::new(sprites.test, request.shape, 1, HELD_BACK)?),
        })
    },
    held_back: |request| {
        let sprites = sprites_of(request)?;
        Ok(Arc::new(Scenes::new(sprites.test, request.shape, 1, HELD_BACK)?))
    },
    file: Some(objects::fitted),
};

/// The sprites of scenes to train on, and those of scenes that are held back.
fn sprites_of(request: &Request<'_>) -> Result<Split<ByteImages>> {
    match request.path {
        None => mnist::embedded(),
        Some(_) => {
            let both = sprites::with_opacity(request)?;
            Ok(Split {
                train: both.train,
                test: both.test,
            })
        }
    }
}

/// Scenes of sprites: raw pixels, grey ones being the opacity of a sprite that gets a random colour, or colours with an opacity behind
/// them. Each scene is a pure function of its part and its index.
struct Scenes {
    sprites: ByteImages,
    /// The sprites of each class.
    of_class: Vec<Vec<usize>>,
    shape: Shape,
    part: u32,
    count: usize,
    names: Vec<String>,
}

impl std::fmt::Debug for Scenes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scenes").field("count", &self.count).finish()
    }
}

impl Scenes {
    fn new(sprites: ByteImages, shape: &[usize], part: u32, count: usize) -> Result<Self> {
        let [height, width, channels] = dimensions(shape)?;
        if height < 16 || width < 16 {
            let size = format!("{height}×{width}");
            return Err(DataError::invalid("scenes", "size", size, "at least 16×16"));
        }
        let names = match sprites.class_names() {
            [] => (0..sprites.classes().unwrap_or(1)).map(|n| n.to_string()).collect(),
            names => names.to_vec(),
        };
        let mut of_class = vec![Vec::new(); names.len()];
        for (sprite, &label) in sprites.labels().iter().enumerate() {
            of_class[usize::from(label)].push(sprite);
        }
        of_class.retain(|sprites| !sprites.is_empty());
        Ok(Scenes {
            sprites,
            of_class,
            shape: Shape::new(&[height, width, channels])?,
            part,
            count,
            names,
        })
    }
}

/// An image that is painted.
struct Canvas<'a> {
    pixels: &'a mut [f32],
    height: usize,
    width: usize,
    channels: usize,
}

impl Canvas<'_> {
    /// Two colours that go over into each other from one side to the other, with noise.
    fn background(&mut self, draws: &mut Draws) {
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
    fn clutter(&mut self, draws: &mut Draws) {
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
    fn sprite(&mut self, sprite: &Sprite<'_>, size: f32, (top, left): (f32, f32), tint: f32) {
        let scale = sprite.height.max(sprite.width) as f32 / size;
        let (y2, x2) = (top + sprite.height as f32 / scale, left + sprite.width as f32 / scale);
        let clip = |low: f32, high: f32, most: usize| {
            let low = low.floor().clamp(0.0, most as f32) as usize;
            low..(high.ceil().clamp(0.0, most as f32) as usize).max(low)
        };
        for y in clip(top, y2, self.height) {
            for x in clip(left, x2, self.width) {
                let at = (
                    (y as f32 + 0.5 - top) * scale - 0.5,
                    (x as f32 + 0.5 - left) * scale - 0.5,
                );
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

/// The pixels of a sprite: its last channel is the opacity.
struct Sprite<'a> {
    pixels: &'a [f32],
    height: usize,
    width: usize,
    channels: usize,
}

impl Sprite<'_> {
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
    fn ink(&self) -> Option<[f32; 4]> {
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

impl Dataset for Scenes {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.count
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.count)?;
        let [height, width, channels] = dimensions(self.shape.dims())?;
        let mut draws = Draws::new(0, streams::SCENES, self.part, index);
        sample.fill(self.shape, std::iter::repeat_n(0.0, self.shape.size()))?;
        let mut canvas = Canvas {
            pixels: &mut sample.input,
            height,
            width,
            channels,
        };
        canvas.background(&mut draws);
        for _ in 0..3 + draws.below(5) {
            canvas.clutter(&mut draws);
        }
        let side = height.min(width) as f32;
        let mut objects: Vec<Object> = Vec::new();
        let mut image = Sample::default();
        for _ in 0..1 + draws.below(MOST) {
            // Classes are drawn equally often, however many sprites they have.
            let of_class = &self.of_class[draws.below(self.of_class.len())];
            self.sprites.read(of_class[draws.below(of_class.len())], &mut image)?;
            let [h, w, c] = dimensions(image.shape.dims())?;
            let sprite = Sprite {
                pixels: &image.input,
                height: h,
                width: w,
                channels: c,
            };
            // As many small ones as large ones, by the ratio.
            let size = side / 7.0 * (2.8f32).powf(draws.between(0.0, 1.0));
            let (tint, scale) = (draws.between(0.0, 1.0), size / h.max(w) as f32);
            let Some(ink) = sprite.ink() else { continue };
            for _ in 0..8 {
                // A tenth may lie beyond an edge.
                let mut place = |whole: usize| draws.between(-0.1 * size, whole as f32 - 0.9 * size);
                let (top, left) = (place(height), place(width));
                let object = Object {
                    class: image.label as u32,
                    bounds: [ink[0] * scale, ink[1] * scale, ink[2] * scale, ink[3] * scale],
                    crowd: false,
                };
                let Some(object) = object.mapped(|x| x + left, |y| y + top, (height, width)) else {
                    continue;
                };
                if objects.iter().all(|other| covered(other.bounds, object.bounds) < 0.35) {
                    canvas.sprite(&sprite, size, (top, left), tint);
                    objects.push(object);
                    break;
                }
            }
        }
        Object::write_targets(objects.into_iter(), &mut sample.targets);
        sample.label = 0;
        Ok(())
    }
    fn shape(&self) -> Option<Shape> {
        Some(self.shape)
    }
    fn classes(&self) -> Option<usize> {
        Some(self.names.len())
    }
    fn class_names(&self) -> &[String] {
        &self.names
    }
}
