//! The text of a program, its variables, and their places.

use kiln_ptx::{Init, Module, ParamDecl, Space};

use crate::LoadError;

/// The text of a program and its declarations.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) module: Module,
}

/// An address inside an initialiser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Bytes from the start of the variable: 8 bytes there are an address.
    pub offset: u64,
    /// The index, among the program's variables, of the one whose address it is.
    pub variable: usize,
    /// The bytes that are added to the address.
    pub addend: i64,
}

/// A `.global` or `.const` variable of a program. The driver gives it memory and passes all addresses with each launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name, as in the PTX.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// The alignment in bytes.
    pub align: u32,
    /// True if it is `.const`.
    pub constant: bool,
    /// True for `.managed`: host and device share it.
    pub managed: bool,
    /// The first bytes; the others are zero.
    pub init: Vec<u8>,
    /// Addresses inside `init`.
    pub relocations: Vec<Relocation>,
}

/// The variables of a module that need memory of the device.
pub(crate) fn variables(module: &Module) -> Result<Vec<Variable>, LoadError> {
    let of = |v: &kiln_ptx::Variable| {
        let (mut init, mut relocations) = (Vec::new(), Vec::new());
        for element in &v.init {
            let offset = init.len() as u64;
            let mut width = (v.element as usize).min(8);
            let bits = match element {
                Init::Bits(bits) => *bits,
                Init::Rest => continue,
                Init::Address { name, offset: addend } => {
                    width = 8;
                    if let Some(variable) = place_of(module, name) {
                        relocations.push(Relocation {
                            offset,
                            variable,
                            addend: *addend,
                        });
                        0
                    } else if let Some(function) = module.function(name) {
                        function_address(function)
                    } else {
                        return Err(LoadError::Undeclared {
                            kernel: v.name.clone(),
                            name: name.clone(),
                            line: 0,
                        });
                    }
                }
            };
            init.extend_from_slice(&bits.to_le_bytes()[..width]);
        }
        init.truncate(v.size as usize);
        let constant = v.space == Space::Const;
        Ok(Variable {
            name: v.name.clone(),
            size: v.size,
            align: v.align,
            constant,
            managed: v.managed,
            init,
            relocations,
        })
    };
    in_memory(module).map(of).collect()
}

/// The variables that need memory of the device.
fn in_memory(module: &Module) -> impl Iterator<Item = &kiln_ptx::Variable> {
    module
        .variables
        .iter()
        .filter(|v| matches!(v.space, Space::Const | Space::Global))
}

/// The address of the function with this place in the module. Nothing else has such an address.
pub(crate) fn function_address(place: usize) -> u64 {
    0x0f << 56 | (place as u64 + 1) << 4
}

/// The place of a variable among those of [`crate::Program::variables`].
pub(crate) fn place_of(module: &Module, name: &str) -> Option<usize> {
    in_memory(module).position(|v| v.name == name)
}

/// The offsets of parameters that are laid out one after the other, and their end; `u32::MAX` stands for everything beyond.
pub(crate) fn layout<'a>(params: impl Iterator<Item = &'a ParamDecl>, start: u32) -> (Vec<u32>, u32) {
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
