//! Rotary positions.

use crate::{Array, Case, Rounding, check, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Rotary, Tensor};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Turn {
    x: Array,
    options: Rotary,
    /// True if the backend computes angles in f64.
    wide: bool,
}

impl Case for Turn {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].rotary_embedding(&self.options)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.each(|at, other, cos, sin| x[0].at(at) * cos + x[0].at(other) * sin)
    }

    /// Two products and a sum; the angle has the roundings of its rate, of a product and, relative to itself, of the position: those of f32
    /// if the backend has no f64.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let last = (self.options.offset + self.x.shape[self.axis()]) as f64;
        let magnitude = self.each(|at, other, _, _| x[0].at(at).abs() + x[0].at(other).abs());
        let of_angles = 16.0 * (1.0 + last);
        let steps = if self.wide { 4.0 } else { 4.0 + of_angles };
        Rounding::terms(steps, magnitude).oracle(of_angles)
    }
}

impl Turn {
    fn axis(&self) -> usize {
        (self.x.shape.len() as isize + self.options.axis) as usize
    }

    /// The array of `f` of the index of each element, the index of the other of its pair, and the cosine and the sine with its sign.
    fn each(&self, f: impl Fn(&[usize], &[usize], f64, f64) -> f64) -> Array {
        let (last, axis) = (self.x.shape.len() - 1, self.axis());
        let dims = self.options.dims.unwrap_or(self.x.shape[last]);
        Array::from_fn(&self.x.shape, |at| {
            let i = at[last];
            if i >= dims {
                return f(at, at, 1.0, 0.0);
            }
            let (pair, first, other) = match self.options.interleaved {
                true => (i / 2, i % 2 == 0, i ^ 1),
                false => (i % (dims / 2), i < dims / 2, (i + dims / 2) % dims),
            };
            let position = (self.options.offset + at[axis]) as f64;
            let angle = position * self.options.base.powf(-2.0 * pair as f64 / dims as f64);
            let sin = if first { -angle.sin() } else { angle.sin() };
            f(at, &[&at[..last], &[other]].concat(), angle.cos(), sin)
        })
    }
}

/// Vectors of all or some elements that turn, in neighbours or halves, at positions of a cache, before or behind heads.
pub fn rotary<B: Backend>(backend: &B) {
    let wide = backend.supports_dtype(DType::F64);
    let choice = (
        (1usize..3, 0usize..5, 1usize..3, 1usize..9),
        (any::<[bool; 3]>(), 1usize..9),
        prop::sample::select(vec![0usize, 1, 7, 1000]),
        prop::sample::select(vec![10_000.0, 2.0, 500_000.0]),
    );
    let strategy = choice.prop_flat_map(
        move |((n, t, h, half), ([interleaved, heads_first, partial], dims), offset, base)| {
            let width = if partial { 2 * half + 1 } else { 2 * half };
            let shape = if heads_first {
                [n, h, t, width]
            } else {
                [n, t, h, width]
            };
            let options = Rotary {
                dims: partial.then_some(2 * dims.min(half)),
                base,
                interleaved,
                offset,
                axis: if heads_first { -2 } else { -3 },
            };
            shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Turn { x, options, wide })
        },
    );
    check(backend, strategy);
}

/// Axes, dimensions and bases that do not fit are typed errors.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |dims: &[usize]| Tensor::zeros(backend, dims, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let x = zeros(&[2, 3, 6]);
    let with = |change: fn(&mut Rotary)| {
        let mut options = Rotary::default();
        change(&mut options);
        options
    };
    for bad in [0usize, 1, 3, 7, 8, usize::MAX] {
        let options = Rotary {
            dims: Some(bad),
            ..Rotary::default()
        };
        refused!(
            x.rotary_embedding(&options),
            Error::InvalidArgument { argument: "dims", .. }
        );
    }
    refused!(
        zeros(&[2, 3, 5]).rotary_embedding(&Rotary::default()),
        Error::InvalidArgument { argument: "dims", .. }
    );
    for options in [
        with(|o| o.base = 0.0),
        with(|o| o.base = f64::NAN),
        with(|o| o.base = f64::INFINITY),
    ] {
        refused!(
            x.rotary_embedding(&options),
            Error::InvalidArgument { argument: "base", .. }
        );
    }
    for options in [with(|o| o.axis = -1), with(|o| o.axis = 2)] {
        refused!(
            x.rotary_embedding(&options),
            Error::InvalidArgument { argument: "axis", .. }
        );
    }
    for options in [with(|o| o.axis = 3), with(|o| o.axis = -4)] {
        refused!(x.rotary_embedding(&options), Error::Axis { .. });
    }
    refused!(zeros(&[4]).rotary_embedding(&Rotary::default()), Error::Axis { .. });
}
