//! The choice of a device. No other file depends on the backends that are in this build.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "device/no_cuda.rs"]
mod cuda;
mod finding;
#[cfg(all(test, feature = "cuda"))]
mod no_cuda;
mod task;

use crate::error::{Error, Result};
use crate::output::counted;
use kiln_core::{DType, Runtime};
use kiln_cpu::{Blocking, Cpu, Machine};
use kiln_profile::Profiled;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::str::FromStr;

pub(crate) use finding::{Finding, State};
pub(crate) use task::{Arithmetic, DeviceEntry, Task};

/// A device on the command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum DeviceChoice {
    /// The fastest device.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// An NVIDIA GPU: the one with this number, else the fastest.
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

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> String {
        match choice {
            DeviceChoice::Auto => "auto".to_string(),
            DeviceChoice::Cpu => "cpu".to_string(),
            DeviceChoice::Cuda(None) => "cuda".to_string(),
            DeviceChoice::Cuda(Some(number)) => format!("cuda:{number}"),
        }
    }
}

/// A device on the command line, and the options for its use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceOptions {
    pub(crate) choice: DeviceChoice,
    /// Threads of the host; by default as many as cores.
    pub(crate) threads: Option<usize>,
    /// The largest number of bytes of tensors on the CPU.
    pub(crate) memory: Option<usize>,
    /// True if nobody asked for that limit, so that a GPU ignores it.
    pub(crate) memory_is_default: bool,
    pub(crate) arithmetic: Arithmetic,
}

/// Runs `task` on the chosen device, with the chosen number of threads on the host.
pub(crate) fn with_device<T: Task>(options: &DeviceOptions, mut task: T) -> Result<T::Output> {
    // The thread that runs the steps belongs to the pool, so it takes part in the work of an op instead of waiting for other
    // threads to wake up and do it.
    let pool = rayon::ThreadPoolBuilder::new().use_current_thread();
    match options.threads {
        Some(threads) => {
            let started = pool.num_threads(threads).build_global();
            // The command may have run another task on the same pool.
            if let (Err(e), true) = (started, rayon::current_num_threads() != threads) {
                let threads = counted(threads as u64, "thread");
                return Err(Error::failure(format!("cannot start {threads}: {e}")));
            }
        }
        // One thread per core. An error means that there is a global pool already, which is used.
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
    let arithmetic = options.arithmetic;
    match gpu {
        Some(_) if options.memory.is_some() && !options.memory_is_default => {
            Err(Error::usage("--memory is a limit of the processor's memory")
                .help("leave it out, or choose --device cpu; a GPU has all of its own memory"))
        }
        Some(number) => cuda::run(number, arithmetic, task),
        None if arithmetic.tf32 => Err(Error::usage("TF32 is a precision of NVIDIA GPUs")
            .help("choose --precision f32 or bf16 on the CPU, or a GPU with --device cuda")),
        None => {
            let cpu = Cpu::builder().exact_convolutions(arithmetic.exact);
            task.run(&Profiled::new(&cpu.memory_limit(options.memory).build()))
        }
    }
}

/// The processor in one line.
fn processor() -> String {
    let threads = counted(rayon::current_num_threads() as u64, "thread");
    format!("{}, {threads}, {}", Machine::this(), std::env::consts::ARCH)
}

/// The device of this name in one line; empty if there is none.
pub(crate) fn describe(name: &str) -> String {
    if name == Cpu::new().name() {
        return processor();
    }
    let found = cuda::list_devices().into_iter().find(|device| device.name == name);
    found.map_or(String::new(), |device| device.description)
}

/// The UUID of the GPU of this name; `None` for the processor.
pub(crate) fn gpu_uuid(name: &str) -> Option<String> {
    cuda::uuid(name)
}

/// The block sizes of a processor's products by their names in [`Blocking`].
fn blocks(sizes: &Blocking) -> serde_json::Value {
    json!({
        "mc": sizes.mc,
        "nc": sizes.nc,
        "nc_of_copied": sizes.nc_of_copied,
        "kc": Blocking::KC,
        "own": sizes.own,
        "at_once": sizes.at_once,
        "l1_way": sizes.l1_way,
        "again": sizes.again,
    })
}

/// Every device that this program can find.
pub(crate) fn list_devices() -> Vec<DeviceEntry> {
    let machine = Machine::this();
    let threads = rayon::current_num_threads();
    let caches = machine
        .caches
        .iter()
        .map(|c| json!({ "level": c.level, "bytes": c.size, "ways": c.ways, "threads": c.threads }));
    let [f32, f64] = [DType::F32, DType::F64].map(|dtype| Blocking::for_machine(&machine, dtype));
    let details = [
        ("threads", json!(threads)),
        ("description", json!(machine.name)),
        ("instruction_set", json!(machine.instruction_set)),
        ("bf16", json!(machine.bf16)),
        ("caches", caches.collect()),
        ("products", json!({ "f32": blocks(&f32), "f64": blocks(&f64) })),
    ];
    let mut listed = vec![DeviceEntry {
        name: Cpu::new().name(),
        usable: true,
        description: format!("{}, products in blocks of {f32}", processor()),
        details: details.map(|(k, v)| (k.to_string(), v)).into_iter().collect(),
    }];
    listed.extend(cuda::list_devices());
    listed
}

/// The state of the driver and of every GPU.
pub(crate) fn examine_gpus() -> Vec<Finding> {
    cuda::examine()
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
            assert_eq!(String::from(choice), text);
        }
        for wrong in [
            "", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "auto:1", "CUDA", "cuda:1:2",
        ] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }
}
