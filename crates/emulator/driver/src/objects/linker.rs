//! Linkers of images.

use crate::jit::Logs;

/// One linker.
pub(crate) struct Linker {
    pub(crate) logs: Logs,
    pub(crate) texts: Vec<String>,
    /// The image that `cuLinkComplete` returned; it lives as long as the linker.
    pub(crate) image: Option<Box<[u8]>>,
}
