//! `kiln`: trains, evaluates and inspects the built-in models.

use std::process::ExitCode;

fn main() -> ExitCode {
    kiln_cli::main()
}
