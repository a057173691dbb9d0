//! The devices, and their properties.

use crate::driver::initialize;
use crate::error::{Error, Result, of_cust};
use crate::ffi;
use cust::device::{Device, DeviceAttribute};

/// The properties of a device. Sizes are in bytes. A number that the driver does not report is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number, from zero.
    pub ordinal: usize,
    /// Its name, as in "NVIDIA H200".
    pub name: String,
    /// What tells it from all other devices, as `nvidia-smi -L` shows it: `GPU-6b696c6e-…`. `None` if the driver does not say.
    pub uuid: Option<String>,
    /// Its compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Its memory.
    pub memory: usize,
    /// The number of its multiprocessors.
    pub multiprocessors: u32,
    /// The clock of its multiprocessors, in kHz.
    pub clock_khz: u32,
    /// The clock of its memory, in kHz; two transfers a cycle.
    pub memory_clock_khz: u32,
    /// The width of its memory's bus, in bits.
    pub memory_bus_bits: u32,
    /// Its level-2 cache.
    pub l2_cache: usize,
    /// Shared memory that any block may have.
    pub shared_per_block: usize,
    /// Shared memory that a block may have after [`Function::set_dynamic_shared`](crate::Function::set_dynamic_shared).
    pub shared_per_block_optin: usize,
    /// Shared memory of a multiprocessor.
    pub shared_per_multiprocessor: usize,
    /// Registers (of 32 bits) of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Threads of a warp.
    pub warp_size: u32,
    /// Threads that a block may have.
    pub max_threads_per_block: u32,
    /// Threads that a multiprocessor may hold.
    pub max_threads_per_multiprocessor: u32,
    /// Blocks that a grid may have along each axis.
    pub max_grid: [u32; 3],
    /// The number of copies that can run at once beside the computation.
    pub copy_engines: u32,
    /// True if the memory corrects errors.
    pub ecc: bool,
    /// True if it shares the host's memory.
    pub integrated: bool,
}

impl DeviceInfo {
    /// The memory's bandwidth by its clock and bus, in bytes a second; zero if the driver does not report both.
    pub fn memory_bandwidth(&self) -> u64 {
        2 * u64::from(self.memory_clock_khz) * 1000 * u64::from(self.memory_bus_bits / 8)
    }
}

/// Every CUDA device; none if there is no driver or no device ([`driver`](crate::driver) tells which of the two, and why).
///
/// # Errors
/// The driver's, if there is one that does not start or does not describe its devices.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    (0..count()?)
        .map(|ordinal| describe(ordinal).map(|(info, _)| info))
        .collect()
}

/// The number of devices.
fn count() -> Result<usize> {
    match initialize() {
        Ok(()) => {}
        Err(
            Error::NoDriver { .. }
            | Error::Driver {
                code: ffi::NO_DEVICE, ..
            },
        ) => return Ok(0),
        Err(e) => return Err(e),
    }
    match Device::num_devices() {
        Err(cust::error::CudaError::NoDevice) => Ok(0),
        n => Ok(n.map_err(of_cust("cuDeviceGetCount"))? as usize),
    }
}

/// The device of this number, and the driver's handle for it.
pub(crate) fn find(ordinal: usize) -> Result<(DeviceInfo, ffi::CUdevice)> {
    match initialize() {
        Ok(())
        | Err(Error::Driver {
            code: ffi::NO_DEVICE, ..
        }) => {}
        Err(e) => return Err(e),
    }
    let count = count()?;
    if ordinal >= count {
        return Err(Error::NoSuchDevice { ordinal, count });
    }
    describe(ordinal)
}

fn describe(ordinal: usize) -> Result<(DeviceInfo, ffi::CUdevice)> {
    use DeviceAttribute as A;
    let device = Device::get_device(ordinal as u32).map_err(of_cust("cuDeviceGet"))?;
    let raw = device.as_raw();
    let number = |attribute: A| query(raw, attribute as i32);
    // Attributes that cust does not list.
    const SHARED_PER_BLOCK_OPTIN: i32 = 97;
    let shared_per_block = number(A::MaxSharedMemoryPerBlock) as usize;
    let info = DeviceInfo {
        ordinal,
        name: device.name().map_err(of_cust("cuDeviceGetName"))?,
        uuid: uuid(raw),
        compute_capability: (number(A::ComputeCapabilityMajor), number(A::ComputeCapabilityMinor)),
        memory: device.total_memory().map_err(of_cust("cuDeviceTotalMem_v2"))?,
        multiprocessors: number(A::MultiprocessorCount),
        clock_khz: number(A::ClockRate),
        memory_clock_khz: number(A::MemoryClockRate),
        memory_bus_bits: number(A::GlobalMemoryBusWidth),
        l2_cache: number(A::L2CacheSize) as usize,
        shared_per_block,
        shared_per_block_optin: shared_per_block.max(query(raw, SHARED_PER_BLOCK_OPTIN) as usize),
        shared_per_multiprocessor: number(A::MaxSharedMemoryPerMultiprocessor) as usize,
        registers_per_multiprocessor: number(A::MaxRegistersPerMultiprocessor),
        warp_size: number(A::WarpSize),
        max_threads_per_block: number(A::MaxThreadsPerBlock),
        max_threads_per_multiprocessor: number(A::MaxThreadsPerMultiprocessor),
        max_grid: [A::MaxGridDimX, A::MaxGridDimY, A::MaxGridDimZ].map(number),
        copy_engines: number(A::AsyncEngineCount),
        ecc: number(A::EccEnabled) != 0,
        integrated: number(A::Integrated) != 0,
    };
    Ok((info, raw))
}

/// The UUID of a device.
fn uuid(device: ffi::CUdevice) -> Option<String> {
    let mut id = [0; 16];
    // SAFETY: `id` is a place for the sixteen bytes that the function writes; the device comes from `cuDeviceGet`.
    if unsafe { ffi::cuDeviceGetUuid_v2(&mut id, device) } != 0 {
        return None;
    }
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let [a, b, c, d, e] = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Some(format!("GPU-{a}-{b}-{c}-{d}-{e}"))
}

/// An attribute, or zero if this driver does not know it.
fn query(device: ffi::CUdevice, attribute: i32) -> u32 {
    let mut value = 0;
    // SAFETY: `value` is a place for the one integer that the function writes; the device comes from `cuDeviceGet`.
    match unsafe { ffi::cuDeviceGetAttribute(&mut value, attribute, device) } {
        0 => value.max(0) as u32,
        _ => 0,
    }
}
