//! Faster R-CNN: a detector of two halves, proposals and what they are.

mod backbone;
mod config;
mod heads;
mod proposals;
mod targets;

pub use config::{BodyConfig, FasterRcnnConfig, RoiConfig, RpnConfig};

use crate::classes::Row;
use crate::detection::{self, Detector, Losses, PicturesOn};
use crate::{Augment, NetSizes, OptimizerKind, OptimizerOptions, Recipe, ScheduleKind};
use backbone::Backbone;
use heads::RoiHeads;
use kiln_core::{Backend, Error, Result};
use kiln_data::DataKind;
use kiln_nn::detection::{Boxes, Detections};
use kiln_nn::{Counter, Init, Mode, Module, Rng, Tensor, no_grad, trace};
use proposals::Proposals;

/// The rows of the table of models.
pub(crate) const SMALL: Row<FasterRcnnConfig> = {
    let config = FasterRcnnConfig {
        classes: 10,
        ..FasterRcnnConfig::SMALL
    };
    Row {
        card: detection::card(
            "Faster R-CNN on a narrow ResNet-18 for 160x160 colour images",
            &[160, 160, 3],
            config.classes,
            PARAMETERS_SMALL,
            SCENES,
        ),
        config,
    }
};
pub(crate) const COCO: Row<FasterRcnnConfig> = Row {
    card: detection::card(
        "Faster R-CNN on ResNet-50 with a feature pyramid for 800x800 colour images",
        &[800, 800, 3],
        FasterRcnnConfig::COCO.classes,
        PARAMETERS_COCO,
        OF_COCO,
    ),
    config: FasterRcnnConfig::COCO,
};

/// Values of all parameters.
const PARAMETERS_SMALL: usize = 1_328_470;
const PARAMETERS_COCO: usize = 41_808_406;

/// Scenes of digits, which are not mirrored.
const SCENES: Recipe = Recipe {
    data: DataKind::Scenes,
    augment: &[Augment::Light {
        brightness: 30,
        tint: 10,
    }],
    normalise: Some(IMAGENET),
    epochs: 12,
    batch: 8,
    valid_batch: 16,
    optimizer: OptimizerOptions {
        lr: 5e-4,
        weight_decay: Some(1e-4),
        ..OptimizerOptions::of(OptimizerKind::AdamW)
    },
    schedule: ScheduleKind::WarmupCosine,
    clip_norm: Some(10.0),
    ..Recipe::CLASSES
};

/// As torchvision trains it, on eight devices with two images each.
const OF_COCO: Recipe = Recipe {
    data: DataKind::Coco,
    augment: &[Augment::Flip],
    epochs: 26,
    batch: 16,
    optimizer: OptimizerOptions {
        lr: 0.02,
        momentum: Some(0.9),
        weight_decay: Some(1e-4),
        ..OptimizerOptions::of(OptimizerKind::Sgd)
    },
    schedule: ScheduleKind::Thirds,
    workers: 8,
    ..SCENES
};

/// Mean and deviation of ImageNet's colours.
const IMAGENET: (&[f32], &[f32]) = (&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225]);

/// The network of a row with its task.
pub(crate) fn task<B: Backend>(
    row: &Row<FasterRcnnConfig>,
    init: Init<B>,
    sizes: NetSizes,
) -> Result<detection::Task<B>> {
    let config = FasterRcnnConfig {
        classes: sizes.outputs,
        ..row.config
    };
    Ok(detection::task(FasterRcnn::new(init, config)?))
}

impl<B: Backend> Detector<B> for FasterRcnn<B> {
    fn losses(&self, batch: &PicturesOn<B>) -> Result<Losses<B>> {
        let losses = self.loss(&batch.images, &batch.targets()?)?;
        Ok(Losses {
            total: losses.total()?,
            parts: vec![
                ("classifier", losses.classifier),
                ("box_reg", losses.box_reg),
                ("objectness", losses.objectness),
                ("rpn_box_reg", losses.rpn_box_reg),
            ],
        })
    }
    fn detect(&self, images: &Tensor<B>) -> Result<Vec<Detections>> {
        FasterRcnn::detect(self, images)
    }
    fn raw(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        self.size(images)?;
        let levels = trace::within(self, images, || self.backbone.levels(images))?;
        levels
            .into_iter()
            .next()
            .ok_or_else(|| Error::invalid("faster_rcnn", "levels", 0, "at least one"))
    }
}

/// Draws that a step of training has numbers for.
const DRAWS: u64 = 1 << 24;

/// Faster R-CNN with a feature pyramid (Ren et al. 2015; Lin et al. 2017) as torchvision has it, whose names its parameters have
/// (`fasterrcnn_resnet50_fpn`), without the scaling of images before it: images `[N, H, W, 3]` are of one size, normalised. Weights of
/// torchvision's lack the counters, of steps and of the batches of frozen norms: load them with
/// [`LoadOptions::partial`](kiln_nn::LoadOptions::partial).
///
/// ```
/// use kiln_models::{FasterRcnn, FasterRcnnConfig};
/// use kiln_nn::{DType, Init, Module, Tensor, detection::Boxes};
/// # let cpu = kiln_cpu::Cpu::new();
/// let mut net = FasterRcnn::new(Init::new(&cpu, 0), FasterRcnnConfig::SMALL)?;
/// let images = Tensor::zeros(&cpu, &[1, 64, 64, 3], DType::F32)?;
/// let targets = [Boxes { xyxy: vec![[10.0, 10.0, 40.0, 50.0]], classes: vec![2] }];
/// let losses = net.loss(&images, &targets)?;
/// losses.total()?.backward()?;
/// net.eval();
/// assert_eq!(net.detect(&images)?.len(), 1); // the objects of one image
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Module)]
pub struct FasterRcnn<B: Backend> {
    backbone: Backbone<B>,
    rpn: Proposals<B>,
    roi_heads: RoiHeads<B>,
    /// The steps of training so far: what is drawn in them.
    step: Counter<B>,
    mode: Mode,
    #[module(skip)]
    seed: u64,
    #[module(skip)]
    config: FasterRcnnConfig,
}

