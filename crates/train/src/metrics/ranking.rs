//! The area under the ROC curve, and the average precision, of scores on the host.

use kiln_core::{Error, Result};
use std::cmp::Ordering;

/// The number of positive samples, and of all, that share each score, from the highest score to the lowest.
fn ties(op: &'static str, scores: &[f64], positive: &[bool]) -> Result<Vec<(u64, u64)>> {
    if scores.len() != positive.len() {
        let expected = format!("one for each of {} samples", positive.len());
        return Err(Error::invalid(op, "scores", scores.len(), expected));
    }
    if let Some(at) = scores.iter().position(|s| s.is_nan()) {
        return Err(Error::invalid(op, "scores", format!("NaN at sample {at}"), "numbers"));
    }
    let mut samples: Vec<(f64, bool)> = scores.iter().copied().zip(positive.iter().copied()).collect();
    samples.sort_unstable_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal));
    let count = |tied: &[(f64, bool)]| (tied.iter().filter(|s| s.1).count() as u64, tied.len() as u64);
    Ok(samples.chunk_by(|a, b| a.0 == b.0).map(count).collect())
}

/// The area under the ROC curve (`sklearn.metrics.roc_auc_score`): the share of pairs of a positive and a negative sample in
/// which the positive one has the higher score, a tie counting one half. NaN without samples of both kinds.
///
/// ```
/// let auc = kiln_train::roc_auc(&[0.1, 0.4, 0.35, 0.8], &[false, false, true, true])?;
/// assert_eq!(auc, 0.75);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Slices of different lengths, a score that is NaN.
pub fn roc_auc(scores: &[f64], positive: &[bool]) -> Result<f64> {
    let (mut above, mut samples, mut area) = (0, 0, 0.0);
    for (tied, all) in ties("roc_auc", scores, positive)? {
        let negative = all - tied;
        area += negative as f64 * (above as f64 + tied as f64 / 2.0);
        above += tied;
        samples += all;
    }
    Ok(area / (above as f64 * (samples - above) as f64))
}

/// The average precision (`sklearn.metrics.average_precision_score`): the sum over thresholds of the precision times the
/// growth of the recall, without interpolation. 0 without positive samples, NaN without samples.
///
/// ```
/// let precision = kiln_train::average_precision(&[0.1, 0.4, 0.35, 0.8], &[false, false, true, true])?;
/// assert!((precision - 5.0 / 6.0).abs() < 1e-15);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Slices of different lengths, a score that is NaN.
pub fn average_precision(scores: &[f64], positive: &[bool]) -> Result<f64> {
    let (mut above, mut samples, mut area) = (0, 0, 0.0);
    for (tied, all) in ties("average_precision", scores, positive)? {
        above += tied;
        samples += all;
        area += tied as f64 * (above as f64 / samples as f64);
    }
    match (samples, above) {
        (0, _) => Ok(f64::NAN),
        (_, 0) => Ok(0.0),
        _ => Ok(area / above as f64),
    }
}

/// The mean over classes of a measure of two classes, [`roc_auc`] or [`average_precision`], each class against all others
/// (`multi_class="ovr", average="macro"` in scikit-learn). The scores are row-major `[samples, classes]`, comparable between
/// samples: probabilities, not logits. The area under the ROC curve is NaN if a class has no samples.
///
/// ```
/// use kiln_train::{one_vs_rest, roc_auc};
/// let scores = [0.5, 0.3, 0.2, 0.1, 0.6, 0.3, 0.2, 0.2, 0.6];
/// assert_eq!(one_vs_rest(&scores, &[0, 1, 2], 3, roc_auc)?, 1.0);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Scores that are not `classes` for each label, a label out of range, an error of the measure.
pub fn one_vs_rest(
    scores: &[f64],
    labels: &[usize],
    classes: usize,
    measure: impl Fn(&[f64], &[bool]) -> Result<f64>,
) -> Result<f64> {
    const OP: &str = "one_vs_rest";
    if labels.len().checked_mul(classes) != Some(scores.len()) {
        let expected = format!("{classes} for each of {} samples", labels.len());
        return Err(Error::invalid(OP, "scores", scores.len(), expected));
    }
    if let Some(position) = labels.iter().position(|&label| label >= classes) {
        return Err(Error::IndexOutOfRange {
            op: OP,
            index: labels[position] as i64,
            position,
            size: classes,
        });
    }
    let mut sum = 0.0;
    for class in 0..classes {
        let column: Vec<f64> = scores.iter().skip(class).step_by(classes).copied().collect();
        let positive: Vec<bool> = labels.iter().map(|&label| label == class).collect();
        sum += measure(&column, &positive)?;
    }
    Ok(sum / classes as f64)
}
