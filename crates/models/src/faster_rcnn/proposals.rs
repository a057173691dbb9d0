//! The first half of the detector: where there may be something.

use super::config::{FasterRcnnConfig, RpnConfig};
use super::targets::{Wanted, full, picked};
use kiln_core::{Backend, Result};
use kiln_nn::detection::{
    AnchorGenerator, BalancedSampler, BoxCoder, Boxes, Match, Matcher, batched_nms, box_sizes_at_least, clip_boxes,
    overlaps, read_boxes, upload_boxes,
};
use kiln_nn::layers::{Conv2d, Relu};
use kiln_nn::{Init, Initializer, Layer, Module, Reduction, Rng, Scheme, Sequential, Tensor};

/// The smallest side of a proposal in pixels.
const SMALLEST: f32 = 1e-3;

#[derive(Clone, Module)]
struct Head<B: Backend> {
    conv: Sequential<B>,
    cls_logits: Conv2d<B>,
    bbox_pred: Conv2d<B>,
}

/// The region proposal network: objectness and offsets of the anchors.
#[derive(Clone, Module)]
pub(super) struct Proposals<B: Backend> {
    head: Head<B>,
    #[module(skip)]
    config: RpnConfig,
    #[module(skip)]
    anchors: AnchorGenerator,
}

/// The anchors of images, with the network's logits and box codes for each.
pub(super) struct Anchored<B: Backend> {
    /// Logits `[N, T]` of there being something.
    objectness: Tensor<B>,
    /// The codes `[N, T, 4]` of the boxes.
    codes: Tensor<B>,
    /// The T anchors, level by level.
    anchors: Vec<[f32; 4]>,
    /// The number of anchors of each level.
    levels: Vec<usize>,
}

const CODER: [f64; 4] = [1.0; 4];

impl<B: Backend> Proposals<B> {
    pub(super) fn new(init: &mut Init<B>, config: &FasterRcnnConfig) -> Result<Self> {
        let sizes = config.anchor_sizes.iter().map(|&size| vec![size]).collect();
        let anchors = AnchorGenerator::new(sizes, config.anchor_ratios.to_vec())?;
        init.set_scheme(Scheme::With {
            weight: Initializer::Normal { mean: 0.0, std: 0.01 },
            bias: Initializer::Zeros,
        });
        let (channels, each) = (config.channels, config.anchor_ratios.len());
        let conv = Conv2d::builder(channels, channels, 3).padding(1).build(init)?;
        Ok(Proposals {
            head: Head {
                conv: Sequential::new().push(Sequential::new().push(conv).push(Relu)),
                cls_logits: Conv2d::new(init, channels, each, 1)?,
                bbox_pred: Conv2d::new(init, channels, 4 * each, 1)?,
            },
            config: config.rpn,
            anchors,
        })
    }

    /// Objectness and codes of the anchors of features `[N, h, w, C]` of every level, in images of `(height, width)`.
    pub(super) fn anchored(&self, features: &[Tensor<B>], image: (usize, usize)) -> Result<Anchored<B>> {
        let sizes: Vec<(usize, usize)> = features.iter().map(|x| (x.shape()[1], x.shape()[2])).collect();
        let anchors = self.anchors.generate(&sizes, image)?;
        let (mut objectness, mut codes) = (Vec::new(), Vec::new());
        for (x, anchors) in features.iter().zip(&anchors) {
            let (n, count) = (x.shape()[0], anchors.len());
            let x = self.head.conv.forward(x)?;
            objectness.push(self.head.cls_logits.forward(&x)?.reshape(&[n, count])?);
            codes.push(self.head.bbox_pred.forward(&x)?.reshape(&[n, count, 4])?);
        }
        let joined = |parts: &[Tensor<B>]| full(&Tensor::concat(&parts.iter().collect::<Vec<_>>(), 1)?);
        Ok(Anchored {
            objectness: joined(&objectness)?,
            codes: joined(&codes)?,
            levels: anchors.iter().map(Vec::len).collect(),
            anchors: anchors.concat(),
        })
    }

