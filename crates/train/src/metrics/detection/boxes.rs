//! Boxes around objects.

use kiln_core::{Error, Result};

/// A box that a model has found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detection {
    /// The left and upper edge, the width and the height, in pixels: the `bbox` of a COCO file.
    pub bounds: [f64; 4],
    /// The number of the class.
    pub class: usize,
    /// The confidence; only the order of scores matters.
    pub score: f64,
}

/// A box around an object that is there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroundTruth {
    /// The left and upper edge, the width and the height, in pixels: the `bbox` of a COCO file.
    pub bounds: [f64; 4],
    /// The number of the class.
    pub class: usize,
    /// True for a group of objects: need not be found, and detections within it count neither for nor against. The `iscrowd` of
    /// a COCO file.
    pub crowd: bool,
    /// The area by which the object is small, medium or large: the `area` of a COCO file, there that of the outline. `None` for
    /// that of the box.
    pub area: Option<f64>,
}

impl Detection {
    pub(super) fn check(&self) -> Result<()> {
        check(&self.bounds)?;
        match self.score.is_nan() {
            true => Err(Error::invalid("detection", "score", self.score, "a number")),
            false => Ok(()),
        }
    }
}

impl GroundTruth {
    pub(super) fn check(&self) -> Result<()> {
        check(&self.bounds)?;
        match self.area {
            Some(area) if area.is_nan() || area < 0.0 => Err(Error::invalid("detection", "area", area, "0 or more")),
            _ => Ok(()),
        }
    }

    pub(super) fn area(&self) -> f64 {
        self.area.unwrap_or(area(&self.bounds))
    }
}

fn check(bounds: &[f64; 4]) -> Result<()> {
    match bounds.iter().all(|x| x.is_finite()) && bounds[2] >= 0.0 && bounds[3] >= 0.0 {
        true => Ok(()),
        false => {
            let expected = "finite numbers, a width and a height of at least 0";
            Err(Error::invalid("detection", "bounds", format!("{bounds:?}"), expected))
        }
    }
}

pub(super) fn area([_, _, w, h]: &[f64; 4]) -> f64 {
    w * h
}

/// The area that both have, by that of both together; of a crowd, by that of the detection alone.
pub(super) fn overlap(detection: &Detection, truth: &GroundTruth) -> f64 {
    let (d, t) = (&detection.bounds, &truth.bounds);
    let shared = |axis: usize| (d[axis] + d[axis + 2]).min(t[axis] + t[axis + 2]) - d[axis].max(t[axis]);
    let (w, h) = (shared(0), shared(1));
    if w <= 0.0 || h <= 0.0 {
        return 0.0;
    }
    let both = w * h;
    match truth.crowd {
        true => both / area(d),
        false => both / (area(d) + area(t) - both),
    }
}
