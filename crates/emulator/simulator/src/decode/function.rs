//! One function: its names, its statements in order, and the instructions that every opcode group shares.

use std::collections::{HashMap, HashSet};

use kiln_ptx::{Callees, Instruction, Opcode, Operand, Refusal, Space, Statement, Variable, parse_body, type_size};

use super::accumulators::accumulators;
use super::decoder::{Decoder, Result, blank, formals, nothing};
use super::guesses::Guesses;
use super::origin::Origins;
use super::source::layout;
use super::undefined::Uses;
use crate::LoadError;
use crate::exec::{self, Plan, Ty};
use crate::limits::MOST_REGISTERS;
use crate::machine::{Inst, Kind, Origin, Slot};

/// The meaning of a name inside of a function.
#[derive(Clone, Debug)]
pub(super) enum Symbol {
    Register {
        slot: Slot,
        ty: Ty,
    },
    /// `.reg .b32 %r<n>`: the slots of `%r0` … one after the other.
    Bank {
        first: u32,
        step: u32,
        count: u32,
        ty: Ty,
    },
    /// A variable or parameter in the frame's local memory.
    Local {
        offset: u32,
    },
    /// A parameter of the kernel.
    Param {
        offset: u32,
    },
    Shared {
        offset: u32,
    },
}

/// A label that some statement names: the innermost of its name around the statement is meant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    label: &'a str,
    scope: usize,
    line: u32,
}

