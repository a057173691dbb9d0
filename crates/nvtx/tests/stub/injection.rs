//! A profiler's library that writes a line for each begin and end of a range into the file that `STUB_LOG` names. Tests compile it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Write;

type Slot = *mut *mut c_void;

#[repr(C)]
struct Callbacks {
    size: usize,
    table: extern "C" fn(c_uint, *mut *const Slot, *mut c_uint) -> c_int,
}

fn log(line: &str) {
    let path = std::env::var_os("STUB_LOG").unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

extern "C" fn push(name: *const c_char) -> c_int {
    // SAFETY: the program passes a text that ends with NUL.
    let name = unsafe { CStr::from_ptr(name) };
    log(&format!("+ {}", name.to_str().unwrap()));
    0
}

extern "C" fn pop() -> c_int {
    log("-");
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx2(export: extern "C" fn(u32) -> *const Callbacks) -> c_int {
    // SAFETY: the program's table of callbacks is static.
    let callbacks = unsafe { &*export(1) };
    if callbacks.size != size_of::<Callbacks>() {
        return 0;
    }
    // As profilers do, places of every module are filled.
    for module in 1..=6 {
        let (mut table, mut size) = (std::ptr::null(), 0);
        if (callbacks.table)(module, &mut table, &mut size) == 0 {
            return 0;
        }
        for number in 1..size as usize {
            let function = match (module, number) {
                (1, 9) => push as *mut c_void,
                (1, 11) => pop as *mut c_void,
                _ => std::ptr::null_mut(),
            };
            // SAFETY: the table has places for that many functions.
            unsafe { **table.add(number) = function };
        }
    }
    1
}
