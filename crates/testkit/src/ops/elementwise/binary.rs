//! Functions of two tensors with broadcasting, comparisons and selection.

use crate::array::broadcast_shape;
use crate::{Array, Case, Rounding, check, check_with, shapes};
use kiln_core::ops::Binary;
use kiln_core::{Backend, DType, Result};
use kiln_nn::{Indices, Tensor, grad};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Pair {
    f: Binary,
    a: Array,
    b: Array,
}

fn zip(a: &Array, b: &Array, f: impl Fn(f64, f64) -> f64) -> Array {
    let shape = broadcast_shape(&a.shape, &b.shape);
    Array::from_fn(&shape, |i| f(a.broadcast_at(i), b.broadcast_at(i)))
}

impl Case for Pair {
    fn inputs(&self) -> Vec<Array> {
        vec![self.a.clone(), self.b.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match self.f {
            Binary::Add => x[0].add(&x[1]),
            Binary::Sub => x[0].sub(&x[1]),
            Binary::Mul => x[0].mul(&x[1]),
            Binary::Div => x[0].div(&x[1]),
            Binary::Pow => x[0].pow(&x[1]),
            Binary::Maximum => x[0].maximum(&x[1]),
            Binary::Minimum => x[0].minimum(&x[1]),
            Binary::Atan2 => x[0].atan2(&x[1]),
            Binary::Remainder => x[0].remainder(&x[1]),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        zip(&x[0], &x[1], |a, b| match self.f {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a / b,
            Binary::Pow => a.powf(b),
            Binary::Maximum => a.max(b),
            Binary::Minimum => a.min(b),
            Binary::Atan2 => a.atan2(b),
            Binary::Remainder => a - b * (a / b).floor(),
        })
    }

    /// Arithmetic rounds once. Powers and angles have errors of at most 2 and 3 units in the last place, of two roundings each,
    /// in CUDA's library (CUDA C++ programming guide, mathematical functions) and not more on the CPU. The error of a
    /// remainder is relative to its operands.
    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        match self.f {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div => Rounding::relative(1.0, want),
            Binary::Pow => Rounding::relative(4.0, want),
            Binary::Maximum | Binary::Minimum => Rounding::exact(want),
            Binary::Atan2 => Rounding::relative(6.0, want),
            Binary::Remainder => Rounding::terms(3.0, zip(&x[0], &x[1], |a, b| a.abs() + b.abs())),
        }
    }
}

fn pairs(f: Binary, a: (f64, f64), b: (f64, f64)) -> impl Strategy<Value = Pair> {
    shapes::broadcast_pair()
        .prop_flat_map(move |(s, t)| (shapes::values(&s, a.0, a.1), shapes::values(&t, b.0, b.1)))
        .prop_map(move |(a, b)| Pair { f, a, b })
}

/// Sums with broadcasting.
pub fn add<B: Backend>(backend: &B) {
    check(backend, pairs(Binary::Add, (-2.0, 2.0), (-2.0, 2.0)));
}

/// Differences with broadcasting.
pub fn sub<B: Backend>(backend: &B) {
    check(backend, pairs(Binary::Sub, (-2.0, 2.0), (-2.0, 2.0)));
}

/// Products with broadcasting.
pub fn mul<B: Backend>(backend: &B) {
    check(backend, pairs(Binary::Mul, (-2.0, 2.0), (-2.0, 2.0)));
}

/// Quotients with broadcasting, of either sign.
pub fn div<B: Backend>(backend: &B) {
    check_with(24, backend, pairs(Binary::Div, (-2.0, 2.0), (0.4, 3.0)));
    check_with(24, backend, pairs(Binary::Div, (-2.0, 2.0), (-3.0, -0.4)));
}

/// Powers with broadcasting, and bases and exponents for which the gradient's formula divides by zero.
pub fn pow<B: Backend>(backend: &B) {
    check(backend, pairs(Binary::Pow, (0.3, 2.5), (-2.0, 2.5)));
    if !backend.supports_dtype(DType::F64) {
        return;
    }
    // Values and gradients of `torch.pow` in f64.
    let run = || -> Result<[Vec<f64>; 3]> {
        let leaf = |v: &[f64]| Ok(Tensor::from_f64(backend, v, &[v.len()], DType::F64)?.requires_grad());
        let (a, b) = (leaf(&[0.0, 0.0, 2.0, 0.0])?, leaf(&[0.0, 2.0, 0.0, -1.0])?);
        let y = a.pow(&b)?;
        let g = grad(&y, &[&a, &b], Some(&y.full_like(1.0)?), false)?;
        let of = |g: &Option<Tensor<B>>| g.as_ref().map_or(Ok(Vec::new()), |g| g.to_f64());
        Ok([y.to_f64()?, of(&g[0])?, of(&g[1])?])
    };
    let inf = f64::INFINITY;
    let got = run().unwrap_or_else(|e| panic!("pow: {e}"));
    assert_eq!(got[0], [1.0, 0.0, 1.0, inf]);
    assert_eq!(got[1], [0.0, 0.0, 0.0, -inf]);
    assert_eq!(got[2], [0.0, 0.0, 2f64.ln(), -inf]);
}

/// PReLU with one slope and with one for each channel.
pub fn prelu<B: Backend>(backend: &B) {
    #[derive(Clone, Debug)]
    struct Learned {
        x: Array,
        weight: Array,
    }
    impl Case for Learned {
        fn inputs(&self) -> Vec<Array> {
            vec![self.x.clone(), self.weight.clone()]
        }
        fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
            x[0].prelu(&x[1])
        }
        fn oracle(&self, x: &[Array]) -> Array {
            zip(&x[0], &x[1], |x, weight| if x > 0.0 { x } else { weight * x })
        }
    }
    let strategy = (shapes::shape(2), 1usize..6, any::<bool>()).prop_flat_map(|(lead, channels, each)| {
        let x = shapes::values(&[&lead[..], &[channels]].concat(), -2.0, 2.0);
        let weight = shapes::values(&[if each { channels } else { 1 }], -1.0, 1.0);
        (x, weight).prop_map(|(x, weight)| Learned { x, weight })
    });
    // Differences across 0 give neither slope.
    let apart = |case: &Learned| case.x.data.iter().all(|x| x.abs() > 1e-3);
    check(backend, strategy.prop_filter("values apart from 0", apart));
    let refused = || -> Result<()> {
        let x = Tensor::zeros(backend, &[2, 3], DType::F32)?;
        for shape in [&[2][..], &[1, 3], &[0]] {
            let weight = Tensor::zeros(backend, shape, DType::F32)?;
            assert!(
                matches!(x.prelu(&weight), Err(kiln_core::Error::ShapeMismatch { .. })),
                "{shape:?}"
            );
        }
        Ok(())
    };
    refused().unwrap_or_else(|e| panic!("{e}"));
}

