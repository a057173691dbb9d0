//! `kiln summary`: a model's layers, shapes, parameters, FLOPs and output sizes.

use crate::args::SummaryArgs;
use crate::data;
use crate::device::{DeviceChoice, DeviceOptions, Task, with_device};
use crate::error::{Error, Result};
use crate::output::{self, bytes, line, operations, table, thousands};
use kiln_core::Backend;
use kiln_models::Model;
use kiln_nn::Module;
use kiln_nn::trace::{LayerCall, trace};
use kiln_profile::Profiled;
use serde_json::json;

struct Summary {
    model: Model,
    batch: usize,
}

/// The results of a traced forward pass of a model.
struct Seen {
    calls: Vec<LayerCall>,
    parameters: u64,
    trainable: u64,
    parameter_bytes: u64,
    input_bytes: u64,
}

impl Task for Summary {
    type Output = Seen;

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<Seen> {
        let Summary { model: which, batch } = self;
        let model = which.build(backend, 0)?;
        let samples = which.input().samples(batch, which.outputs().max(1), 0)?;
        let mut seen = None;
        model.each_batch(backend, data::in_order(which, samples, batch, 0)?, &mut |batch| {
            let (output, calls) = trace(|| batch.forward());
            output?;
            seen = Some(calls);
            Ok(false)
        })?;
        let calls = seen.ok_or_else(|| Error::failure("no sample to trace"))?;
        let size = |(_, p): &(String, &kiln_nn::Param<Profiled<B>>)| (p.size() * p.dtype().size()) as u64;
        Ok(Seen {
            calls,
            parameters: model.num_parameters() as u64,
            trainable: model.num_trainable() as u64,
            parameter_bytes: model.named_parameters().iter().map(size).sum(),
            input_bytes: (batch * which.input().bytes()) as u64,
        })
    }
}

pub(crate) fn run(args: SummaryArgs) -> Result<u8> {
    let task = Summary {
        model: args.model,
        batch: args.batch as usize,
    };
    let processor = DeviceOptions {
        choice: DeviceChoice::Cpu,
        ..Default::default()
    };
    let seen = with_device(&processor, task)?;
    // The FLOPs of a layer include those of its inner layers, so only the outermost layers are added.
    let top = seen.calls.iter().filter(|c| c.depth == 0);
    let flops: u64 = top.map(|c| c.flops).sum();
    let leaves = seen.calls.iter().filter(|c| !c.container);
    let outputs: u64 = leaves.map(|c| c.output_bytes as u64).sum();
    if args.json {
        let layers: Vec<_> = seen
            .calls
            .iter()
            .map(|c| {
                json!({
                    "path": c.path,
                    "kind": c.kind,
                    "input": c.input.dims(),
                    "output": c.output.dims(),
                    "parameters": c.parameters,
                    "flops": c.flops,
                    "output_bytes": c.output_bytes,
                })
            })
            .collect();
        let text = json!({
            "model": args.model.name(),
            "batch": args.batch,
            "layers": layers,
            "parameters": seen.parameters,
            "trainable_parameters": seen.trainable,
            "parameter_bytes": seen.parameter_bytes,
            "forward_flops": flops,
            "input_bytes": seen.input_bytes,
            "layer_output_bytes": outputs,
        });
        output::json(&text);
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = seen
        .calls
        .iter()
        .map(|c| {
            vec![
                format!("{}{} ({})", "  ".repeat(c.depth), c.path, c.kind),
                format!("{:?}", c.output.dims()),
                thousands(c.parameters as u64),
                operations(c.flops),
                bytes(c.output_bytes as u64),
            ]
        })
        .collect();
    line(&table(
        &["layer", "output", "parameters", "FLOPs", "output size"],
        &rows,
    ));
    line("");
    line(&format!(
        "{} parameters ({} trainable), {}",
        thousands(seen.parameters),
        thousands(seen.trainable),
        bytes(seen.parameter_bytes)
    ));
    line(&format!(
        "batch of {}: {} FLOPs forward, about {} for a training step (three times forward)",
        args.batch,
        operations(flops),
        operations(flops.saturating_mul(3))
    ));
    line(&format!(
        "outputs of all layers: {} with an input of {}",
        bytes(outputs),
        bytes(seen.input_bytes)
    ));
    Ok(0)
}
