//! The kinds of things that have a name in a file system, as users call them.

use rustix::fs::FileType;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The name, with its article, of a kind that the mode of a `stat` tells.
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

/// The name that users have for a thing with this metadata: `a FIFO`, `a folder`, …
pub fn kind_of(metadata: &Metadata) -> &'static str {
    kind(metadata.mode())
}
