//! A driver is found, called, and not replaced. One process, one test: a driver stays once it is loaded.

#![cfg(target_os = "linux")]

use kiln_link::{LoadError, Origin, load, loaded, set_driver};
use std::path::PathBuf;
use std::process::Command;

unsafe extern "C" {
    fn cuInit(flags: u32) -> i32;
    fn cuCtxSynchronize() -> i32;
    fn cuCtxGetDevice(device: *mut i32) -> i32;
    fn cuLaunchKernel(
        f: usize,
        gx: u32,
        gy: u32,
        gz: u32,
        bx: u32,
        by: u32,
        bz: u32,
        shared: u32,
        stream: usize,
    ) -> i32;
}

/// The driver of `fake/driver.rs`, compiled.
fn fake() -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/driver.rs");
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libfake_driver.so");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let flags = [
        "--edition=2024",
        "--crate-type=cdylib",
        "-Cpanic=abort",
        "-Copt-level=1",
    ];
    let done = Command::new(rustc)
        .args(flags)
        .arg("-o")
        .arg(&target)
        .arg(source)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    target
}

#[test]
fn a_driver_is_loaded_by_the_first_init() {
    // SAFETY: the only test of its process, and no other thread reads the environment.
    unsafe { std::env::remove_var(kiln_link::DRIVER_VARIABLE) };
    let fake = fake();

    set_driver("/no/such/driver.so").unwrap();
    // SAFETY: without a driver these functions touch nothing.
    unsafe {
        assert_eq!(cuCtxSynchronize(), 3, "before cuInit");
        assert_eq!(cuInit(0), kiln_link::NO_DEVICE);
        assert_eq!(cuCtxSynchronize(), 3, "after a cuInit without a driver");
    }
    assert!(loaded().is_none());
    let Err(LoadError::Open { path, origin, reason }) = load() else {
        panic!("a driver that does not exist was opened")
    };
    assert_eq!((path.to_str(), origin), (Some("/no/such/driver.so"), Origin::Program));
    assert!(reason.contains("No such file"), "{reason}");

    // After an error, loading may be tried again.
    set_driver(&fake).unwrap();
    let mut device = 5;
    // SAFETY: the driver above takes these arguments, and `device` is there to be written.
    unsafe {
        assert_eq!(cuInit(3), 1003);
        assert_eq!(cuInit(4), 1004);
        assert_eq!(cuCtxSynchronize(), 7);
        assert_eq!(cuLaunchKernel(1, 2, 3, 4, 5, 6, 7, 8, 9), 123_456_789);
        assert_eq!(cuCtxGetDevice(&mut device), 801, "a function that the driver lacks");
    }
    assert_eq!(device, 5);
    let driver = load().unwrap();
    assert_eq!((&driver.path, driver.origin), (&fake, Origin::Program));
    assert_eq!(driver.missing.len(), kiln_link::symbols().len() - 3);
    assert!(driver.missing.contains(&"cuCtxGetDevice"));

    set_driver(&fake).unwrap();
    let late = set_driver("libcuda.so.1").unwrap_err();
    assert!(matches!(late, LoadError::Loaded { .. }), "{late}");
    // SAFETY: as above.
    assert_eq!(unsafe { cuCtxSynchronize() }, 7);
}
