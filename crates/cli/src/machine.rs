//! The readings of the machine while a command works.

use crate::device::gpu_uuid;
use kiln_monitor::{Machine, Watch, nvidia};
use std::time::Duration;

/// The time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The machine, with the GPU if the device of this name is one.
pub(crate) fn machine(device: &str) -> Machine {
    match gpu_uuid(device) {
        Some(uuid) => Machine::this().with_gpu(nvidia(&uuid)),
        None => Machine::this(),
    }
}

/// Starts to read the machine; `None` if there can be no thread for it, which the run can do without.
pub(crate) fn watch(device: &str) -> Option<Watch> {
    Watch::start(machine(device), INTERVAL).ok()
}

/// True if the device of this name is a GPU.
pub(crate) fn is_gpu(device: &str) -> bool {
    device.starts_with("cuda")
}
