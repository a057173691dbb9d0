//! Jacobians, Hessians and their products with vectors (`torch.autograd.functional`).

use super::backward::{grad, run};
use super::mode::with_grad;
use crate::{Backend, Error, Result, Tensor};
use std::collections::HashSet;

/// Leaves over the values of `inputs`.
fn leaves<B: Backend>(inputs: &[&Tensor<B>]) -> Vec<Tensor<B>> {
    inputs.iter().map(|x| x.detach().requires_grad()).collect()
}

/// Refuses vectors that are not like the tensors they belong to.
fn check_vectors<B: Backend>(op: &'static str, inputs: &[&Tensor<B>], v: &[&Tensor<B>]) -> Result<()> {
    if inputs.len() != v.len() {
        return Err(Error::invalid(
            op,
            "v",
            format!("{} tensors", v.len()),
            format!("{}, as inputs", inputs.len()),
        ));
    }
    for (x, v) in inputs.iter().zip(v) {
        if x.shape() != v.shape() {
            let (lhs, rhs) = (*x.shape(), *v.shape());
            return Err(Error::ShapeMismatch { op, lhs, rhs });
        }
        crate::tensor::same_dtype(op, x, v)?;
    }
    Ok(())
}

/// Σ g·v over all tensors that have a gradient.
fn inner<B: Backend>(grads: &[Option<Tensor<B>>], v: &[&Tensor<B>]) -> Result<Option<Tensor<B>>> {
    let mut sum: Option<Tensor<B>> = None;
    for (g, v) in grads.iter().zip(v) {
        let Some(g) = g else { continue };
        let term = g.mul(&v.detach())?.sum(&[], false)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&term)?,
            None => term,
        });
    }
    Ok(sum.filter(Tensor::is_tracked))
}

/// `f(inputs)` and its Jacobian times the vectors `v`, one for each input: the change of the result when the inputs move along
/// `v` (`torch.autograd.functional.jvp`, by two backward passes).
///
/// ```
/// use kiln_nn::{Tensor, autograd::jvp};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
/// let v = Tensor::from_slice(&cpu, &[1f32, 0.0, -1.0], &[3])?;
/// let (y, along) = jvp(|x| x[0].square(), &[&x], &[&v])?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0, 9.0]);
/// assert_eq!(along.to_vec::<f32>()?, [2.0, 0.0, -6.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Vectors that are not like the inputs, and those of `f`.
pub fn jvp<B: Backend>(
    f: impl FnOnce(&[Tensor<B>]) -> Result<Tensor<B>>,
    inputs: &[&Tensor<B>],
    v: &[&Tensor<B>],
) -> Result<(Tensor<B>, Tensor<B>)> {
    check_vectors("jvp", inputs, v)?;
    with_grad(true, || {
        let x = leaves(inputs);
        let y = f(&x)?;
        let zeros = y.zeros_like()?;
        if !y.is_tracked() {
            return Ok((y, zeros));
        }
        // The gradient is linear in its seed, with the transposed Jacobian: the derivative by the seed transposes it back.
        let seed = zeros.requires_grad();
        let g = grad(&y, &x.iter().collect::<Vec<_>>(), Some(&seed), true)?;
        let along = match inner(&g, v)? {
            Some(sum) => grad(&sum, &[&seed], None, false)?.pop().flatten(),
            None => None,
        };
        Ok((y.detach(), along.unwrap_or(zeros)))
    })
}

