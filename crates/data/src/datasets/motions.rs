//! Clips of moving sprites in the table of datasets, whose class is how they move.

use super::canvas::{Canvas, Sprite, Sprites};
use super::card::DatasetCard;
use super::clips::{self, CLIPS};
use super::facts::{Fact, Facts};
use super::objects::Draws;
use super::opened::Opened;
use super::{scenes, sprites};
use crate::dataset::check_index;
use crate::{ByteImages, DataError, Dataset, Result, Sample, streams};
use kiln_core::Shape;
use std::f32::consts::TAU;
use std::sync::Arc;

/// Clips to train on, and those that are held back.
const TRAIN: usize = 1600;
const HELD_BACK: usize = 400;

/// The classes, in the order of the arms of [`Movement::of`].
const CLASSES: &[&str] = &[
    "left",
    "right",
    "up",
    "down",
    "bouncing",
    "turning",
    "growing",
    "shrinking",
];

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "moving sprites",
    description: "1,600 clips to train on and 400 held back, each of one picture that moves, bounces, turns, grows or shrinks: the digits inside \
                  kiln, or those of a sheet (a folder of one PNG with opacity, and labels.csv)",
    files: "moving sprites of",
    ships: Some("moving MNIST digits from inside kiln"),
    obtain: "nothing has to be downloaded",
    example: "emoji",
    samples: &CLIPS,
    shape: None,
    classes: CLASSES,
    has_classes: true,
    has_target: false,
    facts: &[],
    recognises: sprites::is_sheet,
    open: |request| {
        let sprites = scenes::sprites_of(request)?;
        let names = CLASSES.iter().map(|name| name.to_string()).collect();
        Ok(Opened {
            facts: Facts::default().with(Facts::CLASSES, Fact::Names(names)),
            train: Arc::new(Motions::new(sprites.train, request.shape, 0, TRAIN)?),
            test: Arc::new(Motions::new(sprites.test, request.shape, 1, HELD_BACK)?),
        })
    },
    held_back: |request| {
        let sprites = scenes::sprites_of(request)?;
        Ok(Arc::new(Motions::new(sprites.test, request.shape, 1, HELD_BACK)?))
    },
    file: Some(clips::read),
};

/// Clips of one sprite each, with half as many frames again as a network takes. Each is a pure function of its part and its index, and a
/// single frame tells little about its class: places, sizes and angles are drawn alike for all.
struct Motions {
    sprites: Sprites,
    shape: Shape,
    part: u32,
    count: usize,
    names: Vec<String>,
}

impl Motions {
    fn new(sprites: ByteImages, shape: &[usize], part: u32, count: usize) -> Result<Self> {
        let [frames, height, width, channels] = clips::dimensions(shape)?;
        if height < 16 || width < 16 {
            let size = format!("{height}×{width}");
            return Err(DataError::invalid("motions", "size", size, "at least 16×16"));
        }
        Ok(Motions {
            sprites: Sprites::new(sprites),
            shape: Shape::new(&[frames.saturating_add(frames / 2), height, width, channels])?,
            part,
            count,
            names: CLASSES.iter().map(|name| name.to_string()).collect(),
        })
    }
}

/// Where a sprite is in a clip, how large and how it is turned: in the middle of the clip, and by how much it changes from the first frame
/// to the last.
struct Movement {
    centre: (f32, f32),
    travel: (f32, f32),
    /// How far it goes to a side and back again.
    bounce: f32,
    angle: f32,
    turn: f32,
    size: f32,
    /// The factor of the size.
    growth: f32,
}

impl Movement {
    /// A movement of this class in frames of `height` by `width` pixels.
    fn of(class: usize, (height, width): (f32, f32), draws: &mut Draws) -> Self {
        let side = height.min(width);
        let strength = draws.between(0.0, 1.0);
        // What does not make the class changes a little as well.
        let mut movement = Movement {
            centre: (height / 2.0, width / 2.0),
            travel: (draws.between(-0.06, 0.06) * side, draws.between(-0.06, 0.06) * side),
            bounce: 0.0,
            angle: draws.between(0.0, TAU),
            turn: draws.between(-0.15, 0.15),
            size: draws.between(0.35, 0.6) * side,
            growth: draws.between(0.92, 1.08),
        };
        let (far, turn, growth) = (
            (0.4 + 0.3 * strength) * side,
            2.4 + 1.2 * strength,
            1.8 + 0.8 * strength,
        );
        // To either side, or in either direction.
        let sign = if draws.below(2) == 0 { 1.0 } else { -1.0 };
        match class {
            0 => movement.travel.1 = -far,
            1 => movement.travel.1 = far,
            2 => movement.travel.0 = -far,
            3 => movement.travel.0 = far,
            4 => movement.bounce = sign * far,
            5 => movement.turn = sign * turn,
            6 => movement.growth = growth,
            _ => movement.growth = 1.0 / growth,
        }
        // What goes far is near the middle half way.
        let spread = if class <= 4 { 0.08 } else { 0.2 } * side;
        movement.centre.0 += draws.between(-spread, spread);
        movement.centre.1 += draws.between(-spread, spread);
        movement
    }
}

impl Dataset for Motions {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.count
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.count)?;
        let [frames, height, width, channels] = clips::dimensions(self.shape.dims())?;
        let class = index % CLASSES.len();
        let mut draws = Draws::new(0, streams::MOTIONS, self.part, index);
        let mut image = Sample::default();
        self.sprites.draw(&mut draws, &mut image)?;
        let sprite = Sprite::of(&image)?;
        let tint = draws.between(0.0, 1.0);
        let movement = Movement::of(class, (height as f32, width as f32), &mut draws);
        sample.fill(self.shape, std::iter::repeat_n(0.0, self.shape.size()))?;
        let frame = height * width * channels;
        // What lies behind the sprite does not move.
        let (first, others) = sample.input.split_at_mut(frame);
        let mut canvas = Canvas {
            pixels: first,
            height,
            width,
            channels,
        };
        canvas.background(&mut draws);
        for _ in 0..draws.below(4) {
            canvas.clutter(&mut draws);
        }
        others
            .chunks_exact_mut(frame)
            .for_each(|other| other.copy_from_slice(first));
        for (number, pixels) in sample.input.chunks_exact_mut(frame).enumerate() {
            let mut canvas = Canvas {
                pixels,
                height,
                width,
                channels,
            };
            let time = number as f32 / (frames - 1).max(1) as f32 - 0.5;
            let centre = (
                movement.centre.0 + time * movement.travel.0,
                movement.centre.1 + time * movement.travel.1 + (0.5 - 2.0 * time.abs()) * movement.bounce,
            );
            let size = movement.size * movement.growth.powf(time);
            canvas.turned(&sprite, size, centre, movement.angle + time * movement.turn, tint);
        }
        sample.label = class as i32;
        sample.targets.clear();
        Ok(())
    }
    fn shape(&self) -> Option<Shape> {
        Some(self.shape)
    }
    fn classes(&self) -> Option<usize> {
        Some(CLASSES.len())
    }
    fn class_names(&self) -> &[String] {
        &self.names
    }
}
