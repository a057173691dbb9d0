//! Detections of one class in one image, matched with what is there.

use super::boxes::{Detection, GroundTruth, area, overlap};
use std::cmp::Ordering;
use std::ops::RangeInclusive;

/// The largest number of detections of a class in an image that count.
pub(super) const MOST: usize = 100;

/// The number of thresholds of overlap.
pub(super) const THRESHOLDS: usize = 10;

/// The overlap that a match needs: 0.5 to 0.95, rounded as NumPy's `linspace` rounds them.
fn threshold(i: usize) -> f64 {
    match i + 1 == THRESHOLDS {
        true => 0.95,
        false => i as f64 * ((0.95 - 0.5) / (THRESHOLDS - 1) as f64) + 0.5,
    }
}

/// A detection at one threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Correct,
    Wrong,
    /// Found what does not count, or found nothing and has a size that does not count.
    Ignored,
}

/// The objects and the detections of one class in one image.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    /// The best ones, from the highest score to the lowest.
    detections: Vec<Detection>,
    truths: Vec<GroundTruth>,
    /// For each detection those with every truth.
    overlaps: Vec<f64>,
}

/// The detections of a scene, of those sizes that count.
#[derive(Debug)]
pub(super) struct Matches {
    /// The scores, from the highest to the lowest.
    pub(super) scores: Vec<f64>,
    /// The outcomes at each threshold, of each detection.
    pub(super) outcomes: [Vec<Outcome>; THRESHOLDS],
    /// The number of objects that should be found.
    pub(super) objects: usize,
}

impl Scene {
    pub(super) fn new(mut detections: Vec<Detection>, truths: Vec<GroundTruth>) -> Self {
        detections.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal));
        detections.truncate(MOST);
        let overlaps = detections
            .iter()
            .flat_map(|d| truths.iter().map(move |t| overlap(d, t)));
        Scene {
            overlaps: overlaps.collect(),
            detections,
            truths,
        }
    }

    /// Matches each detection, in the order of scores, with the object that it overlaps most and that none before has found.
    /// Crowds and objects of another size are ignored, and so is what finds them; they can be found where nothing else is.
    pub(super) fn matches(&self, sizes: &RangeInclusive<f64>) -> Matches {
        let ignored: Vec<bool> = self
            .truths
            .iter()
            .map(|t| t.crowd || !sizes.contains(&t.area()))
            .collect();
        // Those that are ignored last.
        let mut order: Vec<usize> = (0..self.truths.len()).collect();
        order.sort_by_key(|&t| ignored[t]);
        Matches {
            scores: self.detections.iter().map(|d| d.score).collect(),
            outcomes: std::array::from_fn(|i| self.outcomes(threshold(i), sizes, &order, &ignored)),
            objects: ignored.iter().filter(|&&i| !i).count(),
        }
    }

    fn outcomes(&self, threshold: f64, sizes: &RangeInclusive<f64>, order: &[usize], ignored: &[bool]) -> Vec<Outcome> {
        let mut found = vec![false; self.truths.len()];
        let mut outcome = |(i, detection): (usize, &Detection)| {
            let overlaps = &self.overlaps[i * self.truths.len()..];
            let (mut least, mut best) = (threshold.min(1.0 - 1e-10), None);
            for &t in order {
                if found[t] && !self.truths[t].crowd {
                    continue;
                }
                if ignored[t] && best.is_some_and(|best: usize| !ignored[best]) {
                    break;
                }
                if overlaps[t] >= least {
                    (least, best) = (overlaps[t], Some(t));
                }
            }
            match best {
                None if sizes.contains(&area(&detection.bounds)) => Outcome::Wrong,
                None => Outcome::Ignored,
                Some(t) => {
                    found[t] = true;
                    match ignored[t] {
                        true => Outcome::Ignored,
                        false => Outcome::Correct,
                    }
                }
            }
        };
        self.detections.iter().enumerate().map(&mut outcome).collect()
    }
}
