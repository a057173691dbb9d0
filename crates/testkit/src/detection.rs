//! The differentiable parts of detectors: overlaps, losses of boxes, the coder and RoIAlign.

mod regions;

pub use regions::regions;

use crate::{Array, Case, Proof, Rounding, check_with, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::detection::{
    BoxCoder, BoxFormat, RoiAlignOptions, box_area, box_convert, box_iou, clip_boxes_to_image, complete_box_iou,
    complete_box_iou_loss, distance_box_iou, distance_box_iou_loss, generalized_box_iou, generalized_box_iou_loss,
    roi_align,
};
use kiln_nn::{Reduction, Tensor};
use proptest::prelude::*;
use std::f64::consts::PI;

/// The number in torchvision's denominators.
const EPS: f64 = 1e-7;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Generalized,
    Distance,
    Complete,
}

impl Kind {
    /// The overlap of two boxes as torchvision has it, with `eps` in the denominators of areas.
    fn of(self, a: &[f64], b: &[f64], eps: f64) -> f64 {
        let area = |b: &[f64]| (b[2] - b[0]) * (b[3] - b[1]);
        let length = |axis: usize| a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis]);
        let both = length(0).max(0.0) * length(1).max(0.0);
        let union = area(a) + area(b) - both;
        let iou = both / (union + eps);
        let hull = |axis: usize| a[axis + 2].max(b[axis + 2]) - a[axis].min(b[axis]);
        let apart = |axis: usize| (a[axis] + a[axis + 2] - b[axis] - b[axis + 2]) / 2.0;
        let distance = (apart(0).powi(2) + apart(1).powi(2)) / (hull(0).powi(2) + hull(1).powi(2) + EPS);
        match self {
            Kind::Plain => iou,
            Kind::Generalized => iou - (hull(0) * hull(1) - union) / (hull(0) * hull(1) + eps),
            Kind::Distance => iou - distance,
            Kind::Complete => {
                let angle = |b: &[f64]| ((b[2] - b[0]) / (b[3] - b[1])).atan();
                let v = 4.0 / (PI * PI) * (angle(a) - angle(b)).powi(2);
                iou - distance - v * v / (1.0 - iou + v + EPS)
            }
        }
    }

    /// The weight of the aspect ratios is constant for gradients, so that differences are none.
    fn proof(self) -> Proof {
        match self {
            Kind::Complete => Proof::Forward,
            _ => Proof::SecondGradient,
        }
    }
}

/// `count` boxes with sides of at least a half.
fn boxes(count: usize) -> impl Strategy<Value = Array> {
    (
        shapes::values(&[count, 2], -2.0, 2.0),
        shapes::values(&[count, 2], 0.5, 3.0),
    )
        .prop_map(move |(at, size)| {
            let corner = |i: usize| {
                [0, 1, 2, 3].map(|k| at.data[2 * i + k % 2] + if k > 1 { size.data[2 * i + k % 2] } else { 0.0 })
            };
            // As f32 has them.
            Array::new(
                &[count, 4],
                (0..count).flat_map(corner).map(|v| f64::from(v as f32)).collect(),
            )
        })
}

/// True if no side of a box is near one of another, where overlaps have kinks, also in half precision.
fn apart(a: &Array, b: &Array) -> bool {
    let rows = |x: &Array| x.data.chunks(4).map(<[f64]>::to_vec).collect::<Vec<_>>();
    let near = |a: &[f64], b: &[f64]| (0..4).any(|i| (0..4).any(|j| i % 2 == j % 2 && (a[i] - b[j]).abs() < 0.1));
    rows(a).iter().all(|a| rows(b).iter().all(|b| !near(a, b)))
}

/// The overlap of all boxes with all others.
#[derive(Clone, Debug)]
struct Overlap {
    kind: Kind,
    boxes: [Array; 2],
}

