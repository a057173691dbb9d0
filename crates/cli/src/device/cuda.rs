//! NVIDIA GPUs, in a build with CUDA.

use super::finding::Finding;
use super::task::{Arithmetic, DeviceEntry, Task};
use crate::error::{Error, Result};
use crate::output::{bytes, counted};
use kiln_cuda::{Cuda, Options};
use kiln_device::DeviceInfo;
use kiln_files::shown_path;
use kiln_profile::Profiled;
use serde_json::{Map, json};

/// The least compute capability that the kernels in this program are built for.
const OLDEST: (u32, u32) = (8, 0);

/// The reason why `device` cannot be used; `None` if it can.
fn obstacle(device: &DeviceInfo) -> Option<String> {
    let ((major, minor), (least, _)) = (device.compute_capability, OLDEST);
    (device.compute_capability < OLDEST)
        .then(|| format!("compute capability {major}.{minor} is less than {least}.0, which the kernels are built for"))
}

/// The usable device with the largest product of multiprocessors and clock, the first of equal ones.
fn fastest(devices: &[DeviceInfo]) -> Option<&DeviceInfo> {
    let speed = |d: &DeviceInfo| u64::from(d.multiprocessors) * u64::from(d.clock_khz.max(1));
    let usable = devices.iter().filter(|d| obstacle(d).is_none());
    usable.min_by_key(|d| (std::cmp::Reverse(speed(d)), d.ordinal))
}

/// The reason why there is no device.
fn absence() -> String {
    match kiln_device::driver() {
        Err(e) => e.to_string(),
        Ok(driver) => format!("the driver {} has no device", shown_path(&driver.path)),
    }
}

/// The GPU to use when the command line names no device, and the reason for that one or for none.
pub(crate) fn auto_select() -> (Option<usize>, String) {
    let devices = match kiln_device::devices() {
        Ok(devices) => devices,
        Err(e) => return (None, e.to_string()),
    };
    match (fastest(&devices), devices.first()) {
        (Some(device), _) => {
            let why = match devices.len() {
                1 => "the only GPU".to_string(),
                n => format!("the fastest of {n} GPUs"),
            };
            (Some(device.ordinal), format!("{why}: {}", description(device)))
        }
        (None, Some(first)) => (None, format!("{}: {}", first.name, obstacle(first).unwrap_or_default())),
        (None, None) => (None, absence()),
    }
}

/// The number of the GPU to use: the given one if it is usable, else the fastest.
pub(crate) fn resolve(number: Option<usize>) -> Result<usize> {
    let failed = |why: String| {
        let name = number.map_or_else(|| "cuda".to_string(), |n| format!("cuda:{n}"));
        Error::failure(format!("device {name}: {why}")).help("see `kiln devices`, or use --device cpu")
    };
    let devices = kiln_device::devices().map_err(|e| failed(e.to_string()))?;
    let device = match number {
        _ if devices.is_empty() => return Err(failed(absence())),
        Some(number) => devices.get(number).ok_or_else(|| {
            failed(format!(
                "there is no such device among {}",
                counted(devices.len() as u64, "GPU")
            ))
        })?,
        None => fastest(&devices).unwrap_or(&devices[0]),
    };
    match obstacle(device) {
        Some(obstacle) => Err(failed(format!("{}: {obstacle}", device.name))),
        None => Ok(device.ordinal),
    }
}

/// Runs `task` on the GPU with this number.
pub(crate) fn run<T: Task>(number: usize, arithmetic: Arithmetic, task: T) -> Result<T::Output> {
    let options = Options {
        exact_convolutions: arithmetic.exact,
        tf32: arithmetic.tf32,
        ..Options::default()
    };
    task.run(&Profiled::new(&Cuda::with_options(number, options)?))
}

