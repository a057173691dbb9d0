//! `kiln replay`: a bad step of a run again, on the CPU, in its precision and in f64; one that a twin check has found, compared again.

mod twin;

use crate::args::ReplayArgs;
use crate::config;
use crate::device::{Arithmetic, DeviceChoice, DeviceOptions, Task, with_device};
use crate::error::{Error, Result};
use crate::output::{self, line, percent, table};
use crate::weights;
use kiln_core::{Backend, DType};
use kiln_data::Sizes;
use kiln_files::shown_path;
use kiln_models::Model;
use kiln_nn::watch::{OpName, Pass};
use kiln_profile::Profiled;
use kiln_train::{Capsule, OpStats, Place, Replay, RunFolder};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

/// The exit code for a step that is not finite in f64 either.
const NOT_FINITE: u8 = 3;

struct Both<'a> {
    capsule: &'a Capsule,
    model: Model,
    sizes: Sizes,
    seed: u64,
}

impl Task for Both<'_> {
    /// In the precision of the run, and in f64.
    type Output = (Replay, Replay);

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<Self::Output> {
        let replay = |dtype| -> Result<Replay> {
            let mut net = self.model.build_for(backend, self.seed, self.sizes)?;
            Ok(net.replay(backend, self.capsule, dtype)?)
        };
        Ok((replay(DType::F32)?, replay(DType::F64)?))
    }
}

/// The results of running the capsule again, in f64 and in f32.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The batch holds values that are not finite.
    Batch,
    /// The weights do.
    Weights,
    /// f64 stays finite.
    Precision,
    /// f64 does not.
    Mathematics,
    /// On the CPU nothing is wrong with forward and backward.
    Fine,
}

impl Verdict {
    fn of(place: &Place, narrow: &Replay, wide: &Replay) -> Self {
        match place {
            Place::Batch { .. } => Verdict::Batch,
            Place::Weights { .. } => Verdict::Weights,
            _ if !wide.is_finite() => Verdict::Mathematics,
            _ if !narrow.is_finite() => Verdict::Precision,
            _ => Verdict::Fine,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Verdict::Batch => "batch",
            Verdict::Weights => "weights",
            Verdict::Precision => "precision",
            Verdict::Mathematics => "mathematics",
            Verdict::Fine => "fine",
        }
    }

    fn described(self, place: &Place, narrow: &str) -> String {
        match (self, place) {
            (Verdict::Batch, _) => "the batch itself is not finite: look at its samples".to_string(),
            (Verdict::Weights, _) => "the weights are not finite before the step".to_string(),
            (Verdict::Precision, _) => format!(
                "f64 stays finite, {narrow} does not: it overflows, or loses digits; lower the learning rate, clip gradients, \
                 or scale what grows"
            ),
            (Verdict::Mathematics, _) => {
                "f64 is not finite either: the op has no finite value or slope there; keep its input away, by a clamp or an eps"
                    .to_string()
            }
            (Verdict::Fine, Place::Update { .. }) => {
                "forward and backward are finite: the update is too large; lower the learning rate".to_string()
            }
            (Verdict::Fine, _) => "on the CPU everything is finite: the value arose on the device alone; train with --twin every=100 \
                                   to compare its ops with the CPU's"
                .to_string(),
        }
    }

    /// 0 if f64 stays finite.
    fn exit_code(self) -> u8 {
        match self {
            Verdict::Precision | Verdict::Fine => 0,
            Verdict::Batch | Verdict::Weights | Verdict::Mathematics => NOT_FINITE,
        }
    }
}

/// The ops of both replays in the order of the first, side by side. Casts of mixed precision have no op in f64.
fn pairs<'r>(narrow: &'r Replay, wide: &'r Replay) -> Vec<(&'r OpStats, Option<&'r OpStats>)> {
    let mut by_name: HashMap<&OpName, std::vec::IntoIter<&OpStats>> = HashMap::new();
    let mut names: HashMap<&OpName, Vec<&OpStats>> = HashMap::new();
    wide.ops
        .iter()
        .for_each(|op| names.entry(&op.name).or_default().push(op));
    by_name.extend(names.into_iter().map(|(name, ops)| (name, ops.into_iter())));
    let paired = narrow
        .ops
        .iter()
        .map(|op| (op, by_name.get_mut(&op.name).and_then(Iterator::next)));
    paired.collect()
}

fn cells(op: Option<&OpStats>) -> [String; 3] {
    let Some(op) = op else { return Default::default() };
    let shown = |value: f64| match value.is_finite() {
        true => format!("{value:.3e}"),
        false => "-".to_string(),
    };
    let bad = match (op.nan, op.infinite) {
        (0, 0) => "0".to_string(),
        (0, _) => format!("{} Inf", percent(op.share())),
        _ => format!("{} NaN", percent(op.share())),
    };
    [shown(op.min), shown(op.max), bad]
}

