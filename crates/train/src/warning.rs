//! The warnings of a run.

use crate::cause::{Cause, described};
use kiln_files::shown_path;
use std::path::PathBuf;

/// An event that did not end the run: a change to its folder from outside, a step that was left out, or an op that a twin disagrees with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A step was skipped because its loss or a gradient is NaN or infinite. The first four of a run are told; the eighth, the sixteenth and
    /// so on if their cause is a new one.
    Skipped {
        /// The first such value.
        cause: Box<Cause>,
    },
    /// A step in f16 was skipped because a gradient overflows although its loss was multiplied by 1 or less. The steps before, in which the
    /// scale of the loss fell from 2¹⁶, are counted and not told. Told as often as [`Skipped`](Warning::Skipped).
    Overflow {
        /// The first such value.
        cause: Box<Cause>,
    },
    /// The run went back to before a step with a loss or a weight that is NaN or infinite, and has left the step out.
    RolledBack {
        /// The first such value.
        cause: Box<Cause>,
    },
    /// An op of the device has computed something else than its [`Twin`](crate::Twin), which [warns](crate::Twin::warn) of it. Each op is
    /// told once.
    Twin {
        /// The op and the difference.
        cause: Box<Cause>,
    },
    /// Layers that [`TrainOptions::recompute`](crate::TrainOptions::recompute) names are not computed again, and take the memory that they
    /// take without.
    NotRecomputed {
        /// Their names with their types.
        layers: Vec<String>,
    },
    /// A file was removed, replaced or truncated, and was written again from memory.
    Restored {
        /// The file.
        path: PathBuf,
    },
    /// A file was removed, and the run no longer has its contents.
    Lost {
        /// The file.
        path: PathBuf,
    },
    /// A checkpoint is damaged, and an older one was taken.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The folder was moved; the run continues to write into it.
    Moved {
        /// The former path.
        from: PathBuf,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Warning::Restored { path } => {
                write!(
                    f,
                    "{}: was removed or changed while the run went on; it was written again",
                    shown_path(path)
                )
            }
            Warning::Lost { path } => {
                write!(
                    f,
                    "{}: was removed while the run went on, and cannot be written again",
                    shown_path(path)
                )
            }
            Warning::NotRecomputed { layers } => write!(
                f,
                "recompute: {} kept, not computed again: the model runs {} by another function than `forward`, or there is no copy of {} type",
                match &layers[..] {
                    [one] => format!("{one} is"),
                    _ => format!("{} are", layers.join(", ")),
                },
                if layers.len() == 1 { "it" } else { "them" },
                if layers.len() == 1 { "its" } else { "their" },
            ),
            Warning::Overflow { cause } => write!(
                f,
                "{}; the step was skipped, and the scale of the loss has fallen below 1: these gradients are too large for f16; bf16 has the \
                 range of f32, or make the loss smaller (a mean in place of a sum)",
                described(cause)
            ),
            Warning::Skipped { cause } => write!(f, "{}; the step was skipped", described(cause)),
            Warning::RolledBack { cause } => {
                write!(f, "{}; the run went back, and has left the step out", described(cause))
            }
            Warning::Twin { cause } => write!(
                f,
                "{}; a kernel, the driver or the hardware computes wrongly; the run goes on",
                described(cause)
            ),
            Warning::Damaged { path, reason } => write!(
                f,
                "{}: is damaged, and an older checkpoint is used: {}",
                shown_path(path),
                kiln_files::shown(reason).sentence()
            ),
            Warning::Moved { from } => write!(
                f,
                "{}: the folder was moved while the run goes on; its files are written to where it is now",
                shown_path(from)
            ),
        }
    }
}
