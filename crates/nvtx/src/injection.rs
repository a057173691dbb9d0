//! The protocol between a program and a profiler's library, by the headers of NVTX 3 (`nvtxTypes.h`, `nvtxInit.h` at
//! <https://github.com/NVIDIA/NVTX>): the program opens the library that the variable `NVTX_INJECTION64_PATH` names, and calls its
//! `InitializeInjectionNvtx2` with a function that returns tables. The library writes the addresses of its functions into them.

use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicPtr, Ordering};

const VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// The version of NVTX that this speaks.
const VERSION: u32 = 3;

/// `NVTX_ETID_CALLBACKS` and `NVTX_ETID_VERSIONINFO`.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;

/// `NVTX_CB_MODULE_CORE`, and `NVTX_CBID_CORE_RangePushA` and `NVTX_CBID_CORE_RangePop` in its table.
const CORE: c_uint = 1;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

/// The largest number of functions of a module, with the first one, which is none.
const MOST: usize = 16;

/// The numbers of functions of the modules CORE, CUDA, OPENCL, CUDART, CORE2 and SYNC, which are counted from 1, with the first one of
/// each, which is none.
const SIZES: [usize; 6] = [16, 9, 15, 7, 16, 7];

/// Places for the addresses of a module's functions.
type Slots = [AtomicPtr<c_void>; MOST];

static SLOTS: [Slots; 6] = [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST] }; 6];

/// A table of places as the library sees it: null, the places by number, null.
#[repr(transparent)]
struct Table([*const AtomicPtr<c_void>; MOST + 1]);

// SAFETY: the pointers are to statics, which are atomic; the table itself is never written.
unsafe impl Sync for Table {}

/// The tables of all modules; the places of functions that nobody calls are written and never read.
static TABLES: [Table; 6] = tables();

const fn tables() -> [Table; 6] {
    let mut all = [const { Table([null(); MOST + 1]) }; 6];
    let mut module = 0;
    while module < SIZES.len() {
        let mut function = 1;
        while function < SIZES[module] {
            all[module].0[function] = &raw const SLOTS[module][function];
            function += 1;
        }
        module += 1;
    }
    all
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    table: extern "C" fn(c_uint, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set: extern "C" fn(u32),
}

static OUR_CALLBACKS: Callbacks = Callbacks {
    size: size_of::<Callbacks>(),
    table: module_table,
};

static OUR_VERSION: VersionInfo = VersionInfo {
    size: size_of::<VersionInfo>(),
    version: VERSION,
    reserved: 0,
    set: tool_version,
};

extern "C" fn tool_version(_: u32) {}

/// `GetModuleFunctionTable`: the table of a module, and the number of its functions with the first one, which is none.
extern "C" fn module_table(module: c_uint, table: *mut *const *const AtomicPtr<c_void>, size: *mut c_uint) -> c_int {
    let Some(at) = (module as usize).checked_sub(1).filter(|at| *at < TABLES.len()) else {
        return 0;
    };
    // SAFETY: by the protocol each is null or a place that the library has for the answer.
    unsafe {
        if !size.is_null() {
            *size = SIZES[at] as c_uint;
        }
        if !table.is_null() {
            *table = TABLES[at].0.as_ptr();
        }
    }
    1
}

/// `NvtxGetExportTableFunc_t`.
extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        CALLBACKS => (&raw const OUR_CALLBACKS).cast(),
        VERSION_INFO => (&raw const OUR_VERSION).cast(),
        _ => null(),
    }
}

type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;

/// The functions of a profiler that listens.
pub(crate) struct Tool {
    push: Push,
    pop: Pop,
    /// Never closed: the profiler's threads run its code.
    _library: std::mem::ManuallyDrop<Library>,
}

impl Tool {
    /// Opens the library of the profiler, if the program runs below one. A library that does not take part is none.
    pub(crate) fn find() -> Option<Self> {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        // SAFETY: what a library does when it is opened is up to whoever names it in the environment of this process, as with
        // every program that has NVTX in it.
        let library = unsafe { Library::new(path) }.ok()?;
        // SAFETY: by the protocol the function of this name has this type.
        let begin = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2\0") }.ok()?;
        // SAFETY: it is called once, with a function that answers by the protocol.
        let listens = unsafe { begin(export_table) } != 0;
        let library = std::mem::ManuallyDrop::new(library);
        let function = |number: usize| SLOTS[CORE as usize - 1][number].load(Ordering::Acquire);
        let (push, pop) = (function(RANGE_PUSH_A), function(RANGE_POP));
        if !listens || push.is_null() || pop.is_null() {
            return None;
        }
        // SAFETY: the library has written the addresses of functions of these types there, and is never closed.
        let (push, pop) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Push>(push),
                std::mem::transmute::<*mut c_void, Pop>(pop),
            )
        };
        Some(Tool {
            push,
            pop,
            _library: library,
        })
    }

    /// Begins a range of this thread.
    pub(crate) fn push(&self, name: &CStr) {
        // SAFETY: the function is that of a library that stays open; it reads the name and does not keep it.
        unsafe { (self.push)(name.as_ptr()) };
    }

    /// Ends the innermost range of this thread.
    pub(crate) fn pop(&self) {
        // SAFETY: as above.
        unsafe { (self.pop)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_those_of_the_headers() {
        let ask = |module| {
            let (mut table, mut size) = (null(), 0);
            (module_table(module, &mut table, &mut size) != 0).then_some((table, size as usize))
        };
        for (module, size) in (1..).zip(SIZES) {
            let (table, found) = ask(module).unwrap();
            assert_eq!(found, size);
            // SAFETY: a table has a place more than functions, which is null.
            let places = unsafe { std::slice::from_raw_parts(table, size + 1) };
            assert!(places[0].is_null() && places[size].is_null());
            assert!(places[1..size].iter().all(|place| !place.is_null()));
        }
        assert!(ask(0).is_none() && ask(7).is_none() && ask(u32::MAX).is_none());
        assert_eq!(module_table(1, std::ptr::null_mut(), std::ptr::null_mut()), 1);
        assert!(!export_table(CALLBACKS).is_null() && !export_table(VERSION_INFO).is_null());
        assert!(export_table(0).is_null() && export_table(2).is_null());
        assert_eq!((OUR_CALLBACKS.size, OUR_VERSION.size), (16, 24));
    }
}
