//! Average precision and recall over images.

use super::boxes::{Detection, GroundTruth};
use super::matching::{MOST, Matches, Outcome, Scene, THRESHOLDS};
use kiln_core::Result;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The areas that count in pixels: all, small, medium, large.
const SIZES: [RangeInclusive<f64>; 4] = [0.0..=1e10, 0.0..=1024.0, 1024.0..=9216.0, 9216.0..=1e10];

/// The number of recalls at which the precision is taken: 0, 0.01, … 1.
const RECALLS: usize = 101;

/// The 12 numbers by which COCO judges detections of boxes. Each is a mean over classes, and −1 if there is no object that
/// counts for it.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectionSummary {
    /// The average precision, the mean over thresholds of overlap 0.5, 0.55, … 0.95.
    pub ap: f64,
    /// The average precision with the threshold 0.5.
    pub ap50: f64,
    /// The average precision with the threshold 0.75.
    pub ap75: f64,
    /// The average precision of objects of at most 32² pixels.
    pub ap_small: f64,
    /// The average precision of objects of 32² to 96² pixels.
    pub ap_medium: f64,
    /// The average precision of objects of at least 96² pixels.
    pub ap_large: f64,
    /// The recall with one detection of a class in an image, the mean over the thresholds.
    pub ar1: f64,
    /// The recall with 10 detections of a class in an image.
    pub ar10: f64,
    /// The recall with 100 detections of a class in an image.
    pub ar100: f64,
    /// The recall of objects of at most 32² pixels, with 100 detections.
    pub ar_small: f64,
    /// The recall of objects of 32² to 96² pixels, with 100 detections.
    pub ar_medium: f64,
    /// The recall of objects of at least 96² pixels, with 100 detections.
    pub ar_large: f64,
    /// The average precision of each class that has objects, over all sizes and thresholds.
    pub classes: Vec<(usize, f64)>,
}

impl DetectionSummary {
    /// The 12 numbers in the order of `COCOeval.stats`, by the names that TorchMetrics gives them: `map`, `map_50`, … `mar_large`.
    pub fn stats(&self) -> [(&'static str, f64); 12] {
        [
            ("map", self.ap),
            ("map_50", self.ap50),
            ("map_75", self.ap75),
            ("map_small", self.ap_small),
            ("map_medium", self.ap_medium),
            ("map_large", self.ap_large),
            ("mar_1", self.ar1),
            ("mar_10", self.ar10),
            ("mar_100", self.ar100),
            ("mar_small", self.ar_small),
            ("mar_medium", self.ar_medium),
            ("mar_large", self.ar_large),
        ]
    }
}

/// An evaluation of detected boxes over images, equal to `pycocotools.cocoeval.COCOeval` with `iouType="bbox"`.
///
/// ```
/// use kiln_train::{Detection, DetectionEval, GroundTruth};
/// let truth = GroundTruth { bounds: [10.0, 10.0, 40.0, 20.0], class: 0, crowd: false, area: None };
/// let found = Detection { bounds: [10.0, 10.0, 40.0, 18.0], class: 0, score: 0.8 };
/// let mut eval = DetectionEval::new();
/// eval.add(&[found], &[truth])?;
/// // The boxes share 18 of 20 rows, which is enough for nine thresholds of ten.
/// let summary = eval.summary();
/// assert!((summary.ap - 0.9).abs() < 1e-12 && (summary.ap75 - 1.0).abs() < 1e-12);
/// assert_eq!(summary.ap_large, -1.0);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct DetectionEval {
    classes: BTreeMap<usize, Vec<Scene>>,
}

impl DetectionEval {
    /// Creates an evaluation without images.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an image. Where detections of several images have the same score, images added first count first, as those of the
    /// lower number do in COCO.
    ///
    /// # Errors
    /// Bounds that are not finite, a width, height or area below 0, a score that is NaN. The image is not added then.
    pub fn add(&mut self, detections: &[Detection], truths: &[GroundTruth]) -> Result<()> {
        detections.iter().try_for_each(Detection::check)?;
        truths.iter().try_for_each(GroundTruth::check)?;
        let mut classes: BTreeMap<usize, (Vec<Detection>, Vec<GroundTruth>)> = BTreeMap::new();
        for detection in detections {
            classes.entry(detection.class).or_default().0.push(*detection);
        }
        for truth in truths {
            classes.entry(truth.class).or_default().1.push(*truth);
        }
        for (class, (detections, truths)) in classes {
            let scenes = self.classes.entry(class).or_default();
            scenes.push(Scene::new(detections, truths));
        }
        Ok(())
    }

