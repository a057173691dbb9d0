//! `cargo xtask browser`: reports of runs, opened in a headless Chromium.

use crate::workspace::{Outcome, cargo, passes, root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The names of a Chromium.
const CHROMIUMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Flags without which a browser asks its maker's servers, or wants a desktop.
const QUIET: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
    "--virtual-time-budget=60000",
];

/// The runs whose reports are opened: of classes of images, of text, and of several updates that make images.
const RUNS: [(&str, &str); 3] = [
    (
        "images",
        "train lenet --synthetic 40 --batch 8 --epochs 3 --threads 2 --report --out",
    ),
    (
        "text",
        "train gpt-mini --data README.md --batch 2 --epochs 2 --max-steps 2 --threads 2 --report --out",
    ),
    (
        "gan",
        "train wgan-gp --synthetic 40 --batch 8 --epochs 3 --threads 2 --report --out",
    ),
];

/// The width of a phone's window and of a desktop's, in CSS pixels.
const WIDTHS: [u32; 2] = [360, 1280];

/// The least contrast of text with what is behind it: WCAG 2.1, level AA.
const CONTRAST: f64 = 4.5;

/// A page that opens another one in windows of several widths, and writes what it finds into its own body.
const MEASURE: &str = include_str!("browser.html");

pub(crate) fn run() -> Outcome {
    let chromium = find().ok_or_else(|| {
        format!(
            "no browser: looked for {}; Debian's package is called chromium",
            CHROMIUMS.join(", ")
        )
    })?;
    if !passes(&mut cargo(["build", "--package", "kiln-cli"]))? {
        return Ok(false);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir));
    let folder = std::env::temp_dir().join(format!("kiln-browser-{}", std::process::id()));
    let result = reports(&chromium, &target.join("debug/kiln"), &folder);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// A browser in one of the folders of `PATH`.
pub(crate) fn find() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let mut files = CHROMIUMS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.find(|file| file.is_file())
}

fn reports(chromium: &Path, kiln: &Path, folder: &Path) -> Outcome {
    let cannot = |e| format!("cannot write into {}: {e}", folder.display());
    std::fs::create_dir_all(folder).map_err(cannot)?;
    std::fs::write(folder.join("measure.html"), MEASURE).map_err(cannot)?;
    let mut well = true;
    for (name, command) in RUNS {
        let mut train = Command::new(kiln);
        train
            .args(command.split(' '))
            .arg(folder.join(name))
            .current_dir(root());
        if !passes(train.stdout(Stdio::null()))? {
            return Ok(false);
        }
        for (scheme, number) in [("dark", 0), ("light", 1)] {
            let faults = measure(chromium, folder, name, number)?;
            match faults.is_empty() {
                true => println!("{name}, {scheme}: ok"),
                false => println!("{name}, {scheme}: FAILED\n  {}", faults.join("\n  ")),
            }
            well &= faults.is_empty();
        }
    }
    Ok(well)
}

/// Opens the report of a run and returns what is wrong with it.
fn measure(chromium: &Path, folder: &Path, run: &str, scheme: u8) -> Result<Vec<String>, String> {
    let widths = WIDTHS.map(|w| w.to_string()).join(",");
    let page = folder.join("measure.html");
    let url = format!("file://{}#{run}/report.html|{widths}", page.display());
    let output = Command::new(chromium)
        .args(QUIET)
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(["--dump-dom", &url])
        .stderr(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run {}: {e}", chromium.display()))?;
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = dom
        .split_once("<pre>")
        .and_then(|(_, rest)| rest.split_once("</pre>"))
        .ok_or_else(|| format!("the browser ended ({}) without a measurement: {dom}", output.status))?;
    let found: Value =
        serde_json::from_str(found.0).map_err(|e| format!("the browser's measurement is no JSON: {e}: {}", found.0))?;
    faults(&found).ok_or_else(|| format!("the browser's measurement is not what was expected: {found}"))
}

/// What is wrong with a page of which the browser has found this.
fn faults(found: &Value) -> Option<Vec<String>> {
    let mut faults = Vec::new();
    let windows = found.as_array()?;
    if windows.len() != WIDTHS.len() {
        return None;
    }
    for window in windows {
        let number = |key: &str| window[key].as_f64();
        let mut fault = |text: String| faults.push(format!("{} px: {text}", window["width"]));
        for error in window["errors"].as_array()? {
            fault(format!("error: {error}"));
        }
        for loaded in window["loaded"].as_array()? {
            fault(format!("loads {loaded}"));
        }
        if number("scroll")? > number("client")? {
            fault(format!(
                "scrolls sideways, {} of {}",
                window["scroll"], window["client"]
            ));
        }
        if number("broken")? > 0.0 {
            fault(format!("{} images are broken", window["broken"]));
        }
        if number("charts")? < 1.0 || number("flat")? > 0.0 {
            fault(format!("{} of {} charts are empty", window["flat"], window["charts"]));
        }
        let (contrast, text) = (number("contrast")?, window["faintest"].as_str()?);
        if contrast < CONTRAST {
            fault(format!(
                "`{text}` has a contrast of {contrast:.1}, less than {CONTRAST}"
            ));
        }
    }
    Some(faults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_fault_of_a_page_is_found() {
        let good = json!({
            "width": 360, "errors": [], "loaded": [], "scroll": 345, "client": 345, "broken": 0, "charts": 4, "flat": 0,
            "contrast": 7.0, "faintest": "loss",
        });
        assert_eq!(faults(&json!([good, good])), Some(Vec::new()));
        assert_eq!(faults(&json!([good])), None);
        assert_eq!(faults(&json!([{}, {}])), None);
        for (key, value) in [
            ("errors", json!(["x is not defined"])),
            ("loaded", json!(["https://example.org/a.js"])),
            ("scroll", json!(700)),
            ("broken", json!(1)),
            ("charts", json!(0)),
            ("flat", json!(2)),
            ("contrast", json!(2.0)),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert_eq!(faults(&json!([good, bad])).unwrap().len(), 1, "{key}");
        }
    }
}
