//! Recipes: the default way to train each network.

use crate::{Input, OptimizerKind, OptimizerOptions};
use kiln_data::{
    Compose, Crop, DataKind, Dataset, Flip, FlipObjects, Frames, Light, LogMel, Mosaic, Normalise, OBJECTS,
    RandomResizedCrop, ResizeCenterCrop, Result, Shared, SpecAugment, Speed, ToFloat, UTTERANCES,
};
use kiln_nn::optim::Schedule;

/// The dataset and the training options of a network: the defaults of `kiln train MODEL`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// The dataset.
    pub data: DataKind,
    /// Mean and standard deviation by which inputs in `0..=1` are normalised, one for all channels or one for each.
    pub normalise: Option<(&'static [f32], &'static [f32])>,
    /// Random changes of the training samples, in order.
    pub augment: &'static [Augment],
    /// Passes over the training data.
    pub epochs: u64,
    /// Samples of a batch.
    pub batch: u32,
    /// Samples of a batch in validation, unless those in training are more.
    pub valid_batch: u32,
    /// The optimizer; its learning rate is the largest of the schedule.
    pub optimizer: OptimizerOptions,
    /// The learning rate over the run.
    pub schedule: ScheduleKind,
    /// The updates of a step, in order, if there are several: those of the network's task, by their names.
    pub phases: &'static [PhaseRecipe],
    /// The norm that gradients are clipped to; `None` for no clipping.
    pub clip_norm: Option<f64>,
    /// The decay of the exponential average of the weights, which is validated and saved; `None` for no average.
    pub ema: Option<f64>,
    /// Threads that prepare batches.
    pub workers: u16,
}

impl Recipe {
    /// The base of the recipes for image classes, with Adam at 1e-3: a network's recipe overrides some fields.
    pub(crate) const CLASSES: Recipe = Recipe {
        data: DataKind::Cifar10,
        normalise: None,
        augment: &[],
        epochs: 5,
        batch: 32,
        valid_batch: 100,
        optimizer: OptimizerOptions::of(OptimizerKind::Adam),
        schedule: ScheduleKind::Constant,
        phases: &[],
        clip_norm: None,
        ema: None,
        workers: 1,
    };

    /// The settings of the updates of a step, in order.
    pub fn phases(&self) -> Vec<PhaseOptions> {
        let whole = PhaseOptions {
            name: "",
            every: 1,
            optimizer: self.optimizer,
            schedule: self.schedule,
            shares: None,
        };
        let of = |phase: &PhaseRecipe| PhaseOptions {
            name: phase.name,
            every: phase.every,
            optimizer: phase.optimizer.unwrap_or(self.optimizer),
            schedule: phase.schedule.unwrap_or(self.schedule),
            shares: phase.shares,
        };
        match self.phases {
            [] => vec![whole],
            phases => phases.iter().map(of).collect(),
        }
    }

    /// True if images of files keep their sizes until the network's transform crops and scales them.
    pub fn crops_own_sizes(&self) -> bool {
        let crops = |change: &Augment| matches!(change, Augment::ResizedCrop { .. });
        self.augment.iter().any(crops)
    }

