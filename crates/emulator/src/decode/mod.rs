//! From a function's statements to code: registers become slots, labels become pcs, opcodes become handlers.

mod control;
mod forms;
mod function;
mod guesses;
mod indirect;
mod memory;
mod opcode;
mod operand;
mod origin;
mod program;
mod tensor;
mod warpwide;

pub(crate) use opcode::Opcode;
pub(crate) use program::Source;
pub use program::{Kernel, Program, Relocation, Variable};

use std::collections::HashMap;

use crate::LoadError;
use crate::exec::{CallSite, Code, Frame, Handler, Inst, Kind, Late, Line, Slot, Ty, nowhere};
use crate::kernel::MOST_SHARED;
use crate::ptx::Function;

/// Decodes one kernel and what it calls.
pub(crate) struct Decoder<'p> {
    source: &'p Source,
    check: bool,
    code: Code,
    /// Functions of the code.
    functions: Vec<&'p Function>,
    /// The functions that each function calls directly.
    calls: Vec<Vec<u32>>,
    /// Why a function cannot be decoded.
    broken: HashMap<u32, LoadError>,
    /// Constants that exist: bits and width.
    constants: HashMap<(u64, u32), Slot>,
    /// Where each shared variable of the kernel lies.
    shared: HashMap<String, u32>,
    /// The end of the static shared variables, which may be more than there can be.
    shared_end: u64,
    constant_bytes: u32,
}

type Result<T> = std::result::Result<T, LoadError>;

/// Decodes the kernel with this place in the module.
pub(crate) fn decode(source: &Source, kernel: usize, check: bool) -> Result<Code> {
    let mut decoder = Decoder {
        source,
        check,
        code: Code::default(),
        functions: vec![&source.module.functions[kernel]],
        calls: vec![Vec::new()],
        broken: HashMap::new(),
        constants: HashMap::new(),
        shared: HashMap::new(),
        shared_end: 0,
        constant_bytes: 0,
    };
    let mut next = 0;
    while next < decoder.functions.len() {
        indirect::decode(&mut decoder, next);
        next += 1;
    }
    indirect::refuse(&mut decoder)?;
    if decoder.shared_end > MOST_SHARED {
        return Err(LoadError::Limit {
            name: source.module.functions[kernel].name.clone(),
            what: "bytes of static shared memory",
            found: decoder.shared_end,
            most: MOST_SHARED,
        });
    }
    decoder.code.static_shared = decoder.shared_end as u32;
    decoder.code.files.clone_from(&source.module.files);
    Ok(decoder.code)
}

impl<'p> Decoder<'p> {
    /// Makes room for a constant row.
    fn new_constant(&mut self, ty: Ty) -> u32 {
        let bytes = ty.bytes().max(2) * 32;
        let at = self.constant_bytes;
        self.constant_bytes += bytes.next_multiple_of(64);
        self.code
            .constants
            .resize(self.constant_bytes as usize / 64, Line([0; 64]));
        at
    }

    /// A row that has these bits in every lane; a predicate's bits are those of its mask.
    fn constant(&mut self, bits: u64, ty: Ty) -> Slot {
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
    fn late(&mut self, ty: Ty, late: Late) -> Slot {
        let at = self.new_constant(ty);
        self.code.late.push((at, ty.bytes(), late));
        Slot::constant(at)
    }

    /// The offset of a static shared variable, which the kernel needs from now on.
    fn shared_offset(&mut self, name: &str, size: u64, align: u32) -> u32 {
        if let Some(at) = self.shared.get(name) {
            return *at;
        }
        let at = self.shared_end.next_multiple_of(u64::from(align.max(1)));
        self.shared_end = at.saturating_add(size);
        // Where it does not fit, there will be too much in the end.
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        self.shared.insert(name.to_string(), at);
        at
    }

    /// The number that a function has in the code.
    fn function(&mut self, name: &str) -> Option<u32> {
        let found = &self.source.module.functions[self.source.module.function(name)?];
        if let Some(at) = self.functions.iter().position(|f| std::ptr::eq(*f, found)) {
            return Some(at as u32);
        }
        self.functions.push(found);
        self.calls.push(Vec::new());
        Some(self.functions.len() as u32 - 1)
    }
}

/// The offsets of parameters that are laid out one after the other, and their end; `u32::MAX` stands for everything beyond.
pub(crate) fn layout<'a>(params: impl Iterator<Item = &'a crate::ptx::ParamDecl>, start: u32) -> (Vec<u32>, u32) {
    let mut end = start;
    let offsets = params
        .map(|p| {
            let at = end.checked_next_multiple_of(p.align).unwrap_or(u32::MAX);
            end = at.saturating_add(p.size);
            at
        })
        .collect();
    (offsets, end)
}

/// An instruction without operands.
fn blank(run: Handler) -> Inst {
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

/// Does nothing: for instructions that the warp's loop carries out.
unsafe fn nothing(_: &mut crate::exec::Warp, _: &Inst) {}

/// Where a function's parameters lie in its local memory: returns first.
fn formals(f: &Function) -> (Vec<u32>, Vec<u32>, u32) {
    let (returns, end) = layout(f.returns.iter(), 0);
    let (params, end) = layout(f.params.iter(), end);
    (returns, params, end)
}

/// A frame whose size is not known yet.
fn frame(start: u32) -> Frame {
    Frame {
        start,
        registers: 0,
        local: 0,
    }
}

/// A call without arguments.
fn call_site(function: u32) -> CallSite {
    CallSite {
        function,
        arguments: Vec::new(),
        results: Vec::new(),
    }
}
