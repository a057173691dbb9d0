//! Losses that are composed of others: margins between distances, likelihoods and overlaps.

use super::reduced;
use crate::{Array, Case, Rounding, check_with, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::ops::loss::TripletOptions;
use kiln_nn::{Reduction, Tensor};
use proptest::prelude::*;
use std::f64::consts::TAU;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Cosine,
    Distance,
    Triplet { swap: bool },
    CosineEmbedding,
    Ranking,
    Hinge,
    SoftMargin,
    Gaussian { full: bool },
    Poisson { log: bool, full: bool },
    Focal { alpha: Option<f64> },
    Dice,
}

/// A loss of one to three tensors `[rows, width]`; `target` is constant.
#[derive(Clone, Debug)]
struct Composed {
    kind: Kind,
    x: Vec<Array>,
    target: Array,
    reduction: Reduction,
}

const MARGIN: f64 = 0.25;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b + 1e-6).powi(2)).sum::<f64>().sqrt()
}

impl Composed {
    /// True if a loss belongs to a row, not to an element.
    fn by_rows(&self) -> bool {
        use Kind::*;
        matches!(self.kind, Cosine | Distance | Triplet { .. } | CosineEmbedding | Dice)
    }

    fn row(&self, x: &[&[f64]], target: &[f64]) -> f64 {
        let hinge = |v: f64| v.max(0.0);
        match self.kind {
            Kind::Cosine => cosine(x[0], x[1]),
            Kind::Distance => distance(x[0], x[1]),
            Kind::Triplet { swap } => {
                let far = distance(x[0], x[2]);
                let far = if swap { far.min(distance(x[1], x[2])) } else { far };
                hinge(MARGIN + distance(x[0], x[1]) - far)
            }
            Kind::CosineEmbedding => {
                let squares = |x| dot(x, x) + 1e-12;
                let cosine = dot(x[0], x[1]) / (squares(x[0]) * squares(x[1])).sqrt();
                if target[0] > 0.0 {
                    1.0 - cosine
                } else {
                    hinge(cosine - MARGIN)
                }
            }
            Kind::Dice => {
                let (sum, all) = (dot(x[0], target), x[0].iter().chain(target).sum::<f64>());
                1.0 - (2.0 * sum + 1.0) / (all + 1.0)
            }
            _ => unreachable!("losses of elements are below"),
        }
    }

    fn element(&self, x: &[f64], t: f64) -> f64 {
        let (hinge, softplus) = (|v: f64| v.max(0.0), |v: f64| v.exp().ln_1p());
        match self.kind {
            Kind::Ranking => hinge(MARGIN - t * (x[0] - x[1])),
            Kind::Hinge => {
                if t > 0.0 {
                    x[0]
                } else {
                    hinge(MARGIN - x[0])
                }
            }
            Kind::SoftMargin => softplus(-t * x[0]),
            Kind::Gaussian { full } => {
                let constant = if full { TAU.ln() / 2.0 } else { 0.0 };
                0.5 * (x[2].ln() + (x[0] - x[1]).powi(2) / x[2]) + constant
            }
            Kind::Poisson { log, full } => {
                let stirling = if full && t > 1.0 {
                    t * t.ln() - t + 0.5 * (TAU * t).ln()
                } else {
                    0.0
                };
                stirling
                    + if log {
                        x[0].exp() - t * x[0]
                    } else {
                        x[0] - t * (x[0] + 1e-8).ln()
                    }
            }
            Kind::Focal { alpha } => {
                let p = 1.0 / (1.0 + (-x[0]).exp());
                let weight = alpha.map_or(1.0, |a| a * t + (1.0 - a) * (1.0 - t));
                let miss = p + t - 2.0 * p * t;
                weight * miss * miss * (t * softplus(-x[0]) + (1.0 - t) * softplus(x[0]))
            }
            _ => unreachable!("losses of rows are above"),
        }
    }
}

