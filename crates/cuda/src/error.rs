//! Errors of the device layer as errors of the backend.

use kiln_core::Error;
use kiln_device::Error as DeviceError;

/// `error` of the device called `device` (`cuda:0`).
pub(crate) fn from_device(device: &str, error: DeviceError) -> Error {
    let device = device.to_string();
    match error {
        DeviceError::OutOfMemory { requested, free, .. } => Error::OutOfMemory {
            device,
            requested,
            free: Some(free),
        },
        DeviceError::Driver {
            call,
            code,
            name,
            meaning,
        } => Error::Device {
            device,
            call,
            code,
            meaning: format!("{name}: {meaning}"),
        },
        other => Error::DeviceUnavailable {
            device,
            reason: other.to_string(),
        },
    }
}
