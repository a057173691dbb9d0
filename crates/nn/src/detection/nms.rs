//! Suppression of boxes that overlap better ones.

use super::boxes::{area, overlap};
use crate::{Error, Result};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The order of scores: the larger first, NaN before all, equal ones by position.
fn descending(scores: &[f32]) -> impl Fn(&usize, &usize) -> Ordering + '_ {
    |&a, &b| {
        let (x, y) = (scores[a], scores[b]);
        let by_score = y.partial_cmp(&x).unwrap_or_else(|| y.is_nan().cmp(&x.is_nan()));
        by_score.then(a.cmp(&b))
    }
}

fn check(op: &'static str, boxes: &[[f32; 4]], argument: &'static str, len: usize) -> Result<()> {
    if len == boxes.len() {
        return Ok(());
    }
    let expected = format!("{}, as many as boxes", boxes.len());
    Err(Error::invalid(op, argument, format!("{len} values"), expected))
}

/// The positions of the boxes that stay, the best first, when each that stays suppresses those of lower score that it overlaps by more than
/// `iou_threshold` (`torchvision.ops.nms`). Equal scores count in the order of the boxes, NaN as the largest. On the host: read the values
/// of tensors with [`read_boxes`](super::read_boxes).
///
/// ```
/// use kiln_nn::detection::nms;
/// let boxes = [[0.0, 0.0, 10.0, 9.0], [0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]];
/// assert_eq!(nms(&boxes, &[0.6, 0.9, 0.3], 0.5)?, [1, 2]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Another number of scores than of boxes.
pub fn nms(boxes: &[[f32; 4]], scores: &[f32], iou_threshold: f64) -> Result<Vec<usize>> {
    check("nms", boxes, "scores", scores.len())?;
    Ok(suppressed(boxes, scores, (0..boxes.len()).collect(), iou_threshold))
}

/// As [`nms`] among the boxes of each class alone (`torchvision.ops.batched_nms`): boxes of two classes do not suppress each other. The
/// positions of all that stay, the best first. (torchvision moves the classes of few boxes apart instead, by adding to their corners, whose
/// rounding can change overlaps that are all but equal to the threshold.)
///
/// ```
/// use kiln_nn::detection::batched_nms;
/// let boxes = [[0.0, 0.0, 10.0, 9.0], [0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 10.0]];
/// assert_eq!(batched_nms(&boxes, &[0.6, 0.9, 0.3], &[0, 0, 1], 0.5)?, [1, 2]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Another number of scores or classes than of boxes.
pub fn batched_nms(boxes: &[[f32; 4]], scores: &[f32], classes: &[i32], iou_threshold: f64) -> Result<Vec<usize>> {
    const OP: &str = "batched_nms";
    check(OP, boxes, "scores", scores.len())?;
    check(OP, boxes, "classes", classes.len())?;
    let mut by_class: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for (i, &class) in classes.iter().enumerate() {
        by_class.entry(class).or_default().push(i);
    }
    let each = by_class.into_values();
    let mut kept: Vec<usize> = each
        .flat_map(|of| suppressed(boxes, scores, of, iou_threshold))
        .collect();
    kept.sort_unstable_by(descending(scores));
    Ok(kept)
}

/// The positions among `of` that stay, the best first.
fn suppressed(boxes: &[[f32; 4]], scores: &[f32], mut of: Vec<usize>, iou_threshold: f64) -> Vec<usize> {
    of.sort_unstable_by(descending(scores));
    let mut kept: Vec<usize> = Vec::new();
    let mut held: Vec<([f32; 4], f32)> = Vec::new();
    for i in of {
        let (b, size) = (&boxes[i], area(&boxes[i]));
        let covered = held
            .iter()
            .any(|(a, area_a)| f64::from(overlap(a, *area_a, b, size)) > iou_threshold);
        if !covered {
            kept.push(i);
            held.push((*b, size));
        }
    }
    kept
}
