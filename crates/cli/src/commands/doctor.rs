//! `kiln doctor`: what this machine has for training, and what to do about what it lacks.

use crate::args::DoctorArgs;
use crate::device::{Arithmetic, DeviceOptions, Finding, State, Task, examine_gpus, list_devices, with_device};
use crate::error::{Error, Result, code};
use crate::machine::{is_gpu, machine};
use crate::output::{self, bytes, line};
use kiln_core::{Backend, Runtime};
use kiln_cpu::Cpu;
use kiln_files::check_writable;
use kiln_models::Model;
use kiln_monitor::{Machine, Memory};
use kiln_nn::{Module, Rng, Tensor, no_grad};
use kiln_profile::Profiled;
use serde_json::json;
use std::path::Path;

/// The largest difference of a net's logits on two devices, over their largest value.
const BOUND: f64 = 1e-4;

/// A forward pass and gradients of a small net, to be compared between devices.
struct Probe;

impl Task for Probe {
    /// The name of the device, the logits, and the gradient of the first parameter.
    type Output = (String, Vec<f64>, Vec<f64>);

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<Self::Output> {
        let net = Model::Lenet.build(backend, 0)?;
        let mut rng = Rng::new(1);
        let images = Tensor::randn(backend, &[2, 32, 32, 3], kiln_core::DType::F32, &mut rng)?;
        let logits = net
            .classify(&images)
            .ok_or_else(|| Error::failure("lenet tells no classes apart"))??;
        let grads = logits.square()?.mean(&[], false)?.backward()?;
        let of_first = net.parameters().first().and_then(|p| grads.get(p));
        let gradient = no_grad(|| of_first.map_or(Ok(Vec::new()), |g| g.to_f64()))?;
        Ok((backend.name(), logits.to_f64()?, gradient))
    }
}

/// The largest difference of two lists over the largest value of the second.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    let scale = b.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs() / scale);
    match a.len() == b.len() {
        true => differences.fold(0.0, |m, d| if d.is_nan() { f64::INFINITY } else { m.max(d) }),
        false => f64::INFINITY,
    }
}

/// Runs a small net on the device that `--device auto` takes, and compares it with the processor.
fn probe() -> Finding {
    let options = DeviceOptions {
        arithmetic: Arithmetic {
            exact: true,
            tf32: false,
        },
        ..Default::default()
    };
    let tried = with_device(&options, Probe).and_then(|run| Ok((run, Probe.run(&Profiled::new(&Cpu::new()))?)));
    match tried {
        Err(error) => Finding::fails("net", error.message, "train with --device cpu, and report this"),
        Ok(((device, logits, gradient), (_, expected, of_cpu))) => {
            let worst = difference(&logits, &expected).max(difference(&gradient, &of_cpu));
            let found = format!("lenet and its gradients on {device} are those of the processor, to {worst:.0e}");
            match worst <= BOUND {
                true => Finding::works("net", found),
                false => {
                    let found = format!("lenet on {device} differs from the processor by {worst:.0e}");
                    Finding::fails("net", found, "train with --device cpu, and report this")
                }
            }
        }
    }
}

/// The machine that training would watch: with the first usable GPU, if there is one.
fn watched() -> Machine {
    let gpu = list_devices()
        .into_iter()
        .find(|device| device.usable && is_gpu(&device.name));
    machine(&gpu.map_or_else(String::new, |device| device.name))
}

/// The readings of the machine that there are while it trains, and advice for each that is missing.
fn readings(machine: &Machine) -> Vec<Finding> {
    let lacks = |what: &str| machine.absent().iter().any(|absent| absent.what == what);
    let known = ["processor", "memory", "temperature", "energy"];
    let known = known.into_iter().filter(|what| !lacks(what)).map(str::to_string);
    let known: Vec<String> = known.chain(machine.gpu()).collect();
    let works = (!known.is_empty()).then(|| Finding::works("readings", known.join(", ")));
    let missing = machine.absent().iter().map(|absent| {
        let found = format!("no readings of {}: {}", absent.what, absent.why);
        Finding::lacks("readings", found, absent.advice)
    });
    works.into_iter().chain(missing).collect()
}