impl Case for Overlap {
    fn inputs(&self) -> Vec<Array> {
        self.boxes.to_vec()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match self.kind {
            Kind::Plain => box_iou(&x[0], &x[1]),
            Kind::Generalized => generalized_box_iou(&x[0], &x[1]),
            Kind::Distance => distance_box_iou(&x[0], &x[1]),
            Kind::Complete => complete_box_iou(&x[0], &x[1]),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let (a, b) = (x[0].data.chunks(4), x[1].data.chunks(4));
        let all = a.flat_map(|a| b.clone().map(|b| self.kind.of(a, b, 0.0))).collect();
        Array::new(&[x[0].shape[0], x[1].shape[0]], all)
    }

    fn proof(&self) -> Proof {
        self.kind.proof()
    }

    /// Areas up to 9 that are at least a quarter apart from nothing.
    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::terms(64.0, want.map(|w| w.abs() + 4.0))
    }

    fn slope_terms(&self, _: &[Array]) -> f64 {
        1.5 * 40.0
    }
}

const KINDS: [Kind; 4] = [Kind::Plain, Kind::Generalized, Kind::Distance, Kind::Complete];

/// Every overlap of no to three boxes with others.
pub fn overlaps<B: Backend>(backend: &B) {
    for kind in KINDS {
        let drawn = (0usize..4, 1usize..4).prop_flat_map(|(n, m)| (boxes(n), boxes(m)));
        let cases = drawn
            .prop_filter("apart", |(a, b)| apart(a, b))
            .prop_map(move |(a, b)| Overlap { kind, boxes: [a, b] });
        check_with(8, backend, cases);
    }
}

/// A loss of boxes with others.
#[derive(Clone, Debug)]
struct Loss {
    kind: Kind,
    boxes: [Array; 2],
    reduction: Reduction,
}

