//! Runs `nvdisasm`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use thiserror::Error;

/// Why machine code could not be taken apart.
#[derive(Debug, Error)]
pub enum Error {
    /// The program does not run.
    #[error(
        "{program} does not run ({reason}): it is part of the CUDA toolkit and of the PyPI package nvidia-cuda-nvdisasm"
    )]
    Missing {
        /// The program that was tried.
        program: PathBuf,
        /// The system's answer.
        reason: String,
    },
    /// The program refuses the code.
    #[error("nvdisasm: {0}")]
    Refused(String),
    /// A file of its own cannot be written.
    #[error("cannot write {path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The image has no machine code for an architecture.
    #[error("the image has no machine code for sm_{arch}")]
    NoCode {
        /// The architecture that was asked for.
        arch: u32,
    },
    /// The listing is not what was expected.
    #[error("the listing of nvdisasm cannot be read: {0}")]
    Listing(String),
}

/// NVIDIA's disassembler.
#[derive(Clone, Debug)]
pub struct Disassembler {
    program: PathBuf,
    version: String,
}

impl Disassembler {
    /// The disassembler at this path, or of this name on `PATH`.
    ///
    /// # Errors
    /// [`Error::Missing`] if it does not run.
    pub fn find(program: &Path) -> Result<Disassembler, Error> {
        let missing = |reason: String| Error::Missing {
            program: program.to_path_buf(),
            reason,
        };
        let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|e| missing(e.to_string()))?;
        if !output.status.success() {
            return Err(missing(output.status.to_string()));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.split_whitespace().rev().find_map(|word| word.strip_prefix('V'));
        Ok(Disassembler {
            program: program.to_path_buf(),
            version: version.unwrap_or_default().to_string(),
        })
    }

    /// Its version, such as `13.5.37`; empty if it says none.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The listing of a cubin's code, with encodings.
    ///
    /// # Errors
    /// [`Error`](enum@Error) if nvdisasm refuses it, or a temporary file cannot be written.
    pub fn listing(&self, cubin: &[u8]) -> Result<String, Error> {
        // nvdisasm reads files alone.
        let file = tempfile::Builder::new().prefix("kiln-").suffix(".cubin").tempfile();
        let mut file = file.map_err(|error| Error::Io {
            path: std::env::temp_dir(),
            error,
        })?;
        file.write_all(cubin).map_err(|error| Error::Io {
            path: file.path().to_path_buf(),
            error,
        })?;
        let output = Command::new(&self.program)
            .args(["-c", "-hex"])
            .arg(file.path())
            .output();
        let output = output.map_err(|e| Error::Missing {
            program: self.program.clone(),
            reason: e.to_string(),
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Refused(said.lines().next().unwrap_or("no message").to_string()));
        }
        String::from_utf8(output.stdout).map_err(|e| Error::Listing(e.to_string()))
    }
}
