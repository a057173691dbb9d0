//! The images and texts that `kiln train --tensorboard` writes.

use crate::common::succeeds;
use crate::reader::{Field, fields, files};
use std::path::Path;

/// The contents of an event: a picture's width, height and number of different bytes, or a text.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Picture(u32, u32, usize),
    Text(String),
}

/// The bytes of the fields of this number.
fn inside(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter_map(move |field| match field {
        (n, Field::Bytes(bytes)) if n == number => Some(bytes),
        _ => None,
    })
}

fn picture(png: &[u8]) -> Seen {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    let shades: std::collections::BTreeSet<u8> = pixels.iter().copied().collect();
    Seen::Picture(reader.info().width, reader.info().height, shades.len())
}

/// The images and texts of a run with their steps and names, in order.
fn views(run: &Path) -> Vec<(u64, String, Seen)> {
    let mut found = Vec::new();
    for file in files(&run.join("tensorboard")) {
        let bytes = std::fs::read(file).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let event = &rest[12..12 + length];
            rest = &rest[16 + length..];
            let step = fields(event).iter().find_map(|field| match field {
                (2, Field::Int(step)) => Some(*step),
                _ => None,
            });
            for value in inside(event, 5).flat_map(|summary| inside(summary, 1).collect::<Vec<_>>()) {
                let tag = String::from_utf8(inside(value, 1).next().unwrap().to_vec()).unwrap();
                let pictures = inside(value, 4).filter_map(|image| inside(image, 4).next().map(picture));
                let texts = inside(value, 8).filter(|_| tag.ends_with("/text_summary"));
                let texts =
                    texts.map(|t| Seen::Text(String::from_utf8_lossy(inside(t, 8).next().unwrap()).into_owned()));
                found.extend(pictures.chain(texts).map(|seen| (step.unwrap_or(0), tag.clone(), seen)));
            }
        }
    }
    found.retain(|(_, tag, _)| tag != "config/text_summary");
    found
}

fn train(dir: &Path, model: &str, more: &[&str]) -> Vec<(u64, String, Seen)> {
    let args = [
        "train",
        model,
        "--batch",
        "8",
        "--epochs",
        "2",
        "--tensorboard",
        "--out",
        model,
    ];
    succeeds(dir, &[&args[..], more].concat());
    views(&dir.join(model))
}

#[test]
fn networks_show_what_they_make_after_each_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let made_up = ["--synthetic", "40"];
    // Rows of eight images of 28×28, with two pixels around each: 64 samples; four walks; 8 images beside their reconstructions.
    for (model, expected) in [
        ("vae", &[("samples", 242), ("walks", 122), ("reconstructions", 32)][..]),
        ("wgan-gp", &[("samples", 242), ("walks", 122)]),
    ] {
        let seen = train(dir.path(), model, &made_up);
        let expected = [5, 10]
            .into_iter()
            .flat_map(|step| expected.iter().map(move |e| (step, e)));
        let expected: Vec<(u64, &str, u32)> = expected.map(|(step, (tag, height))| (step, *tag, *height)).collect();
        assert_eq!(seen.len(), expected.len(), "{seen:?}");
        for ((step, tag, seen), (at, name, tall)) in seen.iter().zip(expected) {
            let Seen::Picture(width, height, shades) = *seen else {
                panic!("{seen:?}")
            };
            assert_eq!((*step, &tag[..], height), (at, name, tall), "{model}");
            assert!((width == 242 || width == 482) && shades > 2, "{model} {tag} {seen:?}");
        }
    }

    let seen = train(dir.path(), "lenet", &made_up);
    let steps: Vec<(u64, &str)> = seen.iter().map(|(step, tag, _)| (*step, &tag[..])).collect();
    assert_eq!(
        steps,
        [
            (5, "worst"),
            (5, "worst/text_summary"),
            (10, "worst"),
            (10, "worst/text_summary")
        ]
    );
    let [Seen::Picture(_, _, shades), Seen::Text(text)] = [seen[2].2.clone(), seen[3].2.clone()] else {
        panic!("{seen:?}")
    };
    assert!(
        shades > 2 && text.contains("Of the first 8 samples held back"),
        "{text}"
    );
    // A row of the table for each image, and those of the report.
    let rows: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .collect();
    succeeds(dir.path(), &["report", "lenet"]);
    let page = std::fs::read_to_string(dir.path().join("lenet/report.html")).unwrap();
    let best: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("lenet/summary.json")).unwrap()).unwrap();
    if best["best_epoch"] == 2 {
        assert_eq!(rows.len(), page.matches("class=\"sample\"").count(), "{text}");
    }
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row.matches(" | ").count() == 5),
        "{text}"
    );

    std::fs::write(
        dir.path().join("fox.txt"),
        "the quick brown fox jumps over the lazy dog.\n".repeat(60),
    )
    .unwrap();
    let seen = train(dir.path(), "gpt-mini", &["--data", "fox.txt", "--max-steps", "1"]);
    let [(1, tag, Seen::Text(text))] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(tag, "samples/text_summary");
    assert!(
        text.lines().all(|line| line.starts_with("    ")) && text.chars().count() > 100,
        "{text:?}"
    );
}

#[test]
fn views_do_not_change_a_run() {
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), "lenet", &["--synthetic", "40"]);
    let args = [
        "train",
        "lenet",
        "--batch",
        "8",
        "--epochs",
        "2",
        "--synthetic",
        "40",
        "--out",
        "plain",
    ];
    succeeds(dir.path(), &args);
    let weights = |run: &str| std::fs::read(dir.path().join(run).join("last.safetensors")).unwrap();
    assert!(weights("lenet") == weights("plain"));
}
