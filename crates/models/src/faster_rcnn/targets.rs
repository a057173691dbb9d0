//! Targets and losses of boxes that both halves of the detector share.

use kiln_core::{Backend, DType, Result};
use kiln_nn::detection::{BoxCoder, Boxes, Match, Sampled, upload_boxes};
use kiln_nn::{Indices, Reduction, Tensor};

/// The β of the smooth L1 losses of boxes.
const BETA: f64 = 1.0 / 9.0;

/// A tensor in the dtype of losses: f32, or f64 if it has it.
pub(super) fn full<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    match x.dtype() {
        DType::F64 => Ok(x.clone()),
        _ => x.to_dtype(DType::F32),
    }
}

/// The rows of `x` at `rows`.
pub(super) fn picked<B: Backend>(x: &Tensor<B>, rows: &[usize]) -> Result<Tensor<B>> {
    x.index_select(0, &Indices::from_slice(x.backend(), rows, &[rows.len()])?)
}

/// The boxes to be found by the candidates that stand for targets, with those candidates.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) boxes: Vec<[f32; 4]>,
    pub(super) from: Vec<[f32; 4]>,
}

impl Wanted {
    /// Appends the drawn candidates of an image that stand for targets.
    pub(super) fn image(&mut self, drawn: &Sampled, matches: &[Match], from: &[[f32; 4]], targets: &Boxes) {
        for &i in &drawn.positive {
            if let Match::Target(target) = matches[i] {
                self.boxes.push(targets.xyxy[target]);
                self.from.push(from[i]);
            }
        }
    }

    /// The smooth L1 loss of codes `[P, 4]` for the wanted boxes, summed and divided by `count`.
    pub(super) fn loss<B: Backend>(&self, coder: &BoxCoder, codes: &Tensor<B>, count: usize) -> Result<Tensor<B>> {
        let upload = |boxes| upload_boxes(codes.backend(), boxes, codes.dtype());
        let wanted = coder.encode(&upload(&self.boxes)?, &upload(&self.from)?)?;
        let sum = codes.smooth_l1_loss(&wanted, BETA, Reduction::Sum)?;
        sum.div_scalar(count.max(1) as f64)
    }
}
