//! Concatenation, padding and tiling.

use super::choices;
use crate::{Array, Case, Rounding, check, check_with, shapes};
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;
use kiln_nn::ops::index::Pad;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Join {
    parts: Vec<Array>,
    axis: usize,
    given: isize,
    stack: bool,
}

impl Case for Join {
    fn inputs(&self) -> Vec<Array> {
        self.parts.clone()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let parts: Vec<&Tensor<B>> = x.iter().collect();
        match self.stack {
            true => Tensor::stack(&parts, self.given),
            false => Tensor::concat(&parts, self.given),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let mut shape = x[0].shape.clone();
        if self.stack {
            shape.insert(self.axis, x.len());
            return Array::from_fn(&shape, |i| {
                let mut at = i.to_vec();
                x[at.remove(self.axis)].at(&at)
            });
        }
        shape[self.axis] = x.iter().map(|p| p.shape[self.axis]).sum();
        Array::from_fn(&shape, |i| {
            let mut at = i.to_vec();
            let mut part = 0;
            while at[self.axis] >= x[part].shape[self.axis] {
                at[self.axis] -= x[part].shape[self.axis];
                part += 1;
            }
            x[part].at(&at)
        })
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// Concatenation of tensors of different sizes along an axis, some of them empty.
pub fn concat<B: Backend>(backend: &B) {
    let cases = (shapes::shape(4), choices()).prop_filter_map("an axis", |(shape, mut c)| {
        let (axis, given) = (!shape.is_empty()).then(|| c.axis(shape.len()))?;
        let mut parts = Vec::new();
        for _ in 0..1 + c.next(4) {
            let mut part = shape.clone();
            part[axis] = c.next(5);
            parts.push(part);
        }
        Some((parts, axis, given))
    });
    let cases = cases.prop_flat_map(|(parts, axis, given)| {
        let parts: Vec<_> = parts.iter().map(|p| shapes::values(p, -2.0, 2.0)).collect();
        parts.prop_map(move |parts| Join {
            parts,
            axis,
            given,
            stack: false,
        })
    });
    check(backend, cases);
}

/// Stacking of tensors of one shape along a new axis.
pub fn stack<B: Backend>(backend: &B) {
    let cases = (shapes::shape(3), choices()).prop_flat_map(|(shape, mut c)| {
        let (axis, given) = c.axis(shape.len() + 1);
        let parts: Vec<_> = (0..1 + c.next(3)).map(|_| shapes::values(&shape, -2.0, 2.0)).collect();
        parts.prop_map(move |parts| Join {
            parts,
            axis,
            given,
            stack: true,
        })
    });
    check_with(24, backend, cases);
}

#[derive(Clone, Debug)]
struct Padded {
    x: Array,
    padding: Vec<(isize, isize)>,
    mode: Pad,
}

impl Case for Padded {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].pad(&self.padding, self.mode)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let x = &x[0];
        let grown = |(&d, &(before, after)): (&usize, &(isize, isize))| (d as isize + before + after) as usize;
        let shape: Vec<usize> = x.shape.iter().zip(&self.padding).map(grown).collect();
        Array::from_fn(&shape, |i| {
            let mut at = Vec::new();
            for (d, (&i, &(before, after))) in i.iter().zip(&self.padding).enumerate() {
                let (n, mut j) = (x.shape[d] as isize, i as isize - before);
                match self.mode {
                    Pad::Constant(value) if j < 0 || j >= n => return value,
                    Pad::Constant(_) => {}
                    Pad::Reflect if j < 0 => j = -j,
                    Pad::Reflect if j >= n => j = 2 * (n - 1) - j,
                    Pad::Reflect => {}
                    Pad::Replicate => j = j.clamp(0, n - 1),
                    // The circle is that of the entries that are left.
                    Pad::Circular => {
                        let cropped = |p: isize| (-p).max(0);
                        let start = cropped(before);
                        j = (j - start).rem_euclid(n - start - cropped(after)) + start;
                    }
                }
                at.push(j as usize);
            }
            x.at(&at)
        })
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// Padding and cropping in all modes.
pub fn pad<B: Backend>(backend: &B) {
    for mode in [Pad::Constant(-0.75), Pad::Reflect, Pad::Replicate, Pad::Circular] {
        let cases = (shapes::shape(4), choices()).prop_flat_map(move |(shape, mut c)| {
            let padding: Vec<(isize, isize)> = shape
                .iter()
                .map(|&n| match mode {
                    Pad::Constant(_) => {
                        let before = c.next(4.min(n + 1) + 3) as isize - 3.min(n) as isize;
                        let left = n as isize + before.min(0);
                        (before, c.next(3) as isize - c.next(2.min(left as usize) + 1) as isize)
                    }
                    _ if n == 0 => (0, 0),
                    _ => {
                        // One more than may be added.
                        let most = match mode {
                            Pad::Reflect => n.min(4),
                            Pad::Circular => n.min(3) + 1,
                            _ => 4,
                        };
                        // At least one entry is left.
                        let least = 1 - n as isize;
                        let before = (c.next(most + 2) as isize - 2).max(least);
                        let after = (c.next(most + 2) as isize - 2).max(least - before);
                        if mode != Pad::Circular {
                            return (before, after);
                        }
                        let after = after.max(least - before.min(0));
                        let left = n as isize + before.min(0) + after.min(0);
                        (before.min(left), after.min(left))
                    }
                })
                .collect();
            shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Padded {
                x,
                padding: padding.clone(),
                mode,
            })
        });
        check_with(32, backend, cases);
    }
}

#[derive(Clone, Debug)]
struct Tiled {
    x: Array,
    repeats: Vec<usize>,
}

impl Case for Tiled {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].tile(&self.repeats)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let x = &x[0];
        let rank = x.shape.len().max(self.repeats.len());
        let from_end = |v: &[usize], i: usize| (i + v.len()).checked_sub(rank).map_or(1, |j| v[j]);
        let shape: Vec<usize> = (0..rank)
            .map(|i| from_end(&x.shape, i) * from_end(&self.repeats, i))
            .collect();
        Array::from_fn(&shape, |i| {
            let own = &i[rank - x.shape.len()..];
            x.at(&own.iter().zip(&x.shape).map(|(i, d)| i % d).collect::<Vec<_>>())
        })
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// Repetition along old and new axes, also zero times.
pub fn tile<B: Backend>(backend: &B) {
    let cases = (shapes::shape(3), prop::collection::vec(0usize..4, 0..5)).prop_flat_map(|(shape, repeats)| {
        shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Tiled {
            x,
            repeats: repeats.clone(),
        })
    });
    check(backend, cases);
}