/// The scalar `f(inputs)` and its Hessian times the vectors `v`, one result for each input (`torch.autograd.functional.hvp`).
///
/// ```
/// use kiln_nn::{Tensor, autograd::hvp};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
/// let v = Tensor::from_slice(&cpu, &[1f32, 1.0], &[2])?;
/// let (_, product) = hvp(|x| x[0].powf(3.0)?.sum(&[], false), &[&x], &[&v])?;
/// assert_eq!(product[0].to_vec::<f32>()?, [6.0, 12.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Vectors that are not like the inputs, a result that is no scalar, and those of `f`.
pub fn hvp<B: Backend>(
    f: impl FnOnce(&[Tensor<B>]) -> Result<Tensor<B>>,
    inputs: &[&Tensor<B>],
    v: &[&Tensor<B>],
) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
    check_vectors("hvp", inputs, v)?;
    with_grad(true, || {
        let x = leaves(inputs);
        let x: Vec<&Tensor<B>> = x.iter().collect();
        let y = f(&x.iter().map(|&x| x.clone()).collect::<Vec<_>>())?;
        let none = || vec![None; x.len()];
        let g = if y.is_tracked() {
            grad(&y, &x, None, true)?
        } else {
            none()
        };
        let products = match inner(&g, v)? {
            Some(sum) => grad(&sum, &x, None, false)?,
            None => none(),
        };
        let filled = products
            .into_iter()
            .zip(&x)
            .map(|(p, x)| p.map_or_else(|| x.zeros_like(), Ok));
        Ok((y.detach(), filled.collect::<Result<_>>()?))
    })
}

/// The Jacobian of `f` at `x`, `[shape of f(x)…, shape of x…]` (`torch.autograd.functional.jacobian`), by one backward pass for each
/// element of the result. Untracked.
///
/// ```
/// use kiln_nn::{Tensor, autograd::jacobian};
/// # fn main() -> kiln_nn::Result<()> {
/// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[1f32, 2.0], &[2])?;
/// let j = jacobian(|x| x.cumsum(0)?.square(), &x)?;
/// assert_eq!(j.to_vec::<f32>()?, [2.0, 0.0, 6.0, 6.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// More than eight dimensions, and those of `f`.
pub fn jacobian<B: Backend>(f: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>, x: &Tensor<B>) -> Result<Tensor<B>> {
    with_grad(true, || {
        let x = x.detach().requires_grad();
        let y = f(&x)?;
        rows(&y, &x)
    })
}

/// The Hessian of the scalar `f` at `x`, `[shape of x…, shape of x…]` (`torch.autograd.functional.hessian`), by one backward pass for
/// each element of `x`.
///
/// ```
/// use kiln_nn::{Tensor, autograd::hessian};
/// # fn main() -> kiln_nn::Result<()> {
/// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[1f32, 2.0], &[2])?;
/// let h = hessian(|x| x.prod(&[], false)?.square(), &x)?; // (x₀x₁)²
/// assert_eq!(h.to_vec::<f32>()?, [8.0, 8.0, 8.0, 2.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A result that is no scalar, more than eight dimensions, and those of `f`.
pub fn hessian<B: Backend>(f: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>, x: &Tensor<B>) -> Result<Tensor<B>> {
    with_grad(true, || {
        let x = x.detach().requires_grad();
        let y = f(&x)?;
        let slope = match y.is_tracked() {
            true => grad(&y, &[&x], None, true)?.pop().flatten(),
            false => None,
        };
        match slope {
            Some(slope) => rows(&slope, &x),
            None => rows(&x.zeros_like()?, &x),
        }
    })
}

/// The gradient of every element of `y` by `x`.
fn rows<B: Backend>(y: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    let (n, m) = (y.size(), x.size());
    let dims = [y.shape().dims(), x.shape().dims()].concat();
    let zeros = || Tensor::zeros(x.backend(), &dims, x.dtype());
    let (Some(id), true, true) = (x.id(), y.is_tracked(), n > 0) else {
        return zeros();
    };
    let targets = HashSet::from([id]);
    let mut rows = kiln_core::host::room(n)?;
    for i in 0..n {
        let mut seed = vec![0.0; n];
        seed[i] = 1.0;
        let seed = Tensor::from_f64(y.backend(), &seed, y.shape(), y.dtype())?;
        let row = run(&[(y.clone(), seed)], Some(&targets), true, false)?.remove(&id);
        rows.push(row.map_or_else(|| x.zeros_like(), Ok)?.detach().reshape(&[1, m])?);
    }
    Tensor::concat(&rows.iter().collect::<Vec<_>>(), 0)?.reshape(&dims)
}
