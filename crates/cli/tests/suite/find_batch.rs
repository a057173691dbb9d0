//! `kiln find-batch`.

use crate::common::{names, run, succeeds};

#[test]
fn the_largest_batch_is_found_and_trains() {
    let dir = tempfile::tempdir().unwrap();
    let common = ["lenet", "--synthetic", "600", "--memory", "8M", "--device", "cpu"];
    let found = succeeds(dir.path(), &[&["find-batch"][..], &common, &["--json"]].concat());
    let found = &found.json()[0];
    assert_eq!(
        (&found["limit"], &found["memory"]),
        (&"memory".into(), &(8 << 20).into())
    );
    let largest = found["largest"].as_u64().unwrap();
    assert!((8..600).contains(&largest), "{found}");
    assert!(found["fastest"].as_u64() <= Some(largest));
    assert_eq!(names(dir.path()), [""; 0], "nothing is saved");
    // Less memory for each sample, and so more of them.
    let saving = [
        &["find-batch"][..],
        &common,
        &["--json", "--precision", "bf16", "--recompute", "*"],
    ]
    .concat();
    assert!(succeeds(dir.path(), &saving).json()[0]["largest"].as_u64().is_some());

    let shown = succeeds(dir.path(), &[&["find-batch"][..], &common, &["--max", "4"]].concat()).stdout;
    for part in [
        "batch      1  ",
        "ms/update",
        "samples/s",
        "largest: --batch 4, more was not tried",
        "fastest: --batch ",
    ] {
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
    let all = succeeds(
        dir.path(),
        &["find-batch", "lenet", "--synthetic", "5", "--device", "cpu"],
    )
    .stdout;
    assert!(
        all.contains("largest: --batch 5, there are no more training samples"),
        "{all}"
    );
}

#[test]
fn a_model_that_does_not_fit_and_wrong_sizes_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let small = [
        "find-batch",
        "lenet",
        "--synthetic",
        "20",
        "--device",
        "cpu",
        "--memory",
    ];
    run(dir.path(), &[&small[..], &["600k"]].concat()).fails(1, &["not even a batch of one sample", "--memory"]);
    run(dir.path(), &[&small[..], &["1k"]].concat()).fails(1, &["out of memory"]);
    run(dir.path(), &[&small[..], &["8M", "--min", "9", "--max", "8"]].concat()).fails(2, &["--min is above --max"]);
    assert_eq!(run(dir.path(), &[&small[..], &["8Q"]].concat()).code, Some(2));
}
