//! Integer tensors and masks. Every result is exact.

mod indexing;
mod order;

pub use indexing::{index_put, several_index_tensors};
pub use order::sorted;

use crate::run::each;
use crate::{refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Indices, Tensor};
use proptest::prelude::*;

/// An integer tensor of the host.
#[derive(Clone, Debug)]
pub(crate) struct Ints {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<i32>,
}

impl Ints {
    pub(crate) fn on<B: Backend>(&self, backend: &B) -> Result<Indices<B>> {
        Indices::from_slice(backend, &self.data, &self.shape)
    }

    /// The element that position `i` of a broadcast to `to` reads.
    fn broadcast(&self, to: &[usize], i: usize) -> i32 {
        let (mut rest, mut at, mut step) = (i, 0, 1);
        for d in (0..to.len()).rev() {
            let own = (d + self.shape.len())
                .checked_sub(to.len())
                .map_or(1, |d| self.shape[d]);
            at += if own == 1 { 0 } else { rest % to[d] * step };
            step *= own;
            rest /= to[d];
        }
        self.data[at]
    }
}

/// Small numbers, and some at the ends of i32.
fn number() -> impl Strategy<Value = i32> {
    prop_oneof![
        8 => -40i32..40,
        1 => prop::sample::select(vec![i32::MIN, i32::MIN + 1, i32::MAX, i32::MAX - 1, 1 << 24, -(1 << 24) - 1]),
        2 => any::<i32>(),
    ]
}

pub(crate) fn ints<S: Strategy<Value = i32>>(shape: &[usize], number: S) -> impl Strategy<Value = Ints> + use<S> {
    let (shape, size) = (shape.to_vec(), shape.iter().product::<usize>());
    prop::collection::vec(number, size).prop_map(move |data| Ints {
        shape: shape.clone(),
        data,
    })
}

fn pairs() -> impl Strategy<Value = (Ints, Ints)> {
    shapes::broadcast_pair().prop_flat_map(|(a, b)| (ints(&a, number()), ints(&b, number())))
}

/// Runs a property that fails by an error too.
pub(crate) fn holds<C: std::fmt::Debug>(cases: u32, cases_of: impl Strategy<Value = C>, f: impl Fn(&C) -> Result<()>) {
    each(cases, cases_of, |case| {
        f(case).unwrap_or_else(|e| panic!("{case:?}: {e}"))
    });
}

fn wrapped(value: i64) -> i32 {
    value as i32
}

/// The floor of `a / b`, 0 for `b = 0`, by the remainder of Euclid's division.
fn quotient(a: i64, b: i64) -> i64 {
    match b {
        0 => 0,
        b => (a - a.rem_euclid(b) - if b < 0 && a.rem_euclid(b) != 0 { b } else { 0 }) / b,
    }
}

/// Arithmetic wraps around, quotients are those of the floor, shifts by too much shift everything out.
pub fn arithmetic<B: Backend>(backend: &B) {
    holds(64, pairs(), |(a, b)| {
        let (x, y) = (a.on(backend)?, b.on(backend)?);
        let check = |name: &str, got: Result<Indices<B>>, f: &dyn Fn(i64, i64) -> i64| -> Result<()> {
            let got = got?;
            let want = |i| {
                wrapped(f(
                    a.broadcast(got.shape(), i).into(),
                    b.broadcast(got.shape(), i).into(),
                ))
            };
            let want: Vec<i32> = (0..got.size()).map(want).collect();
            assert_eq!(got.to_vec::<i32>()?, want, "{name} of {a:?} and {b:?}");
            Ok(())
        };
        let shift = |b: i64| (0..32).contains(&b).then_some(b);
        check("add", &x + &y, &|a, b| a + b)?;
        check("sub", &x - &y, &|a, b| a - b)?;
        check("mul", &x * &y, &|a, b| a * b)?;
        check("floor_divide", x.floor_divide(&y), &quotient)?;
        check("remainder", &x % &y, &|a, b| {
            if b == 0 { 0 } else { a - b * quotient(a, b) }
        })?;
        check("maximum", x.maximum(&y), &|a, b| a.max(b))?;
        check("minimum", x.minimum(&y), &|a, b| a.min(b))?;
        check("bitwise_and", &x & &y, &|a, b| a & b)?;
        check("bitwise_or", &x | &y, &|a, b| a | b)?;
        check("bitwise_xor", &x ^ &y, &|a, b| a ^ b)?;
        check("left_shift", &x << &y, &|a, b| shift(b).map_or(0, |b| a << b))?;
        check("right_shift", &x >> &y, &|a, b| a >> shift(b).unwrap_or(63))?;
        check("neg", &y * 0 + (-&x)?, &|a, _| -a)?;
        check("abs", &y * 0 + x.abs()?, &|a, _| a.abs())?;
        check("sign", &y * 0 + x.sign()?, &|a, _| a.signum())?;
        check("not", &y * 0 + (!&x)?, &|a, _| !a)?;
        check("clamp", &y * 0 + x.clamp(-3, 17)?, &|a, _| a.clamp(-3, 17))?;
        check("pow", &y * 0 + x.pow(3)?, &|a, _| a.wrapping_mul(a).wrapping_mul(a))?;
        check("3 - x", &y * 0 + (3 - &x)?, &|a, _| 3 - a)
    });
}

