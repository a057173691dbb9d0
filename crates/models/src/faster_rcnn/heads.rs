//! The second half of the detector: what there is, and where exactly.

use super::config::{FasterRcnnConfig, RoiConfig};
use super::proposals::read;
use super::targets::{Wanted, full, picked};
use kiln_core::{Backend, Result};
use kiln_nn::detection::{
    BalancedSampler, BoxCoder, Boxes, Detections, Match, Matcher, MultiScaleRoiAlign, batched_nms, box_sizes_at_least,
    clip_boxes, overlaps, read_boxes, upload_boxes,
};
use kiln_nn::layers::Linear;
use kiln_nn::{Indices, Init, Layer, Module, Rng, Scheme, Tensor};

/// Bins along each side of a region.
const BINS: usize = 7;
/// Samples along each side of a bin.
const SAMPLES: usize = 2;
/// The smallest side of a box in pixels.
const SMALLEST: f32 = 1e-2;
/// The weights of the four numbers of a code.
const CODER: [f64; 4] = [10.0, 10.0, 5.0, 5.0];

#[derive(Clone, Module)]
struct BoxHead<B: Backend> {
    fc6: Linear<B>,
    fc7: Linear<B>,
}

#[derive(Clone, Module)]
struct BoxPredictor<B: Backend> {
    cls_score: Linear<B>,
    bbox_pred: Linear<B>,
}

/// The dense layers on the features of regions.
#[derive(Clone, Module)]
pub(super) struct RoiHeads<B: Backend> {
    box_head: BoxHead<B>,
    box_predictor: BoxPredictor<B>,
    #[module(skip)]
    config: RoiConfig,
    #[module(skip)]
    classes: usize,
}

/// Regions to learn from: the boxes of each image, the class of each with 0 for background, and what is to be found.
pub(super) struct Regions {
    pub(super) rois: Vec<Vec<[f32; 4]>>,
    labels: Vec<usize>,
    wanted: Wanted,
}

/// Logits `[K, 1 + classes]`, background first, and codes `[K, 1 + classes, 4]` of regions.
pub(super) struct Told<B: Backend> {
    logits: Tensor<B>,
    codes: Tensor<B>,
}

impl<B: Backend> RoiHeads<B> {
    pub(super) fn new(init: &mut Init<B>, config: &FasterRcnnConfig) -> Result<Self> {
        init.set_scheme(Scheme::Torch);
        let (hidden, outputs) = (config.roi.representation, config.classes + 1);
        Ok(RoiHeads {
            box_head: BoxHead {
                fc6: Linear::new(init, config.channels * BINS * BINS, hidden)?,
                fc7: Linear::new(init, hidden, hidden)?,
            },
            box_predictor: BoxPredictor {
                cls_score: Linear::new(init, hidden, outputs)?,
                bbox_pred: Linear::new(init, hidden, 4 * outputs)?,
            },
            config: config.roi,
            classes: config.classes,
        })
    }

    /// The classes and boxes in the regions of images of `(height, width)`, given features of strides 4 to 32.
    pub(super) fn tell(
        &self,
        features: &[Tensor<B>],
        rois: &[Vec<[f32; 4]>],
        image: (usize, usize),
    ) -> Result<Told<B>> {
        let mut pool = MultiScaleRoiAlign::new((BINS, BINS), SAMPLES);
        pool.canonical_scale = self.config.canonical_scale;
        // The dense layer has PyTorch's order of inputs, channels first.
        let x = pool
            .forward(features, rois, image)?
            .permute(&[0, 3, 1, 2])?
            .flatten(1, -1)?;
        let x = self.box_head.fc6.forward(&x)?.relu()?;
        let x = self.box_head.fc7.forward(&x)?.relu()?;
        let codes = self.box_predictor.bbox_pred.forward(&x)?;
        Ok(Told {
            logits: full(&self.box_predictor.cls_score.forward(&x)?)?,
            codes: full(&codes.reshape(&[codes.shape()[0], self.classes + 1, 4])?)?,
        })
    }

