//! Tests of `kiln report` and `kiln train --report`.

use crate::common::{names, run, succeeds};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roxmltree::{Document, Node, ParsingOptions};
use std::path::Path;

const SHORT: [&str; 9] = [
    "train",
    "lenet",
    "--synthetic",
    "40",
    "--batch",
    "8",
    "--epochs",
    "2",
    "--out",
];

/// The page as XML, after checks that nothing in it leads out of it.
fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let document = Document::parse_with_options(page, options).unwrap_or_else(|e| panic!("{e}: {page}"));
    for outside in ["http://", "https://", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for node in document.descendants() {
        assert!(!["script", "link", "iframe", "object"].contains(&node.tag_name().name()));
        assert_eq!(node.attribute("href"), None);
        assert!(
            node.attribute("src")
                .is_none_or(|src| src.starts_with("data:image/png;base64,"))
        );
    }
    document
}

fn section<'a>(document: &'a Document<'_>, id: &str) -> Option<Node<'a, 'a>> {
    document.descendants().find(|node| node.attribute("id") == Some(id))
}

fn count(node: Node<'_, '_>, name: &str) -> usize {
    node.descendants().filter(|n| n.has_tag_name(name)).count()
}

fn text(node: Node<'_, '_>) -> String {
    let parts = node.descendants().filter(|n| n.is_text()).filter_map(|n| n.text());
    parts.collect::<Vec<_>>().join(" ")
}

fn read(dir: &Path, file: &str) -> String {
    std::fs::read_to_string(dir.join(file)).unwrap()
}

#[test]
fn a_report_has_every_part_and_nothing_from_outside() {
    let dir = tempfile::tempdir().unwrap();
    let args = [&SHORT[..], &["run", "--report", "--json", "--threads", "2"]].concat();
    let lines = succeeds(dir.path(), &args).json();
    assert_eq!(lines.last().unwrap()["report"], "run/report.html");
    let page = read(dir.path(), "run/report.html");
    let document = parsed(&page);
    let part = |id: &str| section(&document, id).unwrap_or_else(|| panic!("no {id}"));
    // Loss and accuracy in training and validation, learning rate, throughput.
    assert_eq!(
        (count(part("curves"), "svg"), count(part("curves"), "polyline")),
        (4, 6)
    );
    assert_eq!(count(part("curves"), "circle"), 12);
    assert_eq!(count(part("epochs"), "tr"), 3);
    assert!(text(part("warnings")).contains("None"));
    assert!(text(part("steps")).contains("op by op 10"));
    let speed = text(part("speed"));
    assert!(
        speed.contains("Over the run: ") && speed.contains("waiting for data"),
        "{speed}"
    );
    assert!(count(part("speed"), "polyline") >= 1);
    assert!(text(part("layers")).contains("conv1"));
    assert!(text(part("environment")).contains("cpu"));
    assert!(text(part("configuration")).contains("optimizer.name"));
    // The cells of the matrix are the samples that are held back, those beside its diagonal the samples that are shown.
    let cells = |class: &str| -> u64 {
        let all = part("confusion")
            .descendants()
            .filter(|n| n.attribute("class") == Some(class));
        all.filter_map(|n| n.text()?.parse::<u64>().ok()).sum()
    };
    assert_eq!(cells("hit") + cells("miss"), 8);
    let images: Vec<&str> = part("worst").descendants().filter_map(|n| n.attribute("src")).collect();
    assert_eq!(images.len() as u64, cells("miss"));
    let summary: serde_json::Value = serde_json::from_str(&read(dir.path(), "run/summary.json")).unwrap();
    let accuracy = summary["best_accuracy"].as_f64().unwrap();
    assert_eq!((8.0 * accuracy).round() as u64, cells("hit"));
    for image in images {
        let file = STANDARD
            .decode(image.trim_start_matches("data:image/png;base64,"))
            .unwrap();
        let png = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        assert_eq!((png.info().width, png.info().height), (32, 32));
    }
    // Made again, only of what was recorded, and elsewhere.
    let said = succeeds(dir.path(), &["report", "run", "--brief", "-o", "brief.html"]).stdout;
    assert_eq!(said, "saved: brief.html\n");
    let page = read(dir.path(), "brief.html");
    let document = parsed(&page);
    assert!(section(&document, "curves").is_some() && section(&document, "confusion").is_none());
}

#[test]
fn what_cannot_be_measured_is_said_in_the_report() {
    let dir = tempfile::tempdir().unwrap();
    succeeds(dir.path(), &[&SHORT[..], &["run <a&b>"]].concat());
    let folder = dir.path().join("run <a&b>");
    assert!(!names(&folder).contains(&"report.html".to_string()));
    for name in ["best.safetensors", "last.safetensors", "summary.json"] {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    let ran = succeeds(dir.path(), &["report", "run <a&b>"]);
    let warned = "warning: the report has no confusion matrix";
    assert!(ran.stderr.contains(warned), "{}", ran.stderr);
    let page = read(&folder, "report.html");
    let document = parsed(&page);
    assert!(text(document.root()).contains("run <a&b>"));
    assert!(text(section(&document, "warnings").unwrap()).contains("Without confusion matrix"));
    assert!(section(&document, "worst").is_none() && section(&document, "layers").is_some());
}

#[test]
fn a_report_of_no_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), &["report", "none"]).fails(1, &["none/config.json", "help: ", "run folder"]);
    std::fs::create_dir(dir.path().join("other")).unwrap();
    run(dir.path(), &["report", "other"]).fails(1, &["other/config.json", "run folder"]);
    assert!(names(&dir.path().join("other")).is_empty());
    succeeds(dir.path(), &[&SHORT[..], &["run"]].concat());
    run(dir.path(), &["report", "run", "-o", "no/such/file.html"]).fails(1, &["no/such", "--out"]);
    let history = dir.path().join("run/history.jsonl");
    for (text, parts) in [
        ("", ["has not finished an epoch", "--resume"]),
        ("{}\n", ["history.jsonl", "line 1"]),
    ] {
        std::fs::write(&history, text).unwrap();
        run(dir.path(), &["report", "run"]).fails(1, &parts);
    }
    std::fs::remove_file(&history).unwrap();
    run(dir.path(), &["report", "run"]).fails(1, &["history.jsonl"]);
}
