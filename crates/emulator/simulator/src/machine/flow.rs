//! Control flow: kinds of instructions, calls, and the groups that the lanes of a warp form.

use super::slot::Line;

/// The kind of an instruction for the loop that runs a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs for the active lanes; the next instruction follows.
    Plain,
    /// As `Plain`, once all lanes of the member mask in `e` are here.
    Together,
    /// Jumps to `imm` where the guard holds.
    Branch,
    /// Jumps to one of a list, by the index in `a`.
    BranchIndexed,
    /// Calls the function of `Code::calls` with the number `imm`.
    Call,
    /// Calls the functions whose addresses stand in `a`, of those in `Code::callees` with the number `imm`.
    CallIndirect,
    Return,
    Exit,
    /// `bar.sync`, `bar.arrive` and `bar.red`.
    Barrier,
    /// `bar.warp.sync`.
    WarpBarrier,
    /// `mbarrier.try_wait`.
    Phase,
    /// Runs once for the four warps of a warpgroup, when all of them are here.
    Warpgroup,
}

/// The sizes of a function's frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    /// The pc of the first instruction.
    pub(crate) start: u32,
    /// Bytes of registers.
    pub(crate) registers: u32,
    /// The lines of registers that are zero when the function starts, because it may read them before it writes them.
    pub(crate) undefined: Vec<u32>,
    /// Bytes of local memory for each lane, parameters included.
    pub(crate) local: u32,
}

/// The parameters that a call copies: from the caller's local memory to the callee's, and back.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSite {
    pub(crate) function: u32,
    /// Offset at the caller, offset at the callee, bytes.
    pub(crate) arguments: Vec<(u32, u32, u32)>,
    pub(crate) results: Vec<(u32, u32, u32)>,
}

/// Lanes that stand at one pc of one frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    pub(crate) frame: u32,
    pub(crate) depth: u32,
    pub(crate) state: State,
}

/// The event that a group waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing: it can run.
    #[default]
    Ready,
    /// The barrier of the block with this number; its pc is the barrier's.
    Barrier(u32),
    /// The other lanes of their member masks, at the same instruction.
    Together,
    /// The other lanes of this mask, at any `bar.warp.sync`.
    WarpBarrier(u32),
    /// The phase of an mbarrier; its lanes run the instruction again when something has happened.
    Phase,
    /// The other warps of the warpgroup, at the same instruction.
    Warpgroup,
}

/// One activation of a function.
#[derive(Debug, Default)]
pub(crate) struct FrameState {
    /// At least as many as the function has; a frame that is used again keeps those of the function before.
    pub(crate) registers: Vec<Line>,
    pub(crate) function: u32,
    pub(crate) parent: u32,
    pub(crate) return_pc: u32,
    pub(crate) depth: u32,
    /// The call in `Code::calls`.
    pub(crate) site: u32,
    /// The offset of its local memory in each lane's.
    pub(crate) local: u32,
    /// The lanes inside; a frame without lanes is free.
    pub(crate) mask: u32,
}

impl FrameState {
    /// Makes the registers those of a function that starts.
    pub(crate) fn start(&mut self, function: &Frame) {
        let lines = (function.registers as usize).div_ceil(64).max(1);
        if self.registers.len() < lines {
            self.registers.resize(lines, Line([0; 64]));
        }
        for &line in &function.undefined {
            self.registers[line as usize] = Line([0; 64]);
        }
    }
}