    /// The proposals of each image, the best first.
    pub(super) fn propose(
        &self,
        found: &Anchored<B>,
        image: (usize, usize),
        training: bool,
    ) -> Result<Vec<Vec<[f32; 4]>>> {
        let of = |(in_training, in_evaluation)| if training { in_training } else { in_evaluation };
        let (before, after) = (of(self.config.before_nms), of(self.config.after_nms));
        let &[n, total] = found.objectness.shape().dims() else {
            return Ok(Vec::new());
        };
        // Of each image: the anchor, its score and its level.
        let mut best: Vec<Vec<(usize, f32, i32)>> = vec![Vec::new(); n];
        let mut start = 0;
        for (level, &count) in found.levels.iter().enumerate() {
            let objectness = found.objectness.detach().narrow(1, start, count)?;
            let k = before.min(count);
            let (values, at) = objectness.top_k(k, 1, true)?;
            let scores = read(&values.sigmoid()?)?;
            let at = at.to_vec::<usize>()?;
            for (i, best) in best.iter_mut().enumerate() {
                let of = i * k..(i + 1) * k;
                best.extend(
                    at[of.clone()]
                        .iter()
                        .zip(&scores[of])
                        .map(|(&at, &score)| (start + at, score, level as i32)),
                );
            }
            start += count;
        }
        let rows: Vec<usize> = best
            .iter()
            .enumerate()
            .flat_map(|(i, b)| b.iter().map(move |(a, ..)| i * total + a))
            .collect();
        let from: Vec<[f32; 4]> = best.iter().flatten().map(|&(a, ..)| found.anchors[a]).collect();
        let codes = picked(&found.codes.detach().reshape(&[n * total, 4])?, &rows)?;
        let from = upload_boxes(codes.backend(), &from, codes.dtype())?;
        let mut boxes = &mut read_boxes(&BoxCoder::new(CODER).decode(&codes, &from)?)?[..];
        let mut proposals = Vec::with_capacity(n);
        for best in &best {
            let (own, rest) = std::mem::take(&mut boxes).split_at_mut(best.len());
            boxes = rest;
            clip_boxes(own, image);
            let large = box_sizes_at_least(own, SMALLEST);
            let own: Vec<[f32; 4]> = large.iter().map(|&i| own[i]).collect();
            let scores: Vec<f32> = large.iter().map(|&i| best[i].1).collect();
            let levels: Vec<i32> = large.iter().map(|&i| best[i].2).collect();
            let mut kept = batched_nms(&own, &scores, &levels, self.config.nms_threshold)?;
            kept.truncate(after);
            proposals.push(kept.into_iter().map(|i| own[i]).collect());
        }
        Ok(proposals)
    }

    /// The losses of objectness and of the boxes.
    pub(super) fn loss(&self, found: &Anchored<B>, targets: &[Boxes], rng: &mut Rng) -> Result<(Tensor<B>, Tensor<B>)> {
        let (high, low) = self.config.thresholds;
        let matcher = Matcher::new(high, low, true)?;
        let sampler = BalancedSampler::new(self.config.sampled.0, self.config.sampled.1)?;
        let total = found.anchors.len();
        let (mut wanted, mut positive, mut negative) = (Wanted::default(), Vec::new(), Vec::new());
        for (image, targets) in targets.iter().enumerate() {
            let matches = match targets.is_empty() {
                true => vec![Match::Background; total],
                false => matcher.assign(&overlaps(&targets.xyxy, &found.anchors), total)?,
            };
            let drawn = sampler.sample(&matches, rng)?;
            wanted.image(&drawn, &matches, &found.anchors, targets);
            positive.extend(drawn.positive.iter().map(|i| image * total + i));
            negative.extend(drawn.negative.iter().map(|i| image * total + i));
        }
        let sampled = positive.len() + negative.len();
        let codes = picked(&found.codes.reshape(&[targets.len() * total, 4])?, &positive)?;
        let boxes = wanted.loss(&BoxCoder::new(CODER), &codes, sampled)?;
        let mut labels = vec![1.0f64; positive.len()];
        labels.resize(sampled, 0.0);
        positive.extend(negative);
        let logits = picked(&found.objectness.reshape(&[targets.len() * total])?, &positive)?;
        let labels = Tensor::from_f64(logits.backend(), &labels, &[sampled], logits.dtype())?;
        Ok((logits.bce_with_logits(&labels, None, Reduction::Mean)?, boxes))
    }
}

/// Values on the host as f32.
pub(super) fn read<B: Backend>(x: &Tensor<B>) -> Result<Vec<f32>> {
    x.to_dtype(kiln_core::DType::F32)?.to_vec()
}
