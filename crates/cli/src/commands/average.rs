//! `kiln average`: the mean of saved weights.

use crate::args::AverageArgs;
use crate::error::{Error, Result};
use crate::output::{counted, line};
use crate::weights;
use kiln_cpu::Cpu;
use kiln_files::shown_path;
use kiln_nn::module::{StateDict, Value};
use kiln_nn::weights::{Metadata, WeightsError, encode, read};
use std::path::Path;

fn open(path: &Path) -> Result<(StateDict<Cpu>, Metadata)> {
    read(path, &Cpu::new()).map_err(|e: WeightsError| Error::failure(e.to_string()))
}

/// Adds `other` to the sums; both must have tensors of the same names and shapes.
fn add(sums: &mut StateDict<Cpu>, other: &StateDict<Cpu>, path: &Path) -> Result<()> {
    let refused = |why: String| {
        Err(Error::failure(format!("{}: {why}", shown_path(path))).help("only weights of one model can be averaged"))
    };
    if let Some(name) = other.names().find(|name| sums.get(name).is_none()) {
        return refused(format!("`{name}` is not in the first file"));
    }
    let names: Vec<String> = sums.names().map(str::to_string).collect();
    for name in names {
        match (sums.get(&name), other.get(&name)) {
            (Some(Value::Float(sum)), Some(Value::Float(value))) if sum.shape() == value.shape() => {
                let sum = sum.add(&value.to_dtype(sum.dtype())?)?;
                sums.insert(name, Value::Float(sum));
            }
            (Some(Value::Int(_)), Some(Value::Int(_))) => {}
            (_, None) => return refused(format!("`{name}` is missing")),
            (Some(sum), Some(value)) => {
                return refused(format!(
                    "`{name}` is {:?}, in the first file {:?}",
                    value.shape(),
                    sum.shape()
                ));
            }
            (None, _) => {}
        }
    }
    Ok(())
}

pub(crate) fn run(args: AverageArgs) -> Result<u8> {
    let paths = args
        .weights
        .iter()
        .map(|path| weights::file(path))
        .collect::<Result<Vec<_>>>()?;
    let (mut sums, metadata) = open(&paths[0])?;
    let dtypes = sums.copy()?;
    let names: Vec<String> = sums.names().map(str::to_string).collect();
    for name in &names {
        if let Some(tensor) = sums.float(name) {
            let wide = tensor.to_dtype(kiln_nn::DType::F64)?;
            sums.insert(name.clone(), Value::Float(wide));
        }
    }
    for path in &paths[1..] {
        add(&mut sums, &open(path)?.0, path)?;
    }
    for name in &names {
        if let (Some(sum), Some(first)) = (sums.float(name), dtypes.float(name)) {
            let mean = sum.mul_scalar(1.0 / paths.len() as f64)?.to_dtype(first.dtype())?;
            sums.insert(name.clone(), Value::Float(mean));
        }
    }
    kiln_files::write_atomic(
        &args.out,
        &encode(&sums, &metadata).map_err(|e| Error::failure(e.to_string()))?,
    )?;
    let floats = names.iter().filter(|name| sums.float(name).is_some()).count();
    let (mean, of) = (shown_path(&args.out), counted(paths.len() as u64, "file"));
    line(&format!(
        "{mean}: the mean of {of}, {}",
        counted(floats as u64, "tensor")
    ));
    if names.iter().any(|name| name.ends_with("num_batches_tracked")) {
        line(
            "note: the running statistics of its batch norms are means too, and not those of the mean weights; they are computed anew by \
             kiln_train::update_bn, or on the way by kiln train --swa",
        );
    }
    Ok(0)
}
