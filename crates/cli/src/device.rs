//! Choosing a device: the one place that knows which backends are in this build.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "device/no_cuda.rs"]
mod cuda;
mod task;

use crate::error::{Error, Result};
use crate::output::counted;
use kiln_core::Runtime;
use kiln_cpu::{Cpu, Machine};
use serde_json::json;
use std::str::FromStr;

pub(crate) use task::{DeviceEntry, Task};

/// A device on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// The fastest there is.
    Auto,
    /// The processor.
    Cpu,
    /// An NVIDIA GPU, the fastest or the one of that number.
    Cuda(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None => match text {
                "auto" => Some(DeviceChoice::Auto),
                "cpu" => Some(DeviceChoice::Cpu),
                "cuda" => Some(DeviceChoice::Cuda(None)),
                _ => None,
            },
            Some(("cuda", number)) => number.parse().ok().map(|n| DeviceChoice::Cuda(Some(n))),
            Some(_) => None,
        }
        .ok_or_else(|| "expected one of auto, cpu, cuda, cuda:N".to_string())
    }
}

/// A device on the command line, and how it is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceOptions {
    pub(crate) choice: DeviceChoice,
    /// Threads of the host; as many as there are cores if not given.
    pub(crate) threads: Option<u16>,
    /// Convolutions by plain sums of products alone.
    pub(crate) exact: bool,
}

/// Runs `task` on the chosen device, with the chosen number of threads on the host.
pub(crate) fn with_device<T: Task>(options: &DeviceOptions, mut task: T) -> Result<T::Output> {
    // The thread that makes the steps is one of the pool's: it then takes part in the work of an op instead of waiting for
    // others to wake up and do it.
    let pool = rayon::ThreadPoolBuilder::new().use_current_thread();
    match options.threads {
        Some(threads) => {
            let started = pool.num_threads(usize::from(threads)).build_global();
            started.map_err(|e| Error::failure(format!("cannot start {}: {e}", counted(threads.into(), "thread"))))?;
        }
        // As many as the machine has; a pool that was there before is as good.
        None => drop(pool.build_global()),
    }
    let gpu = match options.choice {
        DeviceChoice::Cpu => None,
        DeviceChoice::Cuda(number) => Some(cuda::resolve(number)?),
        DeviceChoice::Auto => {
            let (gpu, why) = cuda::auto_select();
            let name = gpu.map_or_else(|| "cpu".to_string(), |n| format!("cuda:{n}"));
            task.chosen(format!("device: {name}, {why}"));
            gpu
        }
    };
    match gpu {
        Some(number) => cuda::run(number, options.exact, task),
        None => task.run(&Cpu::builder().exact_convolutions(options.exact).build()),
    }
}

/// Every device this program knows of.
pub(crate) fn list_devices() -> Vec<DeviceEntry> {
    let machine = Machine::this();
    let threads = rayon::current_num_threads();
    let caches = machine
        .caches
        .iter()
        .map(|c| json!({ "level": c.level, "bytes": c.size, "ways": c.ways, "threads": c.threads }));
    let details = [
        ("threads", json!(threads)),
        ("description", json!(machine.name)),
        ("instruction_set", json!(machine.instruction_set)),
        ("caches", caches.collect()),
    ];
    let mut listed = vec![DeviceEntry {
        name: Cpu::new().name(),
        usable: true,
        description: format!(
            "{machine}, {}, {}",
            counted(threads as u64, "thread"),
            std::env::consts::ARCH
        ),
        details: details.map(|(k, v)| (k.to_string(), v)).into_iter().collect(),
    }];
    listed.extend(cuda::list_devices());
    listed
}

#[cfg(test)]
mod tests {
    use super::DeviceChoice::{Auto, Cpu, Cuda};
    use super::*;

    #[test]
    fn devices_are_named_with_and_without_a_number() {
        for (text, choice) in [
            ("auto", Auto),
            ("cpu", Cpu),
            ("cuda", Cuda(None)),
            ("cuda:0", Cuda(Some(0))),
            ("cuda:13", Cuda(Some(13))),
        ] {
            assert_eq!(text.parse(), Ok(choice));
        }
        for wrong in [
            "", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "auto:1", "CUDA", "cuda:1:2",
        ] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }
}
