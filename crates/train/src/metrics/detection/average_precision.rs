//! Mean average precision, gathered from batches of padded boxes.

use super::boxes::{Detection, GroundTruth};
use super::evaluation::{DetectionEval, DetectionSummary};
use crate::Output;
use crate::metrics::wide::{wide, wide_dtype};
use crate::metrics::{Metric, Reduction};
use kiln_core::{Backend, Error, Result};
use kiln_nn::Tensor;

const OP: &str = "mean_average_precision";

/// The mean average precision of detected boxes over overlaps 0.5, 0.55, … 0.95, named `map`, with the other eleven numbers of
/// COCO as details, named as in [`DetectionSummary::stats`]: see [`DetectionEval`], which computes them.
///
/// It reads the detections of a batch of `N` images, padded to the same number `D`: `boxes` `[N, D, 4]`, `box_scores` `[N, D]`
/// and `box_classes` `[N, D]`, integers; and the objects that are there, padded to `G`: `true_boxes` `[N, G, 4]`, `true_classes`
/// `[N, G]`, and if the step hands them out `true_crowds` `[N, G]`, integers of which 1 means a crowd, and `true_areas`
/// `[N, G]`. A class below 0 is padding, an area below 0 that of the box. Boxes are `x, y, w, h` in pixels unless they are said
/// to be [corners](MeanAveragePrecision::corners). Everything is gathered, so the metric waits for the device.
///
/// It is an error if bounds are not finite, if a width or height is negative, or if a score is NaN, except in padding.
#[derive(Debug, Clone, Default)]
pub struct MeanAveragePrecision {
    corners: bool,
    eval: DetectionEval,
    last: Option<DetectionSummary>,
    error: Option<Error>,
}

impl MeanAveragePrecision {
    /// Creates the metric, named `map`, for boxes `x, y, w, h`: the left and upper edge, the width and the height.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the metric for boxes `x1, y1, x2, y2`: the left, upper, right and lower edge.
    pub fn corners() -> Self {
        MeanAveragePrecision {
            corners: true,
            ..Self::default()
        }
    }

    /// The numbers of the last epoch or evaluation; `None` before the first.
    pub fn summary(&self) -> Option<&DetectionSummary> {
        self.last.as_ref()
    }

    /// Adds an image: the padded number of detections, their boxes, scores and classes, then boxes, classes, crowds and areas of
    /// the objects.
    fn add(&mut self, row: &[f64]) -> Result<()> {
        let Some((&padded, rest)) = row.split_first() else {
            return Ok(());
        };
        let padded = padded as usize;
        let (found, there) = rest.split_at(6 * padded);
        let bounds = |boxes: &[f64], i: usize| {
            let [x, y, w, h] = std::array::from_fn(|edge| boxes[4 * i + edge]);
            match self.corners {
                true => [x, y, w - x, h - y],
                false => [x, y, w, h],
            }
        };
        let class = |class: f64| (class >= 0.0).then_some(class as usize);
        let (boxes, rest) = found.split_at(4 * padded);
        let (scores, classes) = rest.split_at(padded);
        let detection = |i: usize| {
            class(classes[i]).map(|class| Detection {
                bounds: bounds(boxes, i),
                class,
                score: scores[i],
            })
        };
        let detections: Vec<Detection> = (0..padded).filter_map(detection).collect();
        let padded = there.len() / 7;
        let (boxes, rest) = there.split_at(4 * padded);
        let truth = |i: usize| {
            class(rest[i]).map(|class| GroundTruth {
                bounds: bounds(boxes, i),
                class,
                crowd: rest[padded + i] != 0.0,
                area: Some(rest[2 * padded + i]).filter(|&area| area.is_nan() || area >= 0.0),
            })
        };
        let truths: Vec<GroundTruth> = (0..padded).filter_map(truth).collect();
        self.eval.add(&detections, &truths)
    }
}

/// The values of a batch, `[N, each]`, in the wide dtype, if they have this shape.
fn rows<B: Backend>(values: &Tensor<B>, shape: &[usize]) -> Result<Tensor<B>> {
    if values.shape().dims() != shape {
        return Err(Error::invalid(OP, "shape", values.shape(), format!("{shape:?}")));
    }
    wide(values)?.reshape(&[shape[0], shape[1..].iter().product()])
}

impl<B: Backend> Metric<B> for MeanAveragePrecision {
    fn name(&self) -> String {
        "map".to_string()
    }

    fn reads(&self) -> &[&'static str] {
        &["boxes", "box_scores", "box_classes", "true_boxes", "true_classes"]
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let integers = |name| output.integers(name).and_then(|x| x.to_float(wide_dtype(x.backend())));
        let (boxes, classes) = (output.floats("true_boxes")?, integers("true_classes")?);
        let (&[n, found], &[_, there]) = (output.floats("box_scores")?.shape().dims(), classes.shape().dims()) else {
            return Err(Error::Rank {
                op: OP,
                expected: "2 for `box_scores` and `true_classes`",
                rank: classes.rank(),
            });
        };
        let crowds = match output.has(&["true_crowds"]) {
            true => integers("true_crowds")?,
            false => classes.zeros_like()?,
        };
        let areas = match output.has(&["true_areas"]) {
            true => output.floats("true_areas")?.clone(),
            false => classes.full_like(-1.0)?,
        };
        let parts = [
            Tensor::full(classes.backend(), &[n, 1], classes.dtype(), found as f64)?,
            rows(output.floats("boxes")?, &[n, found, 4])?,
            rows(output.floats("box_scores")?, &[n, found])?,
            rows(&integers("box_classes")?, &[n, found])?,
            rows(boxes, &[n, there, 4])?,
            rows(&classes, &[n, there])?,
            rows(&crowds, &[n, there])?,
            rows(&areas, &[n, there])?,
        ];
        Tensor::concat(&parts.iter().collect::<Vec<_>>(), 1)
    }

    fn reduction(&self) -> Reduction {
        Reduction::Gather
    }

    fn observe(&mut self, term: &[f64], shape: &[usize]) {
        for row in term.chunks_exact(shape.get(1).copied().unwrap_or(1)) {
            if let Err(error) = self.add(row) {
                self.error.get_or_insert(error);
            }
        }
    }

    fn value(&mut self, _: &[f64], _: u64) -> f64 {
        let eval = std::mem::take(&mut self.eval);
        match self.error {
            None => self.last.insert(eval.summary()).ap,
            Some(_) => f64::NAN,
        }
    }

    fn failure(&mut self) -> Option<Error> {
        self.error.take()
    }

    fn details(&self) -> Vec<(String, f64)> {
        let others = self.last.iter().flat_map(|summary| summary.stats()).skip(1);
        others.map(|(name, value)| (name.to_string(), value)).collect()
    }
}
