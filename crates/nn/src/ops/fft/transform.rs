//! One transform along one axis, with its gradient.

use super::tables::{Roots, chirp, factors};
use crate::autograd::{Rule, RuleContext, no_grad};
use crate::{Backend, Error, Pad, Result, Tensor};

/// A scaled transform's matrix is symmetric, so its adjoint is the conjugate: the transform the other way with the same scale.
struct DftRule {
    axis: usize,
    inverse: bool,
    scale: f64,
}

impl<B: Backend> Rule<B> for DftRule {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(dft(cx.grad, self.axis, !self.inverse, self.scale)?)])
    }
}

/// `scale`·Σ x[j]·e^(∓2πi·jk/n) along an axis of a complex tensor of f32 or f64, the last dimension of which has the two parts.
pub(super) fn dft<B: Backend>(x: &Tensor<B>, axis: usize, inverse: bool, scale: f64) -> Result<Tensor<B>> {
    let shape = x.shape();
    let (outer, n) = (shape[..axis].iter().product::<usize>(), shape[axis]);
    let inner: usize = shape[axis + 1..shape.rank() - 1].iter().product();
    let y = no_grad(|| {
        if x.size() == 0 || n == 1 {
            return x.mul_scalar(scale);
        }
        let lines = x.detach().reshape(&[outer, n, inner, 2])?;
        let y = match factors(n) {
            Some(factors) => smooth(&lines, &factors, inverse, scale),
            None => bluestein(&lines, inverse, scale),
        };
        y?.reshape(shape)
    })?;
    let rule = DftRule { axis, inverse, scale };
    Ok(y.record("dft", &[x], || rule))
}

/// Transforms of `[outer, n, inner, 2]` along `n`, the product of the factors (Cooley and Tukey 1965). With n = f·m and
/// j = j₁m + j₂, k = k₁ + f·k₂ it is a transform of length f over j₁, a factor for each k₁ and j₂, and transforms of length m over j₂.
fn smooth<B: Backend>(x: &Tensor<B>, factors: &[usize], inverse: bool, scale: f64) -> Result<Tensor<B>> {
    let (backend, dtype) = (x.backend(), x.dtype());
    let table = |values: &[f64], shape: &[usize]| Tensor::from_f64(backend, values, shape, dtype);
    let (outer, n, inner) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    let (mut batch, mut rest) = (outer * inner, n);
    let mut y = x.permute(&[0, 2, 3, 1])?;
    let (last, others) = factors.split_last().unwrap_or((&1, &[]));
    for &f in others {
        let m = rest / f;
        let matrix = table(&Roots::matrix(f, inverse, 1.0), &[2 * f, 2 * f])?;
        let z = matrix.matmul(&y.reshape(&[batch, 2 * f, m])?)?;
        let (re, im) = Roots::new(rest, inverse).twiddles(f)?;
        let (re, im) = (table(&re, &[f, 1, m])?, table(&im, &[f, 1, m])?);
        y = turned(&z.reshape(&[batch, f, 2, m])?, &re, &im, 2)?;
        (batch, rest) = (batch * f, m);
    }
    let matrix = table(&Roots::matrix(*last, inverse, scale), &[2 * last, 2 * last])?;
    let z = y.reshape(&[batch, 2 * last])?.matmul_t(&matrix, false, true)?;
    // The factors' indices in the order of the results: the last one first. Dimensions of 1 would only count towards the rank.
    let mut dims: Vec<usize> = [outer, inner].into_iter().filter(|&d| d != 1).collect();
    let at = |present: bool, i: isize| if present { vec![i] } else { Vec::new() };
    let first = dims.len() as isize;
    dims.extend(factors);
    dims.push(2);
    let digits = (first..first + factors.len() as isize).rev();
    let mut order = at(outer != 1, 0);
    order.extend(digits);
    order.extend(at(inner != 1, isize::from(outer != 1)));
    order.push(dims.len() as isize - 1);
    z.reshape(&dims)?.permute(&order)?.reshape(&[outer, n, inner, 2])
}

/// Complex numbers multiplied by others that broadcast with their parts, which lie along `axis`.
fn turned<B: Backend>(z: &Tensor<B>, re: &Tensor<B>, im: &Tensor<B>, axis: isize) -> Result<Tensor<B>> {
    let along = axis - z.rank() as isize;
    let signed = Tensor::concat(&[&im.neg()?, im], along)?;
    z.mul(re)?.add(&z.flip(&[axis])?.mul(&signed)?)
}

/// Transforms of any length as a convolution, by transforms of a power of two: 2jk = j² + k² − (k − j)² (Bluestein 1970).
fn bluestein<B: Backend>(x: &Tensor<B>, inverse: bool, scale: f64) -> Result<Tensor<B>> {
    let (backend, dtype) = (x.backend(), x.dtype());
    let (outer, n, inner) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    let large = || Error::TooLarge {
        op: "fft",
        dims: x.shape().to_vec(),
    };
    let m = n.checked_mul(2).and_then(|d| (d - 1).checked_next_power_of_two());
    let m = m.ok_or_else(large)?;
    let powers = factors(m).ok_or_else(large)?;
    let (re, im) = chirp(n, inverse)?;
    let column = |values: &[f64]| Tensor::from_f64(backend, values, &[n, 1, 1], dtype);
    let (re, im) = (column(&re)?, column(&im)?);
    let padded = |y: &Tensor<B>| y.pad(&[(0, 0), (0, (m - n) as isize), (0, 0), (0, 0)], Pad::Constant(0.0));
    // The conjugate chirp from −(n − 1) to n − 1, around the end.
    let around = Tensor::concat(&[&re, &im.neg()?], -1)?;
    let back = around.narrow(0, 1, n - 1)?.flip(&[0])?;
    let gap = Tensor::zeros(backend, &[m - (2 * n - 1), 1, 2], dtype)?;
    let filter = Tensor::concat(&[&around, &gap, &back], 0)?.unsqueeze(0)?;
    let filter = smooth(&filter, &powers, false, 1.0)?;
    let y = smooth(&padded(&turned(x, &re, &im, 3)?)?, &powers, false, 1.0)?;
    let y = turned(&y, &filter.narrow(-1, 0, 1)?, &filter.narrow(-1, 1, 1)?, 3)?;
    let y = smooth(&y, &powers, true, scale / m as f64)?;
    let y = turned(&y.narrow(1, 0, n)?, &re, &im, 3)?;
    y.reshape(&[outer, n, inner, 2])
}
