//! Runs that start from other weights, whole or by low-rank additions.

use crate::common::{run, succeeds};
use kiln_cpu::Cpu;
use kiln_data::Sizes;
use kiln_models::Model;
use kiln_nn::module::Value;
use kiln_nn::{Module, weights};
use std::path::Path;

fn names(dir: &Path, out: &str) -> Vec<String> {
    let (dict, _) = weights::read(dir.join(out).join("last.safetensors"), &Cpu::new()).unwrap();
    dict.names().map(str::to_string).collect()
}

fn train(dir: &Path, more: &[&str]) -> Vec<serde_json::Value> {
    let args = [
        "train",
        "mlp",
        "--synthetic",
        "40",
        "--batch",
        "8",
        "--device",
        "cpu",
        "--json",
    ];
    succeeds(dir, &[&args[..], more].concat()).json()
}

#[test]
fn additions_are_trained_saved_resumed_and_measured() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    train(dir, &["--epochs", "2", "--out", "base"]);
    let lora = [
        "--init-from",
        "base",
        "--lora",
        "r=2,alpha=4",
        "--seed",
        "1",
        "--schedule",
        "constant",
    ];
    train(dir, &[&lora[..], &["--epochs", "3", "--out", "whole"]].concat());
    let saved = names(dir, "whole");
    assert!(
        !saved.is_empty() && saved.iter().all(|name| name.contains("lora_")),
        "{saved:?}"
    );
    let config = std::fs::read_to_string(dir.join("whole/config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["lora"], "r=2,alpha=4");
    assert!(Path::new(config["init_from"].as_str().unwrap()).is_absolute());

    // Stopped and resumed, it ends with the same bits.
    train(dir, &[&lora[..], &["--epochs", "2", "--out", "parts"]].concat());
    succeeds(
        dir,
        &[
            "train", "--resume", "parts", "--epochs", "3", "--device", "cpu", "--json",
        ],
    );
    let bytes = |out: &str| std::fs::read(dir.join(out).join("last.safetensors")).unwrap();
    assert!(bytes("whole") == bytes("parts"));

    // What the run measured last, the folder gives again, with the additions in the weights.
    let eval = |out: &str| {
        let args = [
            "eval",
            "--weights",
            out,
            "--synthetic",
            "40",
            "--seed",
            "1",
            "--device",
            "cpu",
            "--json",
        ];
        succeeds(dir, &args).json().remove(0)
    };
    assert_ne!(eval("whole"), eval("base"));
    // Without the weights that it adapts there is nothing to load.
    std::fs::rename(dir.join("base"), dir.join("moved")).unwrap();
    let args = ["eval", "--weights", "whole", "--synthetic", "40", "--device", "cpu"];
    run(dir, &args).fails(1, &["adapts other weights", "base"]);
}

#[test]
fn whole_nets_start_from_other_weights() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    train(dir, &["--epochs", "1", "--out", "base"]);
    // With a rate that is lost in rounding the weights are those of the base.
    train(
        dir,
        &[
            "--epochs",
            "1",
            "--lr",
            "1e-30",
            "--optimizer",
            "sgd",
            "--seed",
            "5",
            "--init-from",
            "base",
            "--out",
            "same",
        ],
    );
    let of = |out: &str| {
        weights::read(dir.join(out).join("last.safetensors"), &Cpu::new())
            .unwrap()
            .0
    };
    let (base, same) = (of("base"), of("same"));
    for name in base.names() {
        let values = |dict: &kiln_nn::module::StateDict<Cpu>| dict.float(name).map(|t| t.to_f64().unwrap());
        assert_eq!(values(&base), values(&same), "{name}");
    }
}

#[test]
fn what_cannot_be_adapted_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let refused = |more: &[&str], code, words: &[&str]| {
        let args = ["train", "mlp", "--synthetic", "40", "--device", "cpu", "--out", "out"];
        run(dir, &[&args[..], more].concat()).fails(code, words);
        assert!(!dir.join("out").exists());
    };
    refused(&["--lora", "r=2"], 2, &["--lora adapts trained weights", "--init-from"]);
    refused(&["--lora", "rank=2", "--init-from", "base"], 2, &["rank=2", "r=8"]);
    refused(&["--init-from", "base"], 1, &["base"]);
    train(dir, &["--epochs", "1", "--out", "base"]);
    refused(
        &["--init-from", "base", "--lora", "r=2,modules=c_attn"],
        1,
        &["c_attn", "target_modules"],
    );
    refused(&["--init-from", "base", "--lora", "r=2", "--ema", "0.9"], 2, &["--ema"]);
}

/// Of a file of PyTorch's, whose kernels lie in another order; a head for other classes is left out.
#[test]
fn runs_start_from_weights_in_pytorchs_layout() {
    let temporary = tempfile::tempdir().unwrap();
    let (dir, cpu) = (temporary.path(), Cpu::new());
    for classes in [10, 7] {
        let sizes = Sizes {
            outputs: Some(classes),
            ..Sizes::default()
        };
        let net = Model::Lenet.build_for(&cpu, 3, sizes).unwrap();
        let file = dir.join(format!("{classes}.safetensors"));
        weights::write(&file, &net.torch_state_dict().unwrap(), &weights::Metadata::new()).unwrap();
        let out = format!("run-{classes}");
        let words = format!(
            "train lenet --synthetic 8 --batch 8 --max-steps 1 --lr 1e-30 --momentum 0 --device cpu --init-from {} --out {out}",
            file.display()
        );
        succeeds(dir, &words.split(' ').collect::<Vec<_>>());
        let (found, _) = weights::read(dir.join(out).join("last.safetensors"), &cpu).unwrap();
        for (name, value) in net.state_dict().iter() {
            let same = match (value, found.get(name).unwrap()) {
                (Value::Float(a), Value::Float(b)) => a.to_f64().unwrap() == b.to_f64().unwrap(),
                _ => true,
            };
            assert_eq!(same, classes == 10 || !name.starts_with("fc3"), "{name}");
        }
    }
}
