//! The shared library as seen by a program that opens it by name.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;

/// The library that cargo built beside this test.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    folder.join("libkiln_emulator.so")
}

struct Library(*mut c_void);

impl Library {
    fn open() -> Self {
        let path = CString::new(library().into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: the path is a C string; the library's initialisation is Rust's own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?} cannot be opened");
        Self(handle)
    }

    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the library stays open for the life of the process.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

type Init = unsafe extern "C" fn(u32) -> i32;
type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut i32) -> i32;
type GetProcAddressOld = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64) -> i32;
type Absent = unsafe extern "C" fn(u64, u64, u64) -> i32;

#[test]
fn the_library_is_named_as_nvidias() {
    let bytes = std::fs::read(library()).unwrap();
    assert!(bytes.windows(13).any(|w| w == b"libcuda.so.1\0"));
}

#[test]
fn functions_are_found_by_name_and_version() {
    let library = Library::open();
    let symbol = |name: &CStr| {
        let found = library.find(name);
        assert!(!found.is_null(), "{name:?}");
        found
    };
    // SAFETY: each type is that of the function's C signature.
    let (init, get, old, absent) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Init>(symbol(c"cuInit")),
            std::mem::transmute::<*mut c_void, GetProcAddress>(symbol(c"cuGetProcAddress_v2")),
            std::mem::transmute::<*mut c_void, GetProcAddressOld>(symbol(c"cuGetProcAddress")),
            std::mem::transmute::<*mut c_void, Absent>(symbol(c"cuTexObjectCreate")),
        )
    };
    // SAFETY: no pointers are given.
    assert_eq!(unsafe { (init(0), absent(1, 2, 3)) }, (0, 801));
    let of = |name: &CStr, version: i32| {
        let (mut found, mut status) = (std::ptr::null_mut(), 9);
        // SAFETY: name and places live for the call.
        let code = unsafe { get(name.as_ptr(), &raw mut found, version, 0, &raw mut status) };
        assert_eq!(
            (code, status),
            if found.is_null() { (500, 1) } else { (0, 0) },
            "{name:?}"
        );
        found
    };
    for (name, version, wanted) in [
        (c"cuMemAlloc", 13000, c"cuMemAlloc_v2"),
        (c"cuStreamBeginCapture", 11040, c"cuStreamBeginCapture_v2"),
        (c"cuLaunchKernel", 13000, c"cuLaunchKernel"),
        (c"cuGraphInstantiate", 11040, c"cuGraphInstantiate_v2"),
        (c"cuGraphInstantiate", 13000, c"cuGraphInstantiateWithFlags"),
        (c"cuGraphExecUpdate", 11040, c"cuGraphExecUpdate"),
        (c"cuGraphExecUpdate", 12000, c"cuGraphExecUpdate_v2"),
        (c"cuCtxCreate", 11040, c"cuCtxCreate_v2"),
        (c"cuCtxCreate", 13000, c"cuCtxCreate_v4"),
        (c"cuGetProcAddress", 12000, c"cuGetProcAddress_v2"),
        (c"cuCtxSynchronize", 13000, c"cuCtxSynchronize"),
        (c"cuCtxGetDevice", 13000, c"cuCtxGetDevice"),
        (c"cuGraphNodeGetDependencies", 12000, c"cuGraphNodeGetDependencies"),
        (c"cuGraphNodeGetDependencies", 13000, c"cuGraphNodeGetDependencies_v2"),
    ] {
        assert_eq!(of(name, version), symbol(wanted), "{name:?} {version}");
    }
    assert!(of(c"cuNothing", 13000).is_null());
    let mut found = std::ptr::null_mut();
    // SAFETY: name and place live for the call.
    assert_eq!(unsafe { old(c"cuMemFree".as_ptr(), &raw mut found, 11040, 0) }, 0);
    assert_eq!(found, symbol(c"cuMemFree_v2"));
}
