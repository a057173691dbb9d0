//! Scenes in the table of datasets: sprites at random places on a background, with their boxes, for detectors.

use super::canvas::{Canvas, Sprite, Sprites};
use super::card::{DatasetCard, Request};
use super::images::dimensions;
use super::objects::{self, Draws, OBJECTS, covered};
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
    has_classes: false,
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
pub(super) fn sprites_of(request: &Request<'_>) -> Result<Split<ByteImages>> {
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
    sprites: Sprites,
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
        Ok(Scenes {
            sprites: Sprites::new(sprites),
            shape: Shape::new(&[height, width, channels])?,
            part,
            count,
            names,
        })
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
            self.sprites.draw(&mut draws, &mut image)?;
            let sprite = Sprite::of(&image)?;
            // As many small ones as large ones, by the ratio.
            let size = side / 7.0 * (2.8f32).powf(draws.between(0.0, 1.0));
            let (tint, scale) = (draws.between(0.0, 1.0), size / sprite.height.max(sprite.width) as f32);
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
