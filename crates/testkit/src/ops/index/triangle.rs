//! Triangles of matrices.

use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Triangle {
    x: Array,
    diagonal: isize,
    upper: bool,
}

impl Case for Triangle {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        if self.upper {
            x[0].triu(self.diagonal)
        } else {
            x[0].tril(self.diagonal)
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        Array::from_fn(&x[0].shape, |at| {
            let (row, column) = (at[at.len() - 2] as isize, at[at.len() - 1] as isize);
            let kept = match self.upper {
                true => column - row >= self.diagonal,
                false => column - row <= self.diagonal,
            };
            if kept { x[0].at(at) } else { 0.0 }
        })
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// The lower and the upper triangle by diagonals within and beyond the matrix.
pub fn triangles<B: Backend>(backend: &B) {
    let drawn = (shapes::shape(4), -6isize..6, any::<bool>()).prop_filter("a matrix", |(s, ..)| s.len() > 1);
    let cases = drawn.prop_flat_map(|(shape, diagonal, upper)| {
        shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Triangle { x, diagonal, upper })
    });
    check(backend, cases);
}
