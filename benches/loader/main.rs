//! Kiln's loader on a folder of images, beside PyTorch's DataLoader: `benches/peers/torch_loader.py` takes the same arguments and
//! prints the same line. It has images a second, and the share of the time in which the loop waited for its next batch.
//!
//! ```text
//! kiln-loader-bench FOLDER SIZE [--batch 64] [--workers 2] [--net none|small|resnet18] [--crop SIDE] [--epochs 3]
//!                   [--threads 2] [--on-device true]
//! ```

use kiln_cpu::Cpu;
use kiln_data::{
    Compose, Crop, DeviceImages, Flip, ImageFolder, ImageFolderOptions, LabelledOn, Loader, LoaderOptions, Normalise,
    ToFloat,
};
use kiln_models::{ResNet, ResNetConfig};
use kiln_nn::layers::{Conv2d, Linear, Relu};
use kiln_nn::optim::{Optimizer, Sgd};
use kiln_nn::{Init, Layer, Module, Result, Sequential, Tensor};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

/// The nets that are trained on the batches.
enum Trained {
    None,
    /// Computes little, so that the loader has to keep up.
    Small(Box<(Sequential<Cpu>, Linear<Cpu>)>),
    ResNet(Box<ResNet<Cpu>>),
}

impl Trained {
    fn new(name: &str, cpu: &Cpu) -> Outcome<Self> {
        let init = &mut Init::new(cpu, 0);
        Ok(match name {
            "none" => Trained::None,
            "small" => {
                let conv = Conv2d::<Cpu>::builder(3, 8, 3).stride(2).build(init)?;
                Trained::Small(Box::new((
                    Sequential::new().push(conv).push(Relu),
                    Linear::new(init, 8, 10)?,
                )))
            }
            "resnet18" => Trained::ResNet(Box::new(ResNet::new(
                Init::new(cpu, 0),
                ResNetConfig::RESNET18.small(10),
            )?)),
            name => return Err(format!("no net `{name}`").into()),
        })
    }

    fn step(&mut self, optimizer: &mut Sgd<Cpu>, batch: &LabelledOn<Cpu>) -> Result<()> {
        fn update<M: Module<Cpu>>(
            model: &mut M,
            optimizer: &mut Sgd<Cpu>,
            batch: &LabelledOn<Cpu>,
            logits: impl FnOnce(&M, &Tensor<Cpu>) -> Result<Tensor<Cpu>>,
        ) -> Result<()> {
            let loss = logits(model, &batch.inputs)?.cross_entropy(&batch.labels)?;
            optimizer.step(model, &loss.backward()?)
        }
        match self {
            Trained::None => Ok(()),
            Trained::Small(model) => update(&mut **model, optimizer, batch, |(features, head), x| {
                head.forward(&features.forward(x)?.mean(&[1, 2], false)?)
            }),
            Trained::ResNet(net) => update(&mut **net, optimizer, batch, |net, x| net.forward(x)),
        }
    }
}

/// Goes through the epochs; returns the images, the time, and the part of it that was spent waiting.
fn measure(cpu: &Cpu, loader: &Loader, net: &mut Trained, epochs: u64) -> Outcome<(usize, Duration, Duration)> {
    let mut optimizer = Sgd::new(1e-3).momentum(0.9);
    let (mut start, mut waited, mut images) = (Instant::now(), Duration::ZERO, 0);
    // The first epoch warms up; how long the start of workers takes counts in every one.
    for epoch in 0..=epochs {
        if epoch == 1 {
            (start, waited, images) = (Instant::now(), Duration::ZERO, 0);
        }
        let asked = Instant::now();
        let mut batches = loader.epoch(epoch)?;
        let mut batch = batches.next();
        waited += asked.elapsed();
        while let Some(host) = batch {
            let host = host?;
            if !matches!(net, Trained::None) {
                net.step(&mut optimizer, &host.to_device(cpu)?)?;
            }
            images += host.len();
            drop(host);
            let asked = Instant::now();
            batch = batches.next();
            waited += asked.elapsed();
        }
    }
    Ok((images, start.elapsed(), waited))
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, size, flags @ ..] = &args[..] else {
        return Err("usage: kiln-loader-bench FOLDER SIZE [--FLAG VALUE]...".into());
    };
    let size: usize = size.parse()?;
    let flags: BTreeMap<&str, &str> = flags
        .chunks_exact(2)
        .map(|f| (f[0].trim_start_matches('-'), f[1].as_str()))
        .collect();
    let text = |name: &str, default: &'static str| flags.get(name).copied().unwrap_or(default).to_string();
    let number = |name: &str, default: usize| flags.get(name).map_or(Ok(default), |n| n.parse());
    // As in `kiln train`, this thread belongs to the pool.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(number("threads", 2)?);
    pool.use_current_thread().build_global()?;
    let cpu = Cpu::new();
    let (name, crop, epochs) = (text("net", "small"), number("crop", size)?, number("epochs", 3)? as u64);
    let options = LoaderOptions {
        batch_size: number("batch", 64)?,
        workers: number("workers", 2)?,
        shuffle: true,
        drop_last: true,
        ..Default::default()
    };
    let read = ImageFolderOptions {
        resize: Some((size, size)),
        ..Default::default()
    };
    let data = Arc::new(ImageFolder::open(folder, read)?);
    let stages = Compose::new().then(Crop::new(crop, crop, 4)).then(Flip::new(0.5)?);
    let transform = stages.then(ToFloat).then(Normalise::new(&[0.5; 3], &[0.25; 3])?);
    let mut net = Trained::new(&name, &cpu)?;
    let (images, took, waited) = match text("on-device", "false").as_str() {
        "true" => measure(
            &cpu,
            &Loader::new(Arc::new(DeviceImages::new(&cpu, data)?), options)?.with_transform(transform),
            &mut net,
            epochs,
        )?,
        _ => measure(
            &cpu,
            &Loader::new(data, options)?.with_transform(transform),
            &mut net,
            epochs,
        )?,
    };
    let rounded = |x: f64, unit: f64| (x * unit).round() / unit;
    println!(
        "{}",
        serde_json::json!({
            "library": format!("kiln {}", env!("CARGO_PKG_VERSION")),
            "net": name,
            "images_per_second": rounded(images as f64 / took.as_secs_f64(), 10.0),
            "waiting": rounded(waited.as_secs_f64() / took.as_secs_f64(), 1e4),
        })
    );
    Ok(())
}
