//! The nvcc that a build would use, for programs that tell their users.

use crate::toolkit;
use std::path::{Path, PathBuf};

/// An nvcc that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nvcc {
    /// The program.
    pub path: PathBuf,
    /// Its release, such as `13.0`; empty if `nvcc --version` says none.
    pub release: String,
}

/// The nvcc that a build uses: one that `NVCC` or a variable of the toolkit's folder names, one on `PATH`, one in a usual system
/// folder, one of the active virtual environment, that of `cargo xtask toolkit` in `folder` or above it.
///
/// # Errors
/// A text that says where it was looked for, and three ways to get one.
pub fn find(folder: &Path) -> Result<Nvcc, String> {
    let toolkit::Nvcc { path, version } = toolkit::find(&folder.join("Cargo.toml"))?;
    let release = release(&version).to_string();
    Ok(Nvcc { path, release })
}

/// The release in the output of `nvcc --version`.
fn release(version: &str) -> &str {
    let after = version.split("release ").nth(1).unwrap_or_default();
    after.split(',').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn the_release_is_read() {
        assert_eq!(release("Cuda compilation tools, release 13.0, V13.0.88"), "13.0");
        assert_eq!(release("something else"), "");
    }
}