/// Comparisons, logic of masks and of integers, and selection by masks; conversions between them and floats.
pub fn logic<B: Backend>(backend: &B) {
    let few = -2i32..3;
    let cases = shapes::broadcast_pair().prop_flat_map(move |(a, b)| (ints(&a, few.clone()), ints(&b, -2i32..3)));
    holds(48, cases, |(a, b)| {
        let (x, y) = (a.on(backend)?, b.on(backend)?);
        let check = |name: &str, got: Result<Indices<B>>, f: &dyn Fn(i32, i32) -> bool| -> Result<()> {
            let got = got?;
            let want = |i| f(a.broadcast(got.shape(), i), b.broadcast(got.shape(), i));
            let want: Vec<bool> = (0..got.size()).map(want).collect();
            assert_eq!(got.to_vec::<bool>()?, want, "{name} of {a:?} and {b:?}");
            Ok(())
        };
        check("eq", x.eq(&y), &|a, b| a == b)?;
        check("ne", x.ne(&y), &|a, b| a != b)?;
        check("lt", x.lt(&y), &|a, b| a < b)?;
        check("le", x.le(&y), &|a, b| a <= b)?;
        check("gt", x.gt(&y), &|a, b| a > b)?;
        check("ge", x.ge(&y), &|a, b| a >= b)?;
        check("logical_and", x.logical_and(&y), &|a, b| a != 0 && b != 0)?;
        check("logical_or", x.logical_or(&y), &|a, b| a != 0 || b != 0)?;
        check("logical_xor", x.logical_xor(&y), &|a, b| (a != 0) != (b != 0))?;
        let (above, below) = (x.gt(0)?, y.lt(0)?);
        check("mask & mask", &above & &below, &|a, b| a > 0 && b < 0)?;
        check("mask | mask", &above | &below, &|a, b| a > 0 || b < 0)?;
        check("mask ^ mask", &above ^ &below, &|a, b| (a > 0) != (b < 0))?;
        check("mask of not", (!&above)? | (y.ne(&y)?), &|a, _| a <= 0)?;
        check("mask + mask", (&above + &below)?.eq(2), &|a, b| a > 0 && b < 0)?;
        check("mask < number", above.to_i32()?.add(&y)?.lt(&above), &|_, b| b < 0)?;
        check("where", Indices::where_(&below, &x, &y)?.ne(&y), &|a, b| {
            b < 0 && a != b
        })?;
        check("fill", (&y * 0 + x.masked_fill(&above, 9)?)?.eq(9), &|a, _| a > 0)?;
        let floats: Vec<f32> = a.data.iter().map(|&v| v as f32).collect();
        assert_eq!(x.to_float(DType::F32)?.to_vec::<f32>()?, floats);
        assert_eq!(x.to_float(DType::F32)?.to_indices()?.to_vec::<i32>()?, a.data);
        let wide: Vec<i64> = a.data.iter().map(|&v| v.into()).collect();
        assert_eq!(Indices::from_slice(backend, &wide, &a.shape)?.to_vec::<i64>()?, wide);
        Ok(())
    });
}

/// Sums wrap around; sums and extremes over all axes and over some, counts, running sums.
pub fn reductions<B: Backend>(backend: &B) {
    let shapes =
        prop_oneof![3 => shapes::shape(4), 1 => prop::sample::select(vec![vec![3, 5000], vec![70, 90], vec![9000]])];
    let cases = (shapes, any::<u8>(), any::<bool>());
    let cases = cases.prop_flat_map(|(shape, marked, keep)| (ints(&shape, number()), Just(marked), Just(keep)));
    holds(40, cases, |(a, marked, keep)| {
        let x = a.on(backend)?;
        let rank = a.shape.len();
        let axes: Vec<isize> = (0..rank as isize).filter(|i| marked >> i & 1 == 1).collect();
        let reduced = |d: usize| axes.is_empty() || axes.contains(&(d as isize));
        // The elements of each output, in order.
        let kept: Vec<usize> = (0..rank).map(|d| if reduced(d) { 1 } else { a.shape[d] }).collect();
        let mut parts = vec![Vec::new(); kept.iter().product()];
        for (i, &v) in a.data.iter().enumerate() {
            let (mut rest, mut at, mut step) = (i, 0, 1);
            for d in (0..rank).rev() {
                at += if reduced(d) { 0 } else { rest % a.shape[d] * step };
                step *= kept[d];
                rest /= a.shape[d];
            }
            parts[at].push(v);
        }
        let of = |f: &dyn Fn(&[i32]) -> i32| parts.iter().map(|p| f(p)).collect::<Vec<i32>>();
        let sum = x.sum(&axes, *keep)?;
        let dims: Vec<usize> = (0..rank).filter(|&d| *keep || !reduced(d)).map(|d| kept[d]).collect();
        assert_eq!(sum.shape().dims(), dims);
        assert_eq!(
            sum.to_vec::<i32>()?,
            of(&|p| p.iter().fold(0, |a, &b| a.wrapping_add(b)))
        );
        let above = x.gt(0)?.sum(&axes, *keep)?;
        assert_eq!(
            above.to_vec::<i32>()?,
            of(&|p| p.iter().filter(|v| **v > 0).count() as i32)
        );
        assert_eq!(
            x.count_nonzero(&axes)?.to_vec::<i32>()?,
            of(&|p| p.iter().filter(|v| **v != 0).count() as i32)
        );
        assert_eq!(
            x.any(&axes, *keep)?.to_i32()?.to_vec::<i32>()?,
            of(&|p| p.iter().any(|v| *v != 0).into())
        );
        assert_eq!(
            x.all(&axes, *keep)?.to_i32()?.to_vec::<i32>()?,
            of(&|p| p.iter().all(|v| *v != 0).into())
        );
        if parts.iter().all(|p| !p.is_empty()) {
            assert_eq!(
                x.max(&axes, *keep)?.to_vec::<i32>()?,
                of(&|p| *p.iter().max().unwrap_or(&0))
            );
            assert_eq!(
                x.min(&axes, *keep)?.to_vec::<i32>()?,
                of(&|p| *p.iter().min().unwrap_or(&0))
            );
        }
        for axis in 0..rank {
            let (n, inner) = (a.shape[axis], a.shape[axis + 1..].iter().product::<usize>());
            let mut want = a.data.clone();
            for i in 0..want.len() {
                if i / inner % n > 0 {
                    want[i] = want[i].wrapping_add(want[i - inner]);
                }
            }
            assert_eq!(
                x.cumsum(axis as isize)?.to_vec::<i32>()?,
                want,
                "running sums along {axis}"
            );
        }
        Ok(())
    });
}

