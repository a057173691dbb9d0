//! The driver in use.

use crate::error::{Error, Result, check};
use crate::ffi;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The driver in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// The file that it was loaded from.
    pub path: PathBuf,
    /// The newest CUDA version that it supports, major and minor.
    pub version: (u32, u32),
    /// Functions of [`kiln_link::symbols`] that this driver lacks.
    pub missing: Vec<&'static str>,
}

/// Names the file to load as the driver, before anything else of this crate is called. The environment variable
/// `KILN_CUDA_DRIVER` takes precedence if it is set.
///
/// # Errors
/// [`Error::DriverLoaded`] if another driver is loaded already; naming the same one again is no error.
pub fn set_driver(path: impl AsRef<Path>) -> Result<()> {
    kiln_link::set_driver(path).map_err(|e| Error::DriverLoaded { reason: e.to_string() })
}

/// Loads and initialises the driver, and describes it.
///
/// # Errors
/// [`Error::NoDriver`] with the files that were tried; the driver's own code if it does not start.
pub fn driver() -> Result<DriverInfo> {
    match initialize() {
        // A driver without a device is not an error.
        Ok(())
        | Err(Error::Driver {
            code: ffi::NO_DEVICE, ..
        }) => {}
        Err(e) => return Err(e),
    }
    let loaded = kiln_link::load().map_err(no_driver)?;
    let mut version = 0;
    // SAFETY: `version` is a place for the one integer that the function writes.
    unsafe { ffi::call!(cuDriverGetVersion(&mut version))? };
    Ok(DriverInfo {
        path: loaded.path.clone(),
        version: (version as u32 / 1000, version as u32 % 1000 / 10),
        missing: loaded.missing.clone(),
    })
}

/// Loads and initialises the driver once. A failure is not remembered: a driver may be named afterwards.
pub(crate) fn initialize() -> Result<()> {
    static DONE: OnceLock<()> = OnceLock::new();
    if DONE.get().is_some() {
        return Ok(());
    }
    let loaded = kiln_link::load().map_err(no_driver)?;
    // SAFETY: takes no pointer, and may be called any number of times from any thread.
    match unsafe { ffi::cuInit(0) } {
        ffi::STUB_LIBRARY => Err(Error::NoDriver {
            reason: format!("{} is the toolkit's stub", loaded.path.display()),
        }),
        code => check("cuInit", code).map(|()| *DONE.get_or_init(|| ())),
    }
}

fn no_driver(e: kiln_link::LoadError) -> Error {
    Error::NoDriver { reason: e.to_string() }
}
