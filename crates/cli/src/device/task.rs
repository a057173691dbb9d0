//! Work for any device, and entries of the list of devices.

use crate::error::Result;
use kiln_core::Backend;
use kiln_profile::Profiled;
use serde_json::{Map, Value};

/// The freedom that a device has in its arithmetic.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arithmetic {
    /// True for convolutions as plain sums of products, without Winograd's algorithm.
    pub(crate) exact: bool,
    /// True to let products and convolutions of f32 round their operands to TF32.
    pub(crate) tf32: bool,
}

/// Work that runs on any backend, inside of the one that profiles it: outside of a profiled step that passes every op on, and networks
/// are compiled once for a device and not a second time for `kiln profile`.
pub(crate) trait Task {
    /// The result.
    type Output;
    /// Called before [`Task::run`] with the device and the reason for it, if this program chose the device.
    fn chosen(&mut self, why: String) {
        let _ = why;
    }
    /// Runs the work on a backend.
    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<Self::Output>;
}

/// A device as `kiln devices` lists it.
pub(crate) struct DeviceEntry {
    /// The name that `--device` takes.
    pub(crate) name: String,
    /// True if this build can use it here.
    pub(crate) usable: bool,
    /// One line: the device, or the reason why it is not usable.
    pub(crate) description: String,
    /// The device's properties for JSON output.
    pub(crate) details: Map<String, Value>,
}
