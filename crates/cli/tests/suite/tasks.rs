//! Tests of every command on networks that make images: tasks of other batches, losses and answers than classes and text.

use crate::common::{names, run, succeeds, write_png};
use kiln_cpu::Cpu;
use kiln_data::Sizes;
use kiln_models::Model;
use kiln_nn::Module;
use kiln_nn::weights::{self, LoadOptions};
use serde_json::Value;
use std::path::Path;

/// The networks, and the names of their training losses.
const MODELS: [(&str, &[&str]); 2] = [("vae", &["loss"]), ("wgan-gp", &["critic/loss", "generator/loss"])];

fn train(dir: &Path, model: &str, out: &str, more: &[&str]) -> String {
    let args = [
        "train",
        model,
        "--synthetic",
        "40",
        "--batch",
        "8",
        "--epochs",
        "2",
        "--out",
        out,
    ];
    succeeds(dir, &[&args[..], more].concat()).stdout
}

fn read(dir: &Path, file: &str) -> Vec<u8> {
    std::fs::read(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn text(dir: &Path, file: &str) -> String {
    String::from_utf8(read(dir, file)).unwrap()
}

/// The records of a run's epochs.
fn history(dir: &Path, run: &str) -> Vec<Value> {
    let lines = text(dir, &format!("{run}/history.jsonl"));
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Width, height and the number of different shades of a PNG file.
fn png(dir: &Path, file: &str) -> (u32, u32, usize) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(read(dir, file)))
        .read_info()
        .unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    let shades: std::collections::BTreeSet<u8> = pixels.iter().copied().collect();
    (reader.info().width, reader.info().height, shades.len())
}

#[test]
fn networks_that_draw_are_trained_and_measured_as_others_are() {
    let dir = tempfile::tempdir().unwrap();
    for (model, losses) in MODELS {
        let told = train(
            dir.path(),
            model,
            model,
            &["--tensorboard", "--report", "--threads", "2"],
        );
        for loss in losses {
            assert!(told.contains(&format!("{loss} ")), "{model}: no {loss} in {told}");
        }
        assert!(told.contains("best: epoch") && told.contains("images/s"), "{told}");
        let epochs = history(dir.path(), model);
        for (epoch, loss) in epochs.iter().zip(losses.iter().cycle()) {
            assert!(
                epoch["train"][loss].is_number() && epoch["valid"].is_object(),
                "{epoch}"
            );
        }
        let board = std::fs::read_dir(dir.path().join(model).join("tensorboard")).unwrap();
        assert_eq!(board.count(), 1);

        // What was measured in the run is measured again, whatever the size of a batch.
        let best = epochs.iter().rfind(|epoch| epoch["best"] == true).unwrap();
        for batch in ["8", "3"] {
            let args = ["eval", "-w", model, "--synthetic", "40", "--json", "--batch", batch];
            let again = succeeds(dir.path(), &args).json().remove(0);
            for (name, value) in best["valid"].as_object().unwrap() {
                let (a, b) = (value.as_f64().unwrap(), again[name].as_f64().unwrap());
                // The square root of a covariance of few samples makes much of rounding.
                let bound = if name == "frechet" { 1e-2 } else { 1e-5 };
                assert!(
                    (a - b).abs() <= bound * a.abs().max(1.0),
                    "{model} {name}: {a}, {b} in batches of {batch}"
                );
            }
            assert!(again["confusion"].is_null() && again["samples"] == 8, "{again}");
        }
        let eval = succeeds(dir.path(), &["eval", "-w", model, "--synthetic", "40"]).stdout;
        assert!(eval.contains("8 images  ") && !eval.contains("taken for"), "{eval}");

        // The page of the run has pictures in the place of a confusion matrix.
        let page = text(dir.path(), &format!("{model}/report.html"));
        assert!(
            page.contains("id=\"samples\"") && !page.contains("id=\"confusion\""),
            "{model}"
        );
        assert!(
            page.contains("data:image/png;base64,") && page.contains("id=\"layers\""),
            "{model}"
        );

        let tried = succeeds(dir.path(), &["train", model, "--synthetic", "--fast-dev-run"]).stdout;
        assert!(tried.contains("nothing was kept"), "{tried}");
        let heart = train(dir.path(), model, &format!("{model}-heart"), &["--overfit-batches"]);
        assert!(heart.contains("saved: "), "{heart}");
        let found = ["find-lr", model, "--synthetic", "40", "--steps", "5", "--json"];
        assert!(succeeds(dir.path(), &found).json()[0]["points"].is_array());
    }
}

#[test]
fn networks_that_draw_give_the_same_bits_on_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    for (model, _) in MODELS {
        let trained = ["1", "2", "4"].map(|threads| {
            let out = format!("{model}-{threads}");
            train(dir.path(), model, &out, &["--threads", threads]);
            read(dir.path(), &format!("{out}/last.safetensors"))
        });
        assert!(trained[0] == trained[1] && trained[0] == trained[2], "{model}");
    }
}

