//! `kiln profile`: the time of a step, layer by layer, compared with the least possible time.

mod report;

use crate::args::ProfileArgs;
use crate::config::DeviceArgs;
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::output::{self, counted, line};
use kiln_core::{Backend, DType, Result as CoreResult, Runtime};
use kiln_cpu::Cpu;
use kiln_files::shown_path;
use kiln_files::{check_writable, write_atomic};
use kiln_models::{Input, InputKind, Model, Net, OptimizerKind, OptimizerOptions};
use kiln_nn::optim::Optimizer;
use kiln_nn::{Indices, Module, Rng, Tensor, no_grad};
use kiln_profile::{Profiled, Rates};
pub(crate) use report::Report;
use serde_json::{Value, json};
use std::time::Instant;

/// Steps before the measured ones, in which memory is allocated and kernels are loaded.
const WARM_UP: u32 = 2;

/// The learning rate: small enough that many steps on one batch stay finite. The time of a step does not depend on it.
const LR: f64 = 1e-4;

fn default_batch(model: Model) -> u32 {
    match model.input() {
        InputKind::Images(_) => 32,
        InputKind::Tokens(_) => 4,
    }
}

/// A synthetic batch in the host's memory.
enum Samples {
    Images { pixels: Vec<f32>, shape: [usize; 4] },
    Tokens { ids: Vec<i32>, shape: [usize; 2] },
}

struct Batch {
    samples: Samples,
    labels: Vec<i32>,
}

impl Batch {
    fn new(model: Model, batch: usize) -> CoreResult<Self> {
        let rng = &mut Rng::new(0);
        let mut random = |shape: &[usize]| Tensor::rand(&Cpu::new(), shape, DType::F32, rng)?.to_vec::<f32>();
        let classes = model.classes();
        let class = |values: Vec<f32>| values.iter().map(|v| (v * classes as f32) as i32).collect::<Vec<_>>();
        Ok(match model.input() {
            InputKind::Images([h, w, c]) => Batch {
                samples: Samples::Images {
                    pixels: random(&[batch, h, w, c])?,
                    shape: [batch, h, w, c],
                },
                labels: class(random(&[batch])?),
            },
            InputKind::Tokens(length) => Batch {
                samples: Samples::Tokens {
                    ids: class(random(&[batch, length])?),
                    shape: [batch, length],
                },
                labels: class(random(&[batch, length])?),
            },
        })
    }

    fn upload<B: Backend>(&self, backend: &B) -> CoreResult<(Input<B>, Indices<B>)> {
        Ok(match &self.samples {
            Samples::Images { pixels, shape } => (
                Input::Images(Tensor::from_slice(backend, pixels, shape)?),
                Indices::from_slice(backend, &self.labels, &shape[..1])?,
            ),
            Samples::Tokens { ids, shape } => (
                Input::Tokens(Indices::from_slice(backend, ids, shape)?),
                Indices::from_slice(backend, &self.labels, shape)?,
            ),
        })
    }
}

struct Profile<'a> {
    args: &'a ProfileArgs,
    batch: u32,
    chosen: Option<String>,
}

impl Profile<'_> {
    /// Runs one step, in named parts, which become the rows that are no layers.
    fn step<B: Backend>(
        &self,
        watched: &Profiled<B>,
        net: &mut Net<Profiled<B>>,
        optimizer: &mut dyn Optimizer<Profiled<B>>,
        batch: &Batch,
    ) -> CoreResult<()> {
        let (input, labels) = watched.part("input", || batch.upload(watched))?;
        if self.args.inference {
            return no_grad(|| watched.part("model", || net.forward(&input))).map(drop);
        }
        let logits = watched.part("model", || net.forward(&input))?;
        let loss = watched.part("loss", || logits.cross_entropy(&labels))?;
        let grads = watched.part("backward", || loss.backward())?;
        watched.part("optimizer", || optimizer.step(net, &grads))
    }
}

