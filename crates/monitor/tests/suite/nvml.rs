//! NVIDIA's management library, in the place of which is one that this test compiles: it has one GPU and the functions below.

#![cfg(target_os = "linux")]

use kiln_monitor::{GpuState, Machine, nvidia_from};
use std::path::{Path, PathBuf};
use std::process::Command;

const UUID: &str = "GPU-6b696c6e-2d65-6d75-6c61-7465642d3030";

/// The functions that are called, by the types of nvml.h.
const SOURCE: &str = r#"
use std::ffi::{CStr, c_char};
type Device = *mut u8;
static mut GPU: u8 = 0;
static mut MILLIJOULES: u64 = 1_000_000;
fn text(out: *mut c_char, room: u32, text: &CStr) -> u32 {
    let bytes = text.to_bytes_with_nul();
    if bytes.len() > room as usize { return 7 }
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    0
}
#[unsafe(no_mangle)] extern "C" fn nvmlInit_v2() -> u32 { 0 }
#[unsafe(no_mangle)] extern "C" fn nvmlShutdown() -> u32 { 0 }
#[unsafe(no_mangle)] unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Device) -> u32 {
    let known = unsafe { CStr::from_ptr(uuid) } == c"GPU-6b696c6e-2d65-6d75-6c61-7465642d3030";
    if !known { return 6 }
    unsafe { *out = &raw mut GPU };
    0
}
#[unsafe(no_mangle)] unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, out: *mut Device) -> u32 {
    if index != 3 { return 2 }
    unsafe { *out = &raw mut GPU };
    0
}
#[unsafe(no_mangle)] unsafe extern "C" fn nvmlDeviceGetIndex(_: Device, out: *mut u32) -> u32 { unsafe { *out = 3 }; 0 }
#[unsafe(no_mangle)] extern "C" fn nvmlDeviceGetName(_: Device, out: *mut c_char, room: u32) -> u32 {
    text(out, room, c"Stub 9000")
}
#[unsafe(no_mangle)] unsafe extern "C" fn nvmlDeviceGetUtilizationRates(_: Device, out: *mut [u32; 2]) -> u32 {
    unsafe { *out = [87, 12] };
    0
}
#[repr(C)] struct Memory { version: u32, total: u64, reserved: u64, free: u64, used: u64 }
#[unsafe(no_mangle)] unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(_: Device, out: *mut Memory) -> u32 {
    unsafe { (*out).total = 1000; (*out).reserved = 10; (*out).free = 740; (*out).used = 250 };
    0
}
#[unsafe(no_mangle)] unsafe extern "C" fn nvmlDeviceGetPowerUsage(_: Device, out: *mut u32) -> u32 {
    unsafe { *out = 312_500 };
    0
}
#[unsafe(no_mangle)] unsafe extern "C" fn nvmlDeviceGetTotalEnergyConsumption(_: Device, out: *mut u64) -> u32 {
    unsafe { MILLIJOULES += 2_500; *out = MILLIJOULES };
    0
}
#[unsafe(no_mangle)] unsafe extern "C" fn nvmlDeviceGetTemperature(_: Device, sensor: u32, out: *mut u32) -> u32 {
    if sensor != 0 { return 2 }
    unsafe { *out = 71 };
    0
}
"#;

fn library(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("nvml.rs"), folder.join("libnvml.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "--crate-type=cdylib", "-Anon_snake_case", "-o"]);
    let out = command.arg(&library).arg(&source).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    library
}

#[test]
fn a_gpu_is_read_through_the_library_and_without_one_there_is_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let Err(why) = nvidia_from(folder.path().join("none.so"), UUID) else {
        panic!("a library that is not there");
    };
    assert!(
        why.starts_with("NVIDIA's management library: ") && why.contains("none.so"),
        "{why}"
    );
    let machine = Machine::at(folder.path()).with_gpu(Err(why.clone()));
    assert_eq!(machine.absent().last().map(|a| (a.what, &a.why)), Some(("GPU", &why)));

    let library = library(folder.path());
    assert!(nvidia_from(&library, "GPU-0").is_err());
    let Ok(mut gpu) = nvidia_from(&library, UUID) else {
        panic!("the library has this GPU");
    };
    assert_eq!(gpu.name(), "Stub 9000");
    let expected = |joules| GpuState {
        utilisation: Some(0.87),
        memory_used: Some(250),
        memory_total: Some(1000),
        watts: Some(312.5),
        joules: Some(joules),
        celsius: Some(71.0),
        // The library has no function for clocks, as old drivers lack others.
        clock_mhz: None,
    };
    assert_eq!(gpu.state(), expected(1002.5));
    assert_eq!(gpu.state(), expected(1005.0));
}
