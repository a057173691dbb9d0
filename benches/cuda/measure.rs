//! Device time of repeated work, and output of measurements as JSON lines.

use crate::Run;
use crate::modelled::Model;
use kiln_core::ops::{Distribution, RandomOps, RandomParams};
use kiln_core::{DType, Error, Result, Runtime};
use kiln_cuda::{Cuda, CudaBuffer};
use kiln_device::Event;
use kiln_forecast::Time;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::Write;

/// The filters and limits of a run, and the output of its lines.
pub(crate) struct Bench {
    filters: Vec<String>,
    quick: bool,
    max_flops: u64,
    max_bytes: u64,
    out: Option<RefCell<File>>,
    model: Option<Model>,
    measured: Cell<usize>,
}

/// The operations, bytes and images of one call of the work, for rates; 0 for a rate that is not shown.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) flops: u64,
    pub(crate) bytes: u64,
    pub(crate) images: u64,
}

/// The device, its driver, and the card that it is modelled as.
pub(crate) fn about(cuda: &Cuda, model: Option<&Model>) -> Value {
    let info = cuda.context().info();
    let driver = kiln_device::driver()
        .map(|d| format!("{}.{}", d.version.0, d.version.1))
        .unwrap_or_default();
    let (major, minor) = info.compute_capability;
    json!({
        "kiln": env!("CARGO_PKG_VERSION"),
        "device": info.name,
        "compute_capability": format!("{major}.{minor}"),
        "multiprocessors": info.multiprocessors,
        "driver": driver,
        "modelled_as": model.map(Model::card),
    })
}

impl Bench {
    pub(crate) fn new(args: &Run, model: Option<Model>) -> Self {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        let out = args.out.as_ref().and_then(|path| match open(path) {
            Ok(file) => Some(RefCell::new(file)),
            Err(e) => {
                eprintln!("kiln-cuda-bench: {} is not written: {e}", path.display());
                None
            }
        });
        Bench {
            filters: args.filters.clone(),
            quick: args.quick,
            max_flops: args.max_flops.unwrap_or(u64::MAX),
            max_bytes: args.max_bytes.unwrap_or(u64::MAX),
            out,
            model,
            measured: Cell::new(0),
        }
    }

    /// True if the filters and limits include a bench.
    pub(crate) fn wants(&self, id: &str, cost: Cost) -> bool {
        let named = self.filters.is_empty() || self.filters.iter().any(|f| matches(id, f));
        named && cost.flops <= self.max_flops && cost.bytes <= self.max_bytes
    }

    /// The number of measurements so far.
    pub(crate) fn measured(&self) -> usize {
        self.measured.get()
    }

    /// Prints the first line, which describes the device.
    pub(crate) fn about(&self, cuda: &Cuda) {
        self.print(&about(cuda, self.model.as_ref()));
    }

    /// Measures `work` on the device, after an untimed run that loads its kernels, and models it.
    pub(crate) fn measure(
        &self,
        cuda: &Cuda,
        id: &str,
        variant: &str,
        cost: Cost,
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let Some(seconds) = self.seconds(cuda, id, cost, &mut work)? else {
            return Ok(());
        };
        // What cannot be captured has no model.
        let model = self
            .model
            .as_ref()
            .filter(|_| matches!(cuda.capture(&mut work), Ok(Some(_))));
        let modelled = model.and_then(Model::last);
        self.line(id, variant, (seconds, modelled), cost);
        Ok(())
    }

    /// The modelled time of the last capture.
    pub(crate) fn last_capture(&self) -> Option<Time> {
        self.model.as_ref().and_then(Model::last)
    }

    /// As [`measure`](Bench::measure), of `work` that cannot be captured, with the modelled time that is known of it.
    pub(crate) fn measure_beside(
        &self,
        cuda: &Cuda,
        id: &str,
        variant: &str,
        cost: Cost,
        modelled: Option<Time>,
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        if let Some(seconds) = self.seconds(cuda, id, cost, &mut work)? {
            self.line(id, variant, (seconds, modelled), cost);
        }
        Ok(())
    }

