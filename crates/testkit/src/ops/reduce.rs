//! Reductions, arg-reductions, running sums and top-k.

mod correct;
mod nuclear;

pub use correct::{correct, correct_refused};
pub use nuclear::nuclear_norm;

use super::matmul::magnitudes;
use crate::array::unravel;
use crate::{Array, Case, Proof, Rounding, check, check_with, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Tensor, grad};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Sum,
    Mean,
    Prod,
    Max,
    Min,
    Var(usize),
    Std(usize),
    Norm(f64),
    LogSumExp,
}

/// A reduction over some axes.
#[derive(Clone, Debug)]
struct Reduction {
    x: Array,
    axes: Vec<isize>,
    keep_dim: bool,
    kind: Kind,
}

impl Reduction {
    fn reduced(&self) -> Vec<bool> {
        let rank = self.x.shape.len() as isize;
        let named = |i: isize| self.axes.iter().any(|&a| a == i || a + rank == i);
        (0..rank).map(|i| self.axes.is_empty() || named(i)).collect()
    }

    fn near_zero(&self) -> bool {
        self.x.data.iter().any(|x| x.abs() < 0.05)
    }

    /// The number of elements reduced into each output.
    fn count(&self) -> usize {
        let dims = self.x.shape.iter().zip(self.reduced());
        dims.filter(|(_, r)| *r).map(|(d, _)| d).product()
    }
}

impl Case for Reduction {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let (x, axes, keep) = (&x[0], &self.axes, self.keep_dim);
        match self.kind {
            Kind::Sum => x.sum(axes, keep),
            Kind::Mean => x.mean(axes, keep),
            Kind::Prod => x.prod(axes, keep),
            Kind::Max => x.max(axes, keep),
            Kind::Min => x.min(axes, keep),
            Kind::Var(c) => x.var(axes, c, keep),
            Kind::Std(c) => x.std(axes, c, keep),
            Kind::Norm(p) => x.norm(p, axes, keep),
            Kind::LogSumExp => x.logsumexp(axes, keep),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.each(&x[0], |v| {
            let n = v.len() as f64;
            let sum = |f: &dyn Fn(f64) -> f64| v.iter().map(|&x| f(x)).sum::<f64>();
            let mean = sum(&|x| x) / n;
            let var = |c: usize| sum(&|x| (x - mean).powi(2)) / (n - c as f64).max(0.0);
            let max = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            match self.kind {
                Kind::Sum => sum(&|x| x),
                Kind::Mean => mean,
                Kind::Prod => v.iter().product(),
                Kind::Max => max,
                Kind::Min => v.iter().copied().fold(f64::INFINITY, f64::min),
                Kind::Var(c) => var(c),
                Kind::Std(c) => var(c).sqrt(),
                Kind::Norm(2.0) => sum(&|x| x * x).sqrt(),
                Kind::Norm(1.0) => sum(&|x| x.abs()),
                Kind::Norm(f64::INFINITY) => v.iter().fold(0.0, |m, x| x.abs().max(m)),
                Kind::Norm(p) => sum(&|x| x.abs().powf(p)).powf(p.recip()),
                Kind::LogSumExp => sum(&f64::exp).ln(),
            }
        })
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        let n = self.count() as f64;
        match self.kind {
            Kind::Max | Kind::Min | Kind::Norm(f64::INFINITY) => Rounding::exact(want),
            Kind::Prod => Rounding::relative(n + 1.0, want),
            Kind::Sum | Kind::Mean => Rounding::terms(n + 1.0, self.oracle(&magnitudes(x))),
            // Squares of differences from a mean, which itself has the error of a sum.
            Kind::Var(c) => Rounding::terms(n + 4.0, self.squares(x, c)),
            // The root of the variance: half of its relative error.
            Kind::Std(c) => {
                let squares = self.squares(x, c);
                let each = squares.data.iter().zip(&want.data);
                let half = |(s, y): (&f64, &f64)| if *y == 0.0 { 0.0 } else { y + s / (2.0 * y) };
                Rounding::terms(n + 4.0, Array::new(&want.shape, each.map(half).collect()))
            }
            // Powers with errors of two units, their sum, and a power of it whose rounded exponent counts by the sum's
            // logarithm.
            Kind::Norm(p) => {
                let sum = want.data.iter().map(|y| y.ln().abs()).filter(|l| l.is_finite());
                let logarithm = sum.fold(1.0, f64::max) * p.max(1.0);
                Rounding::relative((n + 8.0) * p.recip().max(1.0) + 4.0 * logarithm, want)
            }
            // The maximum, differences from it, and the logarithm of a sum, whose relative error counts.
            Kind::LogSumExp => {
                let magnitude = self.each(&x[0], |v| {
                    let log = v.iter().map(|x| x.exp()).sum::<f64>().ln().abs();
                    let most = v.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                    1.0 + 3.0 * most + if log.is_finite() { log } else { 0.0 }
                });
                Rounding::terms(n + 6.0, magnitude)
            }
        }
    }