#[test]
fn networks_that_draw_go_on_exactly() {
    let dir = tempfile::tempdir().unwrap();
    for (model, _) in MODELS {
        let args = [
            "verify-resume",
            model,
            "--synthetic",
            "400",
            "--batch",
            "4",
            "--steps",
            "40",
        ];
        let told = succeeds(dir.path(), &args).stdout;
        assert!(told.contains("1 of 1 runs"), "{told}");
    }
}

#[test]
fn pictures_are_drawn_and_reconstructed() {
    let dir = tempfile::tempdir().unwrap();
    for (model, _) in MODELS {
        train(dir.path(), model, model, &[]);
        let generate = |more: &[&str]| succeeds(dir.path(), &[&["generate", model], more].concat()).stdout;
        let told = generate(&["--count", "6"]);
        assert!(told.starts_with("saved: ") && told.contains("6 new images"), "{told}");
        let (width, height, shades) = png(dir.path(), &format!("{model}/samples.png"));
        assert_eq!((width, height), (3 * 30 + 2, 2 * 30 + 2));
        assert!(shades > 10);
        // The seed decides.
        for (seed, file) in [("0", "a.png"), ("0", "b.png"), ("1", "c.png")] {
            generate(&["--count", "6", "--seed", seed, "--out", file]);
        }
        let files = ["a.png", "b.png", "c.png"].map(|file| read(dir.path(), file));
        assert!(files[0] == files[1] && files[0] != files[2]);
        assert_eq!(files[0], read(dir.path(), &format!("{model}/samples.png")));
        run(dir.path(), &["generate", model, "--prompt", "To be"]).fails(2, &[model, "--prompt"]);
        run(dir.path(), &["generate", model, "--dtype", "bf16"]).fails(2, &[model, "--dtype"]);
        let told = generate(&["--walks", "--count", "10"]);
        assert!(told.contains("walks.png") && told.contains("16 new images"), "{told}");
        assert_eq!(png(dir.path(), &format!("{model}/walks.png")).1, 2 * 30 + 2);
        // The run has a picture of each kind for each epoch.
        let pictures = names(&dir.path().join(model).join("pictures"));
        for name in ["samples-0001.png", "samples-0002.png", "walks-0002.png"] {
            assert!(pictures.contains(&name.to_string()), "{pictures:?}");
        }

        let drawn = ["predict", "-w", model, "--out", "d.png", "--json"];
        assert_eq!(succeeds(dir.path(), &drawn).json()[0]["images"], 64);
        assert_eq!(png(dir.path(), "d.png").0, 8 * 30 + 2);
    }
    // Files that cannot be read are passed over, and the others shown.
    let both = ["predict", "-w", "vae", "a.png", "missing.png", "--out", "r.png"];
    let told = run(dir.path(), &both);
    told.fails(1, &["missing.png"]);
    assert!(told.stdout.contains("r.png, 1 image beside"), "{}", told.stdout);
    assert_eq!(png(dir.path(), "r.png").0, 2 * 30 + 2);
    succeeds(dir.path(), &["predict", "-w", "vae", "a.png", "b.png", "c.png"]);
    run(dir.path(), &["predict", "-w", "wgan-gp", "a.png"]).fails(2, &["takes none", "kiln generate"]);
    assert_eq!(png(dir.path(), "vae/reconstructions.png").0, 6 * 30 + 2);
    assert!(names(&dir.path().join("vae")).contains(&"samples.png".to_string()));
}

