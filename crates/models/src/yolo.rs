//! YOLO: a detector of one pass.

mod assign;
mod blocks;
mod config;
mod grid;
mod layers;
mod loss;

pub use assign::YoloTargets;
pub use config::YoloConfig;
pub use loss::YoloLosses;

use crate::classes::Row;
use crate::detection::{self, Detector, Losses, PicturesOn};
use crate::{Augment, NetSizes, OptimizerKind, OptimizerOptions, Recipe, ScheduleKind};
use grid::Grid;
use kiln_core::{Backend, DType, Error, Result};
use kiln_data::DataKind;
use kiln_nn::detection::{Boxes, Detections, batched_nms, clip_boxes, read_boxes};
use kiln_nn::{Init, Module, Tensor, no_grad, trace};
use layers::Layers;

/// The rows of the table of models.
pub(crate) const N_160: Row<YoloConfig> = small("YOLOv8n for 160x160 colour images", YoloConfig::NANO, 3_012_782);
pub(crate) const S_160: Row<YoloConfig> = small("YOLOv8s for 160x160 colour images", YoloConfig::SMALL, 11_139_454);
pub(crate) const N_640: Row<YoloConfig> = large("YOLOv8n for 640x640 colour images", YoloConfig::NANO, 3_157_184);
pub(crate) const S_640: Row<YoloConfig> = large("YOLOv8s for 640x640 colour images", YoloConfig::SMALL, 11_166_544);

/// A row that learns scenes of digits, in minutes on a processor.
const fn small(description: &'static str, config: YoloConfig, parameters: usize) -> Row<YoloConfig> {
    let config = YoloConfig { classes: 10, ..config };
    Row {
        card: detection::card(description, &[160, 160, 3], config.classes, parameters, SCENES),
        config,
    }
}

/// A row for COCO.
const fn large(description: &'static str, config: YoloConfig, parameters: usize) -> Row<YoloConfig> {
    Row {
        card: detection::card(description, &[640, 640, 3], config.classes, parameters, COCO),
        config,
    }
}

/// Half of the images are mosaics, whose scales the others lack; digits are not mirrored.
const SCENES: Recipe = Recipe {
    data: DataKind::Scenes,
    augment: &[
        Augment::Mosaic { percent: 50 },
        Augment::Light {
            brightness: 30,
            tint: 10,
        },
    ],
    epochs: 20,
    batch: 16,
    valid_batch: 32,
    optimizer: OptimizerOptions {
        lr: 1e-3,
        weight_decay: Some(5e-4),
        ..OptimizerOptions::of(OptimizerKind::AdamW)
    },
    schedule: ScheduleKind::WarmupCosine,
    clip_norm: Some(10.0),
    ..Recipe::CLASSES
};

/// As `ultralytics` trains it, but for its changes of perspective and hue.
const COCO: Recipe = Recipe {
    data: DataKind::Coco,
    augment: &[
        Augment::Mosaic { percent: 100 },
        Augment::Light {
            brightness: 40,
            tint: 10,
        },
        Augment::Flip,
    ],
    epochs: 100,
    optimizer: OptimizerOptions {
        lr: 0.01,
        momentum: Some(0.937),
        weight_decay: Some(5e-4),
        ..OptimizerOptions::of(OptimizerKind::Sgd)
    },
    workers: 8,
    ..SCENES
};

/// The network of a row with its task.
pub(crate) fn task<B: Backend>(row: &Row<YoloConfig>, init: Init<B>, sizes: NetSizes) -> Result<detection::Task<B>> {
    let config = YoloConfig {
        classes: sizes.outputs,
        ..row.config
    };
    Ok(detection::task(Yolo::new(init, config)?))
}

impl<B: Backend> Detector<B> for Yolo<B> {
    fn losses(&self, batch: &PicturesOn<B>) -> Result<Losses<B>> {
        let targets = YoloTargets {
            boxes: batch.boxes.clone(),
            classes: batch.classes.clone(),
            exists: batch.exists.clone(),
        };
        let losses = self.loss_of(&batch.images, &targets)?;
        Ok(Losses {
            total: losses.total()?,
            parts: vec![
                ("box", losses.boxes),
                ("class", losses.classes),
                ("distance", losses.distances),
            ],
        })
    }
    fn detect(&self, images: &Tensor<B>) -> Result<Vec<Detections>> {
        Yolo::detect(self, images)
    }
    fn raw(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        Ok(self.forward(images)?.1)
    }
}

/// The most boxes of an image that suppression begins with.
const MOST: usize = 30_000;

/// YOLO of the version 8 line (Redmon et al. 2016; Jocher et al. 2023): a cross-stage partial backbone, a feature pyramid down and up again, and
/// a decoupled head without anchors, which tells the distances of each position to the sides of a box. Images `[N, H, W, 3]` with values
/// from 0 to 1 and sides that are multiples of 32. Parameters have the names of `ultralytics`, `model.N.…`, but for the constant
/// `model.22.dfl.conv.weight`, which is none here.
///
/// ```
/// use kiln_models::{Yolo, YoloConfig};
/// use kiln_nn::{DType, Init, Module, Tensor, detection::Boxes};
/// # let cpu = kiln_cpu::Cpu::new();
/// let config = YoloConfig { classes: 3, width: 0.125, ..YoloConfig::NANO };
/// let mut net = Yolo::new(Init::new(&cpu, 0), config)?;
/// let images = Tensor::zeros(&cpu, &[1, 64, 64, 3], DType::F32)?;
/// let targets = [Boxes { xyxy: vec![[10.0, 10.0, 40.0, 50.0]], classes: vec![2] }];
/// net.loss(&images, &targets)?.total()?.backward()?;
/// net.eval();
/// assert_eq!(net.detect(&images)?.len(), 1); // the objects of one image
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Module)]
pub struct Yolo<B: Backend> {
    model: Layers<B>,
    #[module(skip)]
    config: YoloConfig,
}

