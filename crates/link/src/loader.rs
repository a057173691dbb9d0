//! The choice of a driver, and its opening.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The environment variable that names a driver.
pub const DRIVER_VARIABLE: &str = "KILN_CUDA_DRIVER";

/// The source of the driver's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The environment variable `KILN_CUDA_DRIVER`.
    Variable,
    /// [`set_driver`].
    Program,
    /// No one named a file: `libcuda.so.1`, as the system finds it.
    System,
}

/// A driver that is loaded.
#[derive(Clone, Debug)]
pub struct Driver {
    /// The file, as the loader found it.
    pub path: PathBuf,
    /// The source of its path.
    pub origin: Origin,
    /// The functions that it lacks: they answer `CUDA_ERROR_NOT_SUPPORTED`.
    pub missing: Vec<&'static str>,
}

/// The reason why no driver is loaded, or not the one asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file could not be opened.
    #[error("cannot open {}{}: {reason}", path.display(), by(origin))]
    Open {
        /// The file that was to be opened.
        path: PathBuf,
        /// The source of its path.
        origin: Origin,
        /// The dynamic linker's message.
        reason: String,
    },
    /// The file has no `cuInit`.
    #[error("{}{} is no CUDA driver: it has no `cuInit`", path.display(), by(origin))]
    NoDriver {
        /// The file that was opened.
        path: PathBuf,
        /// The source of its path.
        origin: Origin,
    },
    /// Another driver is in use, and stays.
    #[error("cannot take {} as the driver: {} is loaded already", asked.display(), loaded.display())]
    Loaded {
        /// The driver that was asked for.
        asked: PathBuf,
        /// The one in use.
        loaded: PathBuf,
    },
    /// There is no dynamic loading of drivers here.
    #[error("CUDA drivers are loaded on Linux alone")]
    Unsupported,
}

fn by(origin: &Origin) -> &'static str {
    match origin {
        Origin::Variable => " (from the environment variable KILN_CUDA_DRIVER)",
        Origin::Program => " (set by the program)",
        Origin::System => "",
    }
}

/// Paths of the driver on systems that keep it outside of the loader's search path: containers, WSL, NixOS.
const ELSEWHERE: [&str; 3] = [
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
];

/// The path of `set_driver`; held while a driver is being loaded, so that it happens once.
static CHOSEN: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The driver in use and its handle's address.
static LOADED: OnceLock<(Driver, usize)> = OnceLock::new();

fn chosen() -> MutexGuard<'static, Option<PathBuf>> {
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the file to load as the driver. It has effect before the first call of a driver function, and only if
/// `KILN_CUDA_DRIVER` is not set: the environment variable takes precedence.
///
/// # Errors
/// [`LoadError::Loaded`] if another file is the driver already, unless the environment variable named it.
pub fn set_driver(path: impl AsRef<Path>) -> Result<(), LoadError> {
    let path = path.as_ref();
    let mut chosen = chosen();
    if let Some((driver, _)) = LOADED.get() {
        let same = chosen.as_deref() == Some(path) || driver.path == path;
        if !same && driver.origin != Origin::Variable {
            return Err(LoadError::Loaded {
                asked: path.to_path_buf(),
                loaded: driver.path.clone(),
            });
        }
        return Ok(());
    }
    *chosen = Some(path.to_path_buf());
    Ok(())
}

/// The driver in use, if one has been loaded.
pub fn loaded() -> Option<&'static Driver> {
    LOADED.get().map(|(driver, _)| driver)
}

/// Loads the driver, unless one is loaded; `fill` writes its functions into the table, and returns those that it lacks.
pub(crate) fn load_into(fill: impl FnOnce(&Functions) -> Vec<&'static str>) -> Result<&'static Driver, LoadError> {
    if let Some((driver, _)) = LOADED.get() {
        return Ok(driver);
    }
    let chosen = chosen();
    if let Some((driver, _)) = LOADED.get() {
        return Ok(driver);
    }
    let (path, origin) = match (std::env::var_os(DRIVER_VARIABLE), &*chosen) {
        (Some(path), _) if !path.is_empty() => (PathBuf::from(path), Origin::Variable),
        (_, Some(path)) => (path.clone(), Origin::Program),
        (_, None) => (PathBuf::from("libcuda.so.1"), Origin::System),
    };
    let handle = open(&path, origin).or_else(|error| {
        let elsewhere = ELSEWHERE
            .iter()
            .map(Path::new)
            .find(|f| origin == Origin::System && f.is_file());
        elsewhere.map_or(Err(error), |file| open(file, origin))
    })?;
    let Some(init) = find(handle, "cuInit") else {
        return Err(LoadError::NoDriver { path, origin });
    };
    let missing = fill(&Functions(handle));
    let path = file_of(init).unwrap_or(path);
    let (driver, _) = LOADED.get_or_init(|| (Driver { path, origin, missing }, handle as usize));
    Ok(driver)
}

/// The functions of a driver that has been opened, and is never closed.
pub(crate) struct Functions(*mut c_void);

impl Functions {
    /// The functions of the driver in use.
    pub(crate) fn loaded() -> Option<Self> {
        LOADED.get().map(|(_, handle)| Functions(*handle as *mut c_void))
    }

    /// The address of the function of this name.
    pub(crate) fn find(&self, name: &str) -> Option<*mut c_void> {
        find(self.0, name)
    }
}

#[cfg(target_os = "linux")]
fn open(path: &Path, origin: Origin) -> Result<*mut c_void, LoadError> {
    use std::ffi::{CStr, CString};
    use std::os::unix::ffi::OsStrExt;
    let refuse = |reason: String| LoadError::Open {
        path: path.to_path_buf(),
        origin,
        reason,
    };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| refuse(e.to_string()))?;
    // SAFETY: the name ends with NUL and outlives the call. The library's initialisers run: that it is a driver is
    // promised by whoever named it. `dlerror` is per thread, and its text is copied before another call.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if handle.is_null() {
            let text = libc::dlerror();
            let text = match text.is_null() {
                true => "no reason given".into(),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            };
            return Err(refuse(text));
        }
        Ok(handle)
    }
}

#[cfg(target_os = "linux")]
fn find(handle: *mut c_void, name: &str) -> Option<*mut c_void> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the handle comes from `open` and is never closed; the name ends with NUL and outlives the call.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The file that the function at `address` came from.
#[cfg(target_os = "linux")]
fn file_of(address: *mut c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: Dl_info is plain data, for which zeros are a value; its name is NUL-terminated and lives as long as the
    // library, which is never unloaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = std::ffi::CStr::from_ptr(info.dli_fname).to_bytes();
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
    }
}

#[cfg(not(target_os = "linux"))]
fn open(_: &Path, _: Origin) -> Result<*mut c_void, LoadError> {
    Err(LoadError::Unsupported)
}

#[cfg(not(target_os = "linux"))]
fn find(_: *mut c_void, _: &str) -> Option<*mut c_void> {
    None
}

#[cfg(not(target_os = "linux"))]
fn file_of(_: *mut c_void) -> Option<PathBuf> {
    None
}
