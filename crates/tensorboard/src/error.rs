//! Errors of event files.

use kiln_files::FileError;

/// The result of anything in this crate.
pub type Result<T, E = TensorBoardError> = std::result::Result<T, E>;

/// An event that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorBoardError {
    /// The event file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A histogram of no values.
    #[error("histogram `{tag}`: no values, expected at least one")]
    Empty {
        /// The name of the histogram.
        tag: String,
    },
    /// A histogram of values that are not all finite.
    #[error("histogram `{tag}`: {bad} of {values} values are NaN or infinite; leave them out")]
    NonFinite {
        /// The name of the histogram.
        tag: String,
        /// The number of such values.
        bad: usize,
        /// The number of values.
        values: usize,
    },
    /// An image whose shape is not that of its pixels, or none that an image can have.
    #[error("image `{tag}`: {values} values in the shape {shape:?}, expected {expected}")]
    Image {
        /// The name of the image.
        tag: String,
        /// The number of values.
        values: usize,
        /// Height, width and channels.
        shape: [usize; 3],
        /// The values and shapes that are accepted.
        expected: &'static str,
    },
    /// A file of weights that cannot be read.
    #[error(transparent)]
    Weights(#[from] kiln_nn::weights::WeightsError),
    /// A file of a run's folder that cannot be read.
    #[error(transparent)]
    Run(kiln_train::TrainError),
    /// A device error.
    #[error(transparent)]
    Device(#[from] kiln_core::Error),
}
