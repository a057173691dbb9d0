//! Calls through an address: the functions that they may reach, and functions that only such calls reach.

use kiln_ptx::{Callees, Function, Instruction, Operand, ParamDecl};

use super::decoder::{Decoder, Result, blank, frame, nothing};
use super::function::{self, Body};
use super::source::function_address;
use crate::exec::{Ty, refused};
use crate::machine::Kind;

/// Decodes the function with this number. For one that cannot be decoded the error is kept; `refuse` decides later
/// whether it is an error of the kernel.
pub(super) fn decode(d: &mut Decoder<'_>, number: usize) {
    let start = d.code.insts.len();
    d.code.functions.push(frame(start as u32));
    if let Err(error) = function::decode(d, number) {
        d.code.insts.truncate(start);
        d.code.places.truncate(start);
        let mut inst = blank(refused);
        inst.imm = d.code.refusals.len() as i64;
        d.code.refusals.push(error.to_string());
        d.code.insts.push(inst);
        let mut end = blank(nothing);
        end.kind = Kind::Exit;
        d.code.insts.push(end);
        d.code.places.resize(d.code.insts.len(), Default::default());
        d.broken.insert(number as u32, error);
    }
}

/// Fails with the error of a function that the kernel reaches by direct calls. A function that only an indirect call might
/// reach fails when it is called.
pub(super) fn refuse(d: &mut Decoder<'_>) -> Result<()> {
    let mut reached = vec![0u32];
    let mut next = 0;
    while let Some(&number) = reached.get(next) {
        if let Some(error) = d.broken.remove(&number) {
            return Err(error);
        }
        for callee in &d.calls[number as usize] {
            if !reached.contains(callee) {
                reached.push(*callee);
            }
        }
        next += 1;
    }
    Ok(())
}

/// True if two lists of parameters have the same layout.
fn alike(a: &[ParamDecl], b: &[ParamDecl]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.size == b.size)
}

impl<'a> Body<'_, '_, 'a> {
    /// `call (returns), register, (arguments), list;`
    pub(super) fn indirect_call(
        &mut self,
        instruction: &Instruction<'a>,
        register: &str,
        list: &str,
        returns: &[Operand<'a>],
        arguments: &[Operand<'a>],
    ) -> Result<()> {
        let Some(callees) = self.callees.get(list).copied() else {
            return Err(self.undeclared(list, self.line));
        };
        let module = &self.d.source.module;
        let fits = |f: &Function| match callees {
            Callees::Named(_) => false,
            Callees::Like {
                returns: wanted,
                params,
            } => !f.entry && alike(&f.returns, wanted) && alike(&f.params, params),
        };
        let mut places = Vec::new();
        match callees {
            Callees::Named(names) => {
                for name in names {
                    match module.function(name) {
                        Some(place) => places.push(place),
                        None => return Err(self.undeclared(name, self.line)),
                    }
                }
            }
            Callees::Like { .. } => {
                let functions = module.functions.iter().enumerate();
                places.extend(
                    functions
                        .filter(|(_, f)| f.body.is_some() && fits(f))
                        .map(|(place, _)| place),
                );
            }
        }
        let mut sites = Vec::new();
        for place in places {
            let Some(number) = self.d.function(&module.functions[place].name) else {
                continue;
            };
            let site = self.call_site(instruction, number, returns, arguments)?;
            sites.push((function_address(place), site));
        }
        let mut inst = blank(nothing);
        inst.kind = Kind::CallIndirect;
        inst.a = self.register(register, Ty::B64)?.0;
        inst.imm = self.d.code.callees.len() as i64;
        self.d.code.callees.push(sites);
        self.emit(inst);
        Ok(())
    }
}