/// Angles with broadcasting, in all four quadrants.
pub fn atan2<B: Backend>(backend: &B) {
    for (a, b) in [(0.2, 0.3), (0.2, -2.0), (-2.0, 0.3), (-2.0, -2.0)] {
        check_with(12, backend, pairs(Binary::Atan2, (a, a + 1.7), (b, b + 1.7)));
    }
}

/// Remainders with broadcasting, with divisors of either sign, where the quotient is far enough from an integer for
/// central differences.
pub fn remainder<B: Backend>(backend: &B) {
    for b in [0.6, -1.9] {
        let apart = |p: &Pair| {
            zip(&p.a, &p.b, |a, b| (a / b - (a / b).round()).abs())
                .data
                .iter()
                .all(|&d| d > 1e-3)
        };
        let strategy =
            pairs(Binary::Remainder, (-4.0, 4.0), (b, b + 1.3)).prop_filter("quotients between integers", apart);
        check_with(24, backend, strategy);
    }
}

/// The larger and the smaller of two operands that are far enough apart for central differences.
pub fn extremes<B: Backend>(backend: &B) {
    for f in [Binary::Maximum, Binary::Minimum] {
        let apart = |p: &Pair| zip(&p.a, &p.b, |a, b| (a - b).abs()).data.iter().all(|&d| d > 1e-5);
        let strategy = pairs(f, (-2.0, 2.0), (-2.0, 2.0)).prop_filter("operands apart", apart);
        check_with(32, backend, strategy);
    }
}

/// Equal operands share the gradient; NaN operands give NaN and get the whole gradient, as in PyTorch.
pub fn ties<B: Backend>(backend: &B) {
    let nan = f64::NAN;
    for (f, less, more) in [(Binary::Maximum, 0.0, 1.0), (Binary::Minimum, 1.0, 0.0)] {
        let run = || -> Result<()> {
            let leaf = |v: &[f64]| Ok(Tensor::from_f64(backend, v, &[4], DType::F32)?.requires_grad());
            let (a, b) = (leaf(&[1.0, 1.0, nan, 2.0])?, leaf(&[1.0, 2.0, 1.0, nan])?);
            let y = match f {
                Binary::Maximum => a.maximum(&b)?,
                _ => a.minimum(&b)?,
            };
            let values = y.to_f64()?;
            assert!(values[2].is_nan() && values[3].is_nan(), "{f:?}: {values:?}");
            let g = grad(&y, &[&a, &b], Some(&y.full_like(1.0)?), false)?;
            for (g, want) in g.iter().zip([[0.5, less, 1.0, 1.0], [0.5, more, 1.0, 1.0]]) {
                let got = g.as_ref().map_or(Ok(Vec::new()), |g| g.to_f64())?;
                assert_eq!(got, want, "{f:?}");
            }
            Ok(())
        };
        run().unwrap_or_else(|e| panic!("{f:?}: {e}"));
    }
}

