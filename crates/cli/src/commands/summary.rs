//! `kiln summary`: a model's layers, shapes, parameters, FLOPs and output sizes.

use crate::args::SummaryArgs;
use crate::device::{Arithmetic, DeviceChoice, DeviceOptions, Task, with_device};
use crate::error::Result;
use crate::output::{self, bytes, line, operations, table, thousands};
use kiln_core::Backend;
use kiln_models::{Input, Model};
use kiln_nn::trace::{LayerCall, trace};
use kiln_nn::{Module, no_grad};
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

    fn run<B: Backend>(self, backend: &B) -> Result<Seen> {
        let model = self.model.build(backend, 0)?;
        let input = self.model.zeros(backend, self.batch)?;
        let (output, calls) = trace(|| no_grad(|| model.forward(&input)));
        output?;
        let size = |(_, p): &(String, &kiln_nn::Param<B>)| (p.size() * p.dtype().size()) as u64;
        Ok(Seen {
            calls,
            parameters: model.num_parameters() as u64,
            trainable: model.num_trainable() as u64,
            parameter_bytes: model.named_parameters().iter().map(size).sum(),
            input_bytes: match &input {
                Input::Images(x) => (x.size() * x.dtype().size()) as u64,
                Input::Tokens(ids) => (ids.size() * ids.dtype().size()) as u64,
            },
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
        threads: None,
        arithmetic: Arithmetic::default(),
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
