//! Images filtered at another resolution.

use crate::{Array, Case, Rounding, check_with, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

/// Images and a filter with the factors and the padding of [`Tensor::upfirdn2d`].
#[derive(Clone, Debug)]
struct Filtered {
    x: Array,
    filter: Array,
    up: usize,
    down: usize,
    padding: [(isize, isize); 2],
    gain: f64,
}

impl Filtered {
    /// The size along an axis: 0 for rows, 1 for columns.
    fn size(&self, axis: usize) -> usize {
        let (before, after) = self.padding[axis];
        let padded = (self.x.shape[1 + axis] * self.up) as isize + before + after;
        (padded - self.filter.shape[axis] as isize) as usize / self.down + 1
    }

    /// The convolution as its formula has it.
    fn sums(&self, x: &Array, filter: &Array) -> Array {
        let [h, w] = [filter.shape[0], filter.shape[1]];
        let shape = [x.shape[0], self.size(0), self.size(1), x.shape[3]];
        // The pixel at this place of the image with zeros between its pixels and padding, if it is one.
        let pixel = |axis: usize, place: usize| {
            let at = usize::try_from(place as isize - self.padding[axis].0).ok()?;
            (at % self.up == 0 && at / self.up < x.shape[1 + axis]).then(|| at / self.up)
        };
        Array::from_fn(&shape, |at| {
            let mut sum = 0.0;
            for (i, j) in (0..h).flat_map(|i| (0..w).map(move |j| (i, j))) {
                let places = (pixel(0, at[1] * self.down + i), pixel(1, at[2] * self.down + j));
                if let (Some(row), Some(column)) = places {
                    sum += x.at(&[at[0], row, column, at[3]]) * filter.at(&[h - 1 - i, w - 1 - j]);
                }
            }
            self.gain * sum
        })
    }
}

impl Case for Filtered {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone(), self.filter.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].upfirdn2d(&x[1], (self.up, self.down), self.padding, self.gain)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.sums(&x[0], &x[1])
    }

    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        // A product and a sum for each number of the filter; the gain is a power of 2.
        let magnitudes = self.sums(&x[0].map(f64::abs), &x[1].map(f64::abs));
        Rounding::terms(1.0 + x[1].size() as f64, magnitudes)
    }
}

/// Larger and smaller images, with zeros added at their sides and with rows and columns cut off.
pub fn upfirdn2d<B: Backend>(backend: &B) {
    let sizes = ([0usize..3, 1usize..4, 1usize..4, 1usize..4], [1usize..4, 1usize..4]);
    let factors = (1usize..4, 1usize..4, any::<bool>());
    let sides = [-1isize..3, -1isize..3, -1isize..3, -1isize..3];
    let cases = (sizes, factors, sides).prop_flat_map(|((x, filter), (up, down, gain), sides)| {
        let mut padding = [(sides[0], sides[1]), (sides[2], sides[3])];
        for (axis, sides) in padding.iter_mut().enumerate() {
            // The padded image is no smaller than the filter.
            let size = (x[1 + axis] * up) as isize;
            sides.0 = sides.0.max(1 - size);
            sides.1 = sides.1.max(filter[axis] as isize - size - sides.0);
        }
        let gain = if gain { 4.0 } else { 1.0 };
        let values = (shapes::values(&x, -2.0, 2.0), shapes::values(&filter, -1.0, 1.0));
        values.prop_map(move |(x, filter)| Filtered {
            x,
            filter,
            up,
            down,
            padding,
            gain,
        })
    });
    check_with(32, backend, cases);
}

/// Bad arguments are named.
pub fn refused<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let zeros = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32);
        let (x, f, none) = (zeros(&[1, 4, 4, 2])?, zeros(&[3, 3])?, [(0, 0); 2]);
        refused!(zeros(&[4, 4, 2])?.upfirdn2d(&f, (1, 1), none, 1.0), Error::Rank { .. });
        refused!(x.upfirdn2d(&zeros(&[3])?, (1, 1), none, 1.0), Error::Rank { .. });
        let invalid = |filter: &Tensor<B>, factors, sides| x.upfirdn2d(filter, factors, sides, 1.0);
        refused!(
            invalid(&zeros(&[0, 3])?, (1, 1), none),
            Error::InvalidArgument { argument: "filter", .. }
        );
        refused!(invalid(&f, (0, 1), none), Error::InvalidArgument { argument: "up", .. });
        refused!(
            invalid(&f, (1, 0), none),
            Error::InvalidArgument { argument: "down", .. }
        );
        assert!(invalid(&zeros(&[5, 5])?, (1, 1), none).is_err());
        assert!(invalid(&f, (1, 1), [(-3, -3), (0, 0)]).is_err());
        assert!(invalid(&f, (usize::MAX, 1), none).is_err());
        assert!(invalid(&f, (isize::MAX as usize, 1), none).is_err());
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}