#[test]
fn made_images_are_measured_by_a_classifier() {
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), "mnist-cnn", "classifier", &[]);
    train(dir.path(), "dcgan", "dcgan", &[]);
    let eval = |model: &str, features: &str| {
        run(
            dir.path(),
            &["eval", "-w", model, "--synthetic", "40", "--features", features],
        )
    };
    let told = succeeds(
        dir.path(),
        &["eval", "-w", "dcgan", "--synthetic", "40", "--features", "classifier"],
    );
    assert!(
        told.stdout.contains("fid ") && told.stdout.contains("logits of classifier"),
        "{}",
        told.stdout
    );
    eval("dcgan", "dcgan").fails(2, &["dcgan tells no classes apart"]);
    eval("classifier", "classifier").fails(2, &["mnist-cnn makes no images"]);
    train(dir.path(), "vae", "vae", &[]);
    eval("vae", "classifier").fails(2, &["without new images"]);
}

#[test]
fn an_update_with_the_optimizer_of_another_has_no_settings_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let args = |set| ["train", "stylegan2", "--synthetic", "40", "--set", set];
    run(dir.path(), &args("phases.r1.optimizer.lr=1")).fails(2, &["r1 has the optimizer of discriminator"]);
    let told = succeeds(dir.path(), &["models"]).stdout;
    assert!(
        told.contains("r1 every 16 steps by the optimizer of discriminator"),
        "{told}"
    );
}

#[test]
fn layers_are_named_by_their_places_in_the_whole_network() {
    let dir = tempfile::tempdir().unwrap();
    for (model, layers, losses) in [
        ("vae", &["fc1", "fc21", "fc3", "fc4"][..], &["loss"][..]),
        (
            "wgan-gp",
            &["generator.0", "generator.4", "critic.0", "critic.4"],
            &["critic", "generator"],
        ),
    ] {
        let seen = succeeds(dir.path(), &["summary", model, "--json"]).json().remove(0);
        let paths: Vec<&str> = seen["layers"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|l| l["path"].as_str())
            .collect();
        assert!(layers.iter().any(|layer| paths.contains(layer)), "{model}: {paths:?}");
        assert!(seen["forward_flops"].as_u64().unwrap() > 0 && seen["input_bytes"] == 4 * 28 * 28);

        let args = [
            "profile", model, "--batch", "2", "--steps", "1", "--json", "--device", "cpu",
        ];
        let report = succeeds(dir.path(), &args).json().remove(0);
        let rows = report["rows"].as_array().unwrap();
        for name in layers.iter().chain(losses) {
            let row = rows.iter().find(|row| row["name"] == *name);
            let row = row.unwrap_or_else(|| panic!("{model}: no row {name}: {report}"));
            assert!(row["forward"]["ops"].is_u64(), "{row}");
        }
        let inference = [&args[..], &["--inference"]].concat();
        assert!(succeeds(dir.path(), &inference).json()[0]["flops"].as_u64().unwrap() > 0);
    }
}