/// Bad input gives typed errors.
pub fn refused<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let x = Indices::arange(backend, 0, 6)?.reshape(&[2, 3])?;
        let row = Indices::arange(backend, 0, 4)?;
        let mask = x.gt(2)?;
        refused!(x.add(&row), Error::ShapeMismatch { op: "add", .. });
        refused!(x.lt(&row), Error::ShapeMismatch { .. });
        refused!(&mask & &row, Error::ShapeMismatch { .. });
        refused!(x.sum(&[2], false), Error::Axis { .. });
        refused!(x.cumsum(2), Error::Axis { .. });
        refused!(x.argsort(-3, false), Error::Axis { .. });
        refused!(x.top_k(4, 1, true), Error::InvalidArgument { argument: "k", .. });
        refused!(
            Indices::full(backend, &[0], 1)?.max(&[], false),
            Error::InvalidArgument { .. }
        );
        refused!(
            Indices::full(backend, &[0], 1)?.argmax(0, false),
            Error::InvalidArgument { .. }
        );
        refused!(
            Indices::from_slice(backend, &[1i64 << 31], &[1]),
            Error::InvalidArgument { .. }
        );
        refused!(
            Indices::from_slice(backend, &[usize::MAX], &[1]),
            Error::InvalidArgument { .. }
        );
        refused!(
            Indices::from_slice(backend, &[-1], &[1])?.to_vec::<usize>(),
            Error::InvalidArgument { .. }
        );
        refused!(x.to_vec::<bool>(), Error::DTypeMismatch { .. });
        refused!(mask.to_vec::<i32>(), Error::DTypeMismatch { .. });
        refused!(x.item(), Error::InvalidArgument { .. });
        refused!(Indices::where_(&x, &x, &x), Error::UnsupportedDType { .. });
        refused!(x.masked_fill(&x, 0), Error::UnsupportedDType { .. });
        refused!(x.i((&row, &x)), Error::ShapeMismatch { .. });
        refused!(x.i(&row.gt(0)?), Error::ShapeMismatch { op: "i", .. });
        refused!(x.i(&mask.i((0, 0))?), Error::InvalidArgument { op: "i", .. });
        let floats = Tensor::zeros(backend, &[2, 3], DType::F32)?;
        refused!(floats.index_copy(0, &x, &floats), Error::Rank { .. });
        refused!(floats.scatter(1, &mask, &floats), Error::UnsupportedDType { .. });
        refused!(
            floats.scatter(0, &x, &floats.narrow(1, 0, 2)?),
            Error::ShapeMismatch { .. }
        );
        refused!(floats.index_put(0, &floats, false), Error::ShapeMismatch { .. });
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
    // A device reports an index out of range with the first read after it.
    let bad = || -> Result<()> {
        let x = Indices::arange(backend, 0, 3)?;
        x.bincount(2)?.to_vec::<i32>().map(drop)
    };
    refused!(bad(), Error::IndexOutOfRange { index: 2, size: 2, .. });
    let bad = || -> Result<()> {
        let x = Indices::arange(backend, 0, 6)?.reshape(&[2, 3])?;
        let (rows, columns) = (Indices::full(backend, &[2], 0)?, Indices::full(backend, &[2], 3)?);
        x.i((&rows, &columns))?.to_vec::<i32>().map(drop)
    };
    refused!(bad(), Error::IndexOutOfRange { index: 3, size: 3, .. });
}
