//! NVIDIA's management library, in the place of which is one that this test compiles: it has one GPU and the functions below.

#![cfg(target_os = "linux")]

use kiln_monitor::{GpuState, Machine, nvidia_from};
use std::path::{Path, PathBuf};
use std::process::Command;

const UUID: &str = "GPU-6b696c6e-2d65-6d75-6c61-7465642d3030";

/// The functions that are called, by the types of nvml.h.
const SOURCE: &str = include_str!("../stub/nvml.rs.in");

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