#[test]
fn every_phase_has_its_own_settings_and_rows() {
    let dir = tempfile::tempdir().unwrap();
    let settings = "[optimizer]\nlr = 0.002\n[phases.generator]\nevery = 2\n[phases.generator.optimizer]\nname = \"rmsprop\"\nmomentum = 0.5\n";
    std::fs::write(dir.path().join("run.toml"), settings).unwrap();
    let more = [
        "--config",
        "run.toml",
        "--set",
        "phases.critic.optimizer.schedule=cosine",
    ];
    let told = train(dir.path(), "wgan-gp", "run", &more);
    assert!(
        told.contains("critic: adam 0.002, generator: rmsprop 0.001 every 2 steps"),
        "{told}"
    );
    let config: Value = serde_json::from_str(&text(dir.path(), "run/config.json")).unwrap();
    assert_eq!(config["phases"]["critic"]["optimizer"]["schedule"], "cosine");
    assert_eq!(
        (
            &config["phases"]["generator"]["every"],
            &config["phases"]["generator"]["optimizer"]["momentum"]
        ),
        (&2.into(), &0.5.into())
    );
    assert!(config["optimizer"].is_null(), "{config}");
    // The settings are those of the run when it is repeated.
    let again = ["train", "--config", "run/config.json", "--out", "again"];
    succeeds(dir.path(), &again);
    assert!(read(dir.path(), "run/last.safetensors") == read(dir.path(), "again/last.safetensors"));
    let rates = &history(dir.path(), "run")[1]["lrs"];
    assert!(
        rates["critic"].as_f64().unwrap() < 0.001 && rates["generator"] == 0.001,
        "{rates}"
    );

    for (set, code, parts) in [
        (
            "phases.critc.optimizer.lr=1",
            2,
            &["no phase `critc`", "critic, generator"][..],
        ),
        (
            "phases.critic.lr=1",
            2,
            &["no setting `phases.critic.lr`", "phases.critic.optimizer.lr"],
        ),
        ("phases.critic.every=0", 2, &["1 or more"]),
        ("phases.critic.optimizer.momentum=0.5", 2, &["adam takes no --momentum"]),
    ] {
        let args = ["train", "wgan-gp", "--synthetic", "40", "--set", set];
        run(dir.path(), &args).fails(code, parts);
    }
    let lenet = ["train", "lenet", "--synthetic", "40", "--set", "phases.critic.every=2"];
    run(dir.path(), &lenet).fails(2, &["lenet has no phase `critic`", "[optimizer]"]);
    let search = ["find-lr", "wgan-gp", "--synthetic", "40", "--steps", "3", "--phase"];
    assert!(
        succeeds(dir.path(), &[&search[..], &["generator"]].concat())
            .stdout
            .contains("learning rate")
    );
    run(dir.path(), &[&search[..], &["critc"]].concat()).fails(2, &["no phase `critc`"]);

    let args = [
        "profile", "wgan-gp", "--batch", "2", "--steps", "1", "--json", "--device", "cpu",
    ];
    let report = succeeds(dir.path(), &args).json().remove(0);
    let of = |phase: &str, name: &str| {
        let rows = report["rows"].as_array().unwrap().iter();
        let found: Vec<&Value> = rows
            .filter(|row| row["phase"] == phase && row["name"] == name)
            .collect();
        found
            .iter()
            .map(|row| row["forward"]["flops"].as_u64().unwrap() + row["backward"]["flops"].as_u64().unwrap())
            .sum::<u64>()
    };
    // The critic sees real, made and mixed images in its own update, and made ones in the generator's.
    assert!(
        of("critic", "critic.0") > of("generator", "critic.0") && of("generator", "critic.0") > 0,
        "{report}"
    );
    assert!(
        of("generator", "generator.0") > of("critic", "generator.0") && of("critic", "generator.0") > 0,
        "{report}"
    );
    let table = succeeds(dir.path(), &args[..6]).stdout;
    assert!(
        table.contains("critic/generator.0 (Linear)") && table.contains("(generator/optimizer)"),
        "{table}"
    );
}

