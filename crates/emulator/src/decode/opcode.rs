//! An opcode, taken apart.

use super::forms::{self, Refusal};

/// `mad.lo.cc.u32` as its name and its modifiers.
#[derive(Clone, Debug)]
pub(crate) struct Opcode<'a> {
    pub(crate) name: &'a str,
    pub(crate) modifiers: Vec<&'a str>,
}

impl<'a> Opcode<'a> {
    /// An opcode of a program, with its modifiers in the order of `forms`.
    pub(super) fn read(text: &'a str) -> Result<Opcode<'a>, Refusal<'a>> {
        let Opcode { name, modifiers } = Opcode::new(text);
        let modifiers = forms::arrange(name, &modifiers)?;
        Ok(Opcode { name, modifiers })
    }

    /// An opcode whose modifiers are in the right order.
    pub(crate) fn new(text: &'a str) -> Opcode<'a> {
        let mut parts = text.split('.');
        let name = parts.next().unwrap_or_default();
        Opcode {
            name,
            modifiers: parts.collect(),
        }
    }

    /// Whether a modifier is there.
    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// The last modifier: the type, for most opcodes.
    pub(crate) fn ty(&self) -> &'a str {
        self.modifiers.last().copied().unwrap_or_default()
    }

    /// The last but one modifier: the destination's type, where the last is the source's.
    pub(crate) fn first_ty(&self) -> &'a str {
        self.modifiers
            .len()
            .checked_sub(2)
            .and_then(|at| self.modifiers.get(at))
            .copied()
            .unwrap_or_default()
    }

    /// Whether every modifier is among these; what is not understood is refused.
    pub(crate) fn only(&self, known: &[&str]) -> bool {
        self.modifiers.iter().all(|m| known.contains(m))
    }

    /// Rounding, `ftz`, `sat`, `relu` and `NaN`, as in `exec::rounding`.
    pub(crate) fn rounding(&self) -> u32 {
        crate::exec::flags_of(self.modifiers.iter().copied())
    }
}
