//! `kiln forecast`: steps recorded on the emulated driver, and times that are modelled.

use super::{run, succeeds};
use serde_json::Value;

fn forecast(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let ran = succeeds(dir.path(), &[&["forecast"], args, &["--json"]].concat());
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn a_step_is_modelled_for_each_card() {
    let answer = forecast(&[
        "lenet",
        "--batch",
        "4",
        "--gpu",
        "h100,l4",
        "--no-largest",
        "--samples",
        "60000",
    ]);
    let cards = answer["cards"].as_array().unwrap();
    assert_eq!(cards.len(), 2);
    for card in cards {
        let number = |key: &str| card[key].as_f64().unwrap();
        assert!(number("kernels") > 10.0 && number("peak_bytes") > 1e6, "{card}");
        assert!(
            number("seconds_low") < number("seconds") && number("seconds") < number("seconds_high"),
            "{card}"
        );
        // No kernel takes less than the least that one takes.
        assert!(number("seconds") > number("kernels") * 0.9e-6, "{card}");
        assert_eq!(card["unknown_kernels"], serde_json::json!([]));
        let shares = card["shares"].as_array().unwrap();
        let launches: f64 = shares.iter().map(|share| share["launches"].as_f64().unwrap()).sum();
        assert_eq!(launches, number("kernels"));
    }
    for key in [
        "kernels",
        "copies",
        "peak_bytes",
        "seconds",
        "seconds_low",
        "seconds_high",
    ] {
        assert_eq!(answer[key], cards[0][key], "{key}");
    }
}

#[test]
fn more_samples_take_longer_and_half_precision_is_faster() {
    let seconds = |args: &[&str]| {
        let all = [&["vgg11", "--gpu", "a100", "--no-largest"], args].concat();
        forecast(&all)["seconds"].as_f64().unwrap()
    };
    let f32 = seconds(&["--batch", "128"]);
    assert!(seconds(&["--batch", "32"]) < f32);
    assert!(seconds(&["--batch", "128", "--precision", "bf16"]) < f32);
}

#[test]
fn the_largest_batch_fits_a_card_of_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let card = "[[card]]\nname = \"mine\"\ntitle = \"a small card\"\nsm = 86\nsms = 10\nclock = 1.5\nmemory = 0.2\nl2 = 2\nbandwidth = 100\n\
        f32 = 3.8\ntf32 = 3.8\nf16 = 7.7\nwatts = 60\n";
    std::fs::write(dir.path().join("mine.toml"), card).unwrap();
    let args = [
        "forecast",
        "lenet",
        "--batch",
        "64",
        "--gpu",
        "mine",
        "--cards",
        "mine.toml",
        "--price",
        "mine=0.1",
    ];
    let ran = succeeds(dir.path(), &args);
    assert!(
        ran.stdout.contains("a small card") && ran.stdout.contains("modelled"),
        "{}",
        ran.stdout
    );
    let ran = succeeds(dir.path(), &[&args[..], &["--json"]].concat());
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
    let largest = answer["cards"][0]["largest_batch"].as_u64().unwrap();
    assert!(largest > 64, "{largest}");
    assert_eq!(answer["cards"][0]["dollars_per_hour"], 0.1);
}

#[test]
fn steps_that_cannot_be_recorded_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "forecast",
        "faster-rcnn-small",
        "--batch",
        "2",
        "--gpu",
        "h100",
        "--no-largest",
    ];
    let refused = run(dir.path(), &args);
    assert_eq!(refused.code, Some(1));
    for part in ["run op by op", "download", "kiln profile"] {
        assert!(refused.stderr.contains(part), "no `{part}` in {}", refused.stderr);
    }
}

#[test]
fn cards_that_are_not_there_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let unknown = run(dir.path(), &["forecast", "lenet", "--gpu", "h1000"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.contains("h1000") && unknown.stderr.contains("rtx4090"),
        "{}",
        unknown.stderr
    );
    let old = run(dir.path(), &["forecast", "lenet", "--gpu", "t4"]);
    assert_eq!(old.code, Some(2));
    assert!(old.stderr.contains("8.0 and above"), "{}", old.stderr);
    let price = run(dir.path(), &["forecast", "lenet", "--price", "h100"]);
    assert!(
        price.code == Some(2) && price.stderr.contains("h100=2.49"),
        "{}",
        price.stderr
    );
}
