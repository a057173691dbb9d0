//! What can be wrong with weights.

use crate::DType;
use kiln_files::FileError;
use kiln_files::{shown, shown_path};
use std::fmt;
use std::path::{Path, PathBuf};

/// An error of reading, writing or fitting weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A file that could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file that could not be read.
    #[error("{}: cannot {action}: {source}", shown_path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Bytes that are not a whole safetensors file.
    #[error("not a valid safetensors file: {}", shown(reason).sentence())]
    Format {
        /// What is wrong.
        reason: String,
    },
    /// An entry whose dtype has no counterpart here.
    #[error("`{}` has dtype {dtype}, expected F32, F64, BF16, F16, I32, I64 or U8", shown(name))]
    DType {
        /// The entry.
        name: String,
        /// Its dtype in the file.
        dtype: String,
    },
    /// An integer that does not fit in 32 bits.
    #[error("`{}` holds {value}, which does not fit an i32", shown(name))]
    Range {
        /// The entry.
        name: String,
        /// The value.
        value: i64,
    },
    /// An entry that a tensor cannot hold or the backend refuses.
    #[error("`{}`: {source}", shown(name))]
    Tensor {
        /// The entry.
        name: String,
        /// What went wrong.
        source: kiln_core::Error,
    },
    /// A value that is NaN or infinite, or becomes so in the dtype of the parameter that it belongs to.
    #[error("`{}` {}; load weights that are finite", shown(name), not_finite(*value, index, *dtype))]
    NonFinite {
        /// The entry.
        name: String,
        /// Where in it the first such value is, an index for each dimension.
        index: Vec<usize>,
        /// The value in the file.
        value: f64,
        /// The dtype that it was to be loaded into.
        dtype: DType,
    },
    /// Memory that could not be had.
    #[error("`{}`: out of memory: {bytes} bytes requested", shown(name))]
    Memory {
        /// The entry that it was for.
        name: String,
        /// Bytes asked for.
        bytes: u64,
    },
    /// Weights that do not fit the model, where they had to.
    #[error("the weights do not fit the model: {0}")]
    Misfit(LoadReport),
    /// An error in a file, with the file.
    #[error("{}: {source}", shown_path(path))]
    In {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: Box<WeightsError>,
    },
}

impl WeightsError {
    /// The error itself, without the file around it.
    pub fn root(&self) -> &WeightsError {
        match self {
            WeightsError::In { source, .. } => source.root(),
            other => other,
        }
    }
}

fn not_finite(value: f64, index: &[usize], dtype: DType) -> String {
    match value.is_finite() {
        true => format!("holds {value} at {index:?}, which is too large for {dtype}"),
        false => format!("holds {value} at {index:?}"),
    }
}

pub(super) fn io_error(path: &Path, action: &'static str, source: std::io::Error) -> WeightsError {
    WeightsError::Io {
        path: path.to_path_buf(),
        action,
        source,
    }
}

pub(super) fn tensor_error(name: &str, source: kiln_core::Error) -> WeightsError {
    WeightsError::Tensor {
        name: name.to_string(),
        source,
    }
}

/// Adds the file to an error that does not name it.
pub(super) fn within(path: &Path, e: WeightsError) -> WeightsError {
    match e {
        named @ (WeightsError::Io { .. } | WeightsError::File(_) | WeightsError::In { .. }) => named,
        e => WeightsError::In {
            path: path.to_path_buf(),
            source: Box::new(e),
        },
    }
}

/// An entry whose shape or kind is not the model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The entry.
    pub name: String,
    /// What the model has: shape and dtype.
    pub expected: String,
    /// What the weights have.
    pub found: String,
}

/// What became of each name when weights were loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Names that were loaded.
    pub loaded: Vec<String>,
    /// Parameters and buffers of the model that the weights lack; they keep their values.
    pub missing: Vec<String>,
    /// Names in the weights that the model does not have.
    pub unexpected: Vec<String>,
    /// Names whose shapes or kinds differ; they keep their values.
    pub mismatched: Vec<Mismatch>,
    /// Counters of the model that the weights lack. They count a layer's own steps and keep their values: weights from
    /// elsewhere do not have them, so they do not count as missing.
    pub counters_kept: Vec<String>,
}

impl LoadReport {
    /// Whether every parameter and buffer was loaded and nothing was left over.
    pub fn is_exact(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.mismatched.is_empty()
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} loaded", self.loaded.len())?;
        for (what, names) in [("missing", &self.missing), ("unexpected", &self.unexpected)] {
            if !names.is_empty() {
                let names: Vec<_> = names.iter().map(|name| shown(name)).collect();
                write!(f, "; {} {what}: {}", names.len(), Listed(&names))?;
            }
        }
        if !self.mismatched.is_empty() {
            write!(
                f,
                "; {} mismatched: {}",
                self.mismatched.len(),
                Listed(&self.mismatched)
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, expected, found) = (shown(&self.name), &self.expected, &self.found);
        write!(f, "{name} (expected {expected}, found {found})")
    }
}

/// The first few of a list.
struct Listed<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (i, item) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{item}")?;
        }
        if self.0.len() > SHOWN {
            write!(f, " and {} more", self.0.len() - SHOWN)?;
        }
        Ok(())
    }
}
