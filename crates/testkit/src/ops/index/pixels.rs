//! Channels as pixels, and pixels as channels.

use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Pixels {
    x: Array,
    factor: usize,
    shuffle: bool,
}

impl Case for Pixels {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match self.shuffle {
            true => x[0].pixel_shuffle(self.factor),
            false => x[0].pixel_unshuffle(self.factor),
        }
    }

    /// Channel `c·r² + i·r + j` of a small image is channel `c` of row `i` and column `j` of a block of the large one.
    fn oracle(&self, x: &[Array]) -> Array {
        let (r, s) = (self.factor, &x[0].shape);
        if self.shuffle {
            return Array::from_fn(&[s[0], s[1] * r, s[2] * r, s[3] / (r * r)], |at| {
                let channel = at[3] * r * r + at[1] % r * r + at[2] % r;
                x[0].at(&[at[0], at[1] / r, at[2] / r, channel])
            });
        }
        Array::from_fn(&[s[0], s[1] / r, s[2] / r, s[3] * r * r], |at| {
            let (channel, i, j) = (at[3] / (r * r), at[3] / r % r, at[3] % r);
            x[0].at(&[at[0], at[1] * r + i, at[2] * r + j, channel])
        })
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// Both, by factors that fit.
pub fn pixels<B: Backend>(backend: &B) {
    let drawn = ([0usize..3, 1usize..4, 1usize..4, 1usize..4], 1usize..4, any::<bool>());
    let cases = drawn.prop_flat_map(|([n, h, w, c], factor, shuffle)| {
        let shape = match shuffle {
            true => [n, h, w, c * factor * factor],
            false => [n, h * factor, w * factor, c],
        };
        shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Pixels { x, factor, shuffle })
    });
    check(backend, cases);
}
