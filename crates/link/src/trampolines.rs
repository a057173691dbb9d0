//! The table that the trampolines jump through, and its entries before a driver is loaded.

use crate::loader::{Driver, Functions, LoadError, load_into};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `CUDA_ERROR_NO_DEVICE`, which `cuInit` returns without a driver.
pub const NO_DEVICE: i32 = 100;

/// One entry of the table: the address that a trampoline jumps to.
#[repr(transparent)]
pub(crate) struct Slot(AtomicPtr<c_void>);

impl Slot {
    const fn new(target: *mut c_void) -> Self {
        Self(AtomicPtr::new(target))
    }

    /// `target` is a function of this entry's C signature, or one that reads no argument and returns an `i32`.
    fn set(&self, target: *mut c_void) {
        self.0.store(target, Ordering::Release);
    }
}

type Init = extern "C" fn(u32) -> i32;
type Version = unsafe extern "C" fn(*mut i32) -> i32;
type Text = unsafe extern "C" fn(i32, *mut *const c_char) -> i32;
type Refuse = extern "C" fn() -> i32;

// NAMES, TABLE, and a trampoline for each name; made by build.rs from symbols.txt.
include!(concat!(env!("OUT_DIR"), "/symbols.rs"));

/// Loads the driver, unless one is loaded, without calling `cuInit`; `cuInit` itself begins by loading the driver. After an
/// error it may be tried again.
///
/// # Errors
/// The reason why there is no driver.
pub fn load() -> Result<&'static Driver, LoadError> {
    load_into(|driver| {
        let mut missing = Vec::new();
        for (name, slot) in NAMES.iter().zip(&TABLE) {
            slot.set(driver.find(name).unwrap_or_else(|| {
                missing.push(*name);
                absent()
            }));
        }
        missing
    })
}

/// The driver's function of this name; loads the driver first.
fn real(name: &str) -> Option<*mut c_void> {
    load().ok()?;
    Functions::loaded()?.find(name)
}

/// The table's entry for a function that the driver lacks.
fn absent() -> *mut c_void {
    not_supported as Refuse as *mut c_void
}

extern "C" fn not_initialized() -> i32 {
    3
}

extern "C" fn not_supported() -> i32 {
    801
}

/// `cuInit` until a driver is loaded.
extern "C" fn init(flags: u32) -> i32 {
    match real("cuInit") {
        // SAFETY: `real` found this address under the name of a function with this signature, in a library that
        // is never unloaded.
        Some(f) => unsafe { std::mem::transmute::<*mut c_void, Init>(f)(flags) },
        None => NO_DEVICE,
    }
}

/// `cuDriverGetVersion` until a driver is loaded: one of the few functions that may be called before `cuInit`.
unsafe extern "C" fn driver_version(version: *mut i32) -> i32 {
    match real("cuDriverGetVersion") {
        // SAFETY: as in `init`; `version` is the caller's, as the driver's own documentation asks.
        Some(f) => unsafe { std::mem::transmute::<*mut c_void, Version>(f)(version) },
        None => NO_DEVICE,
    }
}

/// `cuGetErrorName` and `cuGetErrorString` until a driver is loaded. Callers such as cust print the text without looking at
/// the result, so there is always a text.
unsafe extern "C" fn error_text(_code: i32, text: *mut *const c_char) -> i32 {
    if text.is_null() {
        return 1;
    }
    // SAFETY: the caller gives a pointer to write a pointer to, as the driver's own documentation asks.
    unsafe { text.write(c"no CUDA driver is loaded".as_ptr()) };
    0
}
