//! The capsule of a twin check: the comparison of the device with the CPU again.

use crate::args::ReplayArgs;
use crate::commands::train;
use crate::config::{self, Precision, RunConfig};
use crate::device::{Arithmetic, DeviceOptions, Task, with_device};
use crate::error::Result;
use crate::output::{self, counted, line};
use kiln_core::{Backend, Runtime};
use kiln_data::Sizes;
use kiln_files::shown_path;
use kiln_models::Model;
use kiln_nn::watch::Pass;
use kiln_profile::Profiled;
use kiln_train::{Capsule, Deviation, RunFolder};
use serde_json::json;
use std::path::Path;

/// The exit code if the device differs again.
const DIFFERS: u8 = 3;

struct Compare<'a> {
    capsule: &'a Capsule,
    model: Model,
    sizes: Sizes,
    seed: u64,
    precision: Precision,
}

impl Task for Compare<'_> {
    /// The device, the first op outside of its bound, and the number of ops compared.
    type Output = (String, Option<Deviation>, usize);

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<Self::Output> {
        let mut twin = train::twin(self.model, self.seed, self.sizes, self.precision)?;
        let mut net = self.model.build_for(backend, self.seed, self.sizes)?;
        let (found, compared) = net.compare(backend, self.capsule, &mut twin)?;
        Ok((backend.name(), found, compared))
    }
}

/// The settings of the run whose folder the capsule lies in; those of no run if it lies elsewhere.
fn settings(path: &Path) -> Result<RunConfig> {
    let config = path.with_file_name(RunFolder::CONFIG);
    match config.symlink_metadata() {
        Ok(_) => config::read(&config),
        Err(_) => Ok(RunConfig::default()),
    }
}

/// Compares the step of a capsule of this model again.
pub(super) fn run(args: &ReplayArgs, path: &Path, capsule: &Capsule, model: Model, sizes: Sizes) -> Result<u8> {
    let settings = settings(path)?;
    let precision = settings.precision.unwrap_or_default();
    let device = DeviceOptions {
        choice: args.device.or(settings.device.name).unwrap_or_default(),
        threads: args.threads.map(|n| n.get() as usize),
        arithmetic: Arithmetic {
            exact: settings.device.exact.unwrap_or_default(),
            tf32: precision == Precision::Tf32,
        },
        ..Default::default()
    };
    let task = Compare {
        capsule,
        model,
        sizes,
        seed: args.seed.or(settings.seed).unwrap_or_default(),
        precision,
    };
    let (name, found, compared) = with_device(&device, task)?;
    let verdict = if found.is_some() { "differs" } else { "agrees" };
    if args.json {
        output::json(&json!({
            "verdict": verdict,
            "cause": capsule.cause(),
            "samples": capsule.samples(),
            "device": name,
            "ops": compared,
            "deviation": found.as_ref().map(|d| json!({
                "layer": d.name.layer,
                "op": d.name.op,
                "pass": if d.name.pass == Pass::Forward { "forward" } else { "backward" },
                "shape": d.shape.dims(),
                "element": d.element,
                "device": d.device.is_finite().then_some(d.device),
                "expected": d.expected,
                "bound": d.bound,
            })),
        }));
    } else {
        line(&format!("{model}, {}: {}", shown_path(path), capsule.cause()));
        let ops = counted(compared as u64, "op");
        line(&match &found {
            Some(deviation) => format!(
                "{name} differs from the CPU again, in {deviation}; it is the first of {ops} compared that does; a kernel or the \
                 driver computes wrongly, if another device of this kind does the same"
            ),
            None => format!(
                "{name} agrees with the CPU this time, in {ops}: what was wrong is not wrong always; suspect the hardware (memory, \
                 heat, clocks), or another driver than that of the run"
            ),
        });
    }
    Ok(if found.is_some() { DIFFERS } else { 0 })
}
