//! Softmax and log-softmax.

use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Softmax {
    x: Array,
    axis: usize,
    negative: bool,
    log: bool,
}

impl Case for Softmax {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let axis = self.axis as isize - if self.negative { x[0].rank() as isize } else { 0 };
        if self.log {
            x[0].log_softmax(axis)
        } else {
            x[0].softmax(axis)
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.each(&x[0], |x, m, log_s| {
            let log_p = x - m - log_s;
            if self.log { log_p } else { log_p.exp() }
        })
    }

    /// The exponentials, their sum, a logarithm. The absolute error of x − m is a relative error of the share.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let magnitude = self.each(&x[0], |x, m, log_s| match self.log {
            true => x.abs() + m.abs() + log_s.abs() + 1.0,
            false => (x - m - log_s).exp() * (1.0 + (x - m).abs()),
        });
        Rounding::terms(self.x.shape[self.axis] as f64 + 8.0, magnitude)
    }

    /// Seeds of up to 1.5, minus shares of their sum.
    fn slope_terms(&self, _: &[Array]) -> f64 {
        let n = if self.log { self.x.shape[self.axis] } else { 1 };
        1.5 * (1 + n) as f64
    }
}

impl Softmax {
    /// The array of `f` of each element, the maximum of its row, and the logarithm of the sum of its row.
    fn each(&self, x: &Array, f: impl Fn(f64, f64, f64) -> f64) -> Array {
        let axis = self.axis;
        Array::from_fn(&x.shape, |at| {
            let row = (0..x.shape[axis]).map(|j| x.at(&[&at[..axis], &[j], &at[axis + 1..]].concat()));
            let m = row.clone().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.map(|v| (v - m).exp()).sum();
            f(x.at(at), m, sum.ln())
        })
    }
}

/// Softmax and log-softmax along any axis.
pub fn softmax<B: Backend>(backend: &B) {
    let choice = (
        shapes::shape(4),
        0usize..4,
        any::<[bool; 2]>(),
        prop::sample::select(vec![2.0, 30.0]),
    );
    let strategy = choice
        .prop_filter("an axis", |(shape, ..)| !shape.is_empty())
        .prop_flat_map(|(shape, axis, [negative, log], range)| {
            shapes::values(&shape, -range, range).prop_map(move |x| Softmax {
                axis: axis % shape.len(),
                x,
                negative,
                log,
            })
        });
    check(backend, strategy);
}

/// Bad axes are typed errors at every rank.
pub fn refused<B: Backend>(backend: &B) {
    for rank in 0..=6 {
        let x = Tensor::zeros(backend, &[1, 2, 1, 3, 1, 2][..rank], DType::F32).unwrap_or_else(|e| panic!("{e}"));
        let r = rank as isize;
        for bad in [r, -r - 1, isize::MAX, isize::MIN] {
            assert!(matches!(x.softmax(bad), Err(Error::Axis { .. })), "{rank} {bad}");
            assert!(matches!(x.log_softmax(bad), Err(Error::Axis { .. })), "{rank} {bad}");
        }
    }
}
