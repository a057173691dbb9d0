//! The ways in which networks are trained unless told otherwise.

use crate::{OptimizerKind, OptimizerOptions};
use kiln_nn::optim::Schedule;

/// The data a recipe is for, its steps and its measure: all that `kiln train MODEL` needs beside the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// The dataset.
    pub data: DataKind,
    /// Mean and deviation that inputs in `0..=1` are normalised by, one for all channels or one each.
    pub normalise: Option<(&'static [f32], &'static [f32])>,
    /// Random changes of the training samples, in order.
    pub augment: &'static [Augment],
    /// Passes over the training data.
    pub epochs: u64,
    /// Samples of a batch.
    pub batch: u32,
    /// The optimizer; its rate is the largest of the schedule.
    pub optimizer: OptimizerOptions,
    /// The learning rate over the run.
    pub schedule: ScheduleKind,
    /// The largest norm of all gradients.
    pub clip_norm: Option<f64>,
    /// The measure of the results.
    pub metric: MetricKind,
    /// Threads that prepare batches.
    pub workers: u16,
}

impl Recipe {
    /// Classes of images with Adam at 1e-3, from which a network's recipe takes what it does not name.
    pub(crate) const CLASSES: Recipe = Recipe {
        data: DataKind::Cifar10,
        normalise: None,
        augment: &[],
        epochs: 5,
        batch: 32,
        optimizer: OptimizerOptions::of(OptimizerKind::Adam),
        schedule: ScheduleKind::Constant,
        clip_norm: None,
        metric: MetricKind::Accuracy,
        workers: 1,
    };

    /// The usual recipe of large networks on CIFAR-10, at this rate: SGD with momentum and weight decay, half a cosine, crops and
    /// flips.
    pub(crate) const fn cifar(lr: f64) -> Recipe {
        Recipe {
            normalise: Some((&[0.4914, 0.4822, 0.4465], &[0.247, 0.2435, 0.2616])),
            augment: &[Augment::Crop { padding: 4 }, Augment::Flip],
            epochs: 200,
            batch: 128,
            optimizer: OptimizerOptions {
                kind: OptimizerKind::Sgd,
                lr,
                momentum: 0.9,
                weight_decay: Some(5e-4),
            },
            schedule: ScheduleKind::Cosine,
            workers: 2,
            ..Recipe::CLASSES
        }
    }
}

/// A dataset by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// Grey digits of 28×28: the IDX files of MNIST and its likes.
    Mnist,
    /// Colour images of 32×32 in ten classes: CIFAR-10's binary version.
    Cifar10,
    /// Any text, character by character.
    Text,
}

impl DataKind {
    /// Its name: `CIFAR-10`.
    pub const fn name(self) -> &'static str {
        match self {
            DataKind::Mnist => "MNIST",
            DataKind::Cifar10 => "CIFAR-10",
            DataKind::Text => "text",
        }
    }
}

/// A random change of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Augment {
    /// A window of the image's own size, of the image with so many black pixels around.
    Crop {
        /// Pixels on each side.
        padding: usize,
    },
    /// The mirror image, every other time.
    Flip,
}

impl std::fmt::Display for Augment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Augment::Crop { padding } => write!(f, "crop {padding}"),
            Augment::Flip => f.write_str("flip"),
        }
    }
}

/// The measure of a network's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// The share of samples whose class is found: the larger the better.
    Accuracy,
    /// The exponential of the loss, as many characters as a guess is among: the smaller the better.
    Perplexity,
}

impl MetricKind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            MetricKind::Accuracy => "accuracy",
            MetricKind::Perplexity => "perplexity",
        }
    }
}

/// A learning rate over a run, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleKind {
    /// The same rate throughout.
    Constant,
    /// Half a cosine down to 0.
    Cosine,
    /// Up in the first twentieth of the run, then half a cosine down to a tenth.
    WarmupCosine,
}

impl ScheduleKind {
    /// All of them.
    pub const ALL: [ScheduleKind; 3] = [ScheduleKind::Constant, ScheduleKind::Cosine, ScheduleKind::WarmupCosine];

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            ScheduleKind::Constant => "constant",
            ScheduleKind::Cosine => "cosine",
            ScheduleKind::WarmupCosine => "warmup-cosine",
        }
    }

    /// The schedule of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// The rates of a run of so many updates; `None` for the same one throughout.
    pub fn build(self, lr: f64, steps: u64) -> Option<Schedule> {
        let cosine = |min: f64, steps: u64| Schedule::Cosine {
            lr,
            min,
            steps: steps.max(1),
        };
        match self {
            ScheduleKind::Constant => None,
            ScheduleKind::Cosine => Some(cosine(0.0, steps)),
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

    #[test]
    fn names_are_read_back() {
        for kind in ScheduleKind::ALL {
            assert_eq!(ScheduleKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(ScheduleKind::from_name("Cosine"), None);
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
        assert_eq!(ScheduleKind::Constant.build(0.1, 100), None);
        // Runs of no length to speak of have a schedule too.
        for kind in ScheduleKind::ALL {
            for steps in 0..3 {
                kind.build(0.1, steps).iter().for_each(|s| s.check().unwrap());
            }
        }
    }
}
