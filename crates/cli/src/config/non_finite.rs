//! The policy for NaN and infinity: stop, skip or roll back.

use clap::ValueEnum;
use kiln_train::NonFinite;
use serde::{Deserialize, Serialize};

/// The policy for a loss, a gradient or a weight that is NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnNan {
    /// End with an error that names the first layer and op
    Stop,
    /// Leave the model as it was before the step, which is checked before every update
    Skip,
    /// Go back to before the step and leave it out; losses are checked when they are read
    Rollback,
}

impl OnNan {
    /// The steps in a row that may be left out, unless another number is given.
    const IN_A_ROW: u64 = 10;

    /// The policy of a run, from `--nan`, `--skip-nan` and `--nan-lr`.
    pub(crate) fn policy(nan: Option<OnNan>, skip_nan: Option<u64>, lr_factor: Option<f64>) -> NonFinite {
        let in_a_row = skip_nan.unwrap_or(OnNan::IN_A_ROW);
        match (nan, skip_nan) {
            (Some(OnNan::Rollback), _) => NonFinite::Rollback {
                in_a_row,
                lr_factor: lr_factor.unwrap_or(1.0),
            },
            (Some(OnNan::Skip), _) | (None, Some(_)) => NonFinite::Skip { in_a_row },
            (Some(OnNan::Stop), _) | (None, None) => NonFinite::Stop,
        }
    }
}
