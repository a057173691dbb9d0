#![doc = include_str!("../README.md")]

mod compile;
mod entries;
mod found;
mod generate;
mod toolkit;

pub use found::{Nvcc, find};
pub use generate::documented;

use std::path::{Path, PathBuf};

/// The header that every build can include.
const SLICE: &str = include_str!("../include/slice.cuh");

/// The compilation of a folder of CUDA C, in a build script.
#[derive(Debug)]
pub struct Build {
    folder: PathBuf,
    include: Vec<PathBuf>,
    module: String,
    types: String,
    strict: bool,
}

impl Build {
    /// The `.cu` files of `folder`, which is in the folder of the manifest. Headers are looked for there too.
    ///
    /// ```no_run
    /// kiln_nvcc::Build::new("kernels").run();
    /// ```
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Build {
            folder: folder.as_ref().to_path_buf(),
            include: Vec::new(),
            module: "kernels.rs".to_string(),
            types: "::kiln_kernels".to_string(),
            strict: false,
        }
    }

    /// Adds a folder where headers are looked for.
    pub fn include(mut self, folder: impl AsRef<Path>) -> Self {
        self.include.push(folder.as_ref().to_path_buf());
        self
    }

    /// The name of the Rust file in `OUT_DIR`, by default `kernels.rs`.
    pub fn module(mut self, name: &str) -> Self {
        self.module = name.to_string();
        self
    }

    /// The Rust path of the types `Image` and `Kernel`, by default `::kiln_kernels`.
    pub fn types(mut self, path: &str) -> Self {
        self.types = path.to_string();
        self
    }

    /// Makes nvcc's warnings and spilled registers errors.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Compiles what has changed and writes the module. An error ends the build script with nvcc's output.
    pub fn run(self) {
        if let Err(message) = self.try_run() {
            eprintln!("{message}");
            std::process::exit(1);
        }
    }

    /// As [`Build::run`].
    ///
    /// # Errors
    /// nvcc is not found or does not compile a file, whose output is in the message; a file cannot be read or written; the program
    /// is not run by cargo.
    pub fn try_run(self) -> Result<(), String> {
        let (root, out) = (env("CARGO_MANIFEST_DIR")?, env("OUT_DIR")?);
        let (root, out) = (Path::new(&root), Path::new(&out));
        for name in ["NVCC", "PATH", "VIRTUAL_ENV"].iter().chain(toolkit::HOMES) {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let environment = toolkit::own(root).join("pyvenv.cfg");
        if environment.exists() {
            println!("cargo::rerun-if-changed={}", environment.display());
        }
        let folder = root.join(&self.folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut sources = cuda_files(&folder)?;
        sources.sort();
        let header = out.join("include/kiln/slice.cuh");
        write_if_new(&header, SLICE)?;
        let mut include = vec![folder, out.join("include")];
        include.extend(self.include.iter().map(|path| root.join(path)));
        let nvcc = toolkit::find(root)?;
        let images = compile::all(&nvcc, &include, &sources, out, self.strict)?;
        write_if_new(&out.join(&self.module), &generate::module(&images, &self.types)?)
    }
}

/// The translation units of a folder; headers end in `.cuh`.
fn cuda_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let paths = entries.map(|entry| entry.map(|e| e.path()).map_err(|e| e.to_string()));
    let files: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
    Ok(files
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "cu"))
        .collect())
}

fn write_if_new(path: &Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = made.and_then(|()| std::fs::write(path, text));
    written.map_err(|e| format!("cannot write {}: {e}", path.display()))
}

fn env(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("{name} is not set: this program is run by cargo"))
}
