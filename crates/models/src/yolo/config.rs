//! The sizes of a YOLO.

/// The sizes of a [`Yolo`](crate::Yolo), and the weights of its losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YoloConfig {
    /// Number of classes.
    pub classes: usize,
    /// Factor of the number of bottlenecks.
    pub depth: f64,
    /// Factor of the number of channels, which are rounded up to multiples of 8.
    pub width: f64,
    /// The most channels, before the factor.
    pub most_channels: usize,
    /// Distances to the sides of a box that are told apart, in strides.
    pub bins: usize,
    /// Weights of the losses: of the overlap of boxes, of the classes, and of the distances.
    pub gains: [f64; 3],
    /// Anchors that each target begins with.
    pub candidates: usize,
    /// Exponents of the score and of the overlap in the alignment of an anchor with a target.
    pub alignment: (f64, f64),
    /// The score that a box needs.
    pub score_threshold: f32,
    /// The overlap above which the better of two boxes of a class suppresses the other.
    pub nms_threshold: f64,
    /// The most boxes of an image.
    pub detections: usize,
}

impl YoloConfig {
    /// YOLOv8n with the 80 classes of COCO: a third of the depth and a quarter of the width. The thresholds are those of its validation;
    /// for answers to look at, a score of 0.25 is usual.
    pub const NANO: YoloConfig = YoloConfig {
        classes: 80,
        depth: 0.33,
        width: 0.25,
        most_channels: 1024,
        bins: 16,
        gains: [7.5, 0.5, 1.5],
        candidates: 10,
        alignment: (0.5, 6.0),
        score_threshold: 0.001,
        nms_threshold: 0.7,
        detections: 300,
    };

    /// YOLOv8s: half of the width.
    pub const SMALL: YoloConfig = YoloConfig {
        width: 0.5,
        ..YoloConfig::NANO
    };

    /// The channels that this size has in place of `channels`.
    pub(super) fn channels(&self, channels: usize) -> usize {
        let scaled = channels.min(self.most_channels) as f64 * self.width;
        ((scaled / 8.0).ceil() as usize).max(1) * 8
    }

    /// The bottlenecks that this size has in place of `count`.
    pub(super) fn repeats(&self, count: usize) -> usize {
        ((count as f64 * self.depth).round_ties_even() as usize).max(1)
    }
}
