//! Images with objects in the table of datasets.

use super::card::{FileOptions, Request};
use super::facts::{Fact, Facts};
use super::images::dimensions;
use super::kinds::{MadeUp, SampleKind};
use super::opened::Opened;
use crate::dataset::check_index;
use crate::{
    DataError, Dataset, ImageLimits, Letterbox, Object, ObjectImages, ObjectImagesOptions, Pictures, Result, Sample,
    decode_image, streams,
};
use kiln_core::Shape;
use kiln_core::philox::{Key, uniform};
use std::path::Path;
use std::sync::Arc;

/// Images `[H, W, C]` of raw pixels from 0 to 255, with objects as targets ([`Object::of_targets`]). Images of files are fitted into the
/// network's input ([`Letterbox`]); the targets of an image that a trained network is asked about are the sizes of both
/// ([`Letterbox::of_targets`]).
pub static OBJECTS: SampleKind = SampleKind {
    name: "objects",
    noun: "image",
    describe: |shape| {
        let sides: Vec<String> = shape.iter().map(usize::to_string).collect();
        format!("images {} with objects", sides.join("x"))
    },
    batch: 8,
    samples: |made| Ok(Arc::new(Rectangles::new(made, 0, made.count)?)),
    synthetic: |made| {
        Ok(Opened {
            train: Arc::new(Rectangles::new(made, 0, made.count)?),
            test: Arc::new(Rectangles::new(made, 1, made.held_back())?),
            facts: Facts::default(),
        })
    },
};

/// The file or folder, which has to be named.
pub(super) fn root<'a>(request: &Request<'a>) -> Result<&'a Path> {
    let missing = || DataError::invalid("objects", "path", "none", "a file or a folder");
    request.path.ok_or_else(missing)
}

/// The names of the classes that a network was trained on.
pub(super) fn known<'a>(request: &Request<'a>) -> Option<&'a [String]> {
    request.facts.and_then(|facts| facts.names(Facts::CLASSES))
}

/// Images of a list, fitted into the network's input.
pub(super) fn images_of(request: &Request<'_>, pictures: Pictures) -> Result<ObjectImages> {
    let [height, width, channels] = dimensions(request.shape)?;
    let options = ObjectImagesOptions {
        size: (height, width),
        channels,
        limits: ImageLimits::default(),
        bad: request.bad,
    };
    ObjectImages::new(root(request)?, pictures, options)
}

/// The facts about images with objects that a network is built with: the names of their classes.
pub(super) fn facts(images: &dyn Dataset<Sample = Sample>) -> Facts {
    Facts::default().with(Facts::CLASSES, Fact::Names(images.class_names().to_vec()))
}

/// A dataset of both parts; without the second, every tenth image of the first is held back.
pub(super) fn opened(request: &Request<'_>, train: Pictures, test: Option<Pictures>) -> Result<Opened> {
    let (train, test) = parts(train, test);
    let train = images_of(request, train)?;
    Ok(Opened {
        facts: facts(&train),
        train: Arc::new(train),
        test: Arc::new(images_of(request, test)?),
    })
}

/// The images to train on and those that are held back.
pub(super) fn parts(mut train: Pictures, test: Option<Pictures>) -> (Pictures, Pictures) {
    if let Some(test) = test {
        return (train, test);
    }
    let mut test = Pictures {
        classes: train.classes.clone(),
        ..Pictures::default()
    };
    let (mut kept, last) = (Vec::new(), train.pictures.len().saturating_sub(1));
    for (number, picture) in std::mem::take(&mut train.pictures).into_iter().enumerate() {
        // Of fewer than ten images the last one.
        match number % 10 == 9 || (last < 9 && number == last) {
            true => test.pictures.push(picture),
            false => kept.push(picture),
        }
    }
    train.pictures = kept;
    (train, test)
}

/// The image in a file, fitted into the network's input.
pub(super) fn fitted(path: &Path, options: &FileOptions<'_>) -> Result<Vec<Sample>> {
    let [height, width, channels] = dimensions(options.shape)?;
    let image = decode_image(path, channels, &ImageLimits::default())?;
    let letterbox = Letterbox::new((image.height, image.width), (height, width));
    let mut sample = Sample::default();
    letterbox.fill(&image, &mut sample)?;
    sample.targets.extend(letterbox.numbers());
    Ok(vec![sample])
}

