//! The ranges of a run as a profiler of NVIDIA's sees them.
#![cfg(target_os = "linux")]

use crate::common::kiln;
use crate::profiler::{count, ranges};

#[test]
fn a_profiler_sees_epochs_steps_and_their_parts() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "train",
        "lenet",
        "--synthetic",
        "40",
        "--batch",
        "20",
        "--epochs",
        "1",
        "--out",
        "run",
    ];
    let seen = ranges(&mut kiln(dir.path(), &args), dir.path());
    for step in ["step 1", "step 2"] {
        for part in ["forward", "backward", "optimizer"] {
            let path = format!("epoch 1 > {step} > {part}");
            assert_eq!(count(&seen, &path), 1, "{path} in {seen:?}");
        }
    }
    assert_eq!(count(&seen, "epoch 1 > wait for a batch"), 2, "{seen:?}");
    assert_eq!(count(&seen, "validation"), 1, "{seen:?}");
}
