//! Parts of object detectors: boxes, overlaps, anchors, assignment, suppression and RoIAlign.
//!
//! A box is its corners `[x1, y1, x2, y2]` in pixels, with y downwards, unless a [`BoxFormat`] says otherwise. Overlaps, losses, the
//! [`BoxCoder`] and RoIAlign are differentiable and composed of tensor ops. What decides discretely, [`Matcher`], [`BalancedSampler`],
//! [`AnchorGenerator`] and [`nms`], works on memory of the host: the same bits for every backend. [`Boxes`] are the targets of an image and
//! [`Detections`] the answer for one.

mod anchors;
mod boxes;
mod coder;
mod format;
mod iou;
mod matcher;
mod multi_scale;
mod nms;
mod overlap_loss;
mod roi_align;
mod sampler;

pub use anchors::AnchorGenerator;
pub use boxes::{Boxes, Detections, box_sizes_at_least, clip_boxes, overlaps, read_boxes, upload_boxes};
pub use coder::BoxCoder;
pub use format::{BoxFormat, box_area, box_convert, clip_boxes_to_image};
pub use iou::{box_iou, complete_box_iou, distance_box_iou, generalized_box_iou};
pub use matcher::{Match, Matcher};
pub use multi_scale::MultiScaleRoiAlign;
pub use nms::{batched_nms, nms};
pub use overlap_loss::{complete_box_iou_loss, distance_box_iou_loss, generalized_box_iou_loss};
pub use roi_align::{RoiAlignOptions, roi_align};
pub use sampler::{BalancedSampler, Sampled};