    /// Differences from the mean cancel for elements close to it; their derivatives are divided by a count, and for the
    /// standard deviation also by the deviation.
    fn slope_terms(&self, x: &[Array]) -> f64 {
        let largest = x[0].data.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        match self.kind {
            Kind::Var(c) | Kind::Std(c) if self.count() > c => {
                let each = 2.0 * 1.5 * 2.0 * largest / (self.count() - c) as f64;
                let deviation = self.oracle(x).data.into_iter().filter(|y| *y > 0.0).fold(1.0, f64::min);
                each / if matches!(self.kind, Kind::Std(_)) {
                    deviation
                } else {
                    1.0
                }
            }
            _ => 0.0,
        }
    }

    fn proof(&self) -> Proof {
        match self.kind {
            // With no degree of freedom left the value is NaN or ∞, and so is every derivative.
            Kind::Var(c) | Kind::Std(c) if self.count() <= c => Proof::Forward,
            // The second derivative is a difference of terms that grow like 1/x.
            Kind::Norm(p) if p != 1.0 && p.is_finite() && (p != 2.0 || self.count() == 1) && self.near_zero() => {
                Proof::Gradient
            }
            _ => Proof::SecondGradient,
        }
    }
}

impl Reduction {
    /// The array of `f` of the elements that are reduced into each result.
    fn each(&self, x: &Array, f: impl Fn(&[f64]) -> f64) -> Array {
        let reduced = self.reduced();
        let kept: Vec<usize> = x
            .shape
            .iter()
            .zip(&reduced)
            .map(|(&d, &r)| if r { 1 } else { d })
            .collect();
        let mut groups = vec![Vec::new(); kept.iter().product()];
        for (n, &v) in x.data.iter().enumerate() {
            let index = unravel(n, &x.shape);
            let at = index.iter().zip(&reduced).zip(&kept);
            let o = at.fold(0, |o, ((&i, &r), &d)| o * d + if r { 0 } else { i });
            groups[o].push(v);
        }
        let data = groups.iter().map(|v| f(v)).collect();
        let removed = |(d, r): (usize, bool)| (self.keep_dim || !r).then_some(d);
        let shape: Vec<usize> = kept.into_iter().zip(reduced).filter_map(removed).collect();
        Array::new(&shape, data)
    }

    /// The mean of squares with this correction, which the variance does not exceed.
    fn squares(&self, x: &[Array], correction: usize) -> Array {
        self.each(&x[0], |v| {
            v.iter().map(|x| x * x).sum::<f64>() / (v.len() as f64 - correction as f64).max(1.0)
        })
    }
}

