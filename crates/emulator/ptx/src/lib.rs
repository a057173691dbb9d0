//! Reads kernel images as the CUDA driver gets them: fat binaries, cubins and PTX text.
//!
//! [`fatbin::ptx`] takes the PTX for a device out of an image, [`parse_module`] makes a [`Module`] of it, [`parse_body`]
//! the [`Statement`]s of one function, and [`Opcode::read`] splits an opcode into its name and its modifiers.
//! [`cubin::resources`] reads the register counts that `ptxas` left in machine code. All of it describes the kernels;
//! nothing here runs them.

mod body;
mod bytes;
pub mod cubin;
mod directives;
pub mod fatbin;
mod forms;
mod lexer;
mod lz4;
mod merge;
mod module;
mod opcode;
mod syntax;

pub use body::{Callees, Instruction, Operand, Place, Statement, parse_body};
pub use directives::parse_module;
pub use forms::Refusal;
pub use merge::merge;
pub use module::{Function, Init, Linkage, Module, ParamDecl, Space, Variable, type_size};
pub use opcode::Opcode;
pub use syntax::SyntaxError;
