//! Devices and their attributes: the numbers of an A100 with 80 GB, apart from its memory and capability.

use std::ffi::c_char;

use crate::config::Config;
use crate::error::{Code, Outcome};
use crate::state::{driver, initialise};
use crate::types::{CUdevice, CUuuid, Out, name, put_text};

/// The version of the driver API that is implemented, as `cuDriverGetVersion` numbers it.
pub(crate) const VERSION: i32 = 13000;

pub(crate) const WARP: i32 = 32;
pub(crate) const MAX_THREADS: u32 = 1024;
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
pub(crate) const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
pub(crate) const THREADS_PER_MULTIPROCESSOR: u32 = 2048;
pub(crate) const BLOCKS_PER_MULTIPROCESSOR: u32 = 32;
pub(crate) const REGISTERS: u32 = 65536;
/// Shared memory that a block may have without opting in, in bytes.
pub(crate) const SHARED: u32 = 48 << 10;
/// Shared memory that the system reserves for each block, in bytes.
pub(crate) const SHARED_RESERVED: u32 = 1 << 10;

/// Shared memory of a multiprocessor in bytes, by compute capability (CUDA C++ Programming Guide, table of technical
/// specifications).
pub(crate) fn shared_per_multiprocessor(sm: u32) -> u32 {
    match sm {
        75 => 64 << 10,
        ..=72 => 96 << 10,
        80 | 87 => 164 << 10,
        86 | 89 | 120.. => 100 << 10,
        _ => 228 << 10,
    }
}

/// Shared memory that a block may have after opting in, in bytes.
pub(crate) fn shared_optin(sm: u32) -> u32 {
    match sm {
        75 => 64 << 10,
        ..=69 => 48 << 10,
        70..=72 => 96 << 10,
        _ => shared_per_multiprocessor(sm) - SHARED_RESERVED,
    }
}

