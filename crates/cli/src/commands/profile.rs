//! `kiln profile`: the time of a step, layer by layer, compared with the least possible time.

mod report;

use crate::args::ProfileArgs;
use crate::config::{DeviceArgs, Settings};
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::output::{self, counted, line};
use crate::record::RunRecord;
use kiln_core::{Backend, Runtime};
use kiln_cpu::Cpu;
use kiln_files::shown_path;
use kiln_files::{check_writable, write_atomic};
use kiln_models::{Model, PhaseOptions, Steps, Update};
use kiln_nn::Module;
use kiln_profile::{Profiled, Rates};
pub(crate) use report::Report;
use serde_json::{Value, json};
use std::time::Instant;

/// Steps before the measured ones, in which memory is allocated and kernels are loaded.
const WARM_UP: u32 = 2;

/// The learning rate: small enough that many steps on one batch stay finite. The time of a step does not depend on it.
const LR: f64 = 1e-4;

struct Profile<'a> {
    args: &'a ProfileArgs,
    model: Model,
    /// The updates of a step.
    phases: Vec<PhaseOptions>,
    batch: u32,
    chosen: Option<String>,
}

impl Profile<'_> {
    /// Runs one step, in named parts, which become the rows that are no layers.
    fn step<B: Backend>(
        &self,
        watched: &Profiled<B>,
        steps: &mut Steps<Profiled<B>>,
        updates: &mut [Update<Profiled<B>>],
    ) -> kiln_train::Result<()> {
        let part = |name: &str, body: &mut dyn FnMut() -> kiln_train::Result<()>| watched.part(name, body);
        match self.args.inference {
            true => steps.infer(&part),
            false => steps.train(updates, &part).map(drop),
        }
    }
}

impl Task for Profile<'_> {
    type Output = (Report, Value);

    fn chosen(&mut self, why: String) {
        self.chosen = Some(why);
    }

    fn run<B: Backend>(self, watched: &Profiled<B>) -> Result<Self::Output> {
        let args = self.args;
        if let (Some(why), false) = (&self.chosen, args.json || args.markdown) {
            line(why);
        }
        let rates = match watched.name() == Cpu::new().name() {
            true => Rates::of_processor(),
            false => Rates::of_ops(watched.inner())?,
        };
        let steps = &mut self.model.steps(watched, 0, self.batch as usize)?;
        if args.inference {
            steps.net().eval();
        }
        let mut phases = self.phases.clone();
        phases.iter_mut().for_each(|phase| phase.optimizer.lr = LR);
        let updates = &mut Update::of_each(&phases)[..];
        let parameters = steps.net().num_parameters() as u64;
        for _ in 0..WARM_UP {
            self.step(watched, steps, updates)?;
        }
        // Steps with and without profiling alternate, so that other load on the machine affects both alike.
        let mut unwatched = Vec::new();
        for _ in 0..args.steps {
            watched.sync()?;
            let start = Instant::now();
            self.step(watched, steps, updates)?;
            watched.sync()?;
            unwatched.push(start.elapsed().as_secs_f64());
            watched.step(|| self.step(watched, steps, updates))?;
        }
        unwatched.sort_by(f64::total_cmp);

        let timeline = watched.timeline();
        let mut rows = timeline.rows(&|cost| rates.floor(cost));
        rows.sort_by(|a, b| b.gap().total_cmp(&a.gap()));
        let threads = rayon::current_num_threads() as u64;
        let device = match watched.name() {
            name if name == Cpu::new().name() => format!("{name} with {}", counted(threads, "thread")),
            name => name,
        };
        let work = match args.inference {
            true => "inference".to_string(),
            false => {
                let mut kinds: Vec<&str> = self.phases.iter().map(|phase| phase.optimizer.kind.name()).collect();
                kinds.dedup();
                format!("training with {}", kinds.join(" and "))
            }
        };
        let report = Report {
            description: vec![
                ("model", self.model.name().to_string()),
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
            phases: self.model.recipe().phases.iter().map(|phase| phase.name).collect(),
            sample: self.model.input().noun(),
        };
        let trace = match args.trace {
            Some(_) => timeline.chrome_trace(
                &format!("kiln profile {}", self.model),
                json!({ "kiln": report.json() }),
            ),
            None => Value::Null,
        };
        Ok((report, trace))
    }
}

/// Profiles some training steps with the settings of a run, on made-up batches.
pub(crate) fn training<B: Backend>(settings: &Settings, backend: &Profiled<B>) -> Result<Report> {
    let args = ProfileArgs {
        model: Some(settings.model),
        run: None,
        batch: None,
        steps: 3,
        inference: false,
        optimizer: None,
        device: DeviceArgs::default(),
        trace: None,
        markdown: false,
        json: true,
    };
    let profile = Profile {
        args: &args,
        model: settings.model,
        phases: settings.phases.clone(),
        batch: settings.model.input().kind.batch,
        chosen: None,
    };
    Ok(profile.run(backend)?.0)
}

/// The model with its updates: those of a run, or of the recipe.
fn subject(args: &ProfileArgs) -> Result<(Model, Vec<PhaseOptions>)> {
    let (model, mut phases) = match (&args.run, args.model) {
        (Some(run), _) => {
            let settings = Settings::of(RunRecord::settings(run)?)?;
            (settings.model, settings.phases)
        }
        (None, Some(model)) => (model, model.recipe().phases()),
        (None, None) => return Err(Error::usage("<MODEL> is missing").help("name a model, or a run with --run")),
    };
    for phase in &mut phases {
        phase.optimizer = phase.optimizer.unless(args.optimizer);
    }
    Ok((model, phases))
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
    let (model, phases) = subject(&args)?;
    let task = Profile {
        args: &args,
        model,
        phases,
        batch: args.batch.unwrap_or(model.input().kind.batch),
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