/// The six comparisons, with tensors and with numbers, on values that are often equal.
pub fn comparisons<B: Backend>(backend: &B) {
    #[derive(Clone, Debug)]
    struct Compared {
        a: Array,
        b: Array,
    }
    impl Case for Compared {
        fn inputs(&self) -> Vec<Array> {
            vec![self.a.clone(), self.b.clone()]
        }
        /// Numbers whose bits are the six masks, and the six masks of comparisons with the number 1.
        fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
            let (a, b) = (&x[0], &x[1]);
            let masks = [a.eq(b)?, a.ne(b)?, a.lt(b)?, a.le(b)?, a.gt(b)?, a.ge(b)?];
            let one = [
                a.eq_scalar(1.0)?,
                a.ne_scalar(1.0)?,
                a.lt_scalar(1.0)?,
                a.le_scalar(1.0)?,
                a.gt_scalar(1.0)?,
                a.ge_scalar(1.0)?,
            ];
            // Zeros of the broadcast shape, which masks of comparisons with a number need not have.
            let none = masks[0].to_float(a.dtype())?.zeros_like()?;
            let bits = |masks: &[Indices<B>]| {
                masks.iter().enumerate().try_fold(none.clone(), |sum, (i, mask)| {
                    sum.add(&mask.to_float(a.dtype())?.mul_scalar(f64::from(1 << i))?)
                })
            };
            Tensor::stack(&[&bits(&masks)?, &bits(&one)?], 0)
        }
        fn oracle(&self, x: &[Array]) -> Array {
            let bits = |a: f64, b: f64| {
                let all = [a == b, a != b, a < b, a <= b, a > b, a >= b];
                all.iter().enumerate().map(|(i, &m)| u32::from(m) << i).sum::<u32>()
            };
            let each = [
                zip(&x[0], &x[1], |a, b| f64::from(bits(a, b))),
                zip(&x[0], &x[1], |a, _| f64::from(bits(a, 1.0))),
            ];
            let shape = [&[2][..], &each[0].shape].concat();
            Array::new(&shape, each.map(|y| y.data).concat())
        }
        fn proof(&self) -> crate::Proof {
            crate::Proof::Forward
        }
        fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
            Rounding::exact(want)
        }
    }
    let few = |shape: &[usize]| {
        let shape = shape.to_vec();
        let values = prop::sample::select(vec![0.0, 1.0, 2.0, f64::NAN, f64::INFINITY]);
        prop::collection::vec(values, shape.iter().product::<usize>()).prop_map(move |v| Array::new(&shape, v))
    };
    let strategy = shapes::broadcast_pair().prop_flat_map(move |(s, t)| (few(&s), few(&t)));
    check(backend, strategy.prop_map(|(a, b)| Compared { a, b }));
    let run = || -> Result<()> {
        let a = Indices::from_slice(backend, &[1, 2, 3], &[3, 1])?;
        let b = Indices::from_slice(backend, &[3, 1], &[2])?;
        assert_eq!(a.eq(&b)?.to_vec::<u8>()?, [0, 1, 0, 0, 1, 0]);
        assert_eq!(a.eq(2)?.to_vec::<u8>()?, [0, 1, 0]);
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("comparison of integers: {e}"));
}

#[derive(Clone, Debug)]
struct Select {
    mask: (Vec<usize>, Vec<u8>),
    a: Array,
    b: Array,
    fill: bool,
}

impl Case for Select {
    fn inputs(&self) -> Vec<Array> {
        match self.fill {
            true => vec![self.b.clone()],
            false => vec![self.a.clone(), self.b.clone()],
        }
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let mask = Indices::from_slice(backend, &self.mask.1, &self.mask.0)?;
        match self.fill {
            true => x[0].masked_fill(&mask, -1.5),
            false => Tensor::where_(&mask, &x[0], &x[1]),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let mask = Array::new(&self.mask.0, self.mask.1.iter().map(|&m| f64::from(m)).collect());
        let filled = [Array::new(&[], vec![-1.5]), x[0].clone()];
        let (a, b) = if self.fill {
            (&filled[0], &filled[1])
        } else {
            (&x[0], &x[1])
        };
        let shape = broadcast_shape(&broadcast_shape(&mask.shape, &a.shape), &b.shape);
        Array::from_fn(&shape, |i| {
            if mask.broadcast_at(i) != 0.0 {
                a.broadcast_at(i)
            } else {
                b.broadcast_at(i)
            }
        })
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// Selection by a mask with broadcasting of all three.
pub fn select<B: Backend>(backend: &B) {
    let shrunk = |shape: &[usize], bits: u8| -> Vec<usize> {
        shape
            .iter()
            .enumerate()
            .map(|(i, &d)| if bits >> i & 1 == 1 { 1 } else { d })
            .collect()
    };
    let strategy = (shapes::shape(3), any::<(u8, u8, u8, bool)>()).prop_flat_map(move |(shape, (m, a, b, fill))| {
        let (m, a, b) = (shrunk(&shape, m), shrunk(&shape, a), shrunk(&shape, b));
        let size = m.iter().product::<usize>();
        let mask = prop::collection::vec(0u8..2, size).prop_map(move |v| (m.clone(), v));
        (mask, shapes::values(&a, -2.0, 2.0), shapes::values(&b, -2.0, 2.0)).prop_map(move |(mask, a, b)| Select {
            mask,
            a,
            b,
            fill,
        })
    });
    check(backend, strategy);
}
