//! Functions of two and three tensors that are composed of others.

use crate::array::broadcast_shape;
use crate::{Array, Case, Proof, Rounding, check_with, shapes};
use kiln_core::{Backend, DType, Result};
use kiln_nn::{Tensor, grad};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Fmod,
    FloorDivide,
    LogAddExp,
    Lerp,
    Clamp,
}

#[derive(Clone, Debug)]
struct Composed {
    f: Function,
    x: Vec<Array>,
}

impl Composed {
    /// `f` of the elements that meet.
    fn each(&self, x: &[Array], f: impl Fn(&[f64]) -> f64) -> Array {
        let shape = x.iter().fold(vec![], |shape, x| broadcast_shape(&shape, &x.shape));
        Array::from_fn(&shape, |at| {
            f(&x.iter().map(|x| x.broadcast_at(at)).collect::<Vec<_>>())
        })
    }
}

impl Case for Composed {
    fn inputs(&self) -> Vec<Array> {
        self.x.clone()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match self.f {
            Function::Fmod => x[0].fmod(&x[1]),
            Function::FloorDivide => x[0].floor_divide(&x[1]),
            Function::LogAddExp => x[0].logaddexp(&x[1]),
            Function::Lerp => x[0].lerp(&x[1], &x[2]),
            Function::Clamp => x[0].clamp_tensors(Some(&x[1]), Some(&x[2])),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.each(x, |v| match self.f {
            Function::Fmod => v[0] % v[1],
            Function::FloorDivide => (v[0] / v[1]).floor(),
            Function::LogAddExp => (v[0].exp() + v[1].exp()).ln(),
            Function::Lerp => v[0] + v[2] * (v[1] - v[0]),
            Function::Clamp => v[0].max(v[1]).min(v[2]),
        })
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        match self.f {
            Function::Fmod | Function::FloorDivide | Function::Clamp => Rounding::exact(want),
            Function::LogAddExp => Rounding::terms(8.0, self.each(x, |v| 1.0 + v[0].abs() + v[1].abs())),
            Function::Lerp => Rounding::terms(
                4.0,
                self.each(x, |v| v[0].abs() + v[2].abs() * (v[0].abs() + v[1].abs())),
            ),
        }
    }

    fn proof(&self) -> Proof {
        if self.f == Function::FloorDivide {
            Proof::Gradient
        } else {
            Proof::SecondGradient
        }
    }

    /// Shares of a sum of exponentials are differences from 1, and those of an interpolation 1 − w, with w of up to 1.5.
    fn slope_terms(&self, _: &[Array]) -> f64 {
        match self.f {
            Function::LogAddExp => 1.5,
            Function::Lerp => 1.5 * 2.5,
            _ => 0.0,
        }
    }
}

fn cases(f: Function, ranges: &'static [(f64, f64)]) -> impl Strategy<Value = Composed> {
    shapes::broadcast_pair().prop_flat_map(move |(s, t)| {
        let shapes = [s, t.clone(), t];
        let x: Vec<_> = ranges
            .iter()
            .zip(shapes)
            .map(|(r, s)| shapes::values(&s, r.0, r.1))
            .collect();
        x.prop_map(move |x| Composed { f, x })
    })
}

/// Remainders with the sign of the dividend and floored quotients, where they are far enough from a step for differences.
pub fn quotients<B: Backend>(backend: &B) {
    for f in [Function::Fmod, Function::FloorDivide] {
        for ranges in [&[(-4.0, 4.0), (0.6, 1.9)], &[(-4.0, 4.0), (-1.9, -0.6)]] {
            // Far enough that a rounding to bf16 crosses no step.
            let apart = |c: &Composed| {
                let from_step = c.each(&c.x, |v| (v[0] / v[1] - (v[0] / v[1]).round()).abs());
                from_step.data.iter().all(|&d| d > 0.05)
            };
            let few = cases(f, ranges).prop_filter("few elements", |c| c.x.iter().all(|x| x.size() < 30));
            check_with(12, backend, few.prop_filter("quotients between integers", apart));
        }
    }
}

/// Sums of exponentials, interpolation, and bounds that are tensors.
pub fn composed<B: Backend>(backend: &B) {
    check_with(24, backend, cases(Function::LogAddExp, &[(-5.0, 5.0), (-5.0, 5.0)]));
    check_with(
        24,
        backend,
        cases(Function::Lerp, &[(-2.0, 2.0), (-2.0, 2.0), (-0.5, 1.5)]),
    );
    // Elements apart from bounds of their own range.
    let apart = |c: &Composed| {
        let least = c.each(&c.x, |v| (v[0] - v[1]).abs().min((v[0] - v[2]).abs()));
        least.data.iter().all(|&d| d > 1e-3)
    };
    let bounded = cases(Function::Clamp, &[(-2.0, 2.0), (-1.5, -0.5), (0.5, 1.5)]);
    check_with(
        24,
        backend,
        bounded.prop_filter("elements apart from their bounds", apart),
    );
}

/// Infinities, zeros and ties, as PyTorch has them.
pub fn composed_edges<B: Backend>(backend: &B) {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let of =
        |v: &[f64]| Ok::<_, kiln_core::Error>(Tensor::from_f64(backend, v, &[v.len()], DType::F32)?.requires_grad());
    let same = |got: &Tensor<B>, want: &[f64]| -> Result<()> {
        let got = got.to_f64()?;
        let equal = got.iter().zip(want).all(|(g, w)| g == w || (g.is_nan() && w.is_nan()));
        assert!(equal && got.len() == want.len(), "{got:?}, expected {want:?}");
        Ok(())
    };
    let run = || -> Result<()> {
        let (a, b) = (of(&[inf, -inf, inf, 0.0, nan])?, of(&[inf, -inf, -inf, 0.0, 0.0])?);
        let y = a.logaddexp(&b)?;
        same(&y, &[inf, -inf, inf, f64::from(2f32.ln()), nan])?;
        let g = grad(&y, &[&a, &b], Some(&y.full_like(1.0)?), false)?;
        let g = g[0].as_ref().map_or(Ok(vec![]), |g| g.to_f64())?;
        assert_eq!(g[..4], [0.5, 0.5, 1.0, 0.5]);
        let (a, b) = (
            of(&[1.0, -1.0, 0.0, 7.0, -7.0, 7.0])?,
            of(&[0.0, 0.0, 0.0, -2.0, 2.0, -inf])?,
        );
        same(&a.floor_divide(&b)?, &[inf, -inf, nan, -4.0, -4.0, -1.0])?;
        same(
            &of(&[7.0, -7.0, 7.0, 5.0])?.fmod(&of(&[4.0, 4.0, -4.0, inf])?)?,
            &[3.0, -3.0, 3.0, 5.0],
        )?;
        let bound = of(&[1.0])?;
        same(
            &of(&[3.0, nan])?.clamp_tensors(Some(&of(&[2.0])?), Some(&bound))?,
            &[1.0, nan],
        )?;
        same(&of(&[3.0])?.clamp_tensors(None, None)?, &[3.0])
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}
