//! GPUs: by NVIDIA's management library (NVML), which is opened when a program asks for it, or by anything else that can say the
//! same.

use crate::system::Why;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;

/// The variable that names another library than the driver's.
const VARIABLE: &str = "KILN_NVML";

/// The state of a GPU. What its driver does not tell is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuState {
    /// The share of the last moments in which a kernel ran, 0 to 1.
    pub utilisation: Option<f64>,
    /// Memory in use by all programs, in bytes.
    pub memory_used: Option<u64>,
    /// All memory, in bytes.
    pub memory_total: Option<u64>,
    /// The power that it draws.
    pub watts: Option<f64>,
    /// The energy that it has used, from any beginning.
    pub joules: Option<f64>,
    /// The temperature of the chip.
    pub celsius: Option<f64>,
    /// The clock of its multiprocessors, in MHz.
    pub clock_mhz: Option<f64>,
}

/// A GPU that can be asked for its state.
pub trait Gpu: Send {
    /// Its name.
    fn name(&self) -> String;

    /// Its state at this moment.
    fn state(&mut self) -> GpuState;
}

/// An NVIDIA GPU.
struct Nvidia {
    nvml: Nvml,
    index: u32,
    name: String,
}

/// The NVIDIA GPU of this UUID (`GPU-…`, as `nvidia-smi -L` shows it). The library is that of the driver, or the file that the
/// variable `KILN_NVML` names.
///
/// # Errors
/// The reason, in words: no library, no such GPU, an old driver.
pub fn nvidia(uuid: &str) -> Result<Box<dyn Gpu>, Why> {
    of_library(std::env::var_os(VARIABLE).as_deref(), uuid)
}

/// As [`nvidia`], with the library in a file of this name.
///
/// # Errors
/// As [`nvidia`].
pub fn nvidia_from(library: impl AsRef<OsStr>, uuid: &str) -> Result<Box<dyn Gpu>, Why> {
    of_library(Some(library.as_ref()), uuid)
}

fn of_library(path: Option<&OsStr>, uuid: &str) -> Result<Box<dyn Gpu>, Why> {
    match open(path, uuid) {
        Ok(gpu) => Ok(Box::new(gpu)),
        Err(e) => Err(format!("NVIDIA's management library: {}", reason(&e))),
    }
}

fn open(path: Option<&OsStr>, uuid: &str) -> Result<Nvidia, NvmlError> {
    let nvml = match path {
        Some(path) => Nvml::builder().lib_path(path).init()?,
        None => Nvml::init()?,
    };
    let device = nvml.device_by_uuid(uuid)?;
    let (index, name) = (device.index()?, device.name()?);
    Ok(Nvidia { nvml, index, name })
}

/// An error with its causes, on one line.
fn reason(error: &NvmlError) -> String {
    let text = match error {
        NvmlError::LibloadingError(inner) => inner.to_string(),
        other => other.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Gpu for Nvidia {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn state(&mut self) -> GpuState {
        let Ok(device) = self.nvml.device_by_index(self.index) else {
            return GpuState::default();
        };
        let memory = device.memory_info().ok();
        let thousandth = |value: u64| value as f64 / 1000.0;
        GpuState {
            utilisation: device.utilization_rates().ok().map(|u| f64::from(u.gpu) / 100.0),
            memory_used: memory.as_ref().map(|m| m.used),
            memory_total: memory.as_ref().map(|m| m.total),
            watts: device.power_usage().ok().map(|mw| thousandth(mw.into())),
            joules: device.total_energy_consumption().ok().map(thousandth),
            celsius: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            clock_mhz: device.clock_info(Clock::SM).ok().map(f64::from),
        }
    }
}