/// Values in the same order, but evenly spaced and away from 0, so that central differences do not change the order.
fn spaced(x: &Array) -> Array {
    let mut order: Vec<usize> = (0..x.size()).collect();
    order.sort_by(|&a, &b| x.data[a].total_cmp(&x.data[b]));
    let mut data = vec![0.0; x.size()];
    for (rank, &i) in order.iter().enumerate() {
        // Odd multiples of a step, chosen so that no two have the same magnitude.
        let value = (4.0 * rank as f64 + 1.0 - 2.0 * x.size() as f64) / x.size() as f64;
        data[i] = f64::from(value as f32);
    }
    Array::new(&x.shape, data)
}

fn reductions(kinds: Vec<Kind>) -> impl Strategy<Value = Reduction> {
    let choice = (
        prop::sample::select(kinds),
        shapes::shape(5),
        any::<[[bool; 2]; 5]>(),
        any::<bool>(),
    );
    choice.prop_flat_map(|(kind, mut shape, marks, keep_dim)| {
        if matches!(kind, Kind::Max | Kind::Min | Kind::Norm(f64::INFINITY)) {
            shape.iter_mut().for_each(|d| *d = (*d).max(1));
        }
        let rank = shape.len() as isize;
        let axes: Vec<isize> = (0..rank)
            .zip(marks)
            .filter(|(_, [reduced, _])| *reduced)
            .map(|(i, [_, negative])| if negative { i - rank } else { i })
            .collect();
        shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Reduction {
            x: spaced(&x),
            axes: axes.clone(),
            keep_dim,
            kind,
        })
    })
}

/// Sums and means.
pub fn sum_and_mean<B: Backend>(backend: &B) {
    check(backend, reductions(vec![Kind::Sum, Kind::Mean]));
}

/// Products.
pub fn prod<B: Backend>(backend: &B) {
    check(backend, reductions(vec![Kind::Prod]));
}

/// Maxima and minima.
pub fn extremes<B: Backend>(backend: &B) {
    check(backend, reductions(vec![Kind::Max, Kind::Min]));
}

/// Variances and standard deviations.
pub fn var_and_std<B: Backend>(backend: &B) {
    check(
        backend,
        reductions(vec![Kind::Var(0), Kind::Var(1), Kind::Std(0), Kind::Std(1)]),
    );
}

