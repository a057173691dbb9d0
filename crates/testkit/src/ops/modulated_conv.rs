//! Convolutions with a style for each sample.

use crate::{Array, Case, Rounding, check_with, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

/// Images, a weight, styles and, for images of twice the size, a filter.
#[derive(Clone, Debug)]
struct Modulated {
    x: Array,
    w: Array,
    styles: Array,
    demodulate: bool,
    filter: Option<Array>,
}

impl Modulated {
    /// One over the root of the sum of squares of the weights of sample `n` and output `o`.
    fn demodulation(&self, [w, styles]: [&Array; 2], n: usize, o: usize) -> f64 {
        if !self.demodulate {
            return 1.0;
        }
        let (k, channels) = (w.shape[1], w.shape[3]);
        let mut sum = 0.0;
        for i in 0..k * k * channels {
            let (tap, c) = (i / channels, i % channels);
            sum += (w.at(&[o, tap / k, tap % k, c]) * styles.at(&[n, c])).powi(2);
        }
        1.0 / (sum + 1e-8).sqrt()
    }

    /// The result, of inputs whose signs may have been dropped; the demodulation is by `of`.
    fn sums(&self, x: &[Array], of: &[Array]) -> Array {
        let (images, w, styles) = (&x[0], &x[1], &x[2]);
        let [n, h, width, channels] = images.shape[..] else {
            panic!("{:?}", images.shape)
        };
        let (outputs, k) = (w.shape[0], w.shape[1]);
        let weight = |n: usize, o: usize, a: usize, b: usize, c: usize| w.at(&[o, a, b, c]) * styles.at(&[n, c]);
        let plain = match x.get(3) {
            None => Array::from_fn(&[n, h, width, outputs], |at| {
                let mut sum = 0.0;
                for (a, b) in (0..k).flat_map(|a| (0..k).map(move |b| (a, b))) {
                    let (row, column) = ((at[1] + a).wrapping_sub(k / 2), (at[2] + b).wrapping_sub(k / 2));
                    for c in (0..channels).filter(|_| row < h && column < width) {
                        sum += images.at(&[at[0], row, column, c]) * weight(at[0], at[3], a, b, c);
                    }
                }
                sum
            }),
            Some(filter) => {
                let (taps, middle) = (filter.shape[0], k / 2);
                // The kernel on pixels with zeros between them, its middle on a pixel.
                let mut spread = Array::zeros(&[n, 2 * h + k, 2 * width + k, outputs]);
                for i in 0..images.size() {
                    let at = crate::array::unravel(i, &images.shape);
                    for (a, b) in (0..k).flat_map(|a| (0..k).map(move |b| (a, b))) {
                        for o in 0..outputs {
                            *spread.at_mut(&[at[0], 2 * at[1] + a, 2 * at[2] + b, o]) +=
                                images.data[i] * weight(at[0], o, a, b, at[3]);
                        }
                    }
                }
                Array::from_fn(&[n, 2 * h, 2 * width, outputs], |at| {
                    let mut sum = 0.0;
                    for (i, j) in (0..taps).flat_map(|i| (0..taps).map(move |j| (i, j))) {
                        let place = |to: usize, i: usize| (to + middle + i).wrapping_sub(taps.div_ceil(2));
                        let (row, column) = (place(at[1], i), place(at[2], j));
                        if row < spread.shape[1] && column < spread.shape[2] {
                            sum += spread.at(&[at[0], row, column, at[3]]) * filter.at(&[taps - 1 - i, taps - 1 - j]);
                        }
                    }
                    4.0 * sum
                })
            }
        };
        Array::from_fn(&plain.shape.clone(), |at| {
            plain.at(at) * self.demodulation([&of[1], &of[2]], at[0], at[3])
        })
    }
}

impl Case for Modulated {
    fn inputs(&self) -> Vec<Array> {
        let inputs = [&self.x, &self.w, &self.styles];
        inputs.into_iter().chain(&self.filter).cloned().collect()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].modulated_conv2d(&x[1], &x[2], self.demodulate, x.get(3))
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.sums(x, x)
    }

    /// The gradient of a square root of sums in half precision is rounded more often than the tolerance of one op allows.
    fn proves_half(&self, _: DType) -> bool {
        false
    }

    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let without_signs: Vec<Array> = x.iter().map(|x| x.map(f64::abs)).collect();
        let terms = x[1].size() / x[1].shape[0] + x.get(3).map_or(0, Array::size);
        // Halves are rounded when the input is scaled, convolved, filtered and scaled again.
        let stored = if x.len() > 3 { 5.0 } else { 3.0 };
        Rounding::terms(8.0 + terms as f64, self.sums(&without_signs, x)).stored(stored)
    }

    /// A demodulated result hardly depends on the size of weights and styles: what the sum and what its scale contribute to a derivative
    /// cancel. Both are at most the result's terms by the smallest weight or style, 0.3.
    fn slope_terms(&self, x: &[Array]) -> f64 {
        let without_signs: Vec<Array> = x.iter().map(|x| x.map(f64::abs)).collect();
        let largest = self.sums(&without_signs, x).data.into_iter().fold(0.0, f64::max);
        if self.demodulate { 1.5 * largest / 0.3 } else { 0.0 }
    }
}

/// Kernels of one and of nine pixels, with and without demodulation, and images of twice the size by filters of an even number of taps.
pub fn modulated_conv2d<B: Backend>(backend: &B) {
    let sizes = ([1usize..3, 1usize..4, 1usize..4, 1usize..3], 1usize..3, any::<bool>());
    let options = (any::<bool>(), any::<bool>(), 1usize..3);
    let cases = (sizes, options).prop_flat_map(|((x, outputs, large), (demodulate, up, taps))| {
        let k = if large { 3 } else { 1 };
        let filter = up.then(|| [2 * taps, 2 * taps]);
        let values = (
            shapes::values(&x, -2.0, 2.0),
            // Weights and styles away from 0, where the root bends sharply.
            shapes::values(&[outputs, k, k, x[3]], 0.3, 1.0),
            shapes::values(&[x[0], x[3]], 0.5, 1.5),
            shapes::values(&filter.unwrap_or([1, 1]), -1.0, 1.0),
        );
        values.prop_map(move |(x, w, styles, values)| Modulated {
            x,
            w,
            styles,
            demodulate,
            filter: filter.map(|_| values),
        })
    });
    check_with(24, backend, cases);
}

/// Bad arguments are named.
pub fn refused<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let zeros = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32);
        let (x, w, s) = (zeros(&[2, 4, 4, 3])?, zeros(&[5, 3, 3, 3])?, zeros(&[2, 3])?);
        refused!(
            zeros(&[4, 4, 3])?.modulated_conv2d(&w, &s, true, None),
            Error::Rank { .. }
        );
        refused!(x.modulated_conv2d(&zeros(&[3, 3])?, &s, true, None), Error::Rank { .. });
        for weight in [[5, 2, 2, 3], [5, 3, 1, 3], [5, 3, 3, 2]] {
            refused!(
                x.modulated_conv2d(&zeros(&weight)?, &s, true, None),
                Error::InvalidArgument { argument: "weight", .. }
            );
        }
        for styles in [[1, 3], [2, 5]] {
            refused!(
                x.modulated_conv2d(&w, &zeros(&styles)?, true, None),
                Error::InvalidArgument { argument: "styles", .. }
            );
        }
        refused!(
            x.modulated_conv2d(&w, &s, true, Some(&zeros(&[4])?)),
            Error::Rank { .. }
        );
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}
