//! Operands of decoded instructions.

/// The place of a value: a byte offset into the registers of the frame, or into the constants when the top bit is set.
/// A value of 32 lanes is a row; a predicate is one `u32`, a bit for each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// No operand.
    pub(crate) const NONE: Slot = Slot(u32::MAX);

    pub(crate) fn constant(offset: u32) -> Slot {
        Slot(offset | 1 << 31)
    }

    pub(crate) fn is_some(self) -> bool {
        self != Slot::NONE
    }

    /// True if it lies in the constants: every lane has the same value.
    pub(crate) fn is_constant(self) -> bool {
        self.0 >> 31 != 0
    }
}

/// A value that is known when the kernel is launched.
#[derive(Clone, Debug)]
pub(crate) enum LaunchConstant {
    /// The address of a variable of the program, plus an offset.
    Variable { index: u32, offset: i64 },
    /// `size` bytes of the parameters.
    Param { offset: u32, size: u32 },
    /// The number of bytes of static shared memory plus an offset: where dynamic shared memory starts.
    Dynamic { offset: i64 },
}

/// A cache line: rows start at its alignment.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; 64]);