/// Norms and the logarithm of a sum of exponentials.
pub fn norms<B: Backend>(backend: &B) {
    check(
        backend,
        reductions(vec![
            Kind::Norm(2.0),
            Kind::Norm(1.0),
            Kind::Norm(f64::INFINITY),
            Kind::LogSumExp,
        ]),
    );
    check(
        backend,
        reductions(vec![Kind::Norm(0.5), Kind::Norm(1.5), Kind::Norm(3.0)]),
    );
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Along {
    Cumsum,
    Cumprod,
    Sort(bool),
    TopK(usize, bool),
    TopKIndex(usize, bool),
    Arg(bool, bool),
}

/// An op along one axis.
#[derive(Clone, Debug)]
struct OneAxis {
    x: Array,
    axis: usize,
    negative: bool,
    f: Along,
}

impl Case for OneAxis {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let x = &x[0];
        let axis = self.axis as isize - if self.negative { x.rank() as isize } else { 0 };
        match self.f {
            Along::Cumsum => x.cumsum(axis),
            Along::Cumprod => x.cumprod(axis),
            Along::Sort(descending) => Ok(x.sort(axis, descending)?.0),
            Along::TopK(k, largest) => Ok(x.top_k(k, axis, largest)?.0),
            Along::TopKIndex(k, largest) => x.top_k(k, axis, largest)?.1.to_float(x.dtype()),
            Along::Arg(true, keep) => x.argmax(axis, keep)?.to_float(x.dtype()),
            Along::Arg(false, keep) => x.argmin(axis, keep)?.to_float(x.dtype()),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let (x, axis) = (&x[0], self.axis);
        let n = x.shape[axis];
        let mut shape = x.shape.clone();
        shape[axis] = match self.f {
            Along::Cumsum | Along::Cumprod | Along::Sort(_) => n,
            Along::TopK(k, _) | Along::TopKIndex(k, _) => k,
            Along::Arg(..) => 1,
        };
        let mut y = Array::from_fn(&shape, |at| {
            let read = |j: usize| x.at(&[&at[..axis], &[j], &at[axis + 1..]].concat());
            let sorted = |largest: bool| {
                let mut order: Vec<usize> = (0..n).collect();
                let sign = if largest { -1.0 } else { 1.0 };
                order.sort_by(|&a, &b| (sign * read(a)).total_cmp(&(sign * read(b))));
                order[at[axis]]
            };
            match self.f {
                Along::Cumsum => (0..=at[axis]).map(read).sum(),
                Along::Cumprod => (0..=at[axis]).map(read).product(),
                Along::Sort(largest) | Along::TopK(_, largest) => read(sorted(largest)),
                Along::TopKIndex(_, largest) | Along::Arg(largest, _) => sorted(largest) as f64,
            }
        });
        if self.f == Along::Arg(true, false) || self.f == Along::Arg(false, false) {
            y.shape.remove(axis);
        }
        y
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        match self.f {
            Along::Cumprod => Rounding::relative(self.x.shape[self.axis] as f64, want),
            Along::Cumsum => Rounding::terms(self.x.shape[self.axis] as f64, self.oracle(&magnitudes(x))),
            _ => Rounding::exact(want),
        }
    }

    fn proof(&self) -> Proof {
        match self.f {
            Along::Cumsum | Along::Cumprod | Along::Sort(_) | Along::TopK(..) => Proof::SecondGradient,
            _ => Proof::Forward,
        }
    }
}

/// Running sums, top-k and arg-reductions.
pub fn along_one_axis<B: Backend>(backend: &B) {
    let along = (0usize..5, any::<[bool; 2]>(), 0usize..9).prop_map(|(f, [largest, keep], k)| match f {
        0 | 1 => Along::Cumsum,
        2 => Along::TopK(k, largest),
        3 => Along::TopKIndex(k, largest),
        _ => Along::Arg(largest, keep),
    });
    check(backend, one_axis(shapes::shape(4), along));
}

/// Sorting and running products, each of which is several ops.
pub fn sorted_and_multiplied<B: Backend>(backend: &B) {
    let along = any::<[bool; 2]>().prop_map(|[product, descending]| match product {
        true => Along::Cumprod,
        false => Along::Sort(descending),
    });
    let shape = prop::collection::vec(prop_oneof![8 => 1usize..6, 1 => Just(0usize), 1 => Just(17usize)], 1..4);
    let few = shape.prop_filter("few elements", |s| s.iter().product::<usize>() <= 120);
    check_with(24, backend, one_axis(few, along));
}

/// Ops along an axis of shapes, with numbers `k` up to the axis.
fn one_axis(
    shapes: impl Strategy<Value = Vec<usize>>,
    along: impl Strategy<Value = Along>,
) -> impl Strategy<Value = OneAxis> {
    let choice = (shapes, 0usize..4, any::<bool>(), along);
    choice
        .prop_filter("an axis", |(shape, ..)| !shape.is_empty())
        .prop_flat_map(|(mut shape, axis, negative, f)| {
            let axis = axis % shape.len();
            let f = match f {
                Along::TopK(k, largest) => Along::TopK(k.min(shape[axis]), largest),
                Along::TopKIndex(k, largest) => Along::TopKIndex(k.min(shape[axis]), largest),
                f => f,
            };
            if matches!(f, Along::Arg(..)) {
                shape[axis] = shape[axis].max(1);
            }
            shapes::values(&shape, -2.0, 2.0).prop_map(move |x| OneAxis {
                x: spaced(&x),
                axis,
                negative,
                f,
            })
        })
}

/// Equal elements share a gradient, a zero norm has gradient 0, NaN counts as extreme, and an infinite maximum gives no NaN.
pub fn ties_and_limits<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let of = |v: &[f64]| Ok::<_, Error>(Tensor::from_f64(backend, v, &[v.len()], DType::F32)?.requires_grad());
        let slope = |y: &Tensor<B>, x: &Tensor<B>| match grad(y, &[x], None, false)?.pop().flatten() {
            Some(g) => g.to_f64(),
            None => panic!("no gradient"),
        };
        let x = of(&[2.0, -1.0, 2.0, 0.0, 2.0, 2.0])?;
        assert_eq!(slope(&x.max(&[], false)?, &x)?, [0.25, 0.0, 0.25, 0.0, 0.25, 0.25]);
        let x = of(&[3.0, 1.0, 1.0])?;
        assert_eq!(slope(&x.min(&[], false)?, &x)?, [0.0, 0.5, 0.5]);
        let x = of(&[0.0, 0.0])?;
        for p in [0.5, 1.5, 2.0, 3.0] {
            let y = x.norm(p, &[], false)?;
            assert_eq!((y.item()?, slope(&y, &x)?), (0.0, vec![0.0, 0.0]), "norm {p}");
            let one = of(&[0.0, -4.0])?;
            assert_eq!(slope(&one.norm(p, &[], false)?, &one)?[0], 0.0, "norm {p}");
        }
        // Orders of 0 and less.
        assert_eq!(of(&[2.0, 0.0, -1.0])?.norm(0.0, &[], false)?.item()?, 2.0);
        let x = of(&[3.0, -1.0, 2.0])?;
        let y = x.norm(f64::NEG_INFINITY, &[], false)?;
        assert_eq!((y.item()?, slope(&y, &x)?), (1.0, vec![0.0, -1.0, 0.0]));
        let x = of(&[2.0, -2.0])?;
        let y = x.norm(-1.0, &[], false)?;
        assert_eq!((y.item()?, slope(&y, &x)?), (1.0, vec![0.25, -0.25]));
        let x = of(&[0.0, 4.0])?;
        let y = x.norm(-1.0, &[], false)?;
        assert_eq!((y.item()?, slope(&y, &x)?), (0.0, vec![0.0, 0.0]));
        let x = of(&[1.0, f64::NAN, 3.0, f64::NAN])?;
        assert!(x.logsumexp(&[], false)?.item()?.is_nan());
        for y in [
            x.max(&[], false)?,
            x.min(&[], false)?,
            x.norm(f64::INFINITY, &[], false)?,
        ] {
            assert!(y.item()?.is_nan());
            assert_eq!(slope(&y, &x)?, [0.0, 0.5, 0.0, 0.5], "the elements that are NaN");
        }
        let x = of(&[0.0, 0.0])?;
        assert_eq!(slope(&x.norm(f64::INFINITY, &[], false)?, &x)?, [0.0, 0.0]);
        let x = of(&[2.0, 2.0, 2.0])?;
        for correction in [0, 1] {
            let y = x.std(&[], correction, false)?;
            assert_eq!(
                (y.item()?, slope(&y, &x)?),
                (0.0, vec![0.0; 3]),
                "correction {correction}"
            );
        }
        let x = of(&[1.0, f64::NAN, 3.0, f64::NAN])?;
        assert_eq!(x.argmax(0, false)?.to_vec::<i32>()?, [1]);
        assert_eq!(x.argmin(0, false)?.to_vec::<i32>()?, [1]);
        assert_eq!(x.top_k(4, 0, true)?.1.to_vec::<i32>()?, [1, 3, 2, 0]);
        assert_eq!(x.top_k(4, 0, false)?.1.to_vec::<i32>()?, [0, 2, 1, 3]);
        assert_eq!(x.argsort(0, true)?.to_vec::<i32>()?, [1, 3, 2, 0]);
        let x = of(&[0.0, 3.0, 0.5])?;
        assert_eq!(slope(&x.prod(&[], false)?, &x)?, [1.5, 0.0, 0.0]);
        let x = of(&[0.0, 3.0, 0.0])?;
        assert_eq!(slope(&x.prod(&[], false)?, &x)?, [0.0; 3]);
        let inf = f64::INFINITY;
        assert_eq!(of(&[-inf, 1.0])?.logsumexp(&[], false)?.item()?, 1.0);
        assert_eq!(of(&[inf, 1.0])?.logsumexp(&[], false)?.item()?, inf);
        let x = of(&[-inf, -inf])?;
        let y = x.logsumexp(&[], false)?;
        assert_eq!((y.item()?, slope(&y, &x)?), (-inf, vec![0.0, 0.0]));
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}

