//! Tests of networks with other tasks than classes: their steps, replayed, are the steps.

use crate::{read, succeeds};

#[test]
fn recorded_steps_of_every_phase_are_the_steps() {
    let dir = tempfile::tempdir().unwrap();
    for (model, settings, steps, [eager, recorded, replayed]) in [
        ("vae", &[][..], "5", [1, 1, 3]),
        ("transformer", &[], "3", [1, 1, 1]),
        // Eight updates of the critic, four of the generator.
        ("wgan-gp", &["--set", "phases.generator.every=2"], "8", [2, 2, 8]),
    ] {
        let train = |device: &str, more: &[&str]| {
            let out = format!("{model}-{device}{}", more.concat());
            let args = [
                "train",
                model,
                "--synthetic",
                "20",
                "--batch",
                "2",
                "--max-steps",
                steps,
                "--seed",
                "3",
                "--json",
                "--device",
                device,
                "--out",
                &out,
            ];
            let lines = succeeds(dir.path(), &[&args[..], settings, more].concat()).json();
            let end = lines.last().unwrap().clone();
            (end, dir.path().join(out).join("last.safetensors"))
        };
        let (end, captured) = train("cuda", &[]);
        let made = &end["execution"];
        let counts = ["eager", "recorded", "replayed", "allocations"].map(|name| made[name].as_u64().unwrap());
        assert_eq!(counts, [eager, recorded, replayed, 0], "{model}: {end}");
        assert!(end["not_captured"].is_null(), "{model}: {end}");
        let (_, plain) = train("cuda", &["--no-capture"]);
        assert!(
            std::fs::read(&captured).unwrap() == std::fs::read(&plain).unwrap(),
            "{model}: recorded steps are the steps"
        );
        // Initial weights, order, batches and noise are the same, so only rounding differs, which the first steps of Adam enlarge where
        // a gradient is next to nothing.
        let (_, on_cpu) = train("cpu", &[]);
        let (a, b) = (read(&captured), read(&on_cpu));
        let pairs = a.iter().zip(&b).flat_map(|((_, a), (_, b))| a.iter().zip(b));
        let (mut square, mut of) = (0.0, 0.0);
        for (a, b) in pairs {
            square += (a - b) * (a - b);
            of += b * b;
        }
        assert!((square / of).sqrt() < 1e-3, "{model}: {}", (square / of).sqrt());
    }
}
