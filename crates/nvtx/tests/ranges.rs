//! Ranges as a profiler sees them: its library is one that this test compiles, and the program that it watches is this test in
//! another process, because a profiler is looked for once.
#![cfg(target_os = "linux")]

#[path = "stub/library.rs"]
mod library;

use kiln_core::{Scope, Shape};
use library::library;
use std::path::Path;
use std::process::Command;

/// The program that is watched.
#[test]
fn watched() {
    let watched = std::env::var_os("STUB_LOG").is_some();
    assert_eq!(
        (kiln_nvtx::is_on(), kiln_nvtx::observer().is_some()),
        (watched, watched)
    );
    let _epoch = kiln_nvtx::range("epoch 1");
    for step in 0..2 {
        let _step = kiln_nvtx::range_with(|| {
            assert!(watched, "a name is made for nobody");
            format!("step {step}")
        });
        drop(kiln_nvtx::range("forward\0 and more"));
    }
    if let Some(observer) = kiln_nvtx::observer() {
        let input = &Shape::scalar();
        let layer = |name, kind| Scope::Layer { name, kind, input };
        observer.enter(&layer("", "Net"));
        observer.enter(&layer("h.0", "Block"));
        observer.enter(&layer("fc1", "Linear"));
        let fc1 = observer.scope();
        observer.leave(None);
        observer.leave(None);
        observer.leave(None);
        assert_eq!(observer.scope(), 0);
        observer.enter(&Scope::Part { name: "loss" });
        observer.leave(None);
        observer.enter(&Scope::Gradient { op: "matmul", of: 0 });
        observer.leave(None);
        observer.enter(&Scope::Gradient { op: "linear", of: fc1 });
        assert_eq!(observer.scope(), fc1);
        observer.leave(None);
    }
}

#[test]
fn a_profiler_sees_every_range_begin_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub/injection.rs");
    let log = folder.path().join("log");
    let run = |library: &Path| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "watched", "--test-threads", "1"]);
        let out = command
            .env("NVTX_INJECTION64_PATH", library)
            .env("STUB_LOG", &log)
            .output();
        out.unwrap()
    };
    let out = run(&library(&source, folder.path()));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let seen = std::fs::read_to_string(&log).unwrap();
    let expected = "+ epoch 1\n\
        + step 0\n+ forward\n-\n-\n\
        + step 1\n+ forward\n-\n-\n\
        + Net\n+ h.0 (Block)\n+ fc1 (Linear)\n-\n-\n-\n\
        + loss\n-\n\
        + gradient of matmul\n-\n\
        + gradient of linear in h.0.fc1\n-\n-\n";
    assert_eq!(seen, expected);
    // A library that is not there, and one that is no profiler's, are none.
    std::fs::remove_file(&log).unwrap();
    for wrong in [folder.path().join("none.so"), log.clone()] {
        assert!(!run(&wrong).status.success(), "the program thinks that it is watched");
    }
    assert!(!log.exists());
}