/// Bad arguments are typed errors at every rank.
pub fn refused<B: Backend>(backend: &B) {
    let of = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    for rank in 0..=6 {
        let x = of(&[2, 1, 3, 2, 1, 2][..rank]);
        let r = rank as isize;
        for bad in [r, -r - 1, isize::MAX, isize::MIN] {
            assert!(
                matches!(x.sum(&[bad], false), Err(Error::Axis { .. })),
                "sum {rank} {bad}"
            );
            assert!(matches!(x.max(&[bad], true), Err(Error::Axis { .. })));
            assert!(matches!(x.var(&[bad], 1, true), Err(Error::Axis { .. })));
            assert!(matches!(x.norm(2.0, &[bad], true), Err(Error::Axis { .. })));
            assert!(matches!(x.logsumexp(&[bad], true), Err(Error::Axis { .. })));
            assert!(matches!(x.argmax(bad, false), Err(Error::Axis { .. })));
            assert!(matches!(x.argmin(bad, true), Err(Error::Axis { .. })));
            assert!(matches!(x.cumsum(bad), Err(Error::Axis { .. })));
            assert!(matches!(x.cumprod(bad), Err(Error::Axis { .. })));
            assert!(matches!(x.prod(&[bad], false), Err(Error::Axis { .. })));
            assert!(matches!(x.sort(bad, false), Err(Error::Axis { .. })));
            assert!(matches!(x.top_k(1, bad, true), Err(Error::Axis { .. })));
        }
        if rank > 0 {
            assert!(matches!(
                x.mean(&[0, -r], false),
                Err(Error::InvalidArgument { argument: "axes", .. })
            ));
            let k = x.shape()[rank - 1] + 1;
            assert!(matches!(
                x.top_k(k, -1, true),
                Err(Error::InvalidArgument { argument: "k", .. })
            ));
            assert!(matches!(
                x.top_k(usize::MAX, -1, true),
                Err(Error::InvalidArgument { argument: "k", .. })
            ));
        }
    }
    let empty = of(&[2, 0]);
    let refused = |r: Result<Tensor<B>>| assert!(matches!(r, Err(Error::InvalidArgument { argument: "shape", .. })));
    refused(empty.max(&[1], false));
    refused(empty.min(&[], false));
    refused(empty.norm(f64::INFINITY, &[1], false));
    refused(empty.argmax(1, false).and_then(|i| i.to_float(DType::F32)));
    for p in [-1.0, f64::NEG_INFINITY] {
        refused(empty.norm(p, &[], false));
    }
    assert_eq!(empty.norm(0.0, &[], false).and_then(|y| y.item()), Ok(0.0));
    assert!(matches!(
        empty.norm(f64::NAN, &[], false),
        Err(Error::InvalidArgument { argument: "p", .. })
    ));
    assert_eq!(empty.max(&[0], false).map(|y| y.size()), Ok(0));
    assert_eq!(empty.argmin(0, false).map(|y| y.size()), Ok(0));
    assert_eq!(empty.cumsum(1).map(|y| y.size()), Ok(0));
    assert_eq!(empty.top_k(0, 1, true).map(|(y, _)| y.size()), Ok(0));
}