    /// Draws regions to learn from among the proposals and the targets themselves.
    pub(super) fn sample(
        &self,
        mut proposals: Vec<Vec<[f32; 4]>>,
        targets: &[Boxes],
        rng: &mut Rng,
    ) -> Result<Regions> {
        let matcher = Matcher::new(self.config.threshold, self.config.threshold, false)?;
        let sampler = BalancedSampler::new(self.config.sampled.0, self.config.sampled.1)?;
        let (mut labels, mut wanted) = (Vec::new(), Wanted::default());
        for (boxes, targets) in proposals.iter_mut().zip(targets) {
            boxes.extend(&targets.xyxy);
            let matches = match targets.is_empty() {
                true => vec![Match::Background; boxes.len()],
                false => matcher.assign(&overlaps(&targets.xyxy, boxes), boxes.len())?,
            };
            let drawn = sampler.sample(&matches, rng)?;
            wanted.image(&drawn, &matches, boxes, targets);
            let class = |&i: &usize| match matches[i] {
                Match::Target(target) => targets.classes[target] as usize + 1,
                _ => 0,
            };
            let order = || drawn.positive.iter().chain(&drawn.negative);
            labels.extend(order().map(class));
            *boxes = order().map(|&i| boxes[i]).collect();
        }
        Ok(Regions {
            rois: proposals,
            labels,
            wanted,
        })
    }

    /// The losses of the classes and of the boxes.
    pub(super) fn loss(&self, told: &Told<B>, regions: &Regions) -> Result<(Tensor<B>, Tensor<B>)> {
        let (labels, outputs) = (&regions.labels, self.classes + 1);
        let index = Indices::from_slice(told.logits.backend(), labels, &[labels.len()])?;
        let classifier = told.logits.cross_entropy(&index)?;
        let found = labels.iter().enumerate().filter(|(_, label)| **label > 0);
        let rows: Vec<usize> = found.map(|(i, label)| i * outputs + label).collect();
        let codes = picked(&told.codes.reshape(&[labels.len() * outputs, 4])?, &rows)?;
        let boxes = regions.wanted.loss(&BoxCoder::new(CODER), &codes, labels.len())?;
        Ok((classifier, boxes))
    }

    /// The objects of each image among its regions.
    pub(super) fn detections(
        &self,
        told: &Told<B>,
        rois: &[Vec<[f32; 4]>],
        image: (usize, usize),
    ) -> Result<Vec<Detections>> {
        let outputs = self.classes + 1;
        let from = upload_boxes(told.codes.backend(), &rois.concat(), told.codes.dtype())?.unsqueeze(1)?;
        let boxes = BoxCoder::new(CODER).decode(&told.codes, &from)?;
        let boxes = read_boxes(&boxes.reshape(&[boxes.shape()[0] * outputs, 4])?)?;
        let scores = read(&told.logits.softmax(-1)?)?;
        let mut first = 0;
        let mut all = Vec::with_capacity(rois.len());
        for rois in rois {
            let of = first * outputs..(first + rois.len()) * outputs;
            first += rois.len();
            let likely = of.filter(|i| i % outputs > 0 && scores[*i] > self.config.score_threshold);
            let likely: Vec<usize> = likely.collect();
            let mut own: Vec<[f32; 4]> = likely.iter().map(|&i| boxes[i]).collect();
            clip_boxes(&mut own, image);
            let large = box_sizes_at_least(&own, SMALLEST);
            let own: Vec<[f32; 4]> = large.iter().map(|&i| own[i]).collect();
            let likely: Vec<usize> = large.iter().map(|&i| likely[i]).collect();
            let own_scores: Vec<f32> = likely.iter().map(|&i| scores[i]).collect();
            let classes: Vec<i32> = likely.iter().map(|i| (i % outputs) as i32 - 1).collect();
            let mut kept = batched_nms(&own, &own_scores, &classes, self.config.nms_threshold)?;
            kept.truncate(self.config.detections);
            all.push(Detections {
                boxes: kept.iter().map(|&i| own[i]).collect(),
                classes: kept.iter().map(|&i| classes[i]).collect(),
                scores: kept.iter().map(|&i| own_scores[i]).collect(),
            });
        }
        Ok(all)
    }
}