/// The state of the driver and of every GPU.
pub(crate) fn examine() -> Vec<Finding> {
    let driver = match kiln_device::driver() {
        Ok(driver) => driver,
        Err(e) => {
            let advice = "for an NVIDIA GPU install NVIDIA's driver; in a container start it with `--gpus all`; without a GPU all is well";
            return vec![Finding::lacks("driver", e.to_string(), advice)];
        }
    };
    let (major, minor) = driver.version;
    let found = format!("{}, for CUDA up to {major}.{minor}", shown_path(&driver.path));
    let mut findings = vec![match driver.missing.is_empty() {
        true => Finding::works("driver", found),
        false => {
            let missing = driver.missing.join(", ");
            Finding::fails(
                "driver",
                format!("{found}, without {missing}"),
                "install a newer driver",
            )
        }
    }];
    match kiln_device::devices() {
        Err(e) => findings.push(Finding::fails("GPU", e.to_string(), "see `nvidia-smi`")),
        Ok(devices) if devices.is_empty() => {
            let advice = "see `nvidia-smi`; CUDA_VISIBLE_DEVICES may hide it";
            findings.push(Finding::lacks("GPU", absence(), advice));
        }
        Ok(devices) => findings.extend(devices.iter().map(|device| {
            let part = format!("cuda:{}", device.ordinal);
            match obstacle(device) {
                Some(obstacle) => {
                    let found = format!("{}: {obstacle}", description(device));
                    Finding::lacks(&part, found, "use another GPU, or the processor with --device cpu")
                }
                None => Finding::works(&part, description(device)),
            }
        })),
    }
    findings
}

/// The UUID of the GPU of this name.
pub(crate) fn uuid(name: &str) -> Option<String> {
    let number: usize = name.strip_prefix("cuda:")?.parse().ok()?;
    kiln_device::devices().ok()?.get(number)?.uuid.clone()
}

/// Every GPU, or one entry with the reason why there is none.
pub(crate) fn list_devices() -> Vec<DeviceEntry> {
    let none = |description: String| {
        vec![DeviceEntry {
            name: "cuda".to_string(),
            usable: false,
            description,
            details: Map::new(),
        }]
    };
    match kiln_device::devices() {
        Err(e) => none(e.to_string()),
        Ok(devices) if devices.is_empty() => none(absence()),
        Ok(devices) => devices.iter().map(entry).collect(),
    }
}

fn entry(device: &DeviceInfo) -> DeviceEntry {
    let (major, minor) = device.compute_capability;
    let details = [
        ("description", json!(device.name)),
        ("compute_capability", json!(format!("{major}.{minor}"))),
        ("memory", json!(device.memory)),
        ("multiprocessors", json!(device.multiprocessors)),
        ("clock_khz", json!(device.clock_khz)),
        ("memory_clock_khz", json!(device.memory_clock_khz)),
        ("memory_bus_bits", json!(device.memory_bus_bits)),
    ];
    let obstacle = obstacle(device);
    DeviceEntry {
        name: format!("cuda:{}", device.ordinal),
        usable: obstacle.is_none(),
        description: match obstacle {
            Some(obstacle) => format!("{}: {obstacle}", description(device)),
            None => description(device),
        },
        details: details.map(|(k, v)| (k.to_string(), v)).into_iter().collect(),
    }
}

/// A GPU in one line: `NVIDIA H200, compute capability 9.0, 139.8 GiB, 132 multiprocessors at 1980 MHz, memory at 3201 MHz`
fn description(device: &DeviceInfo) -> String {
    let (major, minor) = device.compute_capability;
    let at = |khz: u32| match khz {
        0 => "an unknown clock".to_string(),
        khz => format!("{} MHz", khz / 1000),
    };
    format!(
        "{}, compute capability {major}.{minor}, {}, {} at {}, memory at {}",
        device.name,
        bytes(device.memory as u64),
        counted(device.multiprocessors.into(), "multiprocessor"),
        at(device.clock_khz),
        at(device.memory_clock_khz),
    )
}
