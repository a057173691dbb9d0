//! The cost of what the trainer does besides training: the same run with it and without, in turns.
//!
//! ```text
//! kiln-trainer-bench [--pairs 6] [--epochs 8] [--samples 10000] [--threads 1]
//! ```
//!
//! A line of JSON for each guard and net: the ratio of the time with it to the time without, the median of the pairs with the least and
//! the most, once of the processor's time of all threads and once of the wall clock. The nets are a perceptron whose update costs as much as
//! its gradients, which is where copies of the state cost most, and a small convolutional net.

use kiln_cpu::Cpu;
use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic, ToFloat};
use kiln_monitor::{Machine, Watch};
use kiln_nn::layers::{Conv2d, Flatten, Linear, MaxPool2d, Relu};
use kiln_nn::optim::Adam;
use kiln_nn::{Init, Layer, Sequential};
use kiln_train::{Checkpoints, Output, RunFolder, TrainOptions, Trainer};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A part of a run that can be left out.
#[derive(Clone, Copy)]
enum Guard {
    /// The check for values that are not finite, and the state that it goes back to.
    FindNonFinite,
    /// Readings of the machine, one a second.
    Monitor,
    /// A checkpoint every fifty steps, in a run with a folder.
    Checkpoints,
}

const GUARDS: [(&str, Guard); 3] = [
    ("find_non_finite", Guard::FindNonFinite),
    ("monitor", Guard::Monitor),
    ("checkpoints", Guard::Checkpoints),
];
const NETS: [&str; 2] = ["mlp", "cnn"];

/// Seconds of a run.
struct Took {
    /// Of the processors, in this process.
    processor: f64,
    wall: f64,
}

fn net(name: &str, cpu: &Cpu) -> Outcome<Sequential<Cpu>> {
    let init = &mut Init::new(cpu, 0);
    Ok(match name {
        "mlp" => Sequential::new()
            .push(Flatten::default())
            .push(Linear::new(init, 784, 1280)?)
            .push(Relu)
            .push(Linear::new(init, 1280, 1280)?)
            .push(Relu)
            .push(Linear::new(init, 1280, 10)?),
        _ => Sequential::new()
            .push(Conv2d::new(init, 1, 16, 3)?)
            .push(Relu)
            .push(MaxPool2d::new(2))
            .push(Conv2d::new(init, 16, 32, 3)?)
            .push(Relu)
            .push(MaxPool2d::new(2))
            .push(Flatten::default())
            .push(Linear::new(init, 5 * 5 * 32, 10)?),
    })
}

/// Trains once, with the guard or without.
fn train(cpu: &Cpu, name: &str, guard: Guard, with: bool, epochs: u64, samples: usize, out: &Path) -> Outcome<Took> {
    let mut model = net(name, cpu)?;
    let batches = LoaderOptions {
        batch_size: 64,
        shuffle: true,
        ..Default::default()
    };
    let data = Synthetic::images(samples, &[28, 28, 1], 10, 0)?;
    let loader = Loader::new(Arc::new(data), batches)?.with_transform(ToFloat);
    let options = TrainOptions {
        epochs,
        find_non_finite: with && matches!(guard, Guard::FindNonFinite),
        checkpoints: (with && matches!(guard, Guard::Checkpoints)).then_some(Checkpoints {
            every_steps: Some(50),
            every: None,
            keep: 2,
        }),
        ..Default::default()
    };
    let mut trainer = Trainer::new(cpu, options);
    match guard {
        Guard::Monitor if with => trainer = trainer.callback(Watch::start(Machine::this(), Duration::from_secs(1))?),
        Guard::Checkpoints => trainer = trainer.folder(RunFolder::create(out)?),
        _ => {}
    }
    let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
        let logits = model.forward(&batch.inputs)?;
        Ok(Output::new(logits.cross_entropy(&batch.labels)?))
    };
    let (processor, start) = (processor()?, Instant::now());
    trainer.fit(&mut model, &mut Adam::new(1e-4), step, &loader, None)?;
    let took = Took {
        processor: self::processor()? - processor,
        wall: start.elapsed().as_secs_f64(),
    };
    drop(trainer);
    if out.exists() {
        std::fs::remove_dir_all(out)?;
    }
    Ok(took)
}

/// Seconds that the processors have worked for this process.
fn processor() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Fields 14 and 15, counted from the name in parentheses, in hundredths of a second.
    let after = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1;
    let ticks = after.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// The median, the least and the most.
fn spread(mut ratios: Vec<f64>) -> serde_json::Value {
    ratios.sort_by(f64::total_cmp);
    let rounded = |x: f64| (x * 1e4).round() / 1e4;
    let [low, high] = [ratios[(ratios.len() - 1) / 2], ratios[ratios.len() / 2]];
    serde_json::json!([
        rounded((low + high) / 2.0),
        rounded(ratios[0]),
        rounded(ratios[ratios.len() - 1])
    ])
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flags: BTreeMap<&str, &str> = args
        .chunks_exact(2)
        .map(|f| (f[0].trim_start_matches('-'), f[1].as_str()))
        .collect();
    let number = |name: &str, default: usize| flags.get(name).map_or(Ok(default), |n| n.parse());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(number("threads", 1)?);
    pool.use_current_thread().build_global()?;
    let (pairs, epochs, samples) = (
        number("pairs", 6)?.max(1),
        number("epochs", 8)? as u64,
        number("samples", 10_000)?,
    );
    let cpu = Cpu::new();
    let out = std::env::temp_dir().join(format!("kiln-trainer-bench-{}", std::process::id()));
    for (name, guard) in GUARDS {
        for net in NETS {
            let run = |with| train(&cpu, net, guard, with, epochs, samples, &out);
            let (mut processor, mut wall, mut seconds) = (Vec::new(), Vec::new(), 0.0);
            for pair in 0..pairs {
                // In turns, so that a machine that grows warmer favours neither.
                let first = run(pair % 2 == 0)?;
                let second = run(pair % 2 != 0)?;
                let (with, without) = if pair % 2 == 0 {
                    (first, second)
                } else {
                    (second, first)
                };
                processor.push(with.processor / without.processor);
                wall.push(with.wall / without.wall);
                seconds += without.wall / pairs as f64;
            }
            println!(
                "{}",
                serde_json::json!({
                    "guard": name,
                    "net": net,
                    "seconds_without": (seconds * 100.0).round() / 100.0,
                    "processor": spread(processor),
                    "wall": spread(wall),
                })
            );
        }
    }
    Ok(())
}
