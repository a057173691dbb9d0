//! The comparison of two runs by what they left.

use crate::error::{Error, Result};
use kiln_cpu::Cpu;
use kiln_files::shown_path;
use kiln_nn::module::{StateDict, Value as Saved};
use kiln_train::{Checkpoint, RunFolder};
use serde_json::Value;
use std::path::Path;

/// Values of the history that are times, or say how steps were made.
const TIMES: [&str; 5] = ["seconds", "waiting", "samples_per_second", "execution", "machine"];

/// The first difference of two runs of `steps` steps, in words; `None` if they are equal.
pub(super) fn differs(whole: &Path, killed: &Path, steps: u64) -> Result<Option<String>> {
    let last = Checkpoint::steps(killed)?.first().copied().unwrap_or(0);
    if last != steps {
        return Ok(Some(format!("it ended after step {last}")));
    }
    let tensors = Checkpoint::tensors_name(steps);
    for name in [RunFolder::LAST, RunFolder::BEST, RunFolder::AVERAGED, &tensors] {
        let (a, b) = (whole.join(name), killed.join(name));
        // There need be no best weights and no averages.
        if [RunFolder::BEST, RunFolder::AVERAGED].contains(&name) && !a.exists() && !b.exists() {
            continue;
        }
        if read(&a)? != read(&b)? {
            let tensor = differing(&a, &b)?;
            return Ok(Some(format!("{name} differs{tensor}")));
        }
    }
    let (a, b) = (history(whole)?, history(killed)?);
    if a != b {
        let line = a.iter().zip(&b).take_while(|(a, b)| a == b).count() + 1;
        return Ok(Some(format!("{} differs in line {line}", RunFolder::HISTORY)));
    }
    Ok(None)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::failure(format!("{}: {e}", shown_path(path))))
}

/// The lines of the history without times.
fn history(folder: &Path) -> Result<Vec<Value>> {
    let path = folder.join(RunFolder::HISTORY);
    let text = String::from_utf8(read(&path)?);
    let failed = |e: &dyn std::fmt::Display| Error::failure(format!("{}: {e}", shown_path(&path)));
    let text = text.map_err(|e| failed(&e))?;
    let timeless = |line: &str| {
        let mut record: Value = serde_json::from_str(line)?;
        if let Some(record) = record.as_object_mut() {
            record.retain(|key, _| !TIMES.contains(&key.as_str()));
        }
        Ok(record)
    };
    let lines: serde_json::Result<_> = text.lines().map(timeless).collect();
    lines.map_err(|e| failed(&e))
}

/// The first tensor of two files that differs.
fn differing(a: &Path, b: &Path) -> Result<String> {
    let open = |path: &Path| -> Result<StateDict<Cpu>> {
        let (tensors, _) = kiln_nn::weights::read(path, &Cpu::new()).map_err(|e| Error::failure(e.to_string()))?;
        Ok(tensors)
    };
    let (a, b) = (open(a)?, open(b)?);
    let bits = |saved: &Saved<Cpu>| -> Result<Vec<u64>> {
        let values = match saved {
            Saved::Float(tensor) => tensor.to_f64()?.into_iter().map(f64::to_bits).collect(),
            Saved::Int(indices) => indices.to_vec::<i64>()?.into_iter().map(i64::cast_unsigned).collect(),
        };
        Ok(values)
    };
    for (name, value) in a.iter() {
        match b.get(name) {
            Some(other) if bits(value)? == bits(other)? => {}
            _ => return Ok(format!(", first in `{name}`")),
        }
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_nn::Tensor;
    use kiln_nn::weights::{Metadata, encode};

    /// The files of a run of two steps: the last of its weights, the loss in its history, and a time.
    fn write(folder: &Path, weight: f64, loss: f64, seconds: f64) {
        let mut tensors = StateDict::new();
        for (name, value) in [("a.weight", 1.0), ("b.weight", weight)] {
            let tensor = Tensor::from_f64(&Cpu::new(), &[value], &[1], kiln_nn::DType::F32).unwrap();
            tensors.insert(name, Saved::Float(tensor));
        }
        let file = encode(&tensors, &Metadata::new()).unwrap();
        for name in [RunFolder::LAST, &Checkpoint::tensors_name(2)] {
            std::fs::write(folder.join(name), &file).unwrap();
        }
        std::fs::write(folder.join("checkpoint-000000002.json"), "{}").unwrap();
        let history = format!("{{\"epoch\":1}}\n{{\"epoch\":2,\"loss\":{loss},\"seconds\":{seconds}}}\n");
        std::fs::write(folder.join(RunFolder::HISTORY), history).unwrap();
    }

    #[test]
    fn differences_are_found_and_named() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let differs = |steps| super::differs(a.path(), b.path(), steps).unwrap();
        write(a.path(), 2.0, 0.5, 1.0);
        write(b.path(), 2.0, 0.5, 9.0);
        assert_eq!(differs(2), None);
        assert_eq!(differs(3).as_deref(), Some("it ended after step 2"));
        write(b.path(), 2.0, 0.25, 1.0);
        assert_eq!(differs(2).as_deref(), Some("history.jsonl differs in line 2"));
        write(b.path(), 2.5, 0.5, 1.0);
        assert_eq!(
            differs(2).as_deref(),
            Some("last.safetensors differs, first in `b.weight`")
        );
        write(b.path(), 2.0, 0.5, 1.0);
        std::fs::write(a.path().join(RunFolder::BEST), b"x").unwrap();
        assert!(super::differs(a.path(), b.path(), 2).is_err());
    }
}
