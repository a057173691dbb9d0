//! The losses of a YOLO.

use super::assign::{YoloTargets, assign};
use super::config::YoloConfig;
use super::grid::Grid;
use kiln_core::{Backend, Result};
use kiln_nn::detection::complete_box_iou_loss;
use kiln_nn::{Reduction, Tensor, no_grad};

/// The losses of a batch, scalars, times their gains and the number of images.
#[derive(Clone)]
pub struct YoloLosses<B: Backend> {
    /// One less the complete overlap of boxes.
    pub boxes: Tensor<B>,
    /// The binary cross-entropy of classes.
    pub classes: Tensor<B>,
    /// The cross-entropy of the distances to the sides (Li et al. 2020, Distribution Focal Loss).
    pub distances: Tensor<B>,
}

impl<B: Backend> YoloLosses<B> {
    /// Their sum, which is trained on.
    ///
    /// # Errors
    /// [`kiln_core::Error::OutOfMemory`].
    pub fn total(&self) -> Result<Tensor<B>> {
        self.boxes.add(&self.classes)?.add(&self.distances)
    }
}

/// The losses of what was found with the targets of each image.
pub(super) fn losses<B: Backend>(
    config: &YoloConfig,
    grid: &Grid<B>,
    targets: &YoloTargets<B>,
) -> Result<YoloLosses<B>> {
    let boxes = grid.boxes()?;
    let assigned = no_grad(|| {
        let (pixels, points) = (boxes.mul(&grid.strides)?, grid.points.mul(&grid.strides)?);
        assign(config, &grid.logits.sigmoid()?, &pixels, &points, targets)
    })?;
    let (wanted, weights, total) = no_grad(|| {
        let wanted = assigned.boxes.div(&grid.strides)?;
        let weights = assigned.scores.sum(&[-1], false)?;
        let total = weights.sum(&[], false)?.clamp_min(1.0)?;
        Ok((wanted, weights, total))
    })?;
    let images = grid.logits.shape()[0] as f64;
    let finished = |loss: Tensor<B>, gain: f64| loss.div(&total)?.mul_scalar(gain * images);
    let of_positions = |losses: Tensor<B>| losses.mul(&weights)?.sum(&[], false);
    let [box_gain, class_gain, distance_gain] = config.gains;
    let overlap = complete_box_iou_loss(&boxes, &wanted, Reduction::None)?;
    let classes = grid.logits.bce_with_logits(&assigned.scores, None, Reduction::Sum)?;
    Ok(YoloLosses {
        boxes: finished(of_positions(overlap)?, box_gain)?,
        classes: finished(classes, class_gain)?,
        distances: finished(of_positions(distances(grid, &wanted)?)?, distance_gain)?,
    })
}

/// The cross-entropy `[N, A]` of the distances to the sides of wanted boxes `[N, A, 4]`, in strides: shared by the two bins around each
/// distance, and the mean of the four sides.
fn distances<B: Backend>(grid: &Grid<B>, wanted: &Tensor<B>) -> Result<Tensor<B>> {
    let last = grid.sides.shape()[3] as f64 - 1.0;
    let (below, upper) = no_grad(|| {
        let from = grid.points.sub(&wanted.narrow(-1, 0, 2)?)?;
        let to = wanted.narrow(-1, 2, 2)?.sub(&grid.points)?;
        let distances = Tensor::concat(&[&from, &to], -1)?
            .clamp(0.0, last - 0.01)?
            .unsqueeze(-1)?;
        let below = distances.floor()?;
        Ok((below.clone(), distances.sub(&below)?))
    })?;
    let below = below.to_indices()?;
    let logs = grid.sides.log_softmax(-1)?;
    let at_below = logs.gather(-1, &below)?.mul(&upper.rsub_scalar(1.0)?)?;
    let at_above = logs.gather(-1, &below.add(1)?)?.mul(&upper)?;
    at_below.add(&at_above)?.neg()?.mean(&[-2, -1], false)
}