    /// The transform from raw samples to the network's input, with the augmentation for samples of a dataset to train on.
    ///
    /// # Errors
    /// Means and deviations that do not fit each other.
    pub(crate) fn transform(&self, input: Input, augment: Option<&Shared>) -> Result<Compose> {
        let frame = input
            .clip()
            .map(|[_, height, width, channels]| [height, width, channels]);
        let Some([height, width, _]) = input.image().or(frame) else {
            return match *input.shape {
                [_, bins] if input.kind == &UTTERANCES => self.of_speech(bins, augment.is_some()),
                _ => Ok(Compose::new()),
            };
        };
        let mut stages = Compose::new();
        if self.crops_own_sizes() && augment.is_none() {
            stages = stages.then(ResizeCenterCrop::new(height, width)?);
        }
        if let Some([frames, ..]) = input.clip() {
            let jitter = augment.is_some() && self.augment.contains(&Augment::Jitter);
            stages = stages.then(Frames::new(frames)?.jitter(jitter));
        }
        for (change, dataset) in self.augment.iter().zip(std::iter::repeat(augment)) {
            let Some(dataset) = dataset else { break };
            stages = match *change {
                Augment::Crop { padding } => stages.then(Crop::new(height, width, padding)),
                Augment::ResizedCrop { padding } => match dataset.shape() {
                    Some(_) => stages.then(Crop::new(height, width, padding)),
                    None => stages.then(RandomResizedCrop::new(height, width)?),
                },
                Augment::Flip if input.kind == &OBJECTS => stages.then(FlipObjects),
                Augment::Flip => stages.then(Flip::new(0.5)?),
                Augment::Mosaic { percent } => stages.then(Mosaic::new(dataset.clone(), f32::from(percent) / 100.0)),
                Augment::Light { brightness, tint } => stages.then(Light {
                    brightness: f32::from(brightness) / 100.0,
                    tint: f32::from(tint) / 100.0,
                }),
                Augment::Jitter | Augment::Speed | Augment::SpecAugment { .. } => stages,
            };
        }
        let scaled = stages.then(ToFloat);
        Ok(match self.normalise {
            Some((mean, deviation)) => scaled.then(Normalise::new(mean, deviation)?),
            None => scaled,
        })
    }

    /// The recipe of torchvision for Kinetics-400 but for its warm-up, at the rate of one device with 24 clips: SGD with momentum, a tenth of
    /// the rate after each third, frames at random, crops and flips. Frames are scaled to the input before they are cropped.
    pub(crate) const KINETICS: Recipe = Recipe {
        data: DataKind::ClipFolder,
        normalise: Some((&[0.43216, 0.394666, 0.37645], &[0.22803, 0.22145, 0.216989])),
        augment: &[Augment::Jitter, Augment::Crop { padding: 8 }, Augment::Flip],
        epochs: 45,
        batch: 24,
        valid_batch: 24,
        optimizer: OptimizerOptions {
            lr: 0.01,
            momentum: Some(0.9),
            weight_decay: Some(1e-4),
            ..OptimizerOptions::of(OptimizerKind::Sgd)
        },
        schedule: ScheduleKind::Thirds,
        workers: 8,
        ..Recipe::CLASSES
    };

    /// The recipe of small networks for the clips that ship: Adam at 2e-3, half a cosine, frames at random. Mirror images would be of other
    /// classes.
    pub(crate) const MOTIONS: Recipe = Recipe {
        data: DataKind::Motions,
        normalise: Some((&[0.4], &[0.25])),
        augment: &[Augment::Jitter],
        epochs: 10,
        batch: 16,
        valid_batch: 50,
        optimizer: OptimizerOptions {
            lr: 2e-3,
            ..OptimizerOptions::of(OptimizerKind::Adam)
        },
        schedule: ScheduleKind::Cosine,
        ..Recipe::CLASSES
    };

    /// From sound to spectrograms of so many bins: changes of sound come before, those of spectrograms behind.
    fn of_speech(&self, bins: usize, augment: bool) -> Result<Compose> {
        let changes = || self.augment.iter().filter(|_| augment);
        let mut stages = Compose::new();
        if changes().any(|change| *change == Augment::Speed) {
            stages = stages.then(Speed::new(&[0.9, 1.0, 1.1])?);
        }
        stages = stages.then(LogMel::new(bins)?);
        for change in changes() {
            if let Augment::SpecAugment { frames, bins } = *change {
                stages = stages.then(SpecAugment::new(frames, bins));
            }
        }
        Ok(stages)
    }

    /// The usual recipe of large networks on CIFAR-10, at this learning rate: SGD with momentum and weight decay, half a
    /// cosine, crops and flips.
    pub(crate) const fn cifar(lr: f64) -> Recipe {
        Recipe {
            normalise: Some((&[0.4914, 0.4822, 0.4465], &[0.247, 0.2435, 0.2616])),
            augment: &[Augment::Crop { padding: 4 }, Augment::Flip],
            epochs: 200,
            batch: 128,
            optimizer: OptimizerOptions {
                lr,
                momentum: Some(0.9),
                weight_decay: Some(5e-4),
                ..OptimizerOptions::of(OptimizerKind::Sgd)
            },
            schedule: ScheduleKind::Cosine,
            workers: 2,
            ..Recipe::CLASSES
        }
    }

