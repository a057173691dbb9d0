//! Images of another size.

mod grid;

pub use grid::grid_sample;

use super::matmul::magnitudes;
use crate::{Array, Case, Rounding, check_with, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use kiln_nn::ops::Interpolation;
use proptest::prelude::*;

/// The sizes that are asked for.
#[derive(Clone, Debug)]
enum Target {
    Size(Vec<usize>),
    /// Factors in quarters.
    Quarters(Vec<usize>),
}

#[derive(Clone, Debug)]
struct Resize {
    x: Array,
    target: Target,
    mode: Interpolation,
}

impl Resize {
    /// Along axis `i` of the image, the new size, and the position in old pixels of `j` new ones.
    fn axis(&self, i: usize) -> (usize, impl Fn(f64) -> f64) {
        let n = self.x.shape[1 + i];
        let (count, step) = match &self.target {
            Target::Size(size) => (size[i], n as f64 / size[i] as f64),
            Target::Quarters(factors) => (n * factors[i] / 4, 4.0 / factors[i] as f64),
        };
        (count, move |j| j * step)
    }

    /// The old pixels along axis `i` that make pixel `j`, with their shares.
    fn taps(&self, i: usize, j: usize) -> Vec<(usize, f64)> {
        let n = self.x.shape[1 + i];
        let (count, position) = self.axis(i);
        let middle = |align: bool| match (align, count) {
            (true, 1) => 0.0,
            (true, _) => j as f64 * (n - 1) as f64 / (count - 1) as f64,
            (false, _) => position(j as f64 + 0.5) - 0.5,
        };
        let pixel = |i: f64| i.clamp(0.0, (n - 1) as f64) as usize;
        // Just above a whole number that rounding has missed.
        let floor = |x: f64| (x + 1e-9).floor();
        match self.mode {
            Interpolation::Nearest => vec![(pixel(floor(position(j as f64))), 1.0)],
            Interpolation::NearestExact => vec![(pixel(floor(position(j as f64 + 0.5))), 1.0)],
            Interpolation::Linear { align_corners } => {
                let at = middle(align_corners).max(0.0);
                let share = at - at.floor();
                vec![(pixel(at.floor()), 1.0 - share), (pixel(at.floor() + 1.0), share)]
            }
            Interpolation::Cubic { align_corners } => {
                let at = middle(align_corners);
                let share = |x: f64| match x.abs() {
                    x if x <= 1.0 => 1.25 * x * x * x - 2.25 * x * x + 1.0,
                    x => -0.75 * (x * x * x - 5.0 * x * x + 8.0 * x - 4.0),
                };
                let near = |k: i32| at.floor() + f64::from(k);
                (-1..3).map(|k| (pixel(near(k)), share(at - near(k)))).collect()
            }
            Interpolation::Area => {
                let (start, end) = (j * n / count, ((j + 1) * n).div_ceil(count));
                (start..end).map(|i| (i, 1.0 / (end - start) as f64)).collect()
            }
        }
    }

    /// The new image, with the magnitudes of shares if asked.
    fn resized(&self, x: &Array, magnitudes: bool) -> Array {
        let mut y = x.clone();
        for i in 0..x.shape.len() - 2 {
            let mut shape = y.shape.clone();
            shape[1 + i] = self.axis(i).0;
            y = Array::from_fn(&shape, |at| {
                let taps = self.taps(i, at[1 + i]).into_iter().map(|(pixel, share)| {
                    let mut from = at.to_vec();
                    from[1 + i] = pixel;
                    y.at(&from) * if magnitudes { share.abs() } else { share }
                });
                taps.sum()
            });
        }
        y
    }
}

impl Case for Resize {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match &self.target {
            Target::Size(size) => x[0].interpolate(size, self.mode),
            Target::Quarters(factors) => {
                let factors: Vec<f64> = factors.iter().map(|&f| f as f64 / 4.0).collect();
                x[0].interpolate_by(&factors, self.mode)
            }
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.resized(&x[0], false)
    }

    /// Shares are polynomials of positions, which are off by a rounding of a number as large as the image.
    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        if matches!(self.mode, Interpolation::Nearest | Interpolation::NearestExact) {
            return Rounding::exact(want);
        }
        let longest = x[0].shape.iter().max().copied().unwrap_or(1);
        let all = self.resized(&magnitudes(x)[0], true);
        let most = all.data.iter().copied().fold(0.0, f64::max);
        // A share that is off takes from one pixel what it gives to another, however small that is.
        Rounding::terms((longest * longest) as f64 + 64.0, all.map(|m| m + most / 16.0))
    }
}

/// Every mode on images of one to three dimensions, to sizes and by factors, larger and smaller.
pub fn interpolate<B: Backend>(backend: &B) {
    let aligned = [false, true].into_iter();
    let smooth = aligned.flat_map(|align_corners| {
        [
            Interpolation::Linear { align_corners },
            Interpolation::Cubic { align_corners },
        ]
    });
    let modes: Vec<_> = smooth
        .chain([Interpolation::Nearest, Interpolation::NearestExact, Interpolation::Area])
        .collect();
    for mode in modes {
        let cases = (1usize..4, any::<bool>()).prop_flat_map(move |(axes, by_size)| {
            let most = [9, 6, 3][axes - 1];
            let image = prop::collection::vec(1usize..=most, axes);
            let target = prop::collection::vec(1usize..=most + 2, axes);
            (image, target, 1usize..3, 1usize..3).prop_flat_map(move |(image, target, batch, channels)| {
                // At least a quarter of four pixels is left.
                let left = image.iter().zip(&target).all(|(n, f)| n * f >= 4);
                let target = if by_size || !left {
                    Target::Size(target)
                } else {
                    Target::Quarters(target)
                };
                let shape = [&[batch], &image[..], &[channels]].concat();
                let (mode, target) = (mode, target.clone());
                shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Resize {
                    x,
                    target: target.clone(),
                    mode,
                })
            })
        });
        check_with(12, backend, cases);
    }
}

/// Sizes and shapes that are no images'.
pub fn refused<B: Backend>(backend: &B) {
    let of = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let linear = Interpolation::Linear { align_corners: false };
    assert!(matches!(of(&[2, 3]).interpolate(&[], linear), Err(Error::Rank { .. })));
    for mode in [linear, Interpolation::Nearest, Interpolation::Area] {
        let x = of(&[1, 4, 4, 2]);
        assert!(x.interpolate(&[2], mode).is_err() && x.interpolate(&[2, 2, 2], mode).is_err());
        assert!(x.interpolate(&[0, 2], mode).is_err() && of(&[1, 0, 4, 2]).interpolate(&[2, 2], mode).is_err());
        for factor in [0.0, -1.0, 0.1, f64::NAN, f64::INFINITY, 1e300] {
            assert!(x.interpolate_by(&[1.0, factor], mode).is_err(), "{mode:?} {factor}");
        }
    }
}
