//! The names of the kinds of files: regular file, folder, FIFO and so on.

use rustix::fs::FileType;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The name, with its article, of the kind of file in a `st_mode`.
pub(crate) fn kind(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something unknown",
    }
}

/// The name, with its article, of the kind of file that has this metadata: `a FIFO`, `a folder`, …
pub fn kind_of(metadata: &Metadata) -> &'static str {
    kind(metadata.mode())
}