    /// The usual recipe of large networks on ImageNet, at this learning rate and weight decay: SGD with momentum, a tenth of the rate after
    /// each third, crops of random sizes and flips; the middle of an image is measured.
    pub(crate) const fn imagenet(lr: f64, weight_decay: f64) -> Recipe {
        Recipe {
            data: DataKind::ImageFolder,
            normalise: Some((&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225])),
            augment: &[Augment::ResizedCrop { padding: 28 }, Augment::Flip],
            epochs: 90,
            batch: 256,
            optimizer: OptimizerOptions {
                lr,
                momentum: Some(0.9),
                weight_decay: Some(weight_decay),
                ..OptimizerOptions::of(OptimizerKind::Sgd)
            },
            schedule: ScheduleKind::Thirds,
            workers: 8,
            ..Recipe::CLASSES
        }
    }
}

/// A random change of an image, of a clip, whose frames are changed alike, or of speech.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Augment {
    /// A random crop, of the image's own size, of the image padded with black pixels.
    Crop {
        /// Pixels on each side.
        padding: usize,
    },
    /// A random part of an image, scaled ([`RandomResizedCrop`]); what is measured is the middle ([`ResizeCenterCrop`]). Of data whose images have
    /// the network's size already it is a crop of the padded image.
    ResizedCrop {
        /// Pixels on each side of such an image.
        padding: usize,
    },
    /// The mirror image, with probability ½; of images with objects the objects with it.
    Flip,
    /// Clips that begin at any frame that leaves enough behind it, in place of the middle ones ([`Frames`]).
    Jitter,
    /// Four images with objects in one ([`Mosaic`]).
    Mosaic {
        /// The probability, in percent.
        percent: u8,
    },
    /// Brighter and darker colours ([`Light`]).
    Light {
        /// Percent by which all channels change together.
        brightness: u8,
        /// Percent by which each channel changes alone.
        tint: u8,
    },
    /// Sound played at 0.9, 1 or 1.1 times its speed ([`Speed`]).
    Speed,
    /// Masks over stretches of frames and of bins ([`SpecAugment`](kiln_data::SpecAugment)).
    SpecAugment {
        /// A mask has fewer frames than this.
        frames: usize,
        /// A mask has fewer bins than this.
        bins: usize,
    },
}

impl std::fmt::Display for Augment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Augment::Crop { padding } => write!(f, "crop {padding}"),
            Augment::ResizedCrop { .. } => f.write_str("random resized crop"),
            Augment::Flip => f.write_str("flip"),
            Augment::Jitter => f.write_str("jitter of frames"),
            Augment::Mosaic { percent } => write!(f, "mosaic {percent} %"),
            Augment::Light { brightness, tint } => write!(f, "light {brightness} %, tint {tint} %"),
            Augment::Speed => f.write_str("speed 0.9 to 1.1"),
            Augment::SpecAugment { frames, bins } => write!(f, "SpecAugment {frames} frames, {bins} bins"),
        }
    }
}

/// An update of a step that has several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseRecipe {
    /// Its name.
    pub name: &'static str,
    /// It is made in each `every`-th step.
    pub every: u64,
    /// Its optimizer; `None` for that of the recipe.
    pub optimizer: Option<OptimizerOptions>,
    /// Its learning rate over the run; `None` for that of the recipe.
    pub schedule: Option<ScheduleKind>,
    /// The name of the update before whose optimizer it is made with, with the state, the options and the schedule of that.
    pub shares: Option<&'static str>,
}

impl PhaseRecipe {
    /// An update in each step, with optimizer and schedule of the recipe.
    pub(crate) const fn named(name: &'static str) -> Self {
        PhaseRecipe {
            name,
            every: 1,
            optimizer: None,
            schedule: None,
            shares: None,
        }
    }
}

/// The settings of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseOptions {
    /// Its name; empty if it is the only one of its step.
    pub name: &'static str,
    /// It is made in each `every`-th step.
    pub every: u64,
    /// Its optimizer.
    pub optimizer: OptimizerOptions,
    /// Its learning rate over the run.
    pub schedule: ScheduleKind,
    /// The name of the update whose optimizer it shares.
    pub shares: Option<&'static str>,
}

