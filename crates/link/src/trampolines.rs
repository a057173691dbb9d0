//! The table that the trampolines jump through, and what its entries are before a driver is loaded.

use crate::NO_DEVICE;
use crate::loader;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// One entry of the table: the address that a trampoline jumps to.
#[repr(transparent)]
pub(crate) struct Slot(AtomicPtr<c_void>);

impl Slot {
    const fn new(target: *mut c_void) -> Self {
        Self(AtomicPtr::new(target))
    }

    /// `target` is a function of this entry's C signature, or one that reads no argument and returns an `i32`.
    pub(crate) fn set(&self, target: *mut c_void) {
        self.0.store(target, Ordering::Release);
    }
}

type Init = extern "C" fn(u32) -> i32;
type Version = unsafe extern "C" fn(*mut i32) -> i32;
type Text = unsafe extern "C" fn(i32, *mut *const c_char) -> i32;
type Refuse = extern "C" fn() -> i32;

// NAMES, TABLE, and a trampoline for each name; made by build.rs from symbols.txt.
include!(concat!(env!("OUT_DIR"), "/symbols.rs"));

/// What stands in the table for a function that the driver lacks.
pub(crate) fn absent() -> *mut c_void {
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
    match loader::real("cuInit") {
        // SAFETY: `loader::real` found this address under the name of a function with this signature, in a library that
        // is never unloaded.
        Some(f) => unsafe { std::mem::transmute::<*mut c_void, Init>(f)(flags) },
        None => NO_DEVICE,
    }
}

/// `cuDriverGetVersion` until a driver is loaded: one of the few functions that may be called before `cuInit`.
unsafe extern "C" fn driver_version(version: *mut i32) -> i32 {
    match loader::real("cuDriverGetVersion") {
        // SAFETY: as in `init`; `version` is the caller's, as the driver's own documentation asks.
        Some(f) => unsafe { std::mem::transmute::<*mut c_void, Version>(f)(version) },
        None => NO_DEVICE,
    }
}

/// `cuGetErrorName` and `cuGetErrorString` until a driver is loaded. Callers such as cust's print the text without
/// looking at the result, so there always is one.
unsafe extern "C" fn error_text(_code: i32, text: *mut *const c_char) -> i32 {
    if text.is_null() {
        return 1;
    }
    // SAFETY: the caller gives a pointer to write a pointer to, as the driver's own documentation asks.
    unsafe { text.write(c"no CUDA driver is loaded".as_ptr()) };
    0
}
