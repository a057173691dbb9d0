//! From a function's statements to code: registers become slots, labels become pcs, opcodes become handlers.

mod accumulators;
mod control;
mod decoder;
mod function;
mod guesses;
mod indirect;
mod mbarrier;
mod memory;
mod operand;
mod origin;
mod source;
mod tensor;
mod undefined;
mod warpgroup;
mod warpwide;

pub use source::{Relocation, Variable};
pub(crate) use source::{Source, layout, variables};

use crate::LoadError;
use crate::limits::MOST_SHARED;
use crate::machine::Code;
use decoder::Decoder;

/// Decodes the kernel with this place in the module; `observed` says that an observer is told its accesses.
pub(crate) fn decode(source: &Source, kernel: usize, observed: bool) -> Result<Code, LoadError> {
    let mut decoder = Decoder::new(source, kernel, observed);
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