impl Case for Composed {
    fn inputs(&self) -> Vec<Array> {
        self.x.clone()
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let r = self.reduction;
        let shape = if self.by_rows() && self.kind != Kind::Dice {
            &self.target.shape[..1]
        } else {
            &self.target.shape[..]
        };
        let rows: usize = shape.iter().product();
        let target = Tensor::from_f64(backend, &self.target.data[..rows], shape, x[0].dtype())?;
        match self.kind {
            Kind::Cosine => x[0].cosine_similarity(&x[1], -1, 1e-8),
            Kind::Distance => x[0].pairwise_distance(&x[1], 2.0, 1e-6),
            Kind::Triplet { swap } => {
                let margin = MARGIN;
                let options = TripletOptions {
                    margin,
                    swap,
                    reduction: r,
                    ..Default::default()
                };
                x[0].triplet_margin_loss(&x[1], &x[2], &options)
            }
            Kind::CosineEmbedding => x[0].cosine_embedding_loss(&x[1], &target, MARGIN, r),
            Kind::Ranking => x[0].margin_ranking_loss(&x[1], &target, MARGIN, r),
            Kind::Hinge => x[0].hinge_embedding_loss(&target, MARGIN, r),
            Kind::SoftMargin => x[0].soft_margin_loss(&target, r),
            Kind::Gaussian { full } => x[0].gaussian_nll_loss(&x[1], &x[2], full, 1e-6, r),
            Kind::Poisson { log, full } => x[0].poisson_nll_loss(&target, log, full, 1e-8, r),
            Kind::Focal { alpha } => x[0].sigmoid_focal_loss(&target, alpha, 2.0, r),
            Kind::Dice => x[0].dice_loss(&target, 1.0, r),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let [rows, width] = [0, 1].map(|i| x[0].shape[i]);
        let of = |a: &Array, i: usize| a.data[i * width..(i + 1) * width].to_vec();
        let losses: Vec<f64> = match self.by_rows() {
            true => (0..rows)
                .map(|i| {
                    let x: Vec<_> = x.iter().map(|x| of(x, i)).collect();
                    let target = if self.kind == Kind::Dice {
                        of(&self.target, i)
                    } else {
                        vec![self.target.data[i]]
                    };
                    self.row(&x.iter().map(Vec::as_slice).collect::<Vec<_>>(), &target)
                })
                .collect(),
            false => (0..rows * width)
                .map(|i| self.element(&x.iter().map(|x| x.data[i]).collect::<Vec<_>>(), self.target.data[i]))
                .collect(),
        };
        let shape = if self.by_rows() { vec![rows] } else { vec![rows, width] };
        let (n, plain) = (losses.len() as f64, matches!(self.kind, Kind::Cosine | Kind::Distance));
        reduced(if plain { Reduction::None } else { self.reduction }, losses, &shape, n)
    }

    /// Terms are numbers up to 10; sums are over a row, and over all losses.
    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        let one = match self.reduction {
            Reduction::Sum => x[0].size() as f64,
            _ => 1.0,
        };
        Rounding::terms(x[0].size() as f64 + 16.0, want.map(|w| w.abs() + 10.0 * one))
    }

    fn slope_terms(&self, _: &[Array]) -> f64 {
        1.5 * 40.0
    }
}

