//! The sizes of a Faster R-CNN.

/// The residual network that a detector begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyConfig {
    /// Blocks of each stage.
    pub blocks: [usize; 4],
    /// Channels of the stem; each stage has twice those of the one before, the first as many as the stem.
    pub width: usize,
    /// Blocks of three convolutions, as of a ResNet-50, with four times the channels between blocks; otherwise of two, as of a ResNet-18.
    pub bottleneck: bool,
    /// Batch norms that keep their statistics, scales and shifts, as in fine-tuning from weights of ImageNet; from random weights they have
    /// to train.
    pub frozen_norm: bool,
    /// How many of the stages are trained, the last ones: with five the first convolution is as well (torchvision's
    /// `trainable_backbone_layers`). The weights of the others are kept, as they come from ImageNet.
    pub trained_stages: usize,
}

/// How the first half of a detector finds proposals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RpnConfig {
    /// The overlap from which an anchor stands for a target, and that below which it is background.
    pub thresholds: (f32, f32),
    /// Anchors of an image to learn from, and the most of them that stand for targets.
    pub sampled: (usize, f64),
    /// The anchors of each level that suppression begins with, in training and in evaluation.
    pub before_nms: (usize, usize),
    /// The proposals of an image, in training and in evaluation.
    pub after_nms: (usize, usize),
    /// The overlap above which the better of two proposals suppresses the other.
    pub nms_threshold: f64,
}

/// How the second half of a detector tells what a proposal is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoiConfig {
    /// The overlap from which a proposal stands for a target; below it is background.
    pub threshold: f32,
    /// Proposals of an image to learn from, and the most of them that stand for targets.
    pub sampled: (usize, f64),
    /// Outputs of the two dense layers.
    pub representation: usize,
    /// The side in pixels of a box that takes its features from the level of stride 16.
    pub canonical_scale: f32,
    /// The score that a box needs.
    pub score_threshold: f32,
    /// The overlap above which the better of two boxes of a class suppresses the other.
    pub nms_threshold: f64,
    /// The most boxes of an image.
    pub detections: usize,
}

/// The sizes of a [`FasterRcnn`](crate::FasterRcnn).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FasterRcnnConfig {
    /// Number of classes, without background.
    pub classes: usize,
    /// The residual network.
    pub body: BodyConfig,
    /// Channels of the feature pyramid.
    pub channels: usize,
    /// The side in pixels of the anchors of each level, of strides 4, 8, 16, 32 and 64.
    pub anchor_sizes: [f32; 5],
    /// Heights of anchors by their widths.
    pub anchor_ratios: [f32; 3],
    /// The proposals.
    pub rpn: RpnConfig,
    /// The boxes.
    pub roi: RoiConfig,
}

impl FasterRcnnConfig {
    /// torchvision's `fasterrcnn_resnet50_fpn` with the 90 numbers of COCO's categories, for images of about 800 pixels.
    pub const COCO: FasterRcnnConfig = FasterRcnnConfig {
        classes: 90,
        body: BodyConfig {
            blocks: [3, 4, 6, 3],
            width: 64,
            bottleneck: true,
            frozen_norm: true,
            trained_stages: 3,
        },
        channels: 256,
        anchor_sizes: [32.0, 64.0, 128.0, 256.0, 512.0],
        anchor_ratios: [0.5, 1.0, 2.0],
        rpn: RpnConfig {
            thresholds: (0.7, 0.3),
            sampled: (256, 0.5),
            before_nms: (2000, 1000),
            after_nms: (2000, 1000),
            nms_threshold: 0.7,
        },
        roi: RoiConfig {
            threshold: 0.5,
            sampled: (512, 0.25),
            representation: 1024,
            canonical_scale: 224.0,
            score_threshold: 0.05,
            nms_threshold: 0.5,
            detections: 100,
        },
    };

    /// A narrow ResNet-18 with small heads, for images of about 160 pixels and training from random weights on a processor.
    pub const SMALL: FasterRcnnConfig = FasterRcnnConfig {
        classes: 3,
        body: BodyConfig {
            blocks: [2, 2, 2, 2],
            width: 16,
            bottleneck: false,
            frozen_norm: false,
            trained_stages: 5,
        },
        channels: 64,
        anchor_sizes: [12.0, 24.0, 48.0, 80.0, 128.0],
        rpn: RpnConfig {
            sampled: (128, 0.5),
            before_nms: (500, 200),
            after_nms: (200, 100),
            ..FasterRcnnConfig::COCO.rpn
        },
        roi: RoiConfig {
            sampled: (64, 0.25),
            representation: 128,
            canonical_scale: 112.0,
            ..FasterRcnnConfig::COCO.roi
        },
        ..FasterRcnnConfig::COCO
    };
}
