//! Faults that kernels report: the host's side of `kernels/src/common/fault.cuh`.

use bytemuck::{Pod, Zeroable};
use kiln_core::Error;

/// A report as the kernels write it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Fault {
    code: u32,
    pad: u32,
    index: i64,
    position: u64,
    size: u64,
}
const _: () = assert!(size_of::<Fault>() == 32);

/// Codes that are arguments of kernels which serve several ops.
pub(crate) mod code {
    pub(crate) const SCATTER_ADD: u32 = 2;
    pub(crate) const INDEX_SELECT: u32 = 3;
    pub(crate) const INDEX_ADD: u32 = 4;
    pub(crate) const ONE_HOT: u32 = 5;
}

/// The ops that check indices, by their codes.
const OPS: [&str; 9] = [
    "",
    "gather",
    "scatter_add",
    "index_select",
    "index_add",
    "one_hot",
    "cross_entropy",
    "integer_scatter",
    "crop_images",
];

impl Fault {
    /// The error that was reported, if any.
    pub(crate) fn error(&self) -> Option<Error> {
        (self.code != 0).then(|| Error::IndexOutOfRange {
            op: OPS.get(self.code as usize).copied().unwrap_or("a kernel"),
            index: self.index,
            position: self.position as usize,
            size: self.size as usize,
        })
    }
}
