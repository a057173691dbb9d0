//! A row of the table: the network, the number of samples, training or inference.

use crate::Outcome;
use kiln_core::DType;
use kiln_cpu::Cpu;
use kiln_models::{Model, OutputKind, PhaseOptions};
use kiln_nn::autocast;
use kiln_nn::module::Value;
use kiln_nn::optim::Optimizer;

/// Batches of a file, and steps whose losses are compared.
pub(crate) const STEPS: usize = 20;

/// Recipes with a larger learning rate begin with steps whose losses cannot be compared.
const LARGE_LR: f64 = 1e-2;

/// The learning rate and decay of detectors: what a candidate learns depends on ranks of overlaps and scores, which change by rounding
/// differences when larger steps have let these grow.
const DETECTORS: (f64, f64) = (1e-5, 0.01);

/// The factor of StyleGAN2's learning rates: with larger ones two layouts of the same PyTorch network part by a third within
/// twenty steps.
const STYLEGAN2_SHARE: f64 = 1e-3;

/// The work of a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Pass {
    Train,
    Infer,
    /// Greedy generation of text.
    Generate,
}

/// Batch `i` of an array of the file.
pub(crate) fn batch_of(all: &Value<Cpu>, i: usize) -> kiln_core::Result<Value<Cpu>> {
    Ok(match all {
        Value::Float(x) => Value::Float(x.narrow(0, i, 1)?.reshape(&x.shape()[1..])?),
        Value::Int(x) => Value::Int(x.narrow(0, i, 1)?.reshape(&x.shape()[1..])?),
    })
}

#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) model: Model,
    /// The side of the images, or the frames of clips and their side, where it is not that of the network's input.
    pub(crate) side: Option<usize>,
    pub(crate) frames: Option<usize>,
    pub(crate) batch: usize,
    pub(crate) pass: Pass,
    /// True in mixed precision with bf16; for texts that are written, with all weights in bf16.
    pub(crate) half: bool,
}

impl Row {
    /// Parses an id such as `net/resnet18-b32/train`, `net-bf16/resnet18-b32/train`, or with the side of images
    /// `net/resnet50@64-b16/train`, or the frames of clips and their side `net/r3d-18@8x56-b4/train`.
    pub(crate) fn parse(id: &str) -> Outcome<Row> {
        let wrong = || format!("no row `{id}`");
        let mut parts = id.split('/');
        let half = parts.next() == Some("net-bf16");
        let (net, what) = (parts.next().ok_or_else(wrong)?, parts.next().ok_or_else(wrong)?);
        let (name, batch) = net.rsplit_once("-b").ok_or_else(wrong)?;
        let (name, frames, side) = match name.split_once('@') {
            Some((name, size)) => match size.split_once('x') {
                Some((frames, side)) => (name, Some(frames.parse()?), Some(side.parse()?)),
                None => (name, None, Some(size.parse()?)),
            },
            None => (name, None, None),
        };
        Ok(Row {
            model: Model::from_name(name).ok_or_else(wrong)?,
            side,
            frames,
            batch: batch.parse()?,
            pass: match what {
                "train" => Pass::Train,
                "infer" => Pass::Infer,
                "generate" => Pass::Generate,
                _ => return Err(wrong().into()),
            },
            half,
        })
    }

    /// The optimizer, as in `worker.py`.
    pub(crate) fn optimizer(self) -> Box<dyn Optimizer<Cpu>> {
        let mut options = self.model.recipe().optimizer;
        // Batch norm over few values is sensitive: with larger steps, rounding differences exceed the tolerance of the losses.
        let small = match self.model {
            // Behind so many norms of few values that larger steps part within twenty.
            Model::ResNet50 => Some(1e-8),
            Model::MobileNetV2Small | Model::R3d18 => Some(1e-6),
            _ if options.lr > LARGE_LR => Some(1e-4),
            _ => None,
        };
        if let Some(lr) = small {
            options.weight_decay = None;
            options.lr = lr;
        }
        options.build()
    }

    /// Elements of a latent vector, of networks that make images: steps take them from the file.
    pub(crate) fn latent(self) -> Option<usize> {
        match self.model {
            Model::Vae => Some(20),
            Model::WganGp | Model::WganGpConv => Some(64),
            Model::Dcgan => Some(100),
            Model::StyleGan2 => Some(128),
            _ => None,
        }
    }

    /// The classes of a detector: steps take boxes from the file.
    pub(crate) fn detected(self) -> Option<usize> {
        match self.model.card().output {
            OutputKind::Boxes(classes) => Some(classes),
            _ => None,
        }
    }

    /// The names of the arrays of a batch in the file and in the network's task, of networks whose steps are those of their task.
    pub(crate) fn arrays(self) -> Option<&'static [(&'static str, &'static str)]> {
        match (self.latent(), self.detected()) {
            (Some(_), _) => Some(&[("x", "images"), ("noise", "noise")]),
            (_, Some(_)) => Some(&[
                ("x", "images"),
                ("boxes", "boxes"),
                ("classes", "classes"),
                ("exists", "exists"),
                ("crowds", "crowds"),
            ]),
            _ => None,
        }
    }

    /// The updates of a step, of the same networks, as in `worker.py` or as the script of a network that makes images has them.
    pub(crate) fn phases(self) -> Vec<PhaseOptions> {
        let mut phases = self.model.recipe().phases();
        if self.detected().is_some() {
            for phase in &mut phases {
                phase.optimizer.lr = DETECTORS.0;
                phase.optimizer.weight_decay = Some(DETECTORS.1);
            }
        }
        if self.model == Model::StyleGan2 {
            for phase in &mut phases {
                phase.optimizer.lr *= STYLEGAN2_SHARE;
            }
        }
        phases
    }

    /// Runs `f` in the row's precision.
    pub(crate) fn precise<R>(self, f: impl FnOnce() -> kiln_core::Result<R>) -> kiln_core::Result<R> {
        match self.half {
            true => autocast(DType::BF16, f),
            false => f(),
        }
    }

    /// The batch size of predictions.
    pub(crate) fn part(self) -> usize {
        match self.model {
            Model::MnistCnn => 32,
            Model::Lenet => 64,
            Model::GptMini => 4,
            _ => self.batch,
        }
    }

    /// The shape `[H, W, C]` of the images, of networks of images.
    pub(crate) fn image(self) -> Option<[usize; 3]> {
        let [h, w, c] = self.model.input().image()?;
        Some([self.side.unwrap_or(h), self.side.unwrap_or(w), c])
    }

    /// The shape of the images, or `[T, H, W, C]` of clips.
    pub(crate) fn pixels(self) -> Option<Vec<usize>> {
        let clip = self.model.input().clip().map(|[t, h, w, c]| {
            let side = |own: usize| self.side.unwrap_or(own);
            vec![self.frames.unwrap_or(t), side(h), side(w), c]
        });
        clip.or(self.image().map(Vec::from))
    }
}
