//! Mean average precision of object detection, as COCO computes it.

mod average_precision;
mod boxes;
mod evaluation;
mod matching;

pub use average_precision::MeanAveragePrecision;
pub use boxes::{Detection, GroundTruth};
pub use evaluation::{DetectionEval, DetectionSummary};