/// Decodes one function.
pub(super) struct Body<'d, 'p, 'a> {
    pub(super) d: &'d mut Decoder<'p>,
    pub(super) name: &'p str,
    scopes: Vec<HashMap<&'a str, Symbol>>,
    labels: HashMap<(&'a str, usize), u32>,
    /// For each `{ … }` of the function, the one around it; the first is the function's own.
    around: Vec<usize>,
    /// The `{ … }` that the statement in progress stands in.
    scope: usize,
    /// Branches whose target is not known yet: their pcs.
    pub(super) jumps: Vec<(usize, Target<'a>)>,
    /// List entries whose target is not known yet.
    pub(super) list_jumps: Vec<(usize, Target<'a>)>,
    pub(super) targets: HashMap<&'a str, Vec<&'a str>>,
    pub(super) callees: HashMap<&'a str, &'a Callees<'a>>,
    /// The function's own number in the code.
    pub(super) number: u32,
    registers: u32,
    predicates: (u32, u32),
    /// Bytes of the kernel's parameters.
    pub(super) params: u32,
    pub(super) local: u32,
    origins: Origins,
    origin: Origin,
    pub(super) line: u32,
    guard: (Slot, u32),
    pub(super) guesses: Guesses,
    uses: Uses,
    /// Instructions that must follow the one in progress.
    pub(super) after: Vec<Inst>,
    /// In an observed kernel: the names of accumulators of `wgmma`, and of registers that they are moved to.
    pub(super) results: HashSet<&'a str>,
}

/// Decodes the function with this number in the code.
pub(super) fn decode(d: &mut Decoder<'_>, number: usize) -> Result<()> {
    let function = d.functions[number];
    let Some(span) = function.body else {
        return Err(LoadError::Undeclared {
            kernel: function.name.clone(),
            name: function.name.clone(),
            line: 0,
        });
    };
    let source = d.source;
    let statements = parse_body(&source.text, span).map_err(|e| LoadError::Syntax {
        line: e.line,
        message: format!("{} (in {})", e.message, function.name),
    })?;
    let mut names = HashMap::new();
    let (mut local, mut params) = (0, 0);
    if function.entry {
        let (offsets, end) = layout(function.params.iter(), 0);
        params = end;
        for (p, offset) in function.params.iter().zip(offsets) {
            names.insert(p.name.as_str(), Symbol::Param { offset });
        }
    } else {
        let (returns, formals, end) = formals(function);
        let all = function
            .returns
            .iter()
            .zip(returns)
            .chain(function.params.iter().zip(formals));
        for (p, offset) in all {
            names.insert(p.name.as_str(), Symbol::Local { offset });
        }
        local = end;
    }
    let origins = Origins::new(&d.source.module.files);
    let mut body = Body {
        d,
        name: &function.name,
        scopes: vec![names],
        labels: HashMap::new(),
        around: vec![0],
        scope: 0,
        jumps: Vec::new(),
        list_jumps: Vec::new(),
        targets: HashMap::new(),
        callees: HashMap::new(),
        number: number as u32,
        registers: 0,
        predicates: (0, 16),
        params,
        local,
        origins,
        origin: Origin::default(),
        line: 0,
        guard: (Slot::NONE, 0),
        guesses: Guesses::default(),
        uses: Uses::default(),
        after: Vec::new(),
        results: HashSet::new(),
    };
    if body.d.observed {
        body.results = accumulators(&statements);
    }
    // The lists come first, since a jump or a call may come before or after its list.
    for statement in &statements {
        match statement {
            Statement::Targets { name, labels } => drop(body.targets.insert(name, labels.clone())),
            Statement::Callees { name, callees } => drop(body.callees.insert(name, callees)),
            _ => {}
        }
    }
    for statement in &statements {
        body.statement(statement)?;
    }
    body.guard = (Slot::NONE, 0);
    let mut end = blank(nothing);
    end.kind = Kind::Return;
    body.emit(end);
    body.finish(number)
}

impl<'d, 'p, 'a> Body<'d, 'p, 'a> {
    fn finish(self, number: usize) -> Result<()> {
        for (pc, target) in &self.jumps {
            self.d.code.insts[*pc].imm = i64::from(self.pc_of(*target)?);
        }
        for (at, target) in &self.list_jumps {
            self.d.code.lists[*at] = Slot(self.pc_of(*target)?);
        }
        self.bound(u64::from(self.registers))?;
        self.guesses.mark(&mut self.d.code.insts);
        let start = self.d.code.functions[number].start as usize;
        let undefined = self.uses.lines(&self.d.code, start);
        let frame = &mut self.d.code.functions[number];
        frame.registers = self.registers;
        frame.undefined = undefined;
        // More local memory than a thread can have is refused when the function is launched or called.
        frame.local = self.local.checked_next_multiple_of(16).unwrap_or(u32::MAX - 15);
        Ok(())
    }

    /// An error for more bytes of registers than there can be.
    fn bound(&self, bytes: u64) -> Result<()> {
        if bytes / 128 <= MOST_REGISTERS {
            return Ok(());
        }
        Err(LoadError::Limit {
            name: self.name.to_string(),
            what: "registers of 32 bits",
            found: bytes / 128,
            most: MOST_REGISTERS,
        })
    }

    /// A label that the statement in progress names.
    pub(super) fn target(&self, label: &'a str) -> Target<'a> {
        let (scope, line) = (self.scope, self.line);
        Target { label, scope, line }
    }

    fn pc_of(&self, Target { label, mut scope, line }: Target<'_>) -> Result<u32> {
        loop {
            match self.labels.get(&(label, scope)) {
                Some(pc) => return Ok(*pc),
                None if scope == 0 => return Err(self.undeclared(label, line)),
                None => scope = self.around[scope],
            }
        }
    }

    fn statement(&mut self, statement: &'a Statement<'a>) -> Result<()> {
        match statement {
            Statement::Register { ty, name, count } => {
                let Some(ty) = register_type(ty) else {
                    return Err(LoadError::Syntax {
                        line: self.line,
                        message: format!("a register of type {ty}"),
                    });
                };
                self.declare(name, *count, ty)?;
            }
            Statement::Variable(variable) => self.variable(variable)?,
            Statement::Label(name) => {
                self.labels.insert((name, self.scope), self.d.code.insts.len() as u32);
            }
            Statement::Place(place, inlined_at) => self.origin = self.origins.at(*place, *inlined_at),
            Statement::Open => {
                self.scopes.push(HashMap::new());
                self.around.push(self.scope);
                self.scope = self.around.len() - 1;
            }
            Statement::Close => {
                self.scopes.pop();
                self.scope = self.around[self.scope];
            }
            Statement::Targets { .. } | Statement::Callees { .. } => {}
            Statement::Instruction(instruction) => {
                self.line = instruction.line;
                self.guard = (Slot::NONE, 0);
                if let Some((name, negated)) = instruction.guard {
                    let (slot, _) = self.register(name, Ty::Pred)?;
                    self.guard = (slot, if negated { u32::MAX } else { 0 });
                }
                let mut guesses = std::mem::take(&mut self.guesses);
                guesses.note(instruction, |name| self.find_register(name).map(|(slot, _)| slot));
                self.guesses = guesses;
                let mut uses = std::mem::take(&mut self.uses);
                uses.note(self.pc(), instruction, |name| self.find_register(name));
                self.uses = uses;
                self.look_at_results(instruction);
                self.instruction(instruction)?;
                for inst in std::mem::take(&mut self.after) {
                    self.emit(inst);
                }
            }
        }
        Ok(())
    }

    fn declare(&mut self, name: &'a str, count: Option<u32>, ty: Ty) -> Result<()> {
        let symbol = match count {
            None => Symbol::Register {
                slot: self.new_slot(ty),
                ty,
            },
            Some(count) => {
                let step = if ty == Ty::Pred {
                    4
                } else {
                    (ty.bytes() * 32).next_multiple_of(64)
                };
                let first = self.registers;
                self.bound(u64::from(first) + u64::from(step) * u64::from(count))?;
                self.registers = (first + step * count).next_multiple_of(64);
                Symbol::Bank { first, step, count, ty }
            }
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, symbol);
        }
        Ok(())
    }

    fn variable(&mut self, variable: &'a Variable) -> Result<()> {
        let symbol = match variable.space {
            Space::Shared => {
                let key = format!("{}::{}", self.name, variable.name);
                Symbol::Shared {
                    offset: self.d.shared_offset(&key, variable.size, variable.align),
                }
            }
            Space::Local | Space::Param => {
                let offset = self.local.checked_next_multiple_of(variable.align).unwrap_or(u32::MAX);
                let size = u32::try_from(variable.size).unwrap_or(u32::MAX);
                self.local = offset.saturating_add(size);
                Symbol::Local { offset }
            }
            _ => {
                return Err(LoadError::Syntax {
                    line: self.line,
                    message: "a global variable in a function".into(),
                });
            }
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(&variable.name, symbol);
        }
        Ok(())
    }

    pub(super) fn lookup(&self, name: &str) -> Option<(Symbol, Option<u32>)> {
        for scope in self.scopes.iter().rev() {
            if let Some(symbol) = scope.get(name) {
                return Some((symbol.clone(), None));
            }
            let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
            if prefix.len() < name.len()
                && let Some(symbol @ Symbol::Bank { count, .. }) = scope.get(prefix)
                && let Ok(number) = name[prefix.len()..].parse::<u32>()
                && number < *count
            {
                return Some((symbol.clone(), Some(number)));
            }
        }
        None
    }

    /// The slot and type of a register, when the name is one.
    pub(super) fn find_register(&self, name: &str) -> Option<(Slot, Ty)> {
        match self.lookup(name)? {
            (Symbol::Register { slot, ty }, _) => Some((slot, ty)),
            (Symbol::Bank { first, step, ty, .. }, Some(number)) => Some((Slot(first + step * number), ty)),
            _ => None,
        }
    }

    /// A register of this type.
    pub(super) fn register(&self, name: &str, ty: Ty) -> Result<(Slot, Ty)> {
        match self.find_register(name) {
            Some((slot, found)) if found == ty => Ok((slot, ty)),
            Some((_, found)) => Err(LoadError::Syntax {
                line: self.line,
                message: format!("{name} is a {found:?} where {ty:?} is needed"),
            }),
            None => Err(self.undeclared(name, self.line)),
        }
    }

    pub(super) fn new_slot(&mut self, ty: Ty) -> Slot {
        if ty == Ty::Pred {
            if self.predicates.1 == 16 {
                self.predicates = (self.registers, 0);
                self.registers += 64;
            }
            self.predicates.1 += 1;
            return Slot(self.predicates.0 + 4 * (self.predicates.1 - 1));
        }
        let slot = Slot(self.registers);
        self.registers += (ty.bytes() * 32).next_multiple_of(64);
        slot
    }

    /// Appends an instruction, with the guard and the place of the statement.
    pub(super) fn emit(&mut self, mut inst: Inst) {
        (inst.guard, inst.flip) = self.guard;
        self.d.code.insts.push(inst);
        self.d.code.places.push(self.origin);
        self.d.code.lines.push(self.line);
    }

    /// The pc of the next instruction.
    pub(super) fn pc(&self) -> usize {
        self.d.code.insts.len()
    }

    pub(super) fn undeclared(&self, name: &str, line: u32) -> LoadError {
        LoadError::Undeclared {
            kernel: self.name.to_string(),
            name: name.to_string(),
            line,
        }
    }

    pub(super) fn unsupported(&self, instruction: &Instruction<'_>) -> LoadError {
        let place = self.origin.place;
        let file = self
            .d
            .source
            .module
            .files
            .iter()
            .find(|(number, _)| *number == place.file);
        let file = file.map_or("", |(_, name)| name.rsplit('/').next().unwrap_or(name));
        let place = if place.line > 0 {
            format!(", {file}:{}", place.line)
        } else {
            String::new()
        };
        let (kernel, opcode) = (self.name.to_string(), instruction.opcode.to_string());
        LoadError::Unsupported {
            kernel,
            opcode,
            line: instruction.line,
            place,
        }
    }

    fn instruction(&mut self, instruction: &Instruction<'a>) -> Result<()> {
        let op = match Opcode::read(instruction.opcode) {
            Ok(op) => op,
            Err(Refusal::Unknown) => return Err(self.unsupported(instruction)),
            Err(Refusal::Contradiction(first, second)) => {
                return Err(LoadError::Syntax {
                    line: instruction.line,
                    message: format!("`{}` has both `.{first}` and `.{second}`", instruction.opcode),
                });
            }
        };
        let done = self.control(instruction, &op)?
            || self.memory(instruction, &op)?
            || self.warpwide(instruction, &op)?
            || self.tensor(instruction, &op)?
            || self.warpgroup(instruction, &op)?
            || self.vector_move(instruction, &op)?;
        if done {
            return Ok(());
        }
        let Some(plan) = exec::select(&op) else {
            return Err(self.unsupported(instruction));
        };
        self.plain(instruction, &op, &plan)
    }

    /// An instruction whose operands are values: a destination and sources.
    fn plain(&mut self, instruction: &Instruction<'a>, op: &Opcode<'_>, plan: &Plan) -> Result<()> {
        let mut operands = instruction.operands.iter();
        let mut inst = blank(plan.run);
        inst.kind = plan.kind;
        inst.flags = plan.flags;
        if let Some(ty) = plan.dst {
            let signed = op.name == "cvt" && op.first_ty().starts_with('s');
            match operands.next() {
                Some(Operand::Pair(first, second)) if ty == Ty::Pred => {
                    inst.d = self.destination(first, ty, signed)?;
                    inst.d2 = self.destination(second, ty, signed)?;
                }
                Some(operand) => inst.d = self.destination(operand, ty, signed)?,
                None => return Err(self.unsupported(instruction)),
            }
        }
        for (k, ty) in plan.srcs.iter().enumerate() {
            let Some(operand) = operands.next() else {
                return Err(self.unsupported(instruction));
            };
            let slot = self.source(operand, *ty)?;
            match k {
                0 => inst.a = slot,
                1 => inst.b = slot,
                2 => inst.c = slot,
                _ => inst.e = slot,
            }
        }
        // A remaining operand is the predicate that a comparison combines with.
        match operands.next() {
            None => {}
            Some(Operand::Not(name)) if op.name == "setp" => {
                inst.c = self.register(name, Ty::Pred)?.0;
                inst.flags |= 4;
            }
            Some(operand) if op.name == "setp" && plan.flags & 3 != 0 => inst.c = self.source(operand, Ty::Pred)?,
            Some(_) => return Err(self.unsupported(instruction)),
        }
        self.emit(inst);
        Ok(())
    }
}

/// The width of a declared register.
fn register_type(ty: &str) -> Option<Ty> {
    if ty == ".pred" {
        return Some(Ty::Pred);
    }
    Some(match type_size(ty)? {
        1 => Ty::B8,
        2 => Ty::B16,
        4 => Ty::B32,
        8 => Ty::B64,
        _ => return None,
    })
}
