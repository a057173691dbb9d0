//! Elementwise ops.

use crate::array::broadcast_shape;
use crate::{Array, Case, check, shapes};
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

/// `a + b` of shapes that broadcast.
#[derive(Clone, Debug)]
struct Add {
    a: Array,
    b: Array,
}

impl Case for Add {
    fn inputs(&self) -> Vec<Array> {
        vec![self.a.clone(), self.b.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].add(&x[1])
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let shape = broadcast_shape(&x[0].shape, &x[1].shape);
        Array::from_fn(&shape, |i| x[0].broadcast_at(i) + x[1].broadcast_at(i))
    }
}

/// Sums with broadcasting.
pub fn add<B: Backend>(backend: &B) {
    let pair =
        shapes::broadcast_pair().prop_flat_map(|(a, b)| (shapes::values(&a, -2.0, 2.0), shapes::values(&b, -2.0, 2.0)));
    check(backend, pair.prop_map(|(a, b)| Add { a, b }));
}
