//! Assigns targets to the positions that learn them: the task-aligned assigner (Feng et al. 2021, TOOD).

use super::config::YoloConfig;
use super::grid::counted;
use super::layers::STRIDES;
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::detection::{Boxes, complete_box_iou};
use kiln_nn::{Indices, Tensor};

/// The number that keeps denominators from 0, and points from counting as inside of a box on its sides.
const EPS: f64 = 1e-9;

/// The targets of N images on the device, M for each: those that there are, and empty ones behind them. They are made before a step, which
/// then reads nothing from the host.
///
/// ```
/// use kiln_models::YoloTargets;
/// use kiln_nn::{DType, detection::Boxes};
/// # let cpu = kiln_cpu::Cpu::new();
/// let one = Boxes { xyxy: vec![[10.0, 10.0, 40.0, 50.0]], classes: vec![2] };
/// let targets = YoloTargets::new(&cpu, &[one, Boxes::default()], 4)?;
/// assert_eq!(targets.boxes.shape().dims(), [2, 4, 4]);
/// assert_eq!(targets.exists.to_vec::<u8>()?, [1, 0, 0, 0, 0, 0, 0, 0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone)]
pub struct YoloTargets<B: Backend> {
    /// Corners `[N, M, 4]` in pixels, of f32; zeros where there is none.
    pub boxes: Tensor<B>,
    /// Classes `[N, M]`, 0 where there is none.
    pub classes: Indices<B>,
    /// A u8 mask `[N, M]` of the targets that there are.
    pub exists: Indices<B>,
}

impl<B: Backend> YoloTargets<B> {
    /// The boxes of images, with room for at least `room` in each and as many as the image with the most of them has.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(backend: &B, targets: &[Boxes], room: usize) -> Result<Self> {
        let most = targets.iter().map(Boxes::len).max().unwrap_or(0);
        let (n, m) = (targets.len(), most.max(room).max(1));
        let (mut boxes, mut classes, mut exists) = (vec![[0f32; 4]; n * m], vec![0i32; n * m], vec![0u8; n * m]);
        for (i, of) in targets.iter().enumerate() {
            let to = i * m..i * m + of.len();
            boxes[to.clone()].copy_from_slice(&of.xyxy);
            classes[to.clone()].copy_from_slice(&of.classes);
            exists[to].fill(1);
        }
        Ok(YoloTargets {
            boxes: Tensor::from_slice(backend, boxes.as_flattened(), &[n, m, 4])?,
            classes: Indices::from_slice(backend, &classes, &[n, m])?,
            exists: Indices::from_slice(backend, &exists, &[n, m])?,
        })
    }

    /// Refuses tensors of other shapes.
    pub(super) fn check(&self, images: usize) -> Result<()> {
        let m = self.classes.shape().last().copied().unwrap_or(0);
        let found = [self.boxes.shape(), self.classes.shape(), self.exists.shape()];
        if m > 0 && found[0].dims() == [images, m, 4] && found[1..].iter().all(|s| s.dims() == [images, m]) {
            return Ok(());
        }
        let found = format!("{}, {} and {}", found[0], found[1], found[2]);
        let expected = format!("[{images}, M, 4] and twice [{images}, M], as many as images");
        Err(Error::invalid("yolo", "targets", found, expected))
    }
}

/// The box and the scores that each position is trained to predict.
pub(super) struct Assigned<B: Backend> {
    /// The corners `[N, A, 4]` of its target in pixels; any where it has none.
    pub(super) boxes: Tensor<B>,
    /// The score `[N, A, classes]`: how well it fits its target at the target's class, 0 elsewhere.
    pub(super) scores: Tensor<B>,
}