fn row(narrow: &OpStats, wide: Option<&OpStats>, mark: &str) -> Vec<String> {
    let OpName { layer, op, pass } = &narrow.name;
    let gradient = if *pass == Pass::Backward { "gradient of " } else { "" };
    let place = match &layer[..] {
        "" => format!("{gradient}{op}"),
        layer => format!("{layer}: {gradient}{op}"),
    };
    let mut row = vec![format!("{mark}{place}"), narrow.shape.to_string()];
    row.extend(cells(Some(narrow)));
    row.extend(cells(wide));
    row
}

fn op_json(op: &OpStats) -> Value {
    let finite = |value: f64| value.is_finite().then_some(value);
    json!({
        "layer": op.name.layer,
        "op": op.name.op,
        "pass": if op.name.pass == Pass::Forward { "forward" } else { "backward" },
        "shape": op.shape.dims(),
        "min": finite(op.min),
        "max": finite(op.max),
        "nan": op.nan,
        "infinite": op.infinite,
    })
}

/// The seed of the run whose folder the capsule lies in.
fn seed(path: &Path) -> Result<u64> {
    let config = path.with_file_name(RunFolder::CONFIG);
    match config.symlink_metadata() {
        Ok(_) => Ok(config::read(&config)?.seed.unwrap_or_default()),
        Err(_) => Ok(0),
    }
}

pub(crate) fn run(args: ReplayArgs) -> Result<u8> {
    let path = args.capsule.with_extension("json");
    let capsule = Capsule::open(&path).map_err(|e| {
        Error::from(e).help("name a capsule-STEP.json, which a run leaves in its folder when a value is not finite")
    })?;
    let model = match args.model {
        Some(model) => model,
        None => weights::belongs_to(&path, capsule.metadata())?,
    };
    let sizes = weights::facts_for(&path, model)?.sizes();
    if let Place::Twin { .. } = &capsule.cause().place {
        return twin::run(&args, &path, &capsule, model, sizes);
    }
    if args.device.is_some() {
        return Err(
            Error::usage("--device is for the capsule of a twin check").help("leave it out: this one runs on the CPU")
        );
    }
    let task = Both {
        capsule: &capsule,
        model,
        sizes,
        seed: args.seed.map_or_else(|| seed(&path), Ok)?,
    };
    let cpu = DeviceOptions {
        choice: DeviceChoice::Cpu,
        threads: args.threads.map(|n| n.get() as usize),
        arithmetic: Arithmetic::default(),
        ..Default::default()
    };
    let (narrow, wide) = with_device(&cpu, task)?;
    let cause = capsule.cause();
    let verdict = Verdict::of(&cause.place, &narrow, &wide);
    let precision = capsule.autocast().unwrap_or(DType::F32).to_string();
    if args.json {
        let first = |replay: &Replay| replay.first_non_finite().map(op_json);
        let ops = |replay: &Replay| replay.ops.iter().map(op_json).collect::<Vec<_>>();
        let finite = |loss: f64| loss.is_finite().then_some(loss);
        output::json(&json!({
            "verdict": verdict.name(),
            "cause": cause,
            "samples": capsule.samples(),
            "precision": precision,
            "run": { "loss": finite(narrow.loss), "finite": narrow.is_finite(), "first": first(&narrow), "ops": ops(&narrow) },
            "f64": { "loss": finite(wide.loss), "finite": wide.is_finite(), "first": first(&wide), "ops": ops(&wide) },
        }));
        return Ok(verdict.exit_code());
    }
    line(&format!("{model}, {}: {cause}", shown_path(&path)));
    line(&format!(
        "loss: {:.4e} in {precision}, {:.4e} in f64",
        narrow.loss, wide.loss
    ));
    let pairs = pairs(&narrow, &wide);
    // Where f32 is finite and f64 is not, the place in f64.
    let first = narrow.first_non_finite().or(wide.first_non_finite());
    let at = first.and_then(|first| {
        let is_it = |op: &OpStats| std::ptr::eq(op, first);
        pairs
            .iter()
            .position(|(narrow, wide)| is_it(narrow) || wide.is_some_and(is_it))
    });
    let around = args.rows.get() as usize;
    let shown = match (args.all, at) {
        (true, _) => 0..pairs.len(),
        (false, Some(at)) => at.saturating_sub(around)..pairs.len().min(at + around + 1),
        (false, None) => pairs.len().saturating_sub(around)..pairs.len(),
    };
    let rows: Vec<Vec<String>> = shown
        .map(|i| row(pairs[i].0, pairs[i].1, if at == Some(i) { "> " } else { "  " }))
        .collect();
    let header = ["op", "shape", "min", "max", "bad", "f64 min", "f64 max", "f64 bad"];
    line(&table(&header, &rows));
    line(verdict.described(&cause.place, &precision).as_str());
    Ok(verdict.exit_code())
}