impl Case for Loss {
    fn inputs(&self) -> Vec<Array> {
        self.boxes.to_vec()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match self.kind {
            Kind::Plain | Kind::Generalized => generalized_box_iou_loss(&x[0], &x[1], self.reduction),
            Kind::Distance => distance_box_iou_loss(&x[0], &x[1], self.reduction),
            Kind::Complete => complete_box_iou_loss(&x[0], &x[1], self.reduction),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let pairs = x[0].data.chunks(4).zip(x[1].data.chunks(4));
        let losses: Vec<f64> = pairs.map(|(a, b)| 1.0 - self.kind.of(a, b, EPS)).collect();
        let (n, sum) = (losses.len(), losses.iter().sum::<f64>());
        match self.reduction {
            Reduction::None => Array::new(&[n], losses),
            Reduction::Sum => Array::new(&[], vec![sum]),
            // None at all is 0.
            Reduction::Mean => Array::new(&[], vec![sum / n.max(1) as f64]),
        }
    }

    fn proof(&self) -> Proof {
        self.kind.proof()
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        Rounding::terms(
            64.0 + x[0].size() as f64,
            want.map(|w| w.abs() + 6.0 * x[0].shape[0].max(1) as f64),
        )
    }

    fn slope_terms(&self, _: &[Array]) -> f64 {
        1.5 * 40.0
    }
}

/// Every loss of no to three boxes.
pub fn losses<B: Backend>(backend: &B) {
    for kind in &KINDS[1..] {
        let reductions = prop::sample::select(vec![Reduction::Mean, Reduction::Sum, Reduction::None]);
        let drawn = (0usize..4, reductions).prop_flat_map(|(n, r)| (boxes(n), boxes(n), Just(r)));
        let each = |a: &Array, b: &Array| {
            let one = |x: &[f64]| Array::new(&[1, 4], x.to_vec());
            a.data
                .chunks(4)
                .zip(b.data.chunks(4))
                .all(|(a, b)| apart(&one(a), &one(b)))
        };
        let cases = drawn
            .prop_filter("apart", move |(a, b, _)| each(a, b))
            .prop_map(|(a, b, reduction)| Loss {
                kind: *kind,
                boxes: [a, b],
                reduction,
            });
        check_with(8, backend, cases);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Encode,
    Decode,
    Convert(BoxFormat, BoxFormat),
    Area,
    Clip,
}

/// Boxes as others, or as numbers.
#[derive(Clone, Debug)]
struct Changed {
    change: Change,
    x: Vec<Array>,
}

const WEIGHTS: [f64; 4] = [10.0, 10.0, 5.0, 5.0];

impl Case for Changed {
    fn inputs(&self) -> Vec<Array> {
        self.x.clone()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match self.change {
            Change::Encode => BoxCoder::new(WEIGHTS).encode(&x[0], &x[1]),
            // A reference for two codes each.
            Change::Decode => BoxCoder::new(WEIGHTS).decode(&x[0], &x[1].unsqueeze(1)?),
            Change::Convert(from, to) => box_convert(&x[0], from, to),
            Change::Area => box_area(&x[0]),
            Change::Clip => clip_boxes_to_image(&x[0], (2, 3)),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let middle = |b: &[f64]| [(b[0] + b[2]) / 2.0, (b[1] + b[3]) / 2.0, b[2] - b[0], b[3] - b[1]];
        let rows = |x: &Array| x.data.chunks(4).map(<[f64]>::to_vec).collect::<Vec<_>>();
        let made: Vec<f64> = match self.change {
            Change::Area => {
                return Array::new(
                    &x[0].shape[..1],
                    rows(&x[0]).iter().map(|b| middle(b)[2] * middle(b)[3]).collect(),
                );
            }
            Change::Encode => {
                let code = |(b, r): (&Vec<f64>, &Vec<f64>)| {
                    let (b, r) = (middle(b), middle(r));
                    let code = [
                        (b[0] - r[0]) / r[2],
                        (b[1] - r[1]) / r[3],
                        (b[2] / r[2]).ln(),
                        (b[3] / r[3]).ln(),
                    ];
                    [0, 1, 2, 3].map(|i| code[i] * WEIGHTS[i])
                };
                rows(&x[0]).iter().zip(&rows(&x[1])).flat_map(code).collect()
            }
            Change::Decode => {
                let references = rows(&x[1]);
                let decoded = |(i, code): (usize, &Vec<f64>)| {
                    let r = middle(&references[i / 2]);
                    let d = |k: usize| code[k] / WEIGHTS[k];
                    let size = |k: usize| d(k).min(62.5f64.ln()).exp() * r[k] / 2.0;
                    let (x, y) = (d(0) * r[2] + r[0], d(1) * r[3] + r[1]);
                    [x - size(2), y - size(3), x + size(2), y + size(3)]
                };
                rows(&x[0]).iter().enumerate().flat_map(decoded).collect()
            }
            Change::Convert(from, to) => {
                let corners = |b: &Vec<f64>| match from {
                    BoxFormat::Xyxy => [b[0], b[1], b[2], b[3]],
                    BoxFormat::Xywh => [b[0], b[1], b[0] + b[2], b[1] + b[3]],
                    BoxFormat::Cxcywh => [
                        b[0] - b[2] / 2.0,
                        b[1] - b[3] / 2.0,
                        b[0] + b[2] / 2.0,
                        b[1] + b[3] / 2.0,
                    ],
                };
                let wanted = |b: [f64; 4]| match to {
                    BoxFormat::Xyxy => b,
                    BoxFormat::Xywh => [b[0], b[1], b[2] - b[0], b[3] - b[1]],
                    BoxFormat::Cxcywh => middle(&b),
                };
                rows(&x[0]).iter().flat_map(|b| wanted(corners(b))).collect()
            }
            Change::Clip => x[0]
                .data
                .iter()
                .enumerate()
                .map(|(i, v)| v.clamp(0.0, if i % 2 == 0 { 3.0 } else { 2.0 }))
                .collect(),
        };
        Array::new(&x[0].shape, made)
    }

    /// Sums of corners up to 5, times weights up to 10, by sides of at least a half.
    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        let sum = match self.change {
            Change::Encode => 100.0,
            Change::Clip => return Rounding::exact(want),
            _ => 20.0,
        };
        Rounding::terms(24.0, want.map(|w| w.abs() + sum))
    }

    fn slope_terms(&self, _: &[Array]) -> f64 {
        1.5 * 100.0
    }
}

/// Codes, their boxes, formats, areas and bounds.
pub fn coded<B: Backend>(backend: &B) {
    let formats = [BoxFormat::Xyxy, BoxFormat::Xywh, BoxFormat::Cxcywh];
    let mut changes = vec![Change::Encode, Change::Decode, Change::Area, Change::Clip];
    changes.extend(
        formats
            .iter()
            .flat_map(|&from| formats.map(|to| Change::Convert(from, to))),
    );
    for change in changes {
        let drawn = (0usize..4).prop_flat_map(move |n| {
            let first = match change {
                Change::Decode => shapes::values(&[n, 2, 4], -2.0, 2.0).boxed(),
                _ => boxes(n).boxed(),
            };
            (first, boxes(n))
        });
        let cases = drawn.prop_map(move |(first, second)| Changed {
            change,
            x: match change {
                Change::Encode | Change::Decode => vec![first, second],
                _ => vec![first],
            },
        });
        let kinks = |c: &Changed| {
            let sides = [0.0, 2.0, 3.0];
            c.change != Change::Clip
                || c.x[0]
                    .data
                    .iter()
                    .all(|v| sides.iter().all(|side| (v - side).abs() > 0.05))
        };
        check_with(6, backend, cases.prop_filter("kinks", kinks));
    }
}

/// Boxes that are none.
pub fn refused<B: Backend>(backend: &B) {
    let of = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let (boxes, others, flat) = (of(&[2, 4]), of(&[3, 4]), of(&[2, 3]));
    let invalid = |found: Result<Tensor<B>>| assert!(matches!(found, Err(Error::InvalidArgument { .. })), "{found:?}");
    let mismatch = |found: Result<Tensor<B>>| assert!(matches!(found, Err(Error::ShapeMismatch { .. })), "{found:?}");
    invalid(box_iou(&boxes, &flat));
    invalid(generalized_box_iou(&flat, &boxes));
    invalid(distance_box_iou(&of(&[4]), &boxes));
    invalid(complete_box_iou(&flat, &flat));
    invalid(box_area(&flat));
    invalid(clip_boxes_to_image(&flat, (1, 1)));
    invalid(box_convert(&flat, BoxFormat::Xyxy, BoxFormat::Xywh));
    mismatch(generalized_box_iou_loss(&boxes, &others, Reduction::Mean));
    mismatch(distance_box_iou_loss(&boxes, &others, Reduction::Mean));
    mismatch(complete_box_iou_loss(&boxes, &others, Reduction::Mean));
    mismatch(BoxCoder::new(WEIGHTS).encode(&boxes, &others));
    invalid(BoxCoder::new(WEIGHTS).decode(&flat, &boxes));
    let options = RoiAlignOptions {
        output: (2, 2),
        spatial_scale: 1.0,
        sampling_ratio: 0,
        aligned: false,
    };
    let features = of(&[1, 4, 4, 2]);
    let align = |rois: &[Vec<[f32; 4]>]| roi_align(&features, rois, &options);
    invalid(align(&[]));
    invalid(align(&[vec![[2.0, 0.0, 1.0, 1.0]]]));
    invalid(align(&[vec![[f32::NAN, 0.0, 1.0, 1.0]]]));
    invalid(align(&[vec![[0.0, 0.0, 1e9, 1.0]]]));
    let scale = RoiAlignOptions {
        spatial_scale: 0.0,
        ..options
    };
    invalid(roi_align(&features, &[vec![]], &scale));
    assert!(matches!(
        roi_align(&boxes, &[vec![]], &options),
        Err(Error::Rank { .. })
    ));
}