/// A device attribute by the number that the API gives it.
fn attribute(attribute: i32, device: u32, config: &Config) -> Outcome<i32> {
    let sm = config.sm;
    Ok(match attribute {
        1 => MAX_THREADS as i32,
        n @ 2..=4 => MAX_BLOCK[n as usize - 2] as i32,
        n @ 5..=7 => MAX_GRID[n as usize - 5] as i32,
        8 => SHARED as i32,
        9 => 65536,
        10 => WARP,
        11 => i32::MAX,
        12 | 82 => REGISTERS as i32,
        13 => 1_410_000,
        14 => 512,
        15 | 19 | 31 | 41 | 76..=80 => match attribute {
            76 => (sm % 10) as i32,
            77 => 32768,
            _ => 1,
        },
        16 => config.multiprocessors as i32,
        17 | 18 | 20 | 34 | 35 | 84 | 85 => 0,
        21 | 42 | 69 => 131_072,
        22 | 55 | 56 => 131_072,
        23 | 57 => 65536,
        24..=26 | 47..=49 | 52 | 58..=60 => 16384,
        27 | 28 | 45 | 46 | 61 | 63 | 64 | 66 | 67 | 73 | 74 => 32768,
        29 | 43 | 62 | 65 => 2048,
        30 => 512,
        32 => 1,
        33 => device as i32 + 1,
        36 => 1_593_000,
        37 => 5120,
        38 => 40 << 20,
        39 => THREADS_PER_MULTIPROCESSOR as i32,
        40 => 3,
        44 => 1,
        50 => 0,
        51 => 32,
        53 | 54 | 68 => 2046,
        70..=72 => 131_072,
        75 => (sm / 10) as i32,
        81 => shared_per_multiprocessor(sm) as i32,
        83 => 1,
        86 | 88 | 89 | 92..=94 | 96 | 98 | 100 | 101 => 0,
        87 => 2,
        90 | 91 | 95 => 1,
        97 => shared_optin(sm) as i32,
        99 => 1,
        102..=105 | 107 | 110 | 112 | 116..=119 | 121..=126 | 128 | 130 | 132 | 133 => 0,
        106 => BLOCKS_PER_MULTIPROCESSOR as i32,
        108 => 30 << 20,
        109 => 128 << 20,
        111 => SHARED_RESERVED as i32,
        113 | 114 => 0,
        115 => 1,
        120 | 127 => 0,
        129 => 0,
        131 | 134 => -1,
        135..=147 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

fn uuid(device: u32) -> CUuuid {
    let mut bytes = *b"kiln-emulated-00";
    bytes[14] += (device / 10) as u8;
    bytes[15] += (device % 10) as u8;
    CUuuid { bytes }
}

fn bus_id(device: u32) -> String {
    format!("0000:{:02X}:00.0", device + 1)
}

export! {
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        initialise()
    }

    fn cuDriverGetVersion(version: Out<i32>) {
        version.put(VERSION)
    }

    fn cuDeviceGetCount(count: Out<i32>) {
        count.put(driver()?.config.devices as i32)
    }

    fn cuDeviceGet(device: Out<CUdevice>, ordinal: i32) {
        driver()?.device(ordinal)?;
        device.put(ordinal)
    }

    fn cuDeviceGetName(text: *mut c_char, len: i32, device: CUdevice) {
        let driver = driver()?;
        driver.device(device)?;
        let sm = driver.config.sm;
        let len = usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?;
        put_text(&format!("Kiln emulated GPU (compute capability {}.{})", sm / 10, sm % 10), text, len)
    }

    fn cuDeviceGetUuid(id: Out<CUuuid>, device: CUdevice) {
        id.put(uuid(driver()?.device(device)?))
    }

    fn cuDeviceGetUuid_v2(id: Out<CUuuid>, device: CUdevice) {
        id.put(uuid(driver()?.device(device)?))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice) {
        let driver = driver()?;
        driver.device(device)?;
        bytes.put(driver.config.memory as usize)
    }

    fn cuDeviceGetAttribute(value: Out<i32>, number: i32, device: CUdevice) {
        let driver = driver()?;
        let device = driver.device(device)?;
        value.put(attribute(number, device, &driver.config)?)
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: CUdevice) {
        let driver = driver()?;
        driver.device(device)?;
        major.put((driver.config.sm / 10) as i32)?;
        minor.put((driver.config.sm % 10) as i32)
    }

    fn cuDeviceGetProperties(properties: Out<[i32; 14]>, device: CUdevice) {
        let driver = driver()?;
        let device = driver.device(device)?;
        let mut values = [0; 14];
        for (value, number) in values.iter_mut().zip([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]) {
            *value = attribute(number, device, &driver.config)?;
        }
        properties.put(values)
    }

    fn cuDeviceGetPCIBusId(text: *mut c_char, len: i32, device: CUdevice) {
        let device = driver()?.device(device)?;
        put_text(&bus_id(device), text, usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?)
    }

    fn cuDeviceGetByPCIBusId(device: Out<CUdevice>, text: *const c_char) {
        let driver = driver()?;
        let wanted = name(text)?.to_uppercase();
        let found = (0..driver.config.devices).find(|d| bus_id(*d) == wanted).ok_or(Code::INVALID_DEVICE)?;
        device.put(found as CUdevice)
    }

    fn cuDeviceGetExecAffinitySupport(supported: Out<i32>, _kind: i32, device: CUdevice) {
        driver()?.device(device)?;
        supported.put(0)
    }

    fn cuProfilerStart() {
        driver()?.lock().current().map(|_| ())
    }

    fn cuProfilerStop() {
        driver()?.lock().current().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_of_the_api_has_a_value() {
        let config = Config::default();
        for number in 1..=147 {
            assert!(attribute(number, 0, &config).is_ok(), "{number}");
        }
        assert_eq!(attribute(0, 0, &config), Err(Code::INVALID_VALUE));
        assert_eq!(attribute(1000, 0, &config), Err(Code::INVALID_VALUE));
    }

    #[test]
    fn the_numbers_are_those_of_the_architecture() {
        let of = |number, sm| {
            let config = Config {
                sm,
                multiprocessors: 132,
                ..Config::default()
            };
            attribute(number, 2, &config).unwrap()
        };
        assert_eq!(of(16, 90), 132);
        assert_eq!((of(75, 80), of(76, 80), of(75, 121), of(76, 121)), (8, 0, 12, 1));
        assert_eq!((of(97, 80), of(97, 86), of(97, 90)), (163 << 10, 99 << 10, 227 << 10));
        assert_eq!(of(33, 80), 3);
    }
}
