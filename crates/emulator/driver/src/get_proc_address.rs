//! Finding the driver's functions by name at run time.

use std::ffi::{CString, c_char, c_void};

use crate::error::{Code, Outcome};
use crate::state;
use crate::types::{CUuuid, In, Out, name};

/// Names that stand for a newer version of themselves: every version suffix that exists.
const VERSIONS: [&str; 4] = ["_v4", "_v3", "_v2", ""];

/// Calls whose newest version does not fit older callers of the plain name, with the version that the plain name meant
/// for them.
const KEPT: &[(&str, i32, &str)] = &[
    // The name, the first version of CUDA where it means the newest call, and the suffix of the call that it meant before.
    ("cuCtxCreate", 13000, "_v2"),
    ("cuEventElapsedTime", 12080, ""),
    ("cuGetProcAddress", 12000, ""),
    ("cuGraphAddKernelNode", 12000, ""),
    ("cuGraphAddDependencies", 13000, ""),
    ("cuGraphExecKernelNodeSetParams", 12000, ""),
    ("cuGraphExecUpdate", 12000, ""),
    ("cuGraphGetEdges", 13000, ""),
    ("cuGraphKernelNodeGetParams", 12000, ""),
    ("cuGraphKernelNodeSetParams", 12000, ""),
    ("cuGraphNodeGetDependencies", 13000, ""),
    ("cuGraphNodeGetDependentNodes", 13000, ""),
    ("cuGraphRemoveDependencies", 13000, ""),
    ("cuStreamGetCaptureInfo", 13000, "_v2"),
];

/// Names whose plain form is the newest, although one with a suffix exists.
const PLAIN: &[&str] = &["cuCtxGetDevice", "cuCtxSynchronize", "cuStreamGetCaptureInfo_v2"];

/// The address of an exported function of this library.
fn symbol(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: `Dl_info` is plain data; `dladdr` fills it for an address of this library, whose file name lives as long
    // as the library; the name is a C string.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(symbol as *const c_void, &raw mut info) == 0 {
            return None;
        }
        let library = libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let found = libc::dlsym(library, name.as_ptr());
        libc::dlclose(library);
        (!found.is_null()).then_some(found)
    }
}

fn find(name: &str, version: i32) -> Option<*mut c_void> {
    if name == "cuGraphInstantiate" {
        let newest = if version >= 12000 {
            "cuGraphInstantiateWithFlags"
        } else {
            "cuGraphInstantiate_v2"
        };
        return symbol(newest);
    }
    if let Some((_, _, suffix)) = KEPT.iter().find(|(n, since, _)| *n == name && version < *since) {
        return symbol(&format!("{name}{suffix}"));
    }
    if PLAIN.contains(&name) {
        return symbol(name);
    }
    VERSIONS.iter().find_map(|suffix| symbol(&format!("{name}{suffix}")))
}

/// Found, not found: `CUdriverProcAddressQueryResult`.
const FOUND: i32 = 0;
const NOT_FOUND: i32 = 1;

fn get(wanted: *const c_char, out: Out<*mut c_void>, version: i32) -> Outcome {
    let found = find(&name(wanted)?, version);
    out.put(found.unwrap_or(std::ptr::null_mut()))?;
    found.map(|_| ()).ok_or(Code::NOT_FOUND)
}

export! {
    fn cuGetExportTable(table: Out<*const c_void>, id: In<CUuuid>) {
        table.put(std::ptr::null())?;
        let id: String = id.get()?.bytes.iter().map(|b| format!("{b:02x}")).collect();
        state::say(format_args!(
            "cuGetExportTable: the table {id} is not there. These tables are a private agreement of NVIDIA's driver with its \
             own libraries, so programs of the CUDA runtime (libcudart, <<<>>> in C++) do not run; programs that use the \
             driver API (cu...) do"
        ));
        Err(Code::NOT_SUPPORTED)
    }

    fn cuGetProcAddress(symbol: *const c_char, function: Out<*mut c_void>, version: i32, _flags: u64) {
        get(symbol, function, version)
    }

    fn cuGetProcAddress_v2(
        symbol: *const c_char,
        function: Out<*mut c_void>,
        version: i32,
        _flags: u64,
        status: Out<i32>,
    ) {
        let outcome = get(symbol, function, version);
        status.put_if(if outcome.is_ok() { FOUND } else { NOT_FOUND });
        outcome
    }
}