fn examine() -> Vec<Finding> {
    let mut findings = vec![Finding::works("kiln", env!("CARGO_PKG_VERSION"))];
    if let Some(cpu) = list_devices().first() {
        findings.push(Finding::works("cpu", cpu.description.clone()));
    }
    let machine = watched();
    if let Some(Memory { total, available }) = machine.memory() {
        let found = format!("{} of {} available", bytes(available), bytes(total));
        findings.push(Finding::works("memory", found));
    }
    findings.push(match check_writable(Path::new(".kiln-doctor")) {
        Ok(()) => Finding::works("folder", "runs can be saved in this folder"),
        Err(e) => Finding::fails(
            "folder",
            e.to_string(),
            "go to a folder that can be written, or use --out",
        ),
    });
    findings.push(match kiln_nvcc::find(Path::new(".")) {
        Ok(nvcc) => Finding::works("nvcc", format!("{}, release {}", nvcc.path.display(), nvcc.release)),
        Err(_) => Finding::lacks(
            "nvcc",
            "not found; only building kiln with CUDA takes it",
            "`cargo xtask toolkit` in kiln's sources gets it without a GPU",
        ),
    });
    findings.extend(examine_gpus());
    findings.extend(readings(&machine));
    findings.push(probe());
    findings
}

pub(crate) fn run(args: DoctorArgs) -> Result<u8> {
    let findings = examine();
    if args.json {
        let each = findings
            .iter()
            .map(|f| json!({ "part": f.part, "state": f.state.name(), "found": f.found, "advice": f.advice }));
        output::json(&json!({ "findings": each.collect::<Vec<_>>() }));
    } else {
        let width = findings.iter().map(|f| f.part.len()).max().unwrap_or(0);
        for finding in &findings {
            line(&format!(
                "{:width$}  {:5}  {}",
                finding.part,
                finding.state.name(),
                finding.found
            ));
            if let Some(advice) = &finding.advice {
                line(&format!("{:width$}         {advice}", ""));
            }
        }
    }
    Ok(match findings.iter().any(|f| f.state == State::Fails) {
        true => code::FAILURE,
        false => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_that_are_missing_come_with_advice() {
        let root = tempfile::tempdir().unwrap();
        let denied = root.path().join("sys/class/powercap/intel-rapl:0");
        std::fs::create_dir_all(denied).unwrap();
        let none = Machine::at(root.path()).with_gpu(Err("no library".to_string()));
        let findings = readings(&none);
        let told: Vec<&str> = findings.iter().map(|f| &f.found[..]).collect();
        for (told, what) in told.iter().zip(["processor", "memory", "temperature", "energy", "GPU"]) {
            assert!(told.starts_with(&format!("no readings of {what}: ")), "{told}");
        }
        assert!(findings.iter().all(|f| f.part == "readings" && f.state == State::Lacks));
        let advice = |i: usize| findings[i].advice.clone().unwrap();
        assert!(advice(3).contains("chmod a+r") && advice(4).contains("libnvidia-ml.so.1"));
        let bare = readings(&Machine::at(root.path().join("none")));
        assert!(bare[3].advice.clone().unwrap().contains("modprobe intel_rapl_msr"));
    }

    #[test]
    fn differences_are_relative_and_never_nan() {
        assert_eq!(difference(&[1.0, 2.0], &[1.0, 4.0]), 0.5);
        assert_eq!(difference(&[f64::NAN], &[1.0]), f64::INFINITY);
        assert_eq!(difference(&[1.0], &[]), f64::INFINITY);
        assert_eq!(difference(&[0.0], &[0.0]), 0.0);
    }
}
