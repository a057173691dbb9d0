//! What can be wrong with weights.

use std::fmt;
use std::path::PathBuf;

/// An error of reading, writing or fitting weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A file that could not be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Bytes that are not a whole safetensors file.
    #[error("not a valid safetensors file: {reason}")]
    Format {
        /// What is wrong.
        reason: String,
    },
    /// An entry whose dtype has no counterpart here.
    #[error("`{name}` has dtype {dtype}, expected F32, F64, BF16, F16, I32, I64 or U8")]
    DType {
        /// The entry.
        name: String,
        /// Its dtype in the file.
        dtype: String,
    },
    /// An integer that does not fit in 32 bits.
    #[error("`{name}` holds {value}, which does not fit an i32")]
    Range {
        /// The entry.
        name: String,
        /// The value.
        value: i64,
    },
    /// An entry that a tensor cannot hold or the backend refuses.
    #[error("`{name}`: {source}")]
    Tensor {
        /// The entry.
        name: String,
        /// What went wrong.
        source: kiln_core::Error,
    },
    /// Weights that do not fit the model, where they had to.
    #[error("the weights do not fit the model: {0}")]
    Misfit(LoadReport),
    /// An error in a file, with the file.
    #[error("{}: {source}", path.display())]
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
                write!(f, "; {} {what}: {}", names.len(), Listed(names))?;
            }
        }
        if !self.mismatched.is_empty() {
            let each = |m: &Mismatch| format!("{} (expected {}, found {})", m.name, m.expected, m.found);
            let each: Vec<String> = self.mismatched.iter().map(each).collect();
            write!(f, "; {} mismatched: {}", each.len(), Listed(&each))?;
        }
        Ok(())
    }
}

/// The first few of a list of names.
struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        f.write_str(&self.0[..self.0.len().min(SHOWN)].join(", "))?;
        if self.0.len() > SHOWN {
            write!(f, " and {} more", self.0.len() - SHOWN)?;
        }
        Ok(())
    }
}
