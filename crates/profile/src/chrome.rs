//! Traces in Chrome's trace event format, which <https://ui.perfetto.dev> opens.

use crate::record::{Detail, Mark, ScopeInfo, Step, Timeline};
use kiln_core::Cost;
use kiln_core::ops::{AttentionParams, WindowParams};
use serde_json::{Map, Value, json};

const PROCESS: u32 = 1;
const THREAD: u32 = 1;

/// A complete event: `ts` and `dur` are microseconds.
fn event(category: &str, name: &str, (start, end): (u64, u64), args: Value) -> Value {
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    json!({
        "ph": "X",
        "pid": PROCESS,
        "tid": THREAD,
        "cat": category,
        "name": name,
        "ts": micros(start),
        "dur": micros(end.saturating_sub(start)),
        "args": args,
    })
}

fn metadata(name: &str, value: &str) -> Value {
    json!({ "ph": "M", "pid": PROCESS, "tid": THREAD, "name": name, "args": { "name": value } })
}

fn window(batch: u32, p: &WindowParams, channels: [u32; 2]) -> Value {
    json!({
        "batch": batch,
        "input": p.input,
        "kernel": p.kernel,
        "output": p.output,
        "in_channels": channels[0],
        "out_channels": channels[1],
    })
}

/// The arguments of an op's event.
fn op_args(cost: Cost, detail: &Detail) -> Value {
    let mut args = match detail {
        Detail::Elements(n) => json!({ "elements": n }),
        Detail::Unary(f, n) => json!({ "function": format!("{f:?}"), "elements": n }),
        Detail::Binary(f, n) => json!({ "function": format!("{f:?}"), "elements": n }),
        Detail::Reduce(f, n) => json!({ "function": format!("{f:?}"), "elements": n }),
        Detail::Product([batches, m, n, k], algorithm) => {
            let args = json!({ "batches": batches, "m": m, "n": n, "k": k });
            with_algorithm(args, *algorithm)
        }
        Detail::Attention(AttentionParams {
            batch,
            positions,
            heads,
            width,
            causal,
            ..
        }) => json!({
            "batch": batch,
            "positions": positions,
            "heads": heads,
            "width": width,
            "causal": *causal == 1,
        }),
        Detail::Conv(p, algorithm) => {
            let channels = [p.in_channels, p.out_channels];
            let args = window(p.batch, &p.window, channels);
            with_algorithm(args, *algorithm)
        }
        Detail::Pool(p) => window(p.batch, &p.window, [p.channels; 2]),
    };
    args["flops"] = cost.flops.into();
    args["bytes"] = cost.bytes.into();
    args
}

/// The arguments of a scope's event: shapes, and the cost of all ops inside of it.
fn scope_args(scope: &ScopeInfo, gradient: Option<&'static str>, cost: Cost) -> Value {
    let mut args = Map::new();
    if scope.is_layer() {
        args.insert("kind".into(), scope.kind.into());
    }
    if let Some(op) = gradient {
        args.insert("gradient_of".into(), op.into());
    }
    for (name, shape) in [("input", &scope.input), ("output", &scope.output)] {
        if let Some(shape) = shape {
            args.insert(name.into(), json!(shape.dims()));
        }
    }
    args.insert("flops".into(), cost.flops.into());
    args.insert("bytes".into(), cost.bytes.into());
    Value::Object(args)
}

impl Timeline {
    /// The steps as a trace: on one track the step, its parts, the layers (`conv1`, and `conv1 (backward)` for a
    /// gradient) and under them the ops, with shapes, operations and bytes. `process` names the track; `description` is
    /// added to the file.
    pub fn chrome_trace(&self, process: &str, description: Value) -> Value {
        let mut events = vec![metadata("process_name", process), metadata("thread_name", "steps")];
        for (i, step) in self.steps.iter().enumerate() {
            self.step_events(i, step, &mut events);
        }
        json!({ "displayTimeUnit": "ms", "otherData": description, "traceEvents": events })
    }

    fn step_events(&self, number: usize, step: &Step, events: &mut Vec<Value>) {
        // Of each open scope: its begin, its index, the op of a gradient, and the cost of its ops so far. The first is
        // the step.
        let mut open = vec![(step.start, 0usize, None, Cost::default())];
        for mark in &step.marks {
            match *mark {
                Mark::Enter { at, scope, gradient } => open.push((at, scope as usize, gradient, Cost::default())),
                Mark::Op {
                    start,
                    end,
                    name,
                    cost,
                    ref detail,
                } => {
                    if let Some(scope) = open.last_mut() {
                        scope.3 += cost;
                    }
                    events.push(event("op", name, (start, end), op_args(cost, detail)));
                }
                Mark::Leave { at } => {
                    let Some((start, scope, gradient, cost)) = open.pop() else {
                        continue;
                    };
                    if let Some(outer) = open.last_mut() {
                        outer.3 += cost;
                    }
                    let scope = &self.scopes[scope];
                    let category = if scope.is_layer() { "layer" } else { "part" };
                    let name = match gradient {
                        Some(_) => format!("{} (backward)", scope.name),
                        None => scope.name.clone(),
                    };
                    events.push(event(category, &name, (start, at), scope_args(scope, gradient, cost)));
                }
            }
        }
        let cost: Cost = open.iter().map(|o| o.3).sum();
        let args = json!({ "flops": cost.flops, "bytes": cost.bytes });
        events.push(event("step", &format!("step {number}"), (step.start, step.end), args));
    }
}

fn with_algorithm(mut args: Value, algorithm: Option<&'static str>) -> Value {
    if let Some(algorithm) = algorithm {
        args["algorithm"] = algorithm.into();
    }
    args
}
