//! Faults that kernels report: the host's side of `kernels/src/common/fault.cuh`.

use bytemuck::{Pod, Zeroable};
use kiln_core::Error;
use kiln_core::ops::CtcParams;

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
    pub(super) const CTC_INPUT_LENGTH: u32 = 9;
    pub(super) const CTC_TARGET_LENGTH: u32 = 10;
    pub(super) const CTC_LABEL: u32 = 11;
    pub(super) const CTC_BLANK: u32 = 12;
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
        let Fault {
            index, position, size, ..
        } = *self;
        match self.code {
            0 => None,
            code::CTC_INPUT_LENGTH => Some(CtcParams::input_length_error(size, index, position)),
            code::CTC_TARGET_LENGTH => Some(CtcParams::target_length_error(size, index, position)),
            // A label beyond the classes, which no blank is.
            code::CTC_LABEL => Some(CtcParams::label_error(size, i64::MAX as u64, index, position)),
            code::CTC_BLANK => Some(CtcParams::label_error(size, index as u64, index, position)),
            other => Some(Error::IndexOutOfRange {
                op: OPS.get(other as usize).copied().unwrap_or("a kernel"),
                index,
                position: position as usize,
                size: size as usize,
            }),
        }
    }
}
