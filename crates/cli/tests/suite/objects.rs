//! Networks that find objects: trained, measured, asked, and answered with pictures.

use crate::common::{names, png_size, run, succeeds};
use serde_json::Value;
use std::path::Path;

/// A picture of some colours of 40 by 60 (width × height) pixels.
fn picture(dir: &Path, name: &str) {
    let pixels: Vec<u8> = (0..40 * 60 * 3).map(|at| (at * 7 % 251) as u8).collect();
    let file = std::fs::File::create(dir.join(name)).unwrap();
    let mut encoder = png::Encoder::new(file, 40, 60);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
}

#[test]
fn objects_are_learned_measured_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    picture(dir.path(), "a.png");
    picture(dir.path(), "b.png");
    std::fs::write(dir.path().join("c.png"), "no image").unwrap();
    let out = "run";
    let synthetic = ["--synthetic", "6"];
    let train = ["train", "yolo-n", "--batch", "3", "--epochs", "1", "--out", out];
    let told = succeeds(dir.path(), &[&train[..], &synthetic].concat()).stdout;
    assert!(told.contains("mAP ") && told.contains("images/s"), "{told}");
    let eval = ["eval", "-w", out, "--json"];
    let measured = succeeds(dir.path(), &[&eval[..], &synthetic].concat()).json().remove(0);
    for name in ["loss", "map", "map_50", "box", "class", "distance"] {
        assert!(measured[name].is_number(), "{name}: {measured}");
    }

    // Everything counts as found from a share of 0 on.
    let predict = ["predict", "-w", out, "--min-score", "0", "--json"];
    let ran = run(dir.path(), &[&predict[..], &["a.png", "c.png", "b.png"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("c.png"), "{}", ran.stderr);
    let answers = ran.json();
    assert_eq!(answers.len(), 2);
    for (answer, name) in answers.iter().zip(["a", "b"]) {
        assert_eq!(
            (&answer["image"], &answer["model"]),
            (&Value::from(format!("{name}.png")), &Value::from("yolo-n"))
        );
        for object in answer["objects"].as_array().unwrap() {
            let edges: Vec<f64> = object["box"]
                .as_array()
                .unwrap()
                .iter()
                .map(|e| e.as_f64().unwrap())
                .collect();
            assert!(
                edges[0] >= 0.0 && edges[1] >= 0.0 && edges[2] <= 40.0 && edges[3] <= 60.0,
                "{object}"
            );
            assert!(object["class"].is_string() && object["score"].is_number(), "{object}");
        }
        assert_eq!(png_size(&dir.path().join(format!("run/boxes-{name}.png"))), (40, 60));
    }
    let plain = succeeds(dir.path(), &["predict", "-w", out, "--out", "found.png", "a.png"]).stdout;
    assert!(plain.contains("saved: found.png, a.png with "), "{plain}");
    assert_eq!(png_size(&dir.path().join("found.png")), (40, 60));
    run(
        dir.path(),
        &["predict", "-w", out, "--out", "found.png", "a.png", "b.png"],
    )
    .fails(2, &["--out", "help: "]);
    // In a folder, where images of one name in several folders have a picture each.
    std::fs::create_dir_all(dir.path().join("again")).unwrap();
    std::fs::copy(dir.path().join("a.png"), dir.path().join("again/a.png")).unwrap();
    std::fs::create_dir(dir.path().join("found")).unwrap();
    succeeds(
        dir.path(),
        &["predict", "-w", out, "--out", "found", "a.png", "again/a.png", "b.png"],
    );
    assert_eq!(
        names(&dir.path().join("found")),
        ["boxes-a-2.png", "boxes-a.png", "boxes-b.png"]
    );
    // A folder is asked about image by image.
    picture(&dir.path().join("again"), "d.png");
    std::fs::write(dir.path().join("again/notes.txt"), "no image").unwrap();
    let told = succeeds(dir.path(), &["predict", "-w", out, "--json", "again", "b.png"]).json();
    let images: Vec<&str> = told.iter().map(|answer| answer["image"].as_str().unwrap()).collect();
    assert_eq!(images, ["again/a.png", "again/d.png", "b.png"]);
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    run(dir.path(), &["predict", "-w", out, "empty"]).fails(1, &["empty: no records", ".png"]);
    run(dir.path(), &["predict", "-w", out, "--min-score", "2", "a.png"]).fails(2, &["--min-score", "from 0 to 1"]);
}

#[test]
fn lists_of_objects_are_read_and_what_is_wrong_in_them_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.png", "b.png", "c.png"] {
        picture(dir.path(), name);
    }
    let list = |width: u32| {
        let images: Vec<String> = (0..3)
            .map(|i| {
                format!(
                    r#"{{"id": {i}, "file_name": "{}.png", "width": 40, "height": 60}}"#,
                    ["a", "b", "c"][i]
                )
            })
            .collect();
        let boxes: Vec<String> = (0..3)
            .map(|i| format!(r#"{{"image_id": {i}, "category_id": 1, "bbox": [2, 3, {width}, 30]}}"#))
            .collect();
        format!(
            r#"{{"images": [{}], "annotations": [{}], "categories": [{{"id": 1, "name": "whale"}}]}}"#,
            images.join(", "),
            boxes.join(", ")
        )
    };
    std::fs::write(dir.path().join("list.json"), list(20)).unwrap();
    let train = [
        "train",
        "yolo-n",
        "--data",
        "list.json",
        "--batch",
        "2",
        "--max-steps",
        "1",
        "--out",
        "run",
    ];
    let told = succeeds(dir.path(), &train).stdout;
    assert!(told.contains("1 class"), "{told}");
    let config: Value = serde_json::from_slice(&std::fs::read(dir.path().join("run/config.json")).unwrap()).unwrap();
    assert_eq!(config["facts"]["classes"], serde_json::json!(["whale"]));
    std::fs::write(dir.path().join("list.json"), list(50)).unwrap();
    let again = [&train[..9], &["again"]].concat();
    run(dir.path(), &again).fails(1, &["list.json", "annotations.bbox", "record 0", "beyond the image"]);
    succeeds(
        dir.path(),
        &["train", "faster-rcnn-small", "--synthetic", "--fast-dev-run"],
    );
}