/// The losses of a batch, scalars.
#[derive(Clone)]
pub struct FasterRcnnLosses<B: Backend> {
    /// The cross-entropy of the classes of regions (`loss_classifier` of torchvision).
    pub classifier: Tensor<B>,
    /// The smooth L1 loss of the boxes of regions (`loss_box_reg`).
    pub box_reg: Tensor<B>,
    /// The cross-entropy of anchors standing for something (`loss_objectness`).
    pub objectness: Tensor<B>,
    /// The smooth L1 loss of the boxes of anchors (`loss_rpn_box_reg`).
    pub rpn_box_reg: Tensor<B>,
}

impl<B: Backend> FasterRcnnLosses<B> {
    /// Their sum, which is trained on.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn total(&self) -> Result<Tensor<B>> {
        self.classifier
            .add(&self.box_reg)?
            .add(&self.objectness)?
            .add(&self.rpn_box_reg)
    }
}

impl<B: Backend> FasterRcnn<B> {
    /// The net with torchvision's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No classes, a size of 0, anchors without a size, memory.
    pub fn new(mut init: Init<B>, config: FasterRcnnConfig) -> Result<Self> {
        if config.classes == 0 {
            return Err(Error::invalid("faster_rcnn", "classes", 0, "at least 1"));
        }
        let init = &mut init;
        Ok(FasterRcnn {
            backbone: Backbone::new(init, &config)?,
            rpn: Proposals::new(init, &config)?,
            roi_heads: RoiHeads::new(init, &config)?,
            step: Counter::new(init.backend())?,
            mode: Mode::default(),
            seed: init.seed(),
            config,
        })
    }

    /// The sizes.
    pub fn config(&self) -> &FasterRcnnConfig {
        &self.config
    }

    /// The losses of images `[N, H, W, 3]` with the boxes of each image in its pixels. What is drawn depends on the seed and, in training, on the number
    /// of calls before, which is saved with the parameters.
    ///
    /// # Errors
    /// Images of another shape, smaller than 32 pixels; another number of targets than of images, those of [`Boxes::check`]. Inside of a
    /// captured step [`Error::NotCapturable`]: targets are assigned on the host.
    pub fn loss(&self, images: &Tensor<B>, targets: &[Boxes]) -> Result<FasterRcnnLosses<B>> {
        const OP: &str = "faster_rcnn";
        let (n, image) = self.size(images)?;
        if targets.len() != n {
            let expected = format!("{n}, as many as images");
            return Err(Error::invalid(
                OP,
                "targets",
                format!("those of {} images", targets.len()),
                expected,
            ));
        }
        for targets in targets {
            targets.check(self.config.classes)?;
        }
        let step = match self.mode.is_training() {
            true => self.step.tick()?.item()?.unsigned_abs() as u64,
            // What is measured is the same whenever it is.
            false => 0,
        };
        let rng = &mut Rng::at(self.seed, step * DRAWS);
        trace::within(self, images, || {
            let features = self.backbone.levels(images)?;
            let anchored = self.rpn.anchored(&features, image)?;
            let (objectness, rpn_box_reg) = self.rpn.loss(&anchored, targets, rng)?;
            let proposals = no_grad(|| self.rpn.propose(&anchored, image, true))?;
            let regions = self.roi_heads.sample(proposals, targets, rng)?;
            let told = self.roi_heads.tell(&features[..4], &regions.rois, image)?;
            let (classifier, box_reg) = self.roi_heads.loss(&told, &regions)?;
            Ok(FasterRcnnLosses {
                classifier,
                box_reg,
                objectness,
                rpn_box_reg,
            })
        })
    }

    /// The objects in each of images `[N, H, W, 3]`, without gradients. Batch norms that are in training normalise by the batch: call
    /// [`eval`](Module::eval) before.
    ///
    /// # Errors
    /// Images of another shape, smaller than 32 pixels; [`Error::NotCapturable`] inside of a captured step, memory.
    pub fn detect(&self, images: &Tensor<B>) -> Result<Vec<Detections>> {
        let (_, image) = self.size(images)?;
        let found = || {
            let features = self.backbone.levels(images)?;
            let anchored = self.rpn.anchored(&features, image)?;
            let proposals = self.rpn.propose(&anchored, image, false)?;
            let told = self.roi_heads.tell(&features[..4], &proposals, image)?;
            self.roi_heads.detections(&told, &proposals, image)
        };
        no_grad(|| trace::within(self, images, found))
    }

    /// The number of images and their height and width.
    fn size(&self, images: &Tensor<B>) -> Result<(usize, (usize, usize))> {
        match images.shape().dims() {
            &[n, height, width, 3] if n > 0 && height >= 32 && width >= 32 => Ok((n, (height, width))),
            _ => {
                let expected = "[N, H, W, 3] with at least one image of at least 32 pixels a side";
                Err(Error::invalid("faster_rcnn", "images", images.shape(), expected))
            }
        }
    }
}
