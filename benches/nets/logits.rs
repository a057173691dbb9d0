//! Networks of images and of clips compared with their originals in PyTorch, from files that `benches/peers/torch_logits.py` makes: the state dictionary of the
//! original, an input, and its logits.

use crate::Outcome;
use kiln_cpu::Cpu;
use kiln_models::Model;
use kiln_nn::module::Value;
use kiln_nn::weights::{LoadOptions, read};
use kiln_nn::{Layout, Module, no_grad};
use std::path::Path;

/// The largest difference of the logits of a file, which has the name of its network, over the largest of them.
pub(crate) fn difference(file: &str) -> Outcome<f64> {
    let cpu = Cpu::new();
    let name = Path::new(file).file_stem().and_then(|name| name.to_str());
    let mut net = name.unwrap_or_default().parse::<Model>()?.build(&cpu, 1)?;
    let (mut dict, _) = read(file, &cpu)?;
    let mut take = |name: &str| match dict.remove(name) {
        Some(Value::Float(tensor)) => Ok(tensor),
        _ => Err(format!("the file has no floats `{name}`")),
    };
    let (input, logits) = (take("input")?, take("logits")?);
    let report = net.load_state_dict(&dict, LoadOptions::partial().layout(Layout::Torch))?;
    // PyTorch's dropouts have no counters.
    let missing = report.missing.iter().any(|name| !name.ends_with(".step"));
    if missing || !report.unexpected.is_empty() || !report.mismatched.is_empty() {
        return Err(report.to_string().into());
    }
    net.eval();
    // Channels last, of images and of clips.
    let axes: Vec<isize> = [0].into_iter().chain(2..input.rank() as isize).chain([1]).collect();
    let input = input.permute(&axes)?;
    let found = no_grad(|| net.classify(&input)).ok_or("the network tells no classes apart")??;
    let (found, expected) = (found.to_f64()?, logits.to_f64()?);
    if found.len() != expected.len() {
        return Err(format!("{} logits, expected {}", found.len(), expected.len()).into());
    }
    let largest = expected.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
    Ok(differences.fold(0.0, f64::max) / largest)
}
