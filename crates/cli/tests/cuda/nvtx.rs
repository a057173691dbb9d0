//! The ranges of a run on a GPU as a profiler of NVIDIA's sees them.

use crate::profiler::{count, ranges};
use crate::with_gpu;

#[test]
fn a_profiler_sees_layers_and_gradients_and_one_range_of_a_replayed_step() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "train",
        "lenet",
        "--synthetic",
        "6",
        "--batch",
        "2",
        "--epochs",
        "1",
        "--device",
        "cuda",
        "--out",
        "run",
    ];
    let seen = ranges(&mut with_gpu(dir.path(), &args), dir.path());
    // The first step runs op by op, the second is recorded.
    for step in ["step 1", "step 2"] {
        for part in [
            "forward > conv1+pool (Conv2d+MaxPool2d)",
            "forward > fc3 (Linear)",
            "backward > gradient of linear in fc3",
            "backward > gradient of conv_max_pool in conv1+pool",
            "optimizer",
        ] {
            let path = format!("epoch 1 > {step} > {part}");
            assert_eq!(count(&seen, &path), 1, "{path} in {seen:#?}");
        }
    }
    let inside = |of: &str| {
        let inside = seen
            .iter()
            .filter_map(|range| range.strip_prefix(of)?.strip_prefix(" > "));
        inside.collect::<Vec<_>>()
    };
    assert_eq!(inside("epoch 1 > step 3"), ["replay"]);
    assert!(inside("validation").contains(&"fc3 (Linear)"), "{seen:#?}");
    // A step of several updates has a range for each.
    let args = [
        "train",
        "wgan-gp",
        "--synthetic",
        "20",
        "--batch",
        "2",
        "--max-steps",
        "1",
        "--no-capture",
    ];
    let more = ["--set", "phases.generator.every=1", "--device", "cuda", "--out", "gan"];
    let seen = ranges(&mut with_gpu(dir.path(), &[&args[..], &more].concat()), dir.path());
    for phase in ["critic", "generator"] {
        assert_eq!(
            count(&seen, &format!("epoch 1 > step 1 > {phase} > forward")),
            1,
            "{seen:#?}"
        );
    }
}
