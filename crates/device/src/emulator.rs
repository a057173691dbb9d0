//! The place of the emulated driver.
//!
//! `kiln-emulator` is a CUDA driver that runs kernels on the CPU. A crate with tests that want a device names it under
//! `[dev-dependencies]`; cargo then builds `libkiln_emulator.so` into the folder of the test binaries, and a test begins
//! with [`use_beside`]:
//!
//! ```no_run
//! # fn main() -> kiln_device::Result<()> {
//! kiln_device::emulator::use_beside()?;
//! let context = kiln_device::Context::new(0)?;
//! # Ok(())
//! # }
//! ```
//!
//! A test never names an item of the emulator's crate: its functions would then be linked in, under the names of the
//! trampolines.

use crate::error::{Error, Result};
use std::path::PathBuf;

/// The emulated driver's file name.
pub const FILE: &str = "libkiln_emulator.so";

/// The emulated driver that lies beside this program, in its folder's `deps`, or in the folder above (for the examples
/// and tests of cargo).
pub fn beside() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    let above = folder.parent().unwrap_or(folder);
    let places = [
        folder.to_path_buf(),
        folder.join("deps"),
        above.join("deps"),
        above.to_path_buf(),
    ];
    places.into_iter().map(|p| p.join(FILE)).find(|f| f.is_file())
}

/// Makes the emulated driver that lies beside this program the driver, unless `KILN_CUDA_DRIVER` names another: the same
/// tests then run on that one, a real driver too.
///
/// # Errors
/// [`Error::NoDriver`] if there is no such file, [`Error::DriverLoaded`] if another driver is loaded already.
pub fn use_beside() -> Result<()> {
    if std::env::var_os(kiln_link::DRIVER_VARIABLE).is_some_and(|v| !v.is_empty()) {
        return Ok(());
    }
    let file = beside().ok_or_else(|| Error::NoDriver {
        reason: format!("no {FILE} beside this program"),
    })?;
    crate::set_driver(file)
}
