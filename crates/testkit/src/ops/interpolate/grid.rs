//! Images sampled at the positions of a grid.

use crate::ops::matmul::magnitudes;
use crate::{Array, Case, Proof, Rounding, check_with, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use kiln_nn::ops::{GridMode, GridOptions, GridPadding};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Sample {
    x: Array,
    grid: Array,
    options: GridOptions,
}

impl Sample {
    /// The position in pixels along an axis of `n`.
    fn position(&self, at: f64, n: usize) -> f64 {
        let (n, align) = (n as f64, self.options.align_corners);
        let at = if align {
            (at + 1.0) / 2.0 * (n - 1.0)
        } else {
            ((at + 1.0) * n - 1.0) / 2.0
        };
        if self.options.mode == GridMode::Cubic {
            return at;
        }
        self.padded(at, n)
    }

    /// A position moved into the image, unless zeros surround it.
    fn padded(&self, at: f64, n: f64) -> f64 {
        match self.options.padding {
            GridPadding::Zeros => at,
            GridPadding::Border => at.clamp(0.0, n - 1.0),
            GridPadding::Reflection => {
                let (low, high) = if self.options.align_corners {
                    (0.0, n - 1.0)
                } else {
                    (-0.5, n - 0.5)
                };
                if high == low {
                    return 0.0;
                }
                // There and back again: a wave of twice the span.
                let wave = (at - low).rem_euclid(2.0 * (high - low));
                let there = if wave > high - low {
                    2.0 * (high - low) - wave
                } else {
                    wave
                };
                (there + low).clamp(0.0, n - 1.0)
            }
        }
    }

    /// The sampled image; with `magnitudes` the sums of the sizes of what is added.
    fn sampled(&self, x: &Array) -> Array {
        let axes = x.shape.len() - 2;
        let mut shape = self.grid.shape.clone();
        shape[axes + 1] = x.shape[axes + 1];
        Array::from_fn(&shape, |at| {
            let position = |i: usize| {
                let mut of = at.to_vec();
                of[axes + 1] = axes - 1 - i;
                self.position(self.grid.at(&of), x.shape[1 + i])
            };
            let positions: Vec<f64> = (0..axes).map(position).collect();
            let each: usize = match self.options.mode {
                GridMode::Nearest => 1,
                GridMode::Linear => 2,
                GridMode::Cubic => 4,
            };
            (0..each.pow(axes as u32))
                .map(|number: usize| {
                    let mut from = vec![at[0]; 1];
                    let mut share = 1.0;
                    for (i, &p) in positions.iter().enumerate() {
                        let pixel = match self.options.mode {
                            GridMode::Nearest => p.round_ties_even(),
                            GridMode::Linear => p.floor() + (number / each.pow(i as u32) % 2) as f64,
                            GridMode::Cubic => p.floor() + (number / each.pow(i as u32) % 4) as f64 - 1.0,
                        };
                        let distance = (p - pixel).abs();
                        if self.options.mode == GridMode::Linear {
                            share *= 1.0 - distance;
                        }
                        let mut pixel = pixel;
                        if self.options.mode == GridMode::Cubic {
                            let a = -0.75;
                            share *= match distance {
                                d if d <= 1.0 => (a + 2.0) * d.powi(3) - (a + 3.0) * d.powi(2) + 1.0,
                                d => a * (d.powi(3) - 5.0 * d.powi(2) + 8.0 * d - 4.0),
                            };
                            pixel = self.padded(pixel, x.shape[1 + i] as f64);
                        }
                        if pixel < 0.0 || pixel > (x.shape[1 + i] - 1) as f64 {
                            return 0.0;
                        }
                        from.push(pixel as usize);
                    }
                    from.push(at[axes + 1]);
                    share * x.at(&from)
                })
                .sum()
        })
    }
}

impl Case for Sample {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let grid = Tensor::from_f64(backend, &self.grid.data, &self.grid.shape, x[0].dtype())?;
        x[0].grid_sample(&grid, self.options)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.sampled(&x[0])
    }

    fn proof(&self) -> Proof {
        Proof::SecondGradient
    }

    /// A position is off by some roundings of the size of the image, and so is each share.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let most = x[0].data.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        let mut size = self.oracle(&magnitudes(x));
        size.data.iter_mut().for_each(|v| *v += 8.0 * most);
        Rounding::terms(64.0, size)
    }
}

