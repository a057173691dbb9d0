//! The targets.

mod emulator;
mod files;
mod ops;
mod scratch;
mod texts;

/// A function that must not panic for any bytes.
#[derive(Debug)]
pub struct Target {
    /// The target's name on the command line of `cargo xtask fuzz`.
    pub name: &'static str,
    /// The part of Kiln that reads the bytes, for the list of targets.
    pub about: &'static str,
    /// Runs the target on an input.
    pub run: fn(&[u8]),
    /// Valid or nearly valid inputs, from which others are made.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "ops",
        about: "programs of tensor ops with their gradients",
        run: ops::run,
        seeds: ops::seeds,
    },
    Target {
        name: "weights",
        about: "safetensors files",
        run: files::weights,
        seeds: files::weight_seeds,
    },
    Target {
        name: "idx",
        about: "IDX files, compressed or not",
        run: files::idx,
        seeds: files::idx_seeds,
    },
    Target {
        name: "cifar",
        about: "CIFAR-10 batches",
        run: files::cifar,
        seeds: files::cifar_seeds,
    },
    Target {
        name: "csv",
        about: "CSV files",
        run: files::csv,
        seeds: files::csv_seeds,
    },
    Target {
        name: "text",
        about: "texts, character by character",
        run: files::text,
        seeds: files::text_seeds,
    },
    Target {
        name: "pairs",
        about: "tables of pairs of texts",
        run: texts::pairs,
        seeds: texts::pair_seeds,
    },
    Target {
        name: "conll",
        about: "tagged words",
        run: texts::conll,
        seeds: texts::conll_seeds,
    },
    Target {
        name: "squad",
        about: "questions about texts in JSON",
        run: texts::squad,
        seeds: texts::squad_seeds,
    },
    Target {
        name: "image",
        about: "PNG and JPEG files",
        run: files::image,
        seeds: files::image_seeds,
    },
    Target {
        name: "clip",
        about: "GIF and Y4M files",
        run: files::clip,
        seeds: files::clip_seeds,
    },
    Target {
        name: "image-folder",
        about: "names of folders and files",
        run: files::image_folder,
        seeds: files::image_folder_seeds,
    },
    Target {
        name: "ptx",
        about: "PTX text",
        run: emulator::ptx,
        seeds: emulator::ptx_seeds,
    },
    Target {
        name: "fatbin",
        about: "images that hold PTX: fat binaries, cubins",
        run: emulator::fatbin,
        seeds: emulator::fatbin_seeds,
    },
];

/// The target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
