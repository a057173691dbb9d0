//! Temporary files for readers that take a path.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A temporary folder with a unique name, which is removed on drop.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// A new folder, or `None` if it cannot be made.
    pub(super) fn new() -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "kiln-fuzz-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).ok()?;
        Some(Scratch(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in the folder and returns its path.
    pub(super) fn file(&self, name: &str, bytes: &[u8]) -> Option<PathBuf> {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).ok()?;
        Some(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
