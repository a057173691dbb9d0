//! Where the images of a run lie.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Where the images of a run lie; the results are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Placement {
    /// On a GPU, if they take at most a quarter of its memory
    #[default]
    Auto,
    /// On the device, as bytes
    On,
    /// In the host's memory or on its disk; batches of floats go to the device
    Off,
}
