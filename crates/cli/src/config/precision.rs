//! The precision that a run computes in.

use clap::ValueEnum;
use kiln_core::DType;
use serde::{Deserialize, Serialize};

/// The precision of products and convolutions; weights, their gradients and the optimizer are f32 in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Precision {
    /// f32 throughout
    #[default]
    F32,
    /// f32, with operands rounded to 10 bits of mantissa on tensor cores (NVIDIA GPUs)
    Tf32,
    /// Mixed precision with bfloat16
    Bf16,
    /// Mixed precision with float16 and a dynamic loss scale
    F16,
}

impl Precision {
    /// The dtype of mixed precision, if it is one.
    pub(crate) fn autocast(self) -> Option<DType> {
        match self {
            Precision::F32 | Precision::Tf32 => None,
            Precision::Bf16 => Some(DType::BF16),
            Precision::F16 => Some(DType::F16),
        }
    }

    /// The words for it after the settings of a run; empty for f32.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Precision::F32 => "",
            Precision::Tf32 => ", TF32",
            Precision::Bf16 => ", mixed precision with bf16",
            Precision::F16 => ", mixed precision with f16",
        }
    }
}
