//! The program `kiln`, which trains, evaluates and inspects the built-in models.
//!
//! It is a library so that it is compiled beside the backend, whose metadata it needs; a program waits for the machine code of everything
//! that it is linked with.

mod args;
mod chart;
mod child;
mod commands;
mod config;
mod data;
mod device;
mod drawing;
mod error;
mod features;
mod finite;
mod html;
mod live;
mod machine;
mod memory;
mod output;
mod picture;
mod plot;
mod progress;
mod record;
mod sheet;
mod shown;
mod signals;
mod weights;
mod worst;

use args::{Cli, Command};
use clap::Parser;
use error::{Result, code};
use std::process::ExitCode;

/// Runs the command line of this process, and returns its exit code.
pub fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(cli) => signals::Signals::survive_size_limit().and_then(|()| run(cli.command)),
        // `--help` and `--version` end with 0, a wrong command line with 2.
        Err(usage) => {
            // The message quotes the wrong argument, which may be a file name with control characters.
            let plain = std::env::args_os().all(|arg| output::is_plain(&arg.to_string_lossy()));
            let printed = match plain {
                true => usage.print(),
                false => output::report(&usage),
            };
            if !usage.use_stderr() {
                output::written(printed);
            }
            Ok(u8::try_from(usage.exit_code()).unwrap_or(code::USAGE))
        }
    };
    let code = code.unwrap_or_else(|error| {
        // If standard error cannot be written, there is no place to report that.
        let _ = output::report(&error);
        error.code
    });
    match output::check_written() {
        Err(error) if code == 0 => {
            let _ = output::report(&error);
            ExitCode::from(error.code)
        }
        _ => ExitCode::from(code),
    }
}

fn run(command: Command) -> Result<u8> {
    match command {
        Command::Train(args) => commands::train::run(args),
        Command::VerifyResume(args) => commands::verify_resume::run(args),
        Command::FindLr(args) => commands::find_lr::run(args),
        Command::FindBatch(args) => commands::find_batch::run(args),
        Command::Sweep(args) => commands::sweep::run(args),
        Command::Replay(args) => commands::replay::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Diff(args) => commands::diff::run(args),
        Command::Tokenize(args) => commands::tokenize::run(args),
        Command::Average(args) => commands::average::run(args),
        Command::Eval(args) => commands::eval::run(args),
        Command::Predict(args) => commands::predict::run(args),
        Command::Generate(args) => commands::generate::run(args),
        Command::Transcribe(args) => commands::transcribe::run(args),
        Command::Models(args) => commands::models::run(args),
        Command::Datasets(args) => commands::datasets::run(args),
        Command::Summary(args) => commands::summary::run(args),
        Command::Profile(args) => commands::profile::run(args),
        Command::Forecast(args) => commands::forecast::run(args),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Devices(args) => commands::devices::run(args),
    }
}
