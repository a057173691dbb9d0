//! The elements that a mask marks.

use crate::{Array, Case, Rounding, check_with, shapes};
use kiln_core::{Backend, Result};
use kiln_nn::{Indices, Tensor};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Masked {
    x: Array,
    /// The mask of the first dimensions.
    mask: Vec<bool>,
    rank: usize,
}

impl Case for Masked {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let mask: Vec<u8> = self.mask.iter().map(|&m| u8::from(m)).collect();
        let mask = Indices::from_slice(backend, &mask, &self.x.shape[..self.rank])?;
        let places = mask.nonzero()?;
        assert_eq!(
            places.shape().dims(),
            [self.mask.iter().filter(|m| **m).count(), self.rank]
        );
        match self.rank == self.x.shape.len() {
            true => x[0].masked_select(&mask),
            false => x[0].mask(&mask),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let rest = &self.x.shape[self.rank..];
        let size: usize = rest.iter().product();
        let kept = (0..self.mask.len()).filter(|&i| self.mask[i]);
        let data: Vec<f64> = kept
            .flat_map(|i| x[0].data[i * size..(i + 1) * size].to_vec())
            .collect();
        let count = self.mask.iter().filter(|m| **m).count();
        Array::new(&[&[count], rest].concat(), data)
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// Masks of some of the dimensions, and of all.
pub fn masks<B: Backend>(backend: &B) {
    let cases = (shapes::shape(4), any::<u8>()).prop_flat_map(|(shape, rank)| {
        let rank = usize::from(rank) % (shape.len() + 1);
        let size: usize = shape[..rank].iter().product();
        let mask = prop::collection::vec(any::<bool>(), size);
        (shapes::values(&shape, -2.0, 2.0), mask).prop_map(move |(x, mask)| Masked { x, mask, rank })
    });
    check_with(24, backend, cases);
}