/// Numbers drawn one after the other.
pub(super) struct Draws {
    key: Key,
    at: u64,
}

impl Draws {
    /// Draws of sample `index`, of which there are 2²⁴.
    pub(super) fn new(seed: u64, stream: u32, part: u32, index: usize) -> Self {
        Draws {
            key: Key::new(seed, stream, part),
            at: (index as u64) << 24,
        }
    }

    fn next(&mut self) -> u64 {
        self.at += 1;
        self.at
    }

    /// A number between two others.
    pub(super) fn between(&mut self, low: f32, high: f32) -> f32 {
        let at = self.next();
        low + (high - low) * uniform(self.key.block(at)[0])
    }

    /// An integer in `0..bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let at = self.next();
        self.key.below(at, u32::try_from(bound).unwrap_or(u32::MAX)) as usize
    }

    /// Bytes of noise, sixteen of a draw.
    pub(super) fn bytes(&mut self, count: usize) -> impl Iterator<Item = u8> + use<> {
        let (key, first) = (self.key, self.at + 1);
        let blocks = count.div_ceil(16) as u64;
        self.at += blocks;
        (first..first + blocks)
            .flat_map(move |at| key.block(at))
            .flat_map(u32::to_le_bytes)
            .take(count)
    }
}

/// The area that two boxes share, by that of the first.
pub(super) fn covered(of: [f32; 4], by: [f32; 4]) -> f32 {
    let side = |axis: usize| (of[axis + 2].min(by[axis + 2]) - of[axis].max(by[axis])).max(0.0);
    side(0) * side(1) / ((of[2] - of[0]) * (of[3] - of[1])).max(f32::MIN_POSITIVE)
}

/// Images of noise with up to four rectangles, whose colours are their classes.
#[derive(Debug)]
struct Rectangles {
    shape: Shape,
    count: usize,
    seed: u64,
    part: u32,
    names: Vec<String>,
}

impl Rectangles {
    fn new(made: &MadeUp<'_>, part: u32, count: usize) -> Result<Self> {
        let [height, width, channels] = dimensions(made.shape)?;
        if height < 8 || width < 8 {
            let size = format!("{height}×{width}");
            return Err(DataError::invalid("objects", "size", size, "at least 8×8"));
        }
        Ok(Rectangles {
            shape: Shape::new(&[height, width, channels])?,
            count,
            seed: made.seed,
            part,
            names: (0..made.outputs).map(|class| class.to_string()).collect(),
        })
    }
}

/// The value of a channel of a colour, by a hue from 0 to 1.
pub(super) fn hue(hue: f32, channel: usize) -> f32 {
    let distance = (6.0 * (hue + channel as f32 / 3.0)).rem_euclid(6.0) - 3.0;
    255.0 * (distance.abs() - 1.0).clamp(0.0, 1.0)
}

impl Dataset for Rectangles {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.count
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.count)?;
        let [height, width, channels] = dimensions(self.shape.dims())?;
        let mut draws = Draws::new(self.seed, streams::OBJECTS, self.part, index);
        let noise: Vec<f32> = draws
            .bytes(self.shape.size())
            .map(|byte| 96.0 + f32::from(byte) / 8.0)
            .collect();
        sample.fill(self.shape, noise.into_iter())?;
        let mut objects: Vec<Object> = Vec::new();
        for _ in 0..1 + draws.below(4) {
            let mut side = |whole: usize| {
                let length = whole / 6 + draws.below(whole / 3);
                let from = draws.below(whole - length);
                (from, from + length)
            };
            let ((x1, x2), (y1, y2)) = (side(width), side(height));
            let class = draws.below(self.names.len());
            let bounds = [x1 as f32, y1 as f32, x2 as f32, y2 as f32];
            let overlaps = |object: &Object| covered(object.bounds, bounds) + covered(bounds, object.bounds) > 0.2;
            if objects.iter().any(overlaps) {
                continue;
            }
            for y in y1..y2 {
                for x in x1..x2 {
                    for channel in 0..channels {
                        let colour = hue(class as f32 / self.names.len() as f32, channel);
                        sample.input[(y * width + x) * channels + channel] = colour;
                    }
                }
            }
            objects.push(Object {
                class: class as u32,
                bounds,
                crowd: false,
            });
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
