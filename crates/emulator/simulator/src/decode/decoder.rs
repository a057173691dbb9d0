//! The code of one kernel, and of the functions that it calls, while it is being decoded.

use std::collections::HashMap;

use kiln_ptx::Function;

use super::source::{Source, layout};
use crate::LoadError;
use crate::exec::{Ty, nowhere};
use crate::machine::{CallSite, Code, Frame, Handler, Inst, Kind, LaunchConstant, Line, Slot, Warp};

/// Decodes one kernel and the functions that it calls.
pub(super) struct Decoder<'p> {
    pub(super) source: &'p Source,
    /// True if the accesses of the code are observed.
    pub(super) observed: bool,
    pub(super) code: Code,
    /// Functions of the code.
    pub(super) functions: Vec<&'p Function>,
    /// The functions that each function calls directly.
    pub(super) calls: Vec<Vec<u32>>,
    /// The errors of functions that cannot be decoded.
    pub(super) broken: HashMap<u32, LoadError>,
    /// Constants that exist: bits and width.
    constants: HashMap<(u64, u32), Slot>,
    /// The offsets of the kernel's shared variables.
    shared: HashMap<String, u32>,
    /// The end of the static shared variables, which may be more than there can be.
    pub(super) shared_end: u64,
    constant_bytes: u32,
}

pub(super) type Result<T> = std::result::Result<T, LoadError>;

impl<'p> Decoder<'p> {
    /// A decoder of the kernel with this index in the module, which has decoded nothing yet.
    pub(super) fn new(source: &'p Source, kernel: usize, observed: bool) -> Self {
        Decoder {
            source,
            observed,
            code: Code::default(),
            functions: vec![&source.module.functions[kernel]],
            calls: vec![Vec::new()],
            broken: HashMap::new(),
            constants: HashMap::new(),
            shared: HashMap::new(),
            shared_end: 0,
            constant_bytes: 0,
        }
    }

    /// Makes room for a constant row.
    pub(super) fn new_constant(&mut self, ty: Ty) -> u32 {
        let bytes = ty.bytes().max(2) * 32;
        let at = self.constant_bytes;
        self.constant_bytes += bytes.next_multiple_of(64);
        self.code
            .constants
            .resize(self.constant_bytes as usize / 64, Line([0; 64]));
        at
    }

    /// A row that has these bits in every lane; a predicate's bits are those of its mask.
    pub(super) fn constant(&mut self, bits: u64, ty: Ty) -> Slot {
        let key = (bits, if ty == Ty::Pred { 99 } else { ty.bytes() });
        if let Some(slot) = self.constants.get(&key) {
            return *slot;
        }
        let at = self.new_constant(ty);
        let (bits, size) = if ty == Ty::Pred {
            (bits, 4)
        } else {
            (bits, ty.bytes() as usize)
        };
        let lanes = if ty == Ty::Pred { 1 } else { 32 };
        for lane in 0..lanes {
            for (k, byte) in bits.to_le_bytes()[..size].iter().enumerate() {
                let byte_at = at as usize + lane * size + k;
                self.code.constants[byte_at / 64].0[byte_at % 64] = *byte;
            }
        }
        let slot = Slot::constant(at);
        self.constants.insert(key, slot);
        slot
    }

    /// A row that is filled at launch.
    pub(super) fn launch_constant(&mut self, ty: Ty, constant: LaunchConstant) -> Slot {
        let at = self.new_constant(ty);
        self.code.launch_constants.push((at, ty.bytes(), constant));
        Slot::constant(at)
    }

    /// The offset of a static shared variable, which the kernel needs from now on.
    pub(super) fn shared_offset(&mut self, name: &str, size: u64, align: u32) -> u32 {
        if let Some(at) = self.shared.get(name) {
            return *at;
        }
        let at = self.shared_end.next_multiple_of(u64::from(align.max(1)));
        self.shared_end = at.saturating_add(size);
        // A variable that does not fit is found later, by the total size.
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        self.shared.insert(name.to_string(), at);
        at
    }

    /// The number that a function has in the code.
    pub(super) fn function(&mut self, name: &str) -> Option<u32> {
        let found = &self.source.module.functions[self.source.module.function(name)?];
        if let Some(at) = self.functions.iter().position(|f| std::ptr::eq(*f, found)) {
            return Some(at as u32);
        }
        self.functions.push(found);
        self.calls.push(Vec::new());
        Some(self.functions.len() as u32 - 1)
    }
}

/// An instruction without operands.
pub(super) fn blank(run: Handler) -> Inst {
    Inst {
        run,
        locate: nowhere,
        d: Slot::NONE,
        d2: Slot::NONE,
        a: Slot::NONE,
        b: Slot::NONE,
        c: Slot::NONE,
        e: Slot::NONE,
        guard: Slot::NONE,
        flip: 0,
        kind: Kind::Plain,
        flags: 0,
        imm: 0,
        list: (0, 0),
    }
}

/// The handler of instructions that the loop of a warp carries out by itself.
pub(super) unsafe fn nothing(_: &mut Warp, _: &Inst) {}

/// The offsets of a function's return values and parameters in its local memory, and their end.
pub(super) fn formals(f: &Function) -> (Vec<u32>, Vec<u32>, u32) {
    let (returns, end) = layout(f.returns.iter(), 0);
    let (params, end) = layout(f.params.iter(), end);
    (returns, params, end)
}

/// A frame whose size is not known yet.
pub(super) fn frame(start: u32) -> Frame {
    Frame {
        start,
        registers: 0,
        undefined: Vec::new(),
        local: 0,
    }
}

/// A call without arguments.
pub(super) fn call_site(function: u32) -> CallSite {
    CallSite {
        function,
        arguments: Vec::new(),
        results: Vec::new(),
    }
}