/// A learning rate schedule by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleKind {
    /// The same rate throughout.
    Constant,
    /// Half a cosine down to 0.
    Cosine,
    /// A linear warm-up in the first twentieth of the run, then half a cosine down to a tenth of the rate.
    WarmupCosine,
    /// A tenth of the rate from the second third of the run on, a hundredth in the last.
    Thirds,
}

impl ScheduleKind {
    /// All schedules.
    pub const ALL: [ScheduleKind; 4] = [
        ScheduleKind::Constant,
        ScheduleKind::Cosine,
        ScheduleKind::WarmupCosine,
        ScheduleKind::Thirds,
    ];

    /// The schedule's name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            ScheduleKind::Constant => "constant",
            ScheduleKind::Cosine => "cosine",
            ScheduleKind::WarmupCosine => "warmup-cosine",
            ScheduleKind::Thirds => "thirds",
        }
    }

    /// The schedule with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// The schedule of a run of `steps` updates with the largest rate `lr`; `None` for a constant rate.
    pub fn build(self, lr: f64, steps: u64) -> Option<Schedule> {
        let cosine = |min: f64, steps: u64| Schedule::Cosine {
            lr,
            min,
            steps: steps.max(1),
        };
        match self {
            ScheduleKind::Constant => None,
            ScheduleKind::Cosine => Some(cosine(0.0, steps)),
            ScheduleKind::Thirds => Some(Schedule::Step {
                lr,
                every: steps.div_ceil(3).max(1),
                gamma: 0.1,
            }),
            ScheduleKind::WarmupCosine => {
                let up = (steps / 20).max(1);
                Some(cosine(lr / 10.0, steps.saturating_sub(up)).warmed_up(up))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::Shape;
    use kiln_data::{Draw, Sample, Transform};
    use std::sync::Arc;

    #[test]
    fn names_are_read_back() {
        for kind in ScheduleKind::ALL {
            assert_eq!(ScheduleKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(ScheduleKind::from_name("Cosine"), None);
    }

    /// Images whose sizes differ.
    struct OwnSizes;

    impl Dataset for OwnSizes {
        type Sample = Sample;

        fn len(&self) -> usize {
            2
        }
        fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
            let (h, w) = [(20, 50), (300, 260)][index];
            let pixels = (0..h * w * 3).map(|i| (i % 251) as f32);
            sample.fill(Shape::new(&[h, w, 3])?, pixels)
        }
    }

    #[test]
    fn images_of_any_size_are_cropped_to_the_input() {
        let recipe = Recipe::imagenet(0.1, 1e-4);
        assert!(recipe.crops_own_sizes() && !Recipe::cifar(0.1).crops_own_sizes());
        let images: Shared = Arc::new(OwnSizes);
        for augment in [None, Some(&images)] {
            let transform = recipe.transform(Input::images(&[224, 224, 3]), augment).unwrap();
            for index in 0..2 {
                let mut sample = images.get(index).unwrap();
                transform.apply(&mut sample, &Draw::new(0, 0, index)).unwrap();
                assert_eq!(sample.shape.dims(), [224, 224, 3]);
            }
        }
    }

    #[test]
    fn schedules_begin_and_end_where_they_say() {
        let rates = |kind: ScheduleKind, steps: u64| {
            let schedule = kind.build(0.1, steps).unwrap();
            schedule.check().unwrap();
            (0..=steps).map(|s| schedule.lr(s)).collect::<Vec<_>>()
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        let cosine = rates(ScheduleKind::Cosine, 100);
        near(cosine[0], 0.1);
        near(cosine[50], 0.05);
        near(cosine[100], 0.0);
        let warmed = rates(ScheduleKind::WarmupCosine, 100);
        near(warmed[0], 0.02);
        near(warmed[5], 0.1);
        near(warmed[100], 0.01);
        let thirds = rates(ScheduleKind::Thirds, 90);
        near(thirds[29], 0.1);
        near(thirds[30], 0.01);
        near(thirds[89], 0.001);
        assert_eq!(ScheduleKind::Constant.build(0.1, 100), None);
        // Very short runs have a valid schedule too.
        for kind in ScheduleKind::ALL {
            for steps in 0..3 {
                kind.build(0.1, steps).iter().for_each(|s| s.check().unwrap());
            }
        }
    }
}