/// Assigns targets to positions: `scores` `[N, A, classes]` from 0 to 1 and `boxes` `[N, A, 4]` as they are found, and the positions' `points`
/// `[A, 2]`, both in pixels. Without gradients; nothing is read or uploaded, so that it can be part of a captured step.
pub(super) fn assign<B: Backend>(
    config: &YoloConfig,
    scores: &Tensor<B>,
    boxes: &Tensor<B>,
    points: &Tensor<B>,
    targets: &YoloTargets<B>,
) -> Result<Assigned<B>> {
    let (n, a, m) = (scores.shape()[0], scores.shape()[1], targets.boxes.shape()[1]);
    let (backend, dtype) = (scores.backend(), scores.dtype());
    let (corners, exists) = (targets.boxes.to_dtype(dtype)?, targets.exists.unsqueeze(-1)?);
    // The positions inside of each target: [N, M, A]. Narrow targets have some as well.
    let within = |axis: usize| {
        let (low, high) = (corners.narrow(-1, axis, 1)?, corners.narrow(-1, axis + 2, 1)?);
        let half = high.sub(&low)?.clamp_min(STRIDES[1] as f64)?.mul_scalar(0.5)?;
        let at = points.narrow(-1, axis, 1)?.squeeze(-1)?;
        half.sub(&at.sub(&low.add(&high)?.mul_scalar(0.5)?)?.abs()?)
    };
    let inside = within(0)?.minimum(&within(1)?)?.gt_scalar(EPS)?.logical_and(&exists)?;
    let outside = inside.logical_not()?;

    // How well they fit, by the score of the target's class and by the overlap: [N, M, A].
    let overlaps = complete_box_iou(&corners, boxes)?
        .clamp_min(0.0)?
        .masked_fill(&outside, 0.0)?;
    let rows = in_image(&targets.classes, config.classes)?.reshape(&[n * m])?;
    let of_class = scores.permute(&[0, 2, 1])?.reshape(&[n * config.classes, a])?;
    let of_class = of_class.index_select(0, &rows)?.reshape(&[n, m, a])?;
    let (alpha, beta) = config.alignment;
    let alignment = of_class
        .powf(alpha)?
        .mul(&overlaps.powf(beta)?)?
        .masked_fill(&outside, 0.0)?;

    // The best of them, and of several targets of a position the one that it overlaps most.
    let (best, at) = alignment.top_k(config.candidates.min(a), -1, true)?;
    let zeros = Tensor::zeros(backend, &[n, m, a], dtype)?;
    let chosen = zeros.scatter_add(-1, &at, &Tensor::ones(backend, best.shape().dims(), dtype)?)?;
    let chosen = chosen.masked_fill(&outside, 0.0)?;
    let several = chosen.sum(&[1], true)?.gt_scalar(1.0)?.to_float(dtype)?;
    let largest = overlaps.argmax(1, false)?.one_hot(m, dtype)?.permute(&[0, 2, 1])?;
    let chosen = chosen.add(&largest.sub(&chosen)?.mul(&several)?)?;

    // Scores are the alignment, scaled so that the best of each target has the largest overlap.
    let alignment = alignment.mul(&chosen)?;
    let most = alignment.max(&[-1], true)?.add_scalar(EPS)?;
    let largest = overlaps.mul(&chosen)?.max(&[-1], true)?;
    let fit = alignment.mul(&largest)?.div(&most)?.max(&[1], false)?;
    let target = in_image(&chosen.argmax(1, false)?, m)?.reshape(&[n * a])?;
    let class = targets
        .classes
        .reshape(&[n * m])?
        .index_select(0, &target)?
        .reshape(&[n, a])?;
    Ok(Assigned {
        boxes: corners
            .reshape(&[n * m, 4])?
            .index_select(0, &target)?
            .reshape(&[n, a, 4])?,
        scores: class.one_hot(config.classes, dtype)?.mul(&fit.unsqueeze(-1)?)?,
    })
}

/// Indices `[N, …]` below `count` of each image as indices among those of all images.
fn in_image<B: Backend>(index: &Indices<B>, count: usize) -> Result<Indices<B>> {
    let start = counted(index.backend(), index.shape()[0], 0.0, DType::F32)?.to_indices()?;
    index.add(&start.mul(count as i32)?.reshape((-1, 1))?)
}