#[test]
fn networks_that_draw_are_built_for_the_size_of_the_images() {
    let dir = tempfile::tempdir().unwrap();
    for part in ["train", "test"] {
        let folder = dir.path().join("photos").join(part).join("all");
        std::fs::create_dir_all(&folder).unwrap();
        for i in 0..12 {
            let path = folder.join(format!("{i}.png"));
            write_png(&path, 32, 32, |x, y| (x * y + 20 * i) as u8);
        }
    }
    let dcgan = [
        "train", "dcgan", "--data", "photos", "--epochs", "1", "--batch", "4", "--out",
    ];
    let cpu = Cpu::new();
    for (out, more, image) in [
        ("own", &[][..], [32, 32, 1]),
        ("small", &["--image-size", "28x28x1"], [28, 28, 1]),
        ("colours", &["--image-size", "64"], [64, 64, 3]),
    ] {
        let side = image[0] as u32;
        succeeds(dir.path(), &[&dcgan[..], &[out], more].concat());
        succeeds(dir.path(), &["generate", out, "--count", "4", "--out", "drawn.png"]);
        succeeds(dir.path(), &["eval", "-w", out, "--synthetic", "8"]);
        assert_eq!(png(dir.path(), "drawn.png").0, 2 * (side + 2) + 2, "{out}");
        // What is held back is read at the size of the network.
        let measured = |words: &[&str]| {
            let answer = succeeds(
                dir.path(),
                &[&["eval", "--data", "photos", "--json", "-w"], words].concat(),
            )
            .json();
            answer[0]["frechet"].as_f64().unwrap()
        };
        let own = measured(&[out]);
        // The shapes of PyTorch's weights alone tell the size as well.
        let (weights, _) = weights::read(dir.path().join(out).join("best.safetensors"), &cpu).unwrap();
        let mut net = Model::Dcgan
            .build_for(
                &cpu,
                0,
                Sizes {
                    image: Some(image),
                    ..Sizes::default()
                },
            )
            .unwrap();
        net.load_state_dict(&weights, LoadOptions::strict()).unwrap();
        let torch = net.torch_state_dict().unwrap();
        weights::write(dir.path().join("torch"), &torch, &weights::Metadata::new()).unwrap();
        assert_eq!(measured(&["torch", "--model", "dcgan"]), own, "{out}");
        let draw = ["generate", "torch", "--model", "dcgan", "--count", "4"];
        succeeds(dir.path(), &[&draw[..], &["--out", "torch.png"]].concat());
        let drawn = |file: &str| std::fs::read(dir.path().join(file)).unwrap();
        assert!(drawn("torch.png") == drawn("drawn.png"), "{out}");
    }
    // The images may lie in one folder, but not for a network that tells classes apart.
    let flat = dir.path().join("photos/train/all");
    let flat = flat.to_str().unwrap();
    let of_flat = ["train", "dcgan", "--data", flat, "--max-steps", "1", "--batch", "4"];
    let told = succeeds(dir.path(), &[&of_flat[..], &["--out", "flat"]].concat()).stdout;
    assert!(
        told.contains("the images in") && told.contains("32x32x1, 10 images to train, 2 held back"),
        "{told}"
    );
    succeeds(dir.path(), &["eval", "-w", "flat", "--data", flat]);
    // Of photos it draws the largest square that they cover; one that is held back has no distribution.
    std::fs::create_dir(dir.path().join("tall")).unwrap();
    for i in 0..12 {
        write_png(&dir.path().join(format!("tall/{i}.png")), 40, 52, |x, y| {
            (x * y + i) as u8
        });
    }
    let of_tall = ["train", "dcgan", "--data", "tall", "--max-steps", "1", "--batch", "4"];
    let told = succeeds(dir.path(), &[&of_tall[..], &["--out", "of-tall"]].concat()).stdout;
    assert!(told.contains("32x32x1, 10 images to train, 2 held back"), "{told}");
    (2..12).for_each(|i| std::fs::remove_file(dir.path().join(format!("tall/{i}.png"))).unwrap());
    run(dir.path(), &of_tall).fails(1, &["images held back = 1, expected at least 2", "add images"]);
    let classifier = ["train", "vgg11", "--data", flat, "--max-steps", "1"];
    run(dir.path(), &classifier).fails(1, &["no classes", "a folder of its own"]);
    let refused = |size: &str| run(dir.path(), &[&dcgan[..], &["x", "--image-size", size]].concat());
    refused("48").fails(2, &["48x48x3", "28, 32, 64 pixels"]);
    refused("64x32x3").fails(2, &["--image-size", "64x64x1"]);
    let digits = ["train", "dcgan", "--image-size", "32"];
    run(dir.path(), &digits).fails(2, &["32x32x3", "of one size"]);
    let fixed = ["train", "vgg11", "--data", "photos", "--image-size", "64"];
    run(dir.path(), &fixed).fails(2, &["vgg11 takes images 32x32x3", "leave it out"]);
    let made_up = ["train", "vgg11", "--synthetic", "4", "--image-size", "64"];
    run(dir.path(), &made_up).fails(2, &["vgg11 takes images 32x32x3", "leave it out"]);
    let made_up = [
        "train",
        "dcgan",
        "--synthetic",
        "8",
        "--epochs",
        "1",
        "--batch",
        "4",
        "--image-size",
        "32",
        "--out",
        "made",
    ];
    succeeds(dir.path(), &made_up);
    succeeds(dir.path(), &["generate", "made", "--count", "4", "--out", "drawn.png"]);
    assert_eq!(png(dir.path(), "drawn.png").0, 2 * (32 + 2) + 2);
}
