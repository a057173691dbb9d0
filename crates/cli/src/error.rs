//! Errors of the program, with messages and exit codes.

use kiln_data::DataError;
use kiln_files::FileError;
use kiln_train::TrainError;

/// The result of a command.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Exit codes that scripts can rely on.
pub(crate) mod code {
    /// Something failed.
    pub(crate) const FAILURE: u8 = 1;
    /// The command line asks for something that does not exist or does not fit together.
    pub(crate) const USAGE: u8 = 2;
    /// Stopped by SIGINT: 128 + 2.
    pub(crate) const INTERRUPTED: u8 = 130;
    /// Stopped by SIGTERM: 128 + 15.
    pub(crate) const TERMINATED: u8 = 143;
}

/// An error as it is shown to the user.
#[derive(Debug)]
pub(crate) struct Error {
    /// The message: what was asked, and what was found.
    pub(crate) message: String,
    /// Advice.
    pub(crate) help: Option<String>,
    /// The exit code.
    pub(crate) code: u8,
}

impl Error {
    /// Something failed.
    pub(crate) fn failure(message: impl Into<String>) -> Self {
        Error {
            message: message.into(),
            help: None,
            code: code::FAILURE,
        }
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Error {
            message: message.into(),
            help: None,
            code: code::USAGE,
        }
    }

    /// Adds advice.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Puts the failed action before the message.
    pub(crate) fn context(mut self, what: impl std::fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl From<kiln_core::Error> for Error {
    fn from(error: kiln_core::Error) -> Self {
        Error::failure(error.to_string())
    }
}

impl From<DataError> for Error {
    fn from(error: DataError) -> Self {
        Error::failure(error.to_string())
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Error::failure(error.to_string())
    }
}

impl From<TrainError> for Error {
    fn from(error: TrainError) -> Self {
        let wrong_option = matches!(
            error,
            TrainError::InvalidArgument { .. }
                | TrainError::UnknownMetric { .. }
                | TrainError::NoMatch { .. }
                | TrainError::NoCopy { .. }
        );
        match wrong_option {
            true => Error::usage(error.to_string()),
            false => Error::failure(error.to_string()),
        }
    }
}
