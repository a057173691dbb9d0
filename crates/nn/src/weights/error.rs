//! The errors of weights, and the report of a load.

use crate::DType;
use kiln_files::FileError;
use kiln_files::{shown, shown_path};
use std::fmt;
use std::path::{Path, PathBuf};

/// An error of reading, writing or loading weights.
///
/// ```
/// # use kiln_nn::{WeightsError, weights::decode};
/// # let cpu = kiln_cpu::Cpu::new();
/// let failed = decode(b"not a safetensors file", &cpu).err();
/// assert!(matches!(failed, Some(WeightsError::Format { .. })));
/// ```
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
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Bytes that are not a whole safetensors file.
    #[error("not a valid safetensors file: {}", shown(reason).sentence())]
    Format {
        /// The fault, as text.
        reason: String,
    },
    /// An entry of a dtype that Kiln does not read.
    #[error("`{}` has dtype {dtype}, expected F32, F64, BF16, F16, I32, I64 or U8", shown(name))]
    DType {
        /// The entry.
        name: String,
        /// The dtype in the file.
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
        /// The error itself.
        source: kiln_core::Error,
    },
    /// A value that is NaN or infinite, or becomes infinite in the dtype of its parameter.
    #[error("`{}` {}; load weights that are finite", shown(name), not_finite(*value, index, *dtype))]
    NonFinite {
        /// The entry.
        name: String,
        /// The index of the first such value, one number for each dimension.
        index: Vec<usize>,
        /// The value in the file.
        value: f64,
        /// The dtype that it was to be loaded into.
        dtype: DType,
    },
    /// An allocation that failed.
    #[error("`{}`: out of memory: {bytes} bytes requested", shown(name))]
    Memory {
        /// The entry that it was for.
        name: String,
        /// The number of bytes requested.
        bytes: u64,
    },
    /// Weights that do not fit the model, under [`LoadOptions::strict`](super::LoadOptions::strict).
    #[error("the weights do not fit the model: {0}")]
    Misfit(LoadReport),
    /// An error in a file, with the file's path.
    #[error("{}: {source}", shown_path(path))]
    In {
        /// The file.
        path: PathBuf,
        /// The error itself.
        source: Box<WeightsError>,
    },
}

impl WeightsError {
    /// Returns the innermost error, without [`WeightsError::In`] around it.
    ///
    /// ```
    /// # use kiln_nn::{WeightsError, weights::WeightsFile};
    /// # let path = std::env::temp_dir().join(format!("kiln-nn-root-{}.safetensors", std::process::id()));
    /// std::fs::write(&path, "broken")?;
    /// let failed = WeightsFile::open(&path).err();
    /// # std::fs::remove_file(path)?;
    /// assert!(matches!(failed.as_ref().map(WeightsError::root), Some(WeightsError::Format { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

/// Adds the path to an error that does not name the file.
pub(super) fn within(path: &Path, e: WeightsError) -> WeightsError {
    match e {
        named @ (WeightsError::Io { .. } | WeightsError::File(_) | WeightsError::In { .. }) => named,
        e => WeightsError::In {
            path: path.to_path_buf(),
            source: Box::new(e),
        },
    }
}

/// An entry whose shape or kind (float or integer) differs from the model's.
///
/// ```
/// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let (three, mut four) = (Linear::new(init, 3, 2)?, Linear::new(init, 4, 2)?);
/// let report = four.load_state_dict(&three.state_dict(), LoadOptions::partial())?;
/// assert_eq!(report.mismatched[0].to_string(), "weight (expected [2, 4] f32, found [2, 3] f32)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The entry.
    pub name: String,
    /// The shape and dtype in the model.
    pub expected: String,
    /// The shape and dtype in the weights.
    pub found: String,
}

/// The result of loading weights into a model, by name (PyTorch's `load_state_dict` returns the missing and unexpected).
///
/// ```
/// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let (layer, mut other) = (Linear::new(init, 4, 2)?, Linear::builder(4, 2).bias(false).build(init)?);
/// let report = other.load_state_dict(&layer.state_dict(), LoadOptions::partial())?;
/// assert_eq!((report.loaded, report.unexpected), (vec!["weight".to_string()], vec!["bias".to_string()]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// The names that were loaded.
    pub loaded: Vec<String>,
    /// Parameters and buffers of the model that the weights lack; they keep their values in the model.
    pub missing: Vec<String>,
    /// Names in the weights that the model does not have.
    pub unexpected: Vec<String>,
    /// Entries whose shape or kind differs; the model keeps its values.
    pub mismatched: Vec<Mismatch>,
    /// Counters of the model that the weights lack; they keep their values. Weights from other frameworks do not have these
    /// counts of a layer's own steps, so they do not count as missing.
    pub counters_kept: Vec<String>,
}

impl LoadReport {
    /// True if every parameter and buffer was loaded and every name in the weights was used.
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (layer, mut other) = (Linear::new(init, 4, 2)?, Linear::new(init, 4, 2)?);
    /// assert!(other.load_state_dict(&layer.state_dict(), LoadOptions::partial())?.is_exact());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

/// A list of which the first few items are displayed.
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
