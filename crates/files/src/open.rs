//! Opens regular files and nothing else: reading a pipe may block, and opening a device may have side effects.

use crate::kind::kind_of;
use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The error of a path that is not a regular file, as the source of an [`io::Error`] of kind `InvalidInput`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRegular {
    /// The kind of file found, with its article: `a folder`, `a FIFO`.
    pub found: &'static str,
}

impl std::fmt::Display for NotRegular {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it is {}, expected a regular file", self.found)
    }
}

impl std::error::Error for NotRegular {}

/// Opens a regular file for reading, following links; returns it with its size in bytes.
///
/// # Errors
/// [`NotRegular`] for anything else, which is neither opened nor waited for; otherwise the system's error.
pub fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    // Checked before opening, because opening a device may have a side effect, such as rewinding a tape.
    regular(&std::fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    // Checked again, because the path may lead to another file by now. With NONBLOCK even a pipe opens at once.
    let meta = file.metadata()?;
    regular(&meta)?;
    Ok((file, meta.len()))
}

fn regular(metadata: &Metadata) -> io::Result<()> {
    match metadata.is_file() {
        true => Ok(()),
        false => {
            let found = kind_of(metadata);
            Err(io::Error::new(ErrorKind::InvalidInput, NotRegular { found }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(error: &io::Error) -> Option<&'static str> {
        Some(error.get_ref()?.downcast_ref::<NotRegular>()?.found)
    }

    /// A folder with one file of each kind: `file`, `folder`, `pipe`, `socket`, and links to them, to nothing and to itself.
    fn kinds() -> (tempfile::TempDir, std::os::unix::net::UnixListener) {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), b"seven b").unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for name in ["file", "folder", "pipe", "nothing"] {
            symlink(name, at(&format!("to-{name}"))).unwrap();
        }
        symlink("circle", at("circle")).unwrap();
        (dir, socket)
    }

    #[test]
    fn regular_files_alone_are_opened() {
        let (dir, _socket) = kinds();
        for name in ["file", "to-file"] {
            assert_eq!(open_regular(&dir.path().join(name)).unwrap().1, 7, "{name}");
        }
        for (name, kind) in [
            ("folder", "a folder"),
            ("to-folder", "a folder"),
            ("pipe", "a FIFO"),
            ("to-pipe", "a FIFO"),
            ("socket", "a socket"),
            ("/dev/null", "a device"),
        ] {
            let error = open_regular(&dir.path().join(name)).unwrap_err();
            assert_eq!(found(&error), Some(kind), "{name}: {error}");
        }
        let absent = open_regular(&dir.path().join("nothing")).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
        assert!(open_regular(&dir.path().join("circle")).is_err());
    }
}
