//! A process for each test, and short names for what all of them do.

use std::ffi::{CString, c_void};
use std::process::Command;

use kiln_emulator::*;

/// Calls a function of the driver and checks that it succeeds, or gives the code after `=>`.
macro_rules! cu {
    ($name:ident($($arg:expr),* $(,)?)) => { cu!($name($($arg),*) => SUCCESS) };
    ($name:ident($($arg:expr),* $(,)?) => $code:ident) => {{
        // SAFETY: the tests give pointers to what lives for the call, of the sizes that the API asks for.
        let code = unsafe { kiln_emulator::$name($($arg),*) };
        let wanted = kiln_emulator::Code::$code;
        assert_eq!(code, wanted, "{}: {} rather than {}", stringify!($name), code.name(), wanted.name());
    }};
}

/// The environment variable that is set in the process of a test.
const CHILD: &str = "KILN_EMULATOR_TEST";

/// Runs a test in a process of its own with these options; returns its output on stderr.
pub(crate) fn process(test: &str, options: &[(&str, &str)], body: impl FnOnce()) -> String {
    process_outputs(test, options, body).1
}

/// As `process`; returns its output on stdout and on stderr.
pub(crate) fn process_outputs(test: &str, options: &[(&str, &str)], body: impl FnOnce()) -> (String, String) {
    if child() {
        // A test with several sets of options comes here for each; this process is for one of them.
        let ours =
            |(name, value): &(&str, &str)| std::env::var(format!("KILN_EMULATOR_{name}")).as_deref() == Ok(value);
        if options.iter().all(ours) {
            body();
        }
        return Default::default();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    for name in [
        "DEVICES", "CHECK", "EXECUTE", "STREAMS", "MEMORY", "SM", "WATCHDOG", "LOG", "TRACE", "COUNTERS",
    ] {
        command.env_remove(format!("KILN_EMULATOR_{name}"));
    }
    for (name, value) in options {
        command.env(format!("KILN_EMULATOR_{name}"), value);
    }
    let output = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{options:?}\n{out}\n{err}"
    );
    (out.into_owned(), err.into_owned())
}

/// True if this is the process that a test started for itself.
pub(crate) fn child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Starts the driver and makes a device's primary context current.
pub(crate) fn start(device: i32) -> CUcontext {
    cu!(cuInit(0));
    let mut context = CUcontext::default();
    cu!(cuDevicePrimaryCtxRetain((&mut context).into(), device));
    cu!(cuCtxSetCurrent(context));
    context
}

pub(crate) fn alloc(bytes: usize) -> u64 {
    let mut at = 0;
    cu!(cuMemAlloc_v2((&mut at).into(), bytes));
    at
}

/// Page-locked memory with these values.
pub(crate) fn pinned(values: &[u32]) -> &'static mut [u32] {
    let mut at = std::ptr::null_mut::<c_void>();
    cu!(cuMemAllocHost_v2((&mut at).into(), size_of_val(values)));
    // SAFETY: the memory was allocated just now with that size, and tests do not free it.
    let slice = unsafe { std::slice::from_raw_parts_mut(at.cast::<u32>(), values.len()) };
    slice.copy_from_slice(values);
    slice
}

pub(crate) fn stream(flags: u32) -> CUstream {
    let mut stream = CUstream::default();
    cu!(cuStreamCreate((&mut stream).into(), flags));
    stream
}

pub(crate) fn event() -> CUevent {
    let mut event = CUevent::default();
    cu!(cuEventCreate((&mut event).into(), 0));
    event
}

/// The contents of device memory, by a copy that nothing orders after non-blocking streams.
pub(crate) fn peek(at: u64, n: usize) -> Vec<u32> {
    let mut out = vec![0u32; n];
    cu!(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), at, n * 4));
    out
}

pub(crate) fn upload(at: u64, values: &[u32]) {
    cu!(cuMemcpyHtoD_v2(at, values.as_ptr().cast(), size_of_val(values)));
}

/// `cuMemsetD32Async` of one element.
pub(crate) fn set(at: u64, value: u32, stream: CUstream) {
    cu!(cuMemsetD32Async(at, value, 1, stream));
}

/// Copies one element of device memory in a stream.
pub(crate) fn copy(dst: u64, src: u64, stream: CUstream) {
    cu!(cuMemcpyDtoDAsync_v2(dst, src, 4, stream));
}

/// Kernels for the tests of launches.
pub(crate) const KERNELS: &str = include_str!("kernels.ptx");

/// Loads the tests' kernels and gives one of them.
pub(crate) fn kernel(name: &str) -> CUfunction {
    let text = CString::new(KERNELS).unwrap();
    let mut module = CUmodule::default();
    cu!(cuModuleLoadData((&mut module).into(), text.as_ptr().cast()));
    function(module, name)
}

pub(crate) fn function(module: CUmodule, name: &str) -> CUfunction {
    let (name, mut function) = (CString::new(name).unwrap(), CUfunction::default());
    cu!(cuModuleGetFunction((&mut function).into(), module, name.as_ptr()));
    function
}

/// The pointers to parameters that are 64-bit words or smaller.
pub(crate) fn pointers(params: &[u64]) -> Vec<*const c_void> {
    params.iter().map(|p| (p as *const u64).cast()).collect()
}

/// Launches `blocks` blocks of `threads` threads.
pub(crate) fn launch(f: CUfunction, blocks: u32, threads: u32, shared: u32, s: CUstream, params: &[u64]) -> Code {
    let params = pointers(params);
    let params = params[..].into();
    // SAFETY: there are as many parameters as the kernels of the tests have, each 8 bytes long or shorter.
    unsafe { cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, shared, s, params, In::NULL) }
}