impl<B: Backend> Yolo<B> {
    /// The net with PyTorch's initial weights of `init`'s seed, but for the biases of the head.
    ///
    /// # Errors
    /// No classes, fewer than two bins, no candidates, memory.
    pub fn new(mut init: Init<B>, config: YoloConfig) -> Result<Self> {
        let least = [
            ("classes", config.classes, 1),
            ("bins", config.bins, 2),
            ("candidates", config.candidates, 1),
        ];
        for (argument, found, least) in least {
            if found < least {
                return Err(Error::invalid("yolo", argument, found, format!("at least {least}")));
            }
        }
        Ok(Yolo {
            model: Layers::new(&mut init, &config)?,
            config,
        })
    }

    /// The sizes.
    pub fn config(&self) -> &YoloConfig {
        &self.config
    }

    /// The losses of images `[N, H, W, 3]` with the boxes of each image in its pixels.
    ///
    /// # Errors
    /// Images of another shape or whose sides are no multiples of 32; another number of targets than of images, those of [`Boxes::check`].
    pub fn loss(&self, images: &Tensor<B>, targets: &[Boxes]) -> Result<YoloLosses<B>> {
        for targets in targets {
            targets.check(self.config.classes)?;
        }
        self.loss_of(images, &YoloTargets::new(images.backend(), targets, 1)?)
    }

    /// As [`loss`](Self::loss), of targets on the device: nothing is read or uploaded, so that it can be part of a captured step. Their
    /// boxes are not checked.
    ///
    /// # Errors
    /// Images of another shape or whose sides are no multiples of 32, targets of other shapes; a class that there is not.
    pub fn loss_of(&self, images: &Tensor<B>, targets: &YoloTargets<B>) -> Result<YoloLosses<B>> {
        targets.check(size(images)?.0)?;
        loss::losses(&self.config, &self.grid(images)?, targets)
    }

    /// The objects in each of images `[N, H, W, 3]`, without gradients: the likeliest class of each position. Batch norms that are in
    /// training normalise by the batch: call [`eval`](Module::eval) before.
    ///
    /// # Errors
    /// Images of another shape or whose sides are no multiples of 32; [`Error::NotCapturable`] inside of a captured step, memory.
    pub fn detect(&self, images: &Tensor<B>) -> Result<Vec<Detections>> {
        let (n, image) = size(images)?;
        let (boxes, scores) = no_grad(|| self.forward(images))?;
        let a = scores.shape()[1];
        let classes = scores.argmax(-1, false)?.to_vec::<i32>()?;
        let scores = scores.max(&[-1], false)?.to_dtype(DType::F32)?.to_vec::<f32>()?;
        let boxes = read_boxes(&boxes.reshape(&[n * a, 4])?)?;
        let each = (0..n).map(|i| {
            let mut likely: Vec<usize> = (i * a..(i + 1) * a)
                .filter(|&j| scores[j] > self.config.score_threshold)
                .collect();
            if likely.len() > MOST {
                likely.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
                likely.truncate(MOST);
            }
            let mut own: Vec<[f32; 4]> = likely.iter().map(|&j| boxes[j]).collect();
            let own_scores: Vec<f32> = likely.iter().map(|&j| scores[j]).collect();
            let own_classes: Vec<i32> = likely.iter().map(|&j| classes[j]).collect();
            let mut kept = batched_nms(&own, &own_scores, &own_classes, self.config.nms_threshold)?;
            kept.truncate(self.config.detections);
            clip_boxes(&mut own, image);
            Ok(Detections {
                boxes: kept.iter().map(|&j| own[j]).collect(),
                classes: kept.iter().map(|&j| own_classes[j]).collect(),
                scores: kept.iter().map(|&j| own_scores[j]).collect(),
            })
        });
        each.collect()
    }

    /// The boxes `[N, A, 4]` in pixels and the scores `[N, A, classes]` of all positions of images `[N, H, W, 3]`, those of stride 8 first.
    ///
    /// # Errors
    /// Images of another shape or whose sides are no multiples of 32, memory.
    pub fn forward(&self, images: &Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)> {
        size(images)?;
        let grid = self.grid(images)?;
        Ok((grid.boxes()?.mul(&grid.strides)?, grid.logits.sigmoid()?))
    }

    fn grid(&self, images: &Tensor<B>) -> Result<Grid<B>> {
        trace::within(self, images, || {
            Grid::new(&self.model.levels(images)?, self.config.bins)
        })
    }
}

/// The number of images and their height and width.
fn size<B: Backend>(images: &Tensor<B>) -> Result<(usize, (usize, usize))> {
    let fits = |side: usize| side > 0 && side.is_multiple_of(32);
    match images.shape().dims() {
        &[n, height, width, 3] if n > 0 && fits(height) && fits(width) => Ok((n, (height, width))),
        _ => {
            let expected = "[N, H, W, 3] with at least one image, whose sides are multiples of 32";
            Err(Error::invalid("yolo", "images", images.shape(), expected))
        }
    }
}