impl Task for Profile<'_> {
    type Output = (Report, Value);

    fn chosen(&mut self, why: String) {
        self.chosen = Some(why);
    }

    fn run<B: Backend>(self, backend: &B) -> Result<Self::Output> {
        let args = self.args;
        if let (Some(why), false) = (&self.chosen, args.json || args.markdown) {
            line(why);
        }
        let rates = match backend.name() == Cpu::new().name() {
            true => Rates::of_processor(),
            false => Rates::of_ops(backend)?,
        };
        let watched = Profiled::new(backend);
        let mut net = args.model.build(&watched, 0)?;
        if args.inference {
            net.eval();
        }
        let options = args.model.recipe().optimizer.unless(args.optimizer);
        let mut optimizer = OptimizerOptions { lr: LR, ..options }.build();
        let batch = Batch::new(args.model, self.batch as usize)?;
        let parameters = net.num_parameters() as u64;
        for _ in 0..WARM_UP {
            self.step(&watched, &mut net, &mut *optimizer, &batch)?;
        }
        // Steps with and without profiling alternate, so that other load on the machine affects both alike.
        let mut unwatched = Vec::new();
        for _ in 0..args.steps {
            backend.sync()?;
            let start = Instant::now();
            self.step(&watched, &mut net, &mut *optimizer, &batch)?;
            backend.sync()?;
            unwatched.push(start.elapsed().as_secs_f64());
            watched.step(|| self.step(&watched, &mut net, &mut *optimizer, &batch))?;
        }
        unwatched.sort_by(f64::total_cmp);

        let timeline = watched.timeline();
        let mut rows = timeline.rows(&|cost| rates.floor(cost));
        rows.sort_by(|a, b| b.gap().total_cmp(&a.gap()));
        let threads = rayon::current_num_threads() as u64;
        let device = match backend.name() {
            name if name == Cpu::new().name() => format!("{name} with {}", counted(threads, "thread")),
            name => name,
        };
        let work = match args.inference {
            true => "inference".to_string(),
            false => format!("training with {}", options.kind.name()),
        };
        let report = Report {
            description: vec![
                ("model", args.model.name().to_string()),
                ("batch", format!("batch {}", self.batch)),
                ("work", work),
                ("device", device),
            ],
            batch: self.batch.into(),
            steps: args.steps.into(),
            parameters,
            rates,
            watched: timeline.step_seconds(),
            unwatched: unwatched[unwatched.len() / 2],
            rows,
            sample: match args.model.input() {
                InputKind::Images(_) => "image",
                InputKind::Tokens(_) => "sequence",
            },
        };
        let trace = match args.trace {
            Some(_) => timeline.chrome_trace(
                &format!("kiln profile {}", args.model),
                json!({ "kiln": report.json() }),
            ),
            None => Value::Null,
        };
        Ok((report, trace))
    }
}

/// Profiles some training steps of a model on made-up batches.
pub(crate) fn training<B: Backend>(model: Model, optimizer: OptimizerKind, backend: &B) -> Result<Report> {
    let args = ProfileArgs {
        model,
        batch: None,
        steps: 3,
        inference: false,
        optimizer: Some(optimizer),
        device: DeviceArgs::default(),
        trace: None,
        markdown: false,
        json: true,
    };
    let profile = Profile {
        args: &args,
        batch: default_batch(model),
        chosen: None,
    };
    Ok(profile.run(backend)?.0)
}

pub(crate) fn run(args: ProfileArgs) -> Result<u8> {
    if let Some(path) = &args.trace {
        // The path is checked before anything is measured.
        check_writable(path).map_err(|e| {
            Error::from(e)
                .context("cannot write the trace")
                .help("name a file in a folder that exists and can be written")
        })?;
    }
    let task = Profile {
        args: &args,
        batch: args.batch.unwrap_or(default_batch(args.model)),
        chosen: None,
    };
    let (report, trace) = with_device(&args.device.options(), task)?;
    if let Some(path) = &args.trace {
        write_atomic(path, trace.to_string().as_bytes())?;
    }
    match (args.json, args.markdown) {
        (true, _) => output::json(&report.json()),
        (_, true) => report.print_markdown(),
        _ => {
            report.print();
            if let Some(path) = &args.trace {
                line(&format!("trace: {}, for https://ui.perfetto.dev", shown_path(path)));
            }
        }
    }
    Ok(0)
}