/// Images of two and, but for cubics, three dimensions in every mode, with positions inside and far outside; the grid's gradient is that of the
/// formula.
pub fn grid_sample<B: Backend>(backend: &B) {
    let mode = prop::sample::select(vec![GridMode::Linear, GridMode::Nearest, GridMode::Cubic]);
    let padding = prop::sample::select(vec![GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection]);
    let shape = (
        1usize..3,
        prop::collection::vec(1usize..4, 2..4),
        prop::collection::vec(1usize..3, 3),
        1usize..3,
    );
    let cases = (shape, mode, padding, any::<bool>()).prop_flat_map(
        |((batch, mut sizes, points, channels), mode, padding, align_corners)| {
            if mode == GridMode::Cubic {
                // 64 pixels of each point would take an emulated device minutes.
                sizes.truncate(2);
            }
            let axes = sizes.len();
            let x = [&[batch][..], &sizes, &[channels]].concat();
            let grid = [&[batch][..], &points[..axes], &[axes]].concat();
            let size: usize = grid.iter().product();
            // Sixteenths off the middle between two pixels: no rounding decides which pixel is taken, in any dtype.
            let at = prop::collection::vec((-20i32..20).prop_map(|k| f64::from(k) / 8.0 + 0.0625), size);
            let options = GridOptions {
                mode,
                padding,
                align_corners,
            };
            (shapes::values(&x, -2.0, 2.0), at).prop_map(move |(x, data)| Sample {
                x,
                grid: Array::new(&grid, data),
                options,
            })
        },
    );
    check_with(
        12,
        backend,
        cases.prop_filter("positions that no rounding moves to another pixel", apart),
    );
    let run = || -> Result<()> {
        // Half a pixel to the right of the first: the slope is the difference of two pixels by half a pixel's width.
        let x = Tensor::from_f64(backend, &[1.0, 5.0], &[1, 1, 2, 1], DType::F32)?;
        let grid = Tensor::from_f64(backend, &[-0.25, 0.0], &[1, 1, 1, 2], DType::F32)?.requires_grad();
        let y = x.grid_sample(&grid, GridOptions::default())?;
        assert_eq!(y.to_f64()?, [2.0]);
        let grads = y.sum(&[], false)?.backward()?;
        let slope = grads.get(&grid).map(Tensor::to_f64).transpose()?;
        // Along y there is nothing above or below: half a pixel off, half of the value would be lost either way.
        assert_eq!(slope.map(|s| s[0]), Some(4.0));
        refused!(x.grid_sample(&x, GridOptions::default()), Error::ShapeMismatch { .. });
        let flat = x.reshape(&[1, 2, 1])?;
        refused!(flat.grid_sample(&flat, GridOptions::default()), Error::Rank { .. });
        let none = Tensor::zeros(backend, &[1, 0, 2, 1], DType::F32)?;
        refused!(
            none.grid_sample(&grid, GridOptions::default()),
            Error::InvalidArgument { .. }
        );
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}

/// True if every position is clear of the places where another pixel is taken.
fn apart(case: &Sample) -> bool {
    let axes = case.x.shape.len() - 2;
    let points = case.grid.data.chunks(axes);
    points
        .flat_map(|p| p.iter().rev().zip(&case.x.shape[1..]))
        .all(|(&at, &n)| {
            let p = case.position(at, n);
            let edge = match case.options.mode {
                GridMode::Linear | GridMode::Cubic => p - p.round(),
                GridMode::Nearest => p - p.floor() - 0.5,
            };
            edge.abs() > 0.02
                || (case.options.padding != GridPadding::Zeros
                    && case.options.mode != GridMode::Cubic
                    && (p == 0.0 || p == (n - 1) as f64))
        })
}
