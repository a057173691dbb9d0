//! PTX as text: tokens, declarations and statements. What instructions mean is `decode`'s and `exec`'s business.

mod body;
mod lexer;
mod merge;
mod module;

pub(crate) use body::{Callees, Instruction, Operand, Place, Statement, parse_body};

pub(crate) use merge::merge;
pub(crate) use module::{Function, Init, Module, ParamDecl, Space, Variable, parse_module, type_size};

/// A complaint about the text, with the line of the PTX where it arose.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxError {
    pub(crate) line: u32,
    pub(crate) message: String,
}

pub(crate) type Result<T> = std::result::Result<T, SyntaxError>;

pub(crate) fn error<T>(line: u32, message: impl Into<String>) -> Result<T> {
    Err(SyntaxError {
        line,
        message: message.into(),
    })
}
