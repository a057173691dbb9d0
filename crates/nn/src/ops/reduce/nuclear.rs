//! The nuclear norm of matrices, the sum of their singular values.

mod jacobi;

use super::acc_dtype;
use crate::autograd::{Cast, Rule, RuleContext, no_grad};
use crate::{Backend, Error, Result, Tensor};
use jacobi::decompose;

const OP: &str = "norm_nuclear";

/// The matrices `[b, m, n]` of a tensor as U·S·Vᵀ, with zeros for the vectors of singular values that are 0.
struct Svd<B: Backend> {
    u: Tensor<B>,
    v: Tensor<B>,
    /// 1/s `[b, 1, k]`, and 0 where s is.
    inverse: Tensor<B>,
    /// 1/(sᵢ + sⱼ) `[b, k, k]`, and 0 where both are.
    sums: Tensor<B>,
}

impl<B: Backend> Clone for Svd<B> {
    fn clone(&self) -> Self {
        Svd {
            u: self.u.clone(),
            v: self.v.clone(),
            inverse: self.inverse.clone(),
            sums: self.sums.clone(),
        }
    }
}

impl<B: Backend> Svd<B> {
    /// UVᵀ, the derivative of the norm of `x`.
    fn polar(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let p = no_grad(|| {
            let p = self.u.matmul_t(&self.v, false, true)?;
            p.reshape(x.shape())?.to_dtype(x.dtype())
        })?;
        Ok(p.record("norm_nuclear_grad", &[x], || PolarRule {
            svd: self.clone(),
            x: x.clone(),
        }))
    }

    /// How UVᵀ changes where `x` changes by `h`. The map is its own adjoint.
    fn turned(&self, h: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = no_grad(|| {
            let (u, v) = (&self.u, &self.v);
            let dims = [u.shape()[0], u.shape()[1], v.shape()[1]];
            let own = h.to_dtype(u.dtype())?.reshape(&dims)?;
            let (hv, uh) = (own.matmul(v)?, u.matmul_t(&own, true, false)?);
            let inner = uh.matmul(v)?;
            let skew = inner.sub(&inner.transpose(1, 2)?)?.mul(&self.sums)?;
            let y = u.matmul(&skew)?.matmul_t(v, false, true)?;
            // What leaves the spans of U's and of V's columns.
            let left = hv
                .sub(&u.matmul(&inner)?)?
                .mul(&self.inverse)?
                .matmul_t(v, false, true)?;
            let right = uh.sub(&inner.matmul_t(v, false, true)?)?;
            let right = u.mul(&self.inverse)?.matmul(&right)?;
            y.add(&left)?.add(&right)?.reshape(x.shape())?.to_dtype(x.dtype())
        })?;
        Ok(y.record("norm_nuclear_second_grad", &[h, x], || TurnedRule {
            svd: self.clone(),
            x: x.detach(),
        }))
    }
}

struct NuclearRule<B: Backend> {
    svd: Svd<B>,
    x: Tensor<B>,
}

impl<B: Backend> Rule<B> for NuclearRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let kept = [&self.x.shape()[..self.x.rank() - 2], &[1, 1]].concat();
        let g = cx.grad.reshape(&kept)?;
        Ok(vec![Some(self.svd.polar(&self.x)?.mul(&g)?)])
    }
}

struct PolarRule<B: Backend> {
    svd: Svd<B>,
    x: Tensor<B>,
}

impl<B: Backend> Rule<B> for PolarRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(self.svd.turned(cx.grad, &self.x)?)])
    }
}

/// The rule of a linear map of the gradient. Its derivative by the matrices would be a third one.
struct TurnedRule<B: Backend> {
    svd: Svd<B>,
    x: Tensor<B>,
}

impl<B: Backend> Rule<B> for TurnedRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        if cx.needs(1) {
            return Err(Error::NoGradient {
                op: "norm_nuclear_second_grad",
            });
        }
        Ok(vec![Some(self.svd.turned(cx.grad, &self.x)?), None])
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The nuclear norm of matrices, the sum of their singular values (`torch.linalg.matrix_norm` with `ord="nuc"`): `[…, m, n]` to `[…]`,
    /// or `[…, 1, 1]` with `keep_dim`. The singular values are found on the host, in f64, by one-sided Jacobi rotations (Hestenes
    /// 1958), so it cannot be part of a captured step.
    ///
    /// The gradient is UVᵀ, and it has a gradient of its own. Where a matrix has not full rank the norm has no gradient: this is the
    /// shortest of its subgradients, in which the vectors of singular values of 0 have no part. PyTorch's contains products of
    /// such vectors, which are any that are orthogonal. A matrix with an element that is not finite has the norm NaN.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[3f32, 0.0, 0.0, -4.0], &[2, 2])?.requires_grad();
    /// let norm = x.norm_nuclear(false)?;
    /// assert_eq!(norm.item()?, 7.0);
    /// assert_eq!(norm.backward()?.get(&x).unwrap().to_vec::<f32>()?, [1.0, 0.0, 0.0, -1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rank below 2; a third derivative.
    pub fn norm_nuclear(&self, keep_dim: bool) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            return cast.of(self)?.norm_nuclear(keep_dim);
        }
        let &[ref batch @ .., m, n] = self.shape().dims() else {
            return Err(Error::Rank {
                op: OP,
                expected: "2 or more",
                rank: self.rank(),
            });
        };
        if self.size() == 0 {
            return self.sum(&[-2, -1], keep_dim);
        }
        let (b, k, wide) = (batch.iter().product::<usize>(), m.min(n), acc_dtype(self.dtype()));
        let parts = decompose(&self.to_f64()?, m, n)?;
        let of = |values: &[f64], shape: &[usize]| Tensor::from_f64(self.backend(), values, shape, wide);
        let kept = if keep_dim {
            [batch, &[1, 1]].concat()
        } else {
            batch.to_vec()
        };
        let norms: Vec<f64> = parts.s.chunks(k).map(|s| s.iter().sum()).collect();
        let y = Tensor::from_f64(self.backend(), &norms, &kept, self.dtype())?;
        if !self.is_tracked() {
            return Ok(y);
        }
        let or_zero = |s: f64| if s == 0.0 { 0.0 } else { 1.0 / s };
        let inverse: Vec<f64> = parts.s.iter().map(|&s| or_zero(s)).collect();
        let pairs = |s: &[f64]| -> Vec<f64> { s.iter().flat_map(|a| s.iter().map(move |b| or_zero(a + b))).collect() };
        let sums: Vec<f64> = parts.s.chunks(k).flat_map(pairs).collect();
        let svd = Svd {
            u: of(&parts.u, &[b, m, k])?,
            v: of(&parts.v, &[b, n, k])?,
            inverse: of(&inverse, &[b, 1, k])?,
            sums: of(&sums, &[b, k, k])?,
        };
        Ok(y.record(OP, &[self], || NuclearRule { svd, x: self.clone() }))
    }
}
