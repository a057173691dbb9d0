//! Runs every target on its seeds, on inputs that failed before, and on changed inputs that are the same in every run.

use kiln_fuzz::search::{fails, search};
use kiln_fuzz::{TARGETS, target};
use std::path::Path;

/// Changed inputs for each target; all together take a few seconds.
const INPUTS: u64 = 400;

fn holds(name: &str) {
    let target = target(name).expect("a target");
    if let Some(input) = search(target, 0..INPUTS, |_, _| true) {
        panic!("{name} fails on {input:02x?}: `cargo xtask fuzz {name}` makes it smaller");
    }
}

macro_rules! holds {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            holds($name);
        })*

        #[test]
        fn every_target_is_here() {
            let here = [$($name),*];
            assert!(TARGETS.iter().map(|t| t.name).eq(here), "a target has no test");
        }
    };
}

holds! {
    ops: "ops",
    weights: "weights",
    idx: "idx",
    cifar: "cifar",
    csv: "csv",
    text: "text",
    pairs: "pairs",
    conll: "conll",
    squad: "squad",
    image: "image",
    clip: "clip",
    image_folder: "image-folder",
    ptx: "ptx",
    fatbin: "fatbin",
}

/// `corpus/TARGET` holds inputs that failed before a bug was fixed.
#[test]
fn what_once_failed_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in std::fs::read_dir(&corpus).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let target = target(&name).unwrap_or_else(|| panic!("corpus/{name}: no such target"));
        for file in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            let input = std::fs::read(file.path()).expect("a file of the corpus");
            assert!(!fails(target, &input), "{}", file.path().display());
        }
    }
}
