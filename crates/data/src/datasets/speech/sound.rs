//! The sound and the spectrograms of networks.

use crate::{DataError, Result};

/// The sample rate of sound for networks, in Hz. Files of another rate are resampled.
pub const SAMPLE_RATE: u32 = 16_000;

/// The frames of a network's input `[T, F]`.
pub(super) fn frames(shape: &[usize]) -> Result<usize> {
    match *shape {
        [frames, _] => Ok(frames),
        _ => Err(DataError::shape("speech", format!("{shape:?}"), "spectrograms [T, F]")),
    }
}