    /// Computes the numbers over all images added.
    pub fn summary(&self) -> DetectionSummary {
        let mut curves: [Vec<Curve>; SIZES.len()] = Default::default();
        let mut few: [Vec<f64>; 2] = Default::default();
        let mut classes = Vec::new();
        for (&class, scenes) in &self.classes {
            for (i, sizes) in SIZES.iter().enumerate() {
                let matches: Vec<Matches> = scenes.iter().map(|scene| scene.matches(sizes)).collect();
                let Some(curve) = Curve::of(&matches, MOST) else {
                    continue;
                };
                if i == 0 {
                    classes.push((class, curve.precision.iter().sum::<f64>() / THRESHOLDS as f64));
                    for (recalls, most) in few.iter_mut().zip([1, 10]) {
                        recalls.extend(Curve::of(&matches, most).into_iter().flat_map(|curve| curve.recall));
                    }
                }
                curves[i].push(curve);
            }
        }
        let precision = |size: usize| mean(curves[size].iter().flat_map(|curve| curve.precision));
        let at = |threshold: usize| mean(curves[0].iter().map(|curve| curve.precision[threshold]));
        let recall = |size: usize| mean(curves[size].iter().flat_map(|curve| curve.recall));
        DetectionSummary {
            ap: precision(0),
            ap50: at(0),
            ap75: at(5),
            ap_small: precision(1),
            ap_medium: precision(2),
            ap_large: precision(3),
            ar1: mean(few[0].iter().copied()),
            ar10: mean(few[1].iter().copied()),
            ar100: recall(0),
            ar_small: recall(1),
            ar_medium: recall(2),
            ar_large: recall(3),
            classes,
        }
    }
}

/// The mean; −1 of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    match count {
        0 => -1.0,
        _ => sum / f64::from(count),
    }
}

/// Precision and recall of a class at each threshold.
struct Curve {
    /// The mean over recalls.
    precision: [f64; THRESHOLDS],
    /// The largest.
    recall: [f64; THRESHOLDS],
}

impl Curve {
    /// The curve with the best `most` detections of each image; `None` without objects.
    fn of(matches: &[Matches], most: usize) -> Option<Curve> {
        let objects: usize = matches.iter().map(|m| m.objects).sum();
        if objects == 0 {
            return None;
        }
        let of_scene = |(scene, m): (usize, &Matches)| {
            let scores: Vec<f64> = m.scores.iter().take(most).copied().collect();
            scores.into_iter().enumerate().map(move |(i, score)| (score, scene, i))
        };
        let mut order: Vec<(f64, usize, usize)> = matches.iter().enumerate().flat_map(of_scene).collect();
        order.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal));
        let at = |threshold: usize| {
            let outcome = |&(_, scene, i): &(f64, usize, usize)| matches[scene].outcomes[threshold][i];
            averages(order.iter().map(outcome), objects)
        };
        let both: [(f64, f64); THRESHOLDS] = std::array::from_fn(at);
        Some(Curve {
            precision: both.map(|b| b.0),
            recall: both.map(|b| b.1),
        })
    }
}

/// The mean over recalls of the best precision at that recall or a higher one, and the largest recall.
fn averages(outcomes: impl Iterator<Item = Outcome>, objects: usize) -> (f64, f64) {
    let (mut right, mut wrong) = (0, 0);
    let (mut recalls, mut precisions): (Vec<f64>, Vec<f64>) = outcomes
        .map(|outcome| {
            right += u32::from(outcome == Outcome::Correct);
            wrong += u32::from(outcome == Outcome::Wrong);
            let (right, wrong) = (f64::from(right), f64::from(wrong));
            (right / objects as f64, right / (wrong + right + f64::EPSILON))
        })
        .unzip();
    for i in (1..precisions.len()).rev() {
        precisions[i - 1] = precisions[i - 1].max(precisions[i]);
    }
    let at = |i: usize| {
        let recall = i as f64 * 0.01;
        let first = recalls.partition_point(|&r| r < recall);
        precisions.get(first).copied().unwrap_or(0.0)
    };
    let sum: f64 = (0..RECALLS).map(at).sum();
    (sum / RECALLS as f64, recalls.pop().unwrap_or(0.0))
}
