//! A decoded instruction and the code it belongs to.

use super::warp::Warp;
use crate::ptx::Place;

/// What an instruction does to the active lanes of a warp.
///
/// # Safety
/// The warp's rows cover every slot of the instruction; `decode` made both from the same function.
pub(crate) type Handler = unsafe fn(&mut Warp, &Inst);

/// Where a value lives: a byte offset into the registers of the frame, or into the constants when the top bit is set.
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

    /// Whether it lies in the constants: every lane has the same value.
    pub(crate) fn is_constant(self) -> bool {
        self.0 >> 31 != 0
    }
}

/// How the warp's loop treats an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs for the active lanes and goes on.
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
}

/// One decoded instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub(crate) run: Handler,
    /// For accesses: computes and checks the lanes' addresses.
    pub(crate) locate: super::space::Locate,
    pub(crate) d: Slot,
    pub(crate) d2: Slot,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    pub(crate) e: Slot,
    /// The guard's predicate, or `NONE`.
    pub(crate) guard: Slot,
    /// All ones when the guard is negated.
    pub(crate) flip: u32,
    pub(crate) kind: Kind,
    /// The opcode's options, in its own encoding.
    pub(crate) flags: u32,
    /// An offset, a target or another number.
    pub(crate) imm: i64,
    /// A range of `Code::lists`.
    pub(crate) list: (u32, u32),
}

/// A value that is known when the kernel is launched.
#[derive(Clone, Debug)]
pub(crate) enum Late {
    /// The address of a variable of the program, plus an offset.
    Variable { index: u32, offset: i64 },
    /// `size` bytes of the parameters.
    Param { offset: u32, size: u32 },
    /// The number of bytes of static shared memory plus an offset: where dynamic shared memory starts.
    Dynamic { offset: i64 },
}

/// What a frame of a function needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    /// The pc of the first instruction.
    pub(crate) start: u32,
    /// Bytes of registers.
    pub(crate) registers: u32,
    /// Bytes of local memory for each lane, parameters included.
    pub(crate) local: u32,
}

/// What a call passes: from the caller's local memory to the callee's, and back.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSite {
    pub(crate) function: u32,
    /// Offset at the caller, offset at the callee, bytes.
    pub(crate) arguments: Vec<(u32, u32, u32)>,
    pub(crate) results: Vec<(u32, u32, u32)>,
}

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// The line that a programmer would look at.
    pub(crate) place: Place,
    /// The line of the toolkit's header that was inlined there.
    pub(crate) header: Option<Place>,
}

/// A kernel ready to run, with every function it calls.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) insts: Vec<Inst>,
    /// The source of each instruction.
    pub(crate) places: Vec<Origin>,
    /// The names of the source files.
    pub(crate) files: Vec<(u32, String)>,
    pub(crate) lists: Vec<Slot>,
    /// The kernel is the first.
    pub(crate) functions: Vec<Frame>,
    pub(crate) calls: Vec<CallSite>,
    /// Of each indirect call: the address and the call of each function that it may reach.
    pub(crate) callees: Vec<Vec<(u64, u32)>>,
    /// Why functions that only indirect calls reach could not be decoded.
    pub(crate) refusals: Vec<String>,
    /// The constants' rows.
    pub(crate) constants: Vec<Line>,
    /// Rows (offset, bytes of a lane) to be filled at launch.
    pub(crate) late: Vec<(u32, u32, Late)>,
    pub(crate) static_shared: u32,
    /// True if it calls `malloc` or `free`.
    pub(crate) heap: bool,
    /// The smallest access to shared and to global memory, in bytes, and at most 4; 0 when there is none.
    pub(crate) granules: [u32; 2],
}

/// A cache line: rows start at its alignment.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; 64]);

impl Code {
    /// The file's name and the line of an instruction; the file is empty and the line 0 where the PTX does not say.
    pub(crate) fn source(&self, pc: u32) -> (String, u32) {
        self.named(self.origin(pc).place)
    }

    /// The file's name and the line inside the toolkit's headers, for an instruction that was inlined from there.
    pub(crate) fn header(&self, pc: u32) -> Option<(String, u32)> {
        self.origin(pc).header.map(|place| self.named(place))
    }

    fn origin(&self, pc: u32) -> Origin {
        self.places.get(pc as usize).copied().unwrap_or_default()
    }

    fn named(&self, place: Place) -> (String, u32) {
        let file = self.files.iter().find(|(number, _)| *number == place.file);
        (file.map(|(_, name)| name.clone()).unwrap_or_default(), place.line)
    }
}
