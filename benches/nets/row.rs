//! A row of the table: the network, the number of samples, training or inference; and the file that every worker reads for it.

use crate::Outcome;
use kiln_core::DType;
use kiln_core::philox::Key;
use kiln_cpu::Cpu;
use kiln_models::Model;
use kiln_nn::module::{StateDict, Value};
use kiln_nn::optim::Optimizer;
use kiln_nn::weights::{Metadata, write};
use kiln_nn::{Indices, Rng, Tensor, autocast};

/// Batches of a file, and steps whose losses are compared.
pub(crate) const STEPS: usize = 20;

/// Recipes with a larger learning rate begin with steps whose losses cannot be compared.
const LARGE_LR: f64 = 1e-2;

/// The work of a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Pass {
    Train,
    Infer,
    /// Greedy generation of text.
    Generate,
}

#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) model: Model,
    /// The side of the images, where it is not that of the network's input.
    pub(crate) side: Option<usize>,
    pub(crate) batch: usize,
    pub(crate) pass: Pass,
    /// True in mixed precision with bf16.
    pub(crate) half: bool,
}

impl Row {
    /// Parses an id such as `net/resnet18-b32/train`, `net-bf16/resnet18-b32/train`, or with the side of images `net/resnet50@64-b16/train`.
    pub(crate) fn parse(id: &str) -> Outcome<Row> {
        let wrong = || format!("no row `{id}`");
        let mut parts = id.split('/');
        let half = parts.next() == Some("net-bf16");
        let (net, what) = (parts.next().ok_or_else(wrong)?, parts.next().ok_or_else(wrong)?);
        let (name, batch) = net.rsplit_once("-b").ok_or_else(wrong)?;
        let (name, side) = match name.split_once('@') {
            Some((name, side)) => (name, Some(side.parse()?)),
            None => (name, None),
        };
        Ok(Row {
            model: Model::from_name(name).ok_or_else(wrong)?,
            side,
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
        if options.lr > LARGE_LR {
            // Batch norm over few values is sensitive: with larger steps, rounding differences exceed the tolerance of
            // the losses.
            options.weight_decay = None;
            options.lr = match self.model {
                // Behind so many norms of few values that larger steps part within twenty.
                Model::ResNet50 => 1e-8,
                Model::MobileNetV2Small => 1e-6,
                _ => 1e-4,
            };
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
    fn image(self) -> Option<[usize; 3]> {
        let [h, w, c] = self.model.input().image()?;
        Some([self.side.unwrap_or(h), self.side.unwrap_or(w), c])
    }

    /// Writes the initial weights, `x` and `y`: random images with random labels, or random tokens with the next ones.
    pub(crate) fn write(self, file: &str) -> Outcome<()> {
        let cpu = Cpu::new();
        let mut dict = StateDict::of(&self.model.build(&cpu, 1)?);
        if let Some(latent) = self.latent() {
            let [h, w, c] = self.image().unwrap_or_default();
            let x = Tensor::rand(&cpu, &[STEPS, self.batch, h, w, c], DType::F32, &mut Rng::new(2))?;
            let noise = Tensor::randn(&cpu, &[STEPS, self.batch, latent], DType::F32, &mut Rng::new(3))?;
            dict.insert("x", Value::Float(x));
            dict.insert("noise", Value::Float(noise));
            return Ok(write(file, &dict, &Metadata::new())?);
        }
        let samples = STEPS * self.batch;
        let (x, y) = match self.image() {
            Some([h, w, c]) => {
                let x = Tensor::rand(&cpu, &[STEPS, self.batch, h, w, c], DType::F32, &mut Rng::new(2))?;
                let y = below(samples, self.model.outputs());
                (Value::Float(x), Indices::from_slice(&cpu, &y, &[STEPS, self.batch])?)
            }
            None => {
                let t = self.model.input().shape[0];
                let ids = below(samples * t + 1, self.model.outputs());
                let of = |ids: &[i32]| Indices::from_slice(&cpu, ids, &[STEPS, self.batch, t]);
                (Value::Int(of(&ids[..samples * t])?), of(&ids[1..])?)
            }
        };
        dict.insert("x", x);
        dict.insert("y", Value::Int(y));
        Ok(write(file, &dict, &Metadata::new())?)
    }
}

/// `n` random integers below `bound`.
fn below(n: usize, bound: usize) -> Vec<i32> {
    let key = Key::new(3, 0, 0);
    (0..n as u64).map(|i| key.below(i, bound as u32) as i32).collect()
}
