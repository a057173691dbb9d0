//! `kiln`: trains, evaluates and inspects the built-in models.

mod args;
mod commands;
mod data;
mod device;
mod error;
mod models;
mod output;
mod progress;
mod signals;
mod weights;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Reports usage errors itself, with code 2; `--help` and `--version` end with 0.
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Train(args) => commands::train::run(args),
        Command::Eval(args) => commands::eval::run(args),
        Command::Predict(args) => commands::predict::run(args),
        Command::Summary(args) => commands::summary::run(args),
        Command::Devices(args) => commands::devices::run(args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.code)
        }
    }
}