/// Every loss, where its vectors are apart and no loss is at its margin.
pub fn composed<B: Backend>(backend: &B) {
    use Kind::*;
    let flags = [false, true];
    let mut kinds = vec![Cosine, Distance, CosineEmbedding, Ranking, Hinge, SoftMargin, Dice];
    kinds.extend(flags.map(|swap| Triplet { swap }));
    kinds.extend(flags.map(|full| Gaussian { full }));
    kinds.extend(
        flags
            .into_iter()
            .flat_map(|log| flags.map(|full| Poisson { log, full })),
    );
    kinds.extend([None, Some(0.25)].map(|alpha| Focal { alpha }));
    for kind in kinds {
        let inputs = match kind {
            Triplet { .. } | Gaussian { .. } => 3,
            Cosine | Distance | CosineEmbedding | Ranking => 2,
            _ => 1,
        };
        let reductions = prop::sample::select(vec![Reduction::Mean, Reduction::Sum, Reduction::None]);
        let drawn = (1usize..5, 1usize..6, reductions).prop_flat_map(move |(rows, width, reduction)| {
            let range = |i: usize| match kind {
                Gaussian { .. } if i == 2 => (0.3, 2.0),
                Poisson { log: false, .. } => (0.5, 3.0),
                Dice => (0.1, 0.9),
                _ => (-2.0, 2.0),
            };
            let x: Vec<_> = (0..inputs)
                .map(|i| shapes::values(&[rows, width], range(i).0, range(i).1))
                .collect();
            let target = prop::collection::vec(any::<bool>(), rows * width).prop_map(move |signs| {
                let of = |s: bool| match kind {
                    Poisson { .. } => {
                        if s {
                            3.0
                        } else {
                            0.5
                        }
                    }
                    Focal { .. } | Dice => f64::from(u8::from(s)),
                    _ => {
                        if s {
                            1.0
                        } else {
                            -1.0
                        }
                    }
                };
                Array::new(&[rows, width], signs.into_iter().map(of).collect())
            });
            (x, target).prop_map(move |(x, target)| Composed {
                kind,
                x,
                target,
                reduction,
            })
        });
        let apart = |c: &Composed| {
            let losses = Composed {
                reduction: Reduction::None,
                ..c.clone()
            }
            .oracle(&c.x);
            // Of a margin that is met the loss is exactly 0.
            let margins = losses.data.iter().all(|l| *l == 0.0 || l.abs() > 0.02);
            let long = |x: &Array| x.data.chunks(x.shape[1]).all(|row| dot(row, row) > 0.25);
            let differ = |i: usize, j: usize| {
                let rows = c.x[i]
                    .data
                    .chunks(c.x[i].shape[1])
                    .zip(c.x[j].data.chunks(c.x[j].shape[1]));
                rows.into_iter().all(|(a, b)| distance(a, b) > 0.3)
            };
            let kinks = match c.kind {
                Hinge => c.x[0].data.iter().all(|x| (x - MARGIN).abs() > 0.02),
                Triplet { .. } => differ(0, 1) && differ(0, 2) && differ(1, 2),
                Distance => differ(0, 1),
                _ => true,
            };
            margins && kinks && (!c.by_rows() || c.x.iter().all(long) || c.kind == Dice)
        };
        check_with(12, backend, drawn.prop_filter("apart", apart));
    }
}

/// Shapes that do not fit.
pub fn composed_refused<B: Backend>(backend: &B) {
    let of = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let (x, y, labels) = (of(&[2, 3]), of(&[3, 2]), of(&[2]));
    let r = Reduction::Mean;
    let mismatch = |found: Result<Tensor<B>>| assert!(matches!(found, Err(Error::ShapeMismatch { .. })), "{found:?}");
    mismatch(x.cosine_similarity(&y, -1, 1e-8));
    mismatch(x.pairwise_distance(&y, 2.0, 1e-6));
    mismatch(x.triplet_margin_loss(&x, &y, &TripletOptions::default()));
    mismatch(x.cosine_embedding_loss(&x, &x, 0.0, r));
    mismatch(x.margin_ranking_loss(&x, &labels, 0.0, r));
    mismatch(x.hinge_embedding_loss(&y, 1.0, r));
    mismatch(x.soft_margin_loss(&y, r));
    mismatch(x.gaussian_nll_loss(&x, &y, false, 1e-6, r));
    mismatch(x.poisson_nll_loss(&y, true, false, 1e-8, r));
    mismatch(x.sigmoid_focal_loss(&y, None, 2.0, r));
    mismatch(x.dice_loss(&y, 1.0, r));
    assert!(of(&[]).dice_loss(&of(&[]), 1.0, r).is_err());
}
