//! The time of a step: that of all its launches, copies and fills, one after the other.

use crate::figures::Table;
use crate::kernel::{shape, work};
use crate::launches::{Launch, last_capture};
use crate::model::{Bound, Exponents, modelled};
use crate::published::BAND;
use crate::tables::Gpu;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The work of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Launches of kernels in their order.
    pub launches: Vec<Launch>,
    /// Bytes of each copy.
    pub copies: Vec<u64>,
    /// Bytes of each fill.
    pub fills: Vec<u64>,
    /// The most memory that is allocated at a time.
    pub peak_bytes: u64,
}

#[derive(serde::Deserialize)]
struct Event {
    graph: Option<String>,
    kernel: Option<String>,
    copy: Option<String>,
    #[serde(default)]
    bytes: u64,
    fill: Option<u64>,
    used: Option<u64>,
}

impl Step {
    /// The step that a run recorded: its launches from the log of kiln-device, copies, fills and memory from the trace of the emulated
    /// driver, of which the last graph is the step. `None` if it replayed none, as where there is no memory for a recording.
    ///
    /// # Errors
    /// A log or a trace that cannot be read; a log and a trace of different steps.
    pub fn read(log: &str, trace: &str) -> Result<Option<Step>, String> {
        let mut step = Step::default();
        let (mut graph, mut kernels) = (None, 0);
        for line in trace.lines() {
            let event: Event = serde_json::from_str(line).map_err(|e| format!("`{line}` in the launch trace: {e}"))?;
            step.peak_bytes = step.peak_bytes.max(event.used.unwrap_or(0));
            match event.graph.as_deref() {
                Some("begin") => graph = Some((Vec::new(), Vec::new(), 0)),
                Some(_) => {
                    if let Some((copies, fills, n)) = graph.take() {
                        (step.copies, step.fills, kernels) = (copies, fills, n);
                    }
                }
                None => {}
            }
            if let Some((copies, fills, n)) = &mut graph {
                if event.kernel.is_some() {
                    *n += 1;
                }
                if event.copy.is_some() {
                    copies.push(event.bytes);
                }
                fills.extend(event.fill);
            }
        }
        step.launches = last_capture(log)?;
        if kernels == 0 {
            return Ok(None);
        }
        if kernels != step.launches.len() {
            let logged = step.launches.len();
            return Err(format!(
                "the step has {kernels} kernels, and {logged} were logged when it was recorded"
            ));
        }
        Ok(Some(step))
    }
}

/// Launches of one kernel with one shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The kernel.
    pub kernel: String,
    /// The sizes of what it computes.
    pub shape: String,
    /// How many launches there are.
    pub launches: usize,
    /// Their modelled time together.
    pub seconds: f64,
    /// The least that they would take if their busiest part did nothing but its own work.
    pub floor: f64,
    /// The part of the GPU that they wait for most.
    pub bound: Bound,
}

/// The modelled time of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// All of it.
    pub seconds: f64,
    /// The least and the most that it may be by the model's error on published kernels.
    pub seconds_low: f64,
    /// The most.
    pub seconds_high: f64,
    /// Seconds by what they are waited for, the most first.
    pub bounds: Vec<(Bound, f64)>,
    /// The kernels, those with the most time first.
    pub shares: Vec<Share>,
    /// Kernels without machine code in the table, which are taken for streams of their bytes.
    pub unknown: BTreeSet<String>,
}

/// The modelled time of a step on a card.
pub fn time(step: &Step, gpu: &Gpu, table: &Table, exponents: &Exponents) -> Time {
    let mut shares: BTreeMap<(&str, String), Share> = BTreeMap::new();
    let mut bounds: BTreeMap<Bound, f64> = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    for launch in &step.launches {
        let figures = table.kernel(&launch.kernel, gpu.card.sm);
        if figures.is_none() {
            unknown.insert(launch.kernel.clone());
        }
        let of = modelled(&work(launch, figures, gpu.card.sm), gpu, exponents);
        let key = (launch.kernel.as_str(), shape(launch).unwrap_or_default());
        let share = shares.entry(key.clone()).or_insert_with(|| Share {
            kernel: launch.kernel.clone(),
            shape: key.1,
            launches: 0,
            seconds: 0.0,
            floor: 0.0,
            bound: of.bound,
        });
        share.launches += 1;
        share.seconds += of.seconds;
        share.floor += of.floor;
        *bounds.entry(of.bound).or_default() += of.seconds;
    }
    // A copy reads and writes, a fill writes.
    let moved = step
        .copies
        .iter()
        .map(|bytes| 2 * bytes)
        .chain(step.fills.iter().copied());
    let bandwidth = gpu.card.bandwidth * 1e9 * gpu.dram_efficiency();
    for bytes in moved {
        let streamed = bytes as f64 / bandwidth;
        let seconds = gpu.architecture.small_kernel + streamed;
        let bound = if streamed > gpu.architecture.small_kernel {
            Bound::Memory
        } else {
            Bound::Launch
        };
        *bounds.entry(bound).or_default() += seconds;
    }
    let seconds: f64 = bounds.values().sum();
    let mut bounds: Vec<_> = bounds.into_iter().collect();
    bounds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut shares: Vec<_> = shares.into_values().collect();
    shares.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let band = 1.0 + BAND * gpu.architecture.band;
    Time {
        seconds,
        seconds_low: seconds / band,
        seconds_high: seconds * band,
        bounds,
        shares,
        unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cards, published::EXPONENTS};

    const TRACE: &str = r#"{"allocate":100,"at":"0x10","device":0,"used":700}
{"graph":"begin"}
{"kernel":"a","grid":[1,1,1],"block":[1,1,1],"shared":0,"device":0,"params":[]}
{"copy":"device to device","bytes":4}
{"fill":8}
{"graph":"end"}
{"copy":"device to host","bytes":4}
"#;
    const LOG: &str = r#"{"capture":"begin"}
{"kernel":"unary_f32","grid":[1056,1,1],"block":[256,1,1],"shared":0,"args":[400000000,400000000],"kept":[]}
"#;

    #[test]
    fn a_step_is_that_of_its_log_and_its_trace() {
        let step = Step::read(LOG, TRACE).unwrap().unwrap();
        assert_eq!((step.launches.len(), step.peak_bytes), (1, 700));
        assert_eq!((step.copies, step.fills), (vec![4], vec![8]));
        let twice = TRACE.replace("{\"fill\":8}", "{\"kernel\":\"b\"}");
        assert!(Step::read(LOG, &twice).unwrap_err().contains("2 kernels"));
        assert_eq!(Step::read(LOG, ""), Ok(None));
        assert!(Step::read("no json", TRACE).is_err());
    }

    #[test]
    fn a_stream_takes_its_bytes_and_slower_cards_take_longer() {
        let step = Step::read(LOG, TRACE).unwrap().unwrap();
        let (cards, table) = (Cards::known().unwrap(), Table::known().unwrap());
        let on = |name: &str| time(&step, &cards.gpu(name).unwrap(), &table, &EXPONENTS);
        let h100 = on("h100");
        assert!(
            h100.seconds > 8e8 / 3.35e12 && h100.seconds < 1.6 * 8e8 / 3.35e12,
            "{h100:?}"
        );
        assert!(h100.seconds_low < h100.seconds && h100.seconds < h100.seconds_high);
        assert!(on("a100").seconds > h100.seconds && on("l4").seconds > on("a100").seconds);
        assert_eq!(h100.shares[0].bound, Bound::Memory);
    }
}
