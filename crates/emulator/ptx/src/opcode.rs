//! An opcode, split at its dots.

use crate::forms::{self, Refusal};

/// `mad.lo.cc.u32` as its name and its modifiers.
#[derive(Clone, Debug)]
pub struct Opcode<'a> {
    /// The first word: `mad`.
    pub name: &'a str,
    /// The modifiers, without their dots.
    pub modifiers: Vec<&'a str>,
}

impl<'a> Opcode<'a> {
    /// Splits an opcode of a program and brings its modifiers into one order.
    ///
    /// # Errors
    /// [`Refusal`] of an unknown opcode or modifier, or of two modifiers that contradict each other.
    pub fn read(text: &'a str) -> Result<Opcode<'a>, Refusal<'a>> {
        let Opcode { name, modifiers } = Opcode::new(text);
        let modifiers = forms::arrange(name, &modifiers)?;
        Ok(Opcode { name, modifiers })
    }

    /// Splits an opcode whose modifiers are known and in order.
    pub fn new(text: &'a str) -> Opcode<'a> {
        let mut parts = text.split('.');
        let name = parts.next().unwrap_or_default();
        Opcode {
            name,
            modifiers: parts.collect(),
        }
    }

    /// True if it has this modifier.
    pub fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// The last modifier: the type, for most opcodes.
    pub fn ty(&self) -> &'a str {
        self.modifiers.last().copied().unwrap_or_default()
    }

    /// The last but one modifier: the destination's type, where the last is the source's.
    pub fn first_ty(&self) -> &'a str {
        self.modifiers
            .len()
            .checked_sub(2)
            .and_then(|at| self.modifiers.get(at))
            .copied()
            .unwrap_or_default()
    }

    /// True if it has no modifiers but these.
    pub fn only(&self, known: &[&str]) -> bool {
        self.modifiers.iter().all(|m| known.contains(m))
    }
}
