//! The reason why a program cannot be loaded.

use thiserror::Error;

/// The reason why a program cannot be loaded.
#[derive(Clone, Debug, Error)]
pub enum LoadError {
    /// The text is not PTX that the parser reads.
    #[error("PTX line {line}: {message}")]
    Syntax {
        /// The line in the PTX text.
        line: u32,
        /// The fault: what was found and what was expected.
        message: String,
    },
    /// An instruction, or a form of one, that the emulator does not have.
    #[error("{kernel}: `{opcode}` is not implemented (PTX line {line}{place})")]
    Unsupported {
        /// The kernel or function that holds it.
        kernel: String,
        /// The instruction as written.
        opcode: String,
        /// The line in the PTX text.
        line: u32,
        /// The line in the source, when the PTX says it.
        place: String,
    },
    /// A name that nothing declares.
    #[error("{kernel}: `{name}` is not declared (PTX line {line})")]
    Undeclared {
        /// The kernel or function that uses it.
        kernel: String,
        /// The name.
        name: String,
        /// The line in the PTX text.
        line: u32,
    },
    /// More of something than a device, or the emulator, has.
    #[error("{name}: {found} {what}; {most} can be")]
    Limit {
        /// The kernel, function or variable that asks for it; or the module.
        name: String,
        /// The resource that there is too much of.
        what: &'static str,
        /// The amount that is asked for.
        found: u64,
        /// The largest amount that is possible.
        most: u64,
    },
}