    /// The median time of `work`, if it is wanted.
    fn seconds(&self, cuda: &Cuda, id: &str, cost: Cost, work: &mut impl FnMut() -> Result<()>) -> Result<Option<f64>> {
        if !self.wants(id, cost) {
            return Ok(None);
        }
        let device = |e: kiln_device::Error| Error::DeviceUnavailable {
            device: cuda.name(),
            reason: e.to_string(),
        };
        let start = Event::timed(cuda.context()).map_err(device)?;
        let end = Event::timed(cuda.context()).map_err(device)?;
        let mut timed = |repeats: u32| -> Result<f64> {
            cuda.stream().record(&start).map_err(device)?;
            for _ in 0..repeats {
                work()?;
            }
            cuda.stream().record(&end).map_err(device)?;
            end.synchronize().map_err(device)?;
            Ok(f64::from(end.elapsed_since(&start).map_err(device)?) * 1e-3)
        };
        let (samples, floor) = if self.quick { (7, 2e-3) } else { (15, 1e-2) };
        timed(1)?;
        let mut repeats = 1;
        while timed(repeats)? < floor && repeats < 1 << 16 {
            repeats *= 2;
        }
        let times: Result<Vec<f64>> = (0..samples).map(|_| Ok(timed(repeats)? / f64::from(repeats))).collect();
        cuda.sync()?;
        self.measured.set(self.measured.get() + 1);
        Ok(Some(median(times?)))
    }

    fn line(&self, id: &str, variant: &str, (seconds, modelled): (f64, Option<Time>), cost: Cost) {
        let mut line = json!({ "id": id, "variant": variant, "seconds": seconds });
        if let Some(time) = modelled {
            line["modelled_seconds"] = json!(time.seconds);
            line["modelled_low"] = json!(time.seconds_low);
            line["modelled_high"] = json!(time.seconds_high);
        }
        for (name, amount) in [("flops", cost.flops), ("bytes", cost.bytes), ("images", cost.images)] {
            if amount > 0 {
                line[name] = json!(amount);
            }
        }
        self.print(&line);
    }

    fn print(&self, line: &Value) {
        println!("{line}");
        if let Some(out) = &self.out
            && let Err(e) = writeln!(out.borrow_mut(), "{line}")
        {
            eprintln!("kiln-cuda-bench: a line was not written: {e}");
        }
    }
}

/// True if an id has `filter` at the beginning of a word: `sum/` finds `sum/f32/…` but not `cumsum/f32/…`,
/// `f32` does not find `tf32`, and `grad` finds `gelu_grad`. benches/peers/torch_cuda.py has the same rule.
fn matches(id: &str, filter: &str) -> bool {
    let begins = |at: usize| !id[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    id.match_indices(filter).any(|(at, _)| begins(at))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// `len` numbers from −1 to 1 on the device, the same for the same `stream`.
pub(crate) fn random(cuda: &Cuda, stream: u32, dtype: DType, len: usize) -> Result<CudaBuffer> {
    let p = RandomParams::new("random", Distribution::Uniform, len, (-1.0, 1.0), 0, stream)?;
    let step = cuda.upload(&[0i32])?;
    let mut x = cuda.alloc(dtype, len)?;
    RandomOps::random(cuda, &p, &step, &mut x)?;
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn filters_match_from_the_beginning_of_a_word() {
        for (id, filter) in [
            ("sum/f32/16777216", "sum/"),
            ("sum_rows/f32/8192x768", "sum"),
            ("gemm/f32/256x256x256", "gemm/f32/256"),
            ("gemm-split/f32/64x8192x64", "gemm"),
            ("gemm/bf16/512x512x512", "bf16/512"),
            ("gelu_grad/f32/8192x3072", "grad"),
            ("conv-forward/f32/mnist2-b128", "b128"),
        ] {
            assert!(matches(id, filter), "{filter} does not find {id}");
        }
        for (id, filter) in [
            ("cumsum/f32/256x50257", "sum/"),
            ("cumsum/f32/256x50257", "sum"),
            ("gemm/tf32/256x256x256", "f32"),
            ("gemm/f32/8192x8192x8192", "gemm/f32/256"),
            ("gemm/f32/8192x768x3072", "256"),
            ("gemm/f32/256x256x256", "conv"),
        ] {
            assert!(!matches(id, filter), "{filter} finds {id}");
        }
    }
}
