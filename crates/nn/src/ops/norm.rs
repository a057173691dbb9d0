//! Batch, layer, RMS, group and instance norm.
//!
//! All of them are one fused op, `group_norm`, and its definition in primitive ops. The definition runs on a backend
//! without the fused op and for empty tensors; gradients of gradients are taken of it, and tests compare the fused op
//! with it.

mod batch;
mod behind;
mod running;

pub(crate) use behind::Behind;
pub(crate) use running::RunningStats;

use super::reduce::acc_dtype;
use crate::autograd::{Cast, Rule, RuleContext, checkpoint_as, is_grad_enabled, vjp};
use crate::tensor::same_dtype;
use crate::{Backend, Error, Result, Shape, Tensor};
use kiln_core::ops::{GroupNormParams, Op};

/// The scale and the shift of a norm, each optional.
type Affine<'a, B> = (Option<&'a Tensor<B>>, Option<&'a Tensor<B>>);

/// Refuses a scale or shift of another shape than `shape` or another dtype than `x`; if `mixed`, they may be of its accumulation
/// dtype.
fn check_affine<B: Backend>(
    op: &'static str,
    x: &Tensor<B>,
    affine: Affine<'_, B>,
    shape: &[usize],
    mixed: bool,
) -> Result<()> {
    let first = affine.0.or(affine.1);
    let wide = mixed && first.is_some_and(|t| t.dtype() == acc_dtype(x.dtype()));
    for t in [affine.0, affine.1].into_iter().flatten() {
        same_dtype(op, if wide { first.unwrap_or(x) } else { x }, t)?;
        if t.shape()[..] != *shape {
            return Err(Error::ShapeMismatch {
                op,
                lhs: *t.shape(),
                rhs: Shape::new(shape)?,
            });
        }
    }
    Ok(())
}

/// The rule of the fused norm, with the op's arguments and statistics.
struct Norm<B: Backend> {
    p: GroupNormParams,
    x: Tensor<B>,
    scale: Option<Tensor<B>>,
    shift: Option<Tensor<B>>,
    mean: Tensor<B>,
    rstd: Tensor<B>,
}

impl<B: Backend> Rule<B> for Norm<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let p = &self.p;
        if is_grad_enabled() {
            let inputs = inputs(&self.x, (self.scale.as_ref(), self.shift.as_ref()));
            return vjp(&inputs, cx.grad, |t| {
                of_inputs(p, t, [self.scale.is_some(), self.shift.is_some()])
            });
        }
        let (x, backend, g) = (&self.x, self.x.backend(), cx.grad);
        let flat = Shape::new(&[(p.groups * p.width) as usize])?;
        let mut dx = x.alloc_like(*x.shape())?;
        let affine = self.scale.as_ref().or(self.shift.as_ref()).unwrap_or(x);
        let (mut dscale, mut dshift) = (affine.alloc_like(flat)?, affine.alloc_like(flat)?);
        backend.group_norm_grad(
            p,
            x.buffer(),
            self.scale.as_ref().map(Tensor::buffer),
            self.mean.buffer(),
            self.rstd.buffer(),
            g.buffer(),
            &mut dx,
            &mut dscale,
            &mut dshift,
        )?;
        let mut grads = vec![Some(Tensor::from_buffer(backend, dx, *x.shape()))];
        grads.extend(
            self.scale
                .as_ref()
                .map(|s| Some(Tensor::from_buffer(backend, dscale, *s.shape()))),
        );
        grads.extend(
            self.shift
                .as_ref()
                .map(|s| Some(Tensor::from_buffer(backend, dshift, *s.shape()))),
        );
        Ok(grads)
    }
}

/// The recorded inputs, in the order of their gradients.
fn inputs<'a, B: Backend>(x: &'a Tensor<B>, affine: Affine<'a, B>) -> Vec<&'a Tensor<B>> {
    [Some(x), affine.0, affine.1].into_iter().flatten().collect()
}

/// The axes that a norm reduces, positions and width, of a tensor reshaped to `[samples, positions, groups, width]`.
const REDUCED: [isize; 2] = [1, 3];

/// `x` in the accumulation dtype, reshaped to `[samples, positions, groups, width]`.
fn seen<B: Backend>(p: &GroupNormParams, x: &Tensor<B>) -> Result<Tensor<B>> {
    let view = [p.samples, p.positions, p.groups, p.width].map(|d| d as usize);
    x.to_dtype(acc_dtype(x.dtype()))?.reshape(&view)
}

/// The definition of the norms in primitive ops.
fn composed<B: Backend>(p: &GroupNormParams, x: &Tensor<B>, affine: Affine<'_, B>) -> Result<Tensor<B>> {
    let wide = seen(p, x)?;
    let centred = match p.rms {
        1 => wide,
        _ => wide.sub(&wide.mean(&REDUCED, true)?)?,
    };
    let rstd = centred.square()?.mean(&REDUCED, true)?.add_scalar(p.eps)?.rsqrt()?;
    let channels = [p.groups, p.width].map(|d| d as usize);
    apply(&centred.mul(&rstd)?, affine, &channels)?
        .reshape(x.shape())?
        .to_dtype(x.dtype())
}

/// [`composed`] of the recorded inputs `t`: x, then the scale and the shift if their flags are set.
fn of_inputs<B: Backend>(p: &GroupNormParams, t: &[Tensor<B>], [scale, shift]: [bool; 2]) -> Result<Tensor<B>> {
    composed(p, &t[0], (scale.then(|| &t[1]), shift.then(|| &t[t.len() - 1])))
}

/// `x·scale + shift`, with scale and shift reshaped to `channels`.
fn apply<B: Backend>(x: &Tensor<B>, affine: Affine<'_, B>, channels: &[usize]) -> Result<Tensor<B>> {
    let mut y = x.clone();
    if let Some(scale) = affine.0 {
        y = y.mul(&scale.to_dtype(x.dtype())?.reshape(channels)?)?;
    }
    if let Some(shift) = affine.1 {
        y = y.add(&shift.to_dtype(x.dtype())?.reshape(channels)?)?;
    }
    Ok(y)
}

/// The result of a fused norm, and its statistics `[samples, groups]`: the mean, and 1/√(variance + eps).
type Normed<B> = (Tensor<B>, Tensor<B>, Tensor<B>);

/// The fused op.
fn fused<B: Backend>(
    op: &'static str,
    p: GroupNormParams,
    x: &Tensor<B>,
    (scale, shift): Affine<'_, B>,
) -> Result<Normed<B>> {
    let (backend, stats) = (x.backend(), Shape::new(&[p.samples as usize, p.groups as usize])?);
    let alloc = || backend.alloc(acc_dtype(x.dtype()), stats.size());
    let (mut y, mut mean, mut rstd) = (x.alloc_like(*x.shape())?, alloc()?, alloc()?);
    let (a, b) = (scale.map(Tensor::buffer), shift.map(Tensor::buffer));
    backend.group_norm(&p, x.buffer(), a, b, &mut y, &mut mean, &mut rstd)?;
    let [mean, rstd] = [mean, rstd].map(|s| Tensor::from_buffer(backend, s, stats));
    let y = Tensor::from_buffer(backend, y, *x.shape()).record(op, &inputs(x, (scale, shift)), || Norm {
        p,
        x: x.clone(),
        scale: scale.cloned(),
        shift: shift.cloned(),
        mean: mean.clone(),
        rstd: rstd.clone(),
    });
    Ok((y, mean, rstd))
}

/// The definition as a checkpoint: it keeps its inputs alone and is computed again for the gradient.
fn recomputed<B: Backend>(
    op: &'static str,
    p: GroupNormParams,
    x: &Tensor<B>,
    affine: Affine<'_, B>,
) -> Result<Tensor<B>> {
    let given = [affine.0.is_some(), affine.1.is_some()];
    checkpoint_as(op, &inputs(x, affine), move |t| of_inputs(&p, t, given))
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Layer norm (Ba, Kiros & Hinton 2016; `torch.nn.functional.layer_norm`) over the last dimensions, which must equal
    /// `normalized_shape`; scale and shift have that shape.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 3.0, 10.0, 30.0], &[2, 2])?;
    /// let y = x.layer_norm(&[2], None, None, 1e-5)?.to_f64()?;
    /// assert!(y.iter().zip([-1.0, 1.0, -1.0, 1.0]).all(|(y, expected)| (y - expected).abs() < 1e-4));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A `normalized_shape` that has no dimension or does not fit; a scale or shift of another shape or dtype; an `eps` that is
    /// negative or not finite.
    pub fn layer_norm(
        &self,
        normalized_shape: &[usize],
        scale: Option<&Tensor<B>>,
        shift: Option<&Tensor<B>>,
        eps: f64,
    ) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            let (scale, shift) = (cast.option(scale)?, cast.option(shift)?);
            return cast
                .of(self)?
                .layer_norm(normalized_shape, scale.as_deref(), shift.as_deref(), eps);
        }
        let normalized = Shape::new(normalized_shape)?;
        let p = GroupNormParams::layer("layer_norm", self.shape(), &normalized, eps, false)?;
        self.group_like("layer_norm", p, (scale, shift), normalized_shape)
    }

    /// RMS norm (Zhang & Sennrich 2019; `torch.nn.functional.rms_norm`): `x/√(mean(x²) + eps)·scale` over the last
    /// dimensions, which must equal `normalized_shape`.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[2f32, -2.0], &[1, 2])?;
    /// let y = x.rms_norm(&[2], None, 1e-6)?.to_f64()?;
    /// assert!((y[0] - 1.0).abs() < 1e-4 && (y[1] + 1.0).abs() < 1e-4);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::layer_norm`].
    pub fn rms_norm(&self, normalized_shape: &[usize], scale: Option<&Tensor<B>>, eps: f64) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            return cast
                .of(self)?
                .rms_norm(normalized_shape, cast.option(scale)?.as_deref(), eps);
        }
        let normalized = Shape::new(normalized_shape)?;
        let p = GroupNormParams::layer("rms_norm", self.shape(), &normalized, eps, true)?;
        self.group_like("rms_norm", p, (scale, None), normalized_shape)
    }

    /// Group norm (Wu & He 2018; `torch.nn.functional.group_norm`) of `[N, …, C]`: each sample's channels in `groups`
    /// groups of neighbours, each normalised over its channels and all positions. Scale and shift are `[C]`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::rand(&cpu, &[2, 4, 4, 6], DType::F32, &mut Rng::new(0))?;
    /// let y = x.group_norm(3, None, None, 1e-5)?;
    /// assert!(y.i((0, .., .., 0..2))?.mean(&[], false)?.item()?.abs() < 1e-4); // the first group
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Rank below 2; groups that do not divide the channels; no positions; a scale or shift of another shape or dtype;
    /// an `eps` that is negative or not finite.
    pub fn group_norm(
        &self,
        groups: usize,
        scale: Option<&Tensor<B>>,
        shift: Option<&Tensor<B>>,
        eps: f64,
    ) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            let (scale, shift) = (cast.option(scale)?, cast.option(shift)?);
            return cast
                .of(self)?
                .group_norm(groups, scale.as_deref(), shift.as_deref(), eps);
        }
        let p = GroupNormParams::group("group_norm", self.shape(), groups, eps)?;
        self.group_like("group_norm", p, (scale, shift), &[(p.groups * p.width) as usize])
    }

    /// Instance norm (Ulyanov, Vedaldi & Lempitsky 2016; `torch.nn.functional.instance_norm`) of `[N, …, C]`: each
    /// channel of each sample over its positions. Scale and shift are `[C]`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::rand(&cpu, &[2, 4, 4, 6], DType::F32, &mut Rng::new(0))?;
    /// let y = x.instance_norm(None, None, 1e-5)?;
    /// assert!(y.i((0, .., .., 5))?.mean(&[], false)?.item()?.abs() < 1e-4);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::group_norm`]; a single position.
    pub fn instance_norm(&self, scale: Option<&Tensor<B>>, shift: Option<&Tensor<B>>, eps: f64) -> Result<Tensor<B>> {
        const OP: &str = "instance_norm";
        if let Some(cast) = Cast::high() {
            let (scale, shift) = (cast.option(scale)?, cast.option(shift)?);
            return cast.of(self)?.instance_norm(scale.as_deref(), shift.as_deref(), eps);
        }
        let channels = self.shape().last().copied().unwrap_or(0);
        // Without channels the error names the input: the number of groups below is not the caller's argument.
        if self.rank() >= 2 && channels == 0 {
            return Err(Error::invalid(OP, "input", self.shape(), "at least one channel"));
        }
        let p = GroupNormParams::group(OP, self.shape(), channels, eps)?;
        if p.positions == 1 {
            return Err(Error::invalid(OP, "input", self.shape(), "more than one position"));
        }
        self.group_like(OP, p, (scale, shift), &[channels])
    }

    fn group_like(
        &self,
        op: &'static str,
        p: GroupNormParams,
        affine: Affine<'_, B>,
        channels: &[usize],
    ) -> Result<Tensor<B>> {
        check_affine(op, self, affine, channels, false)?;
        if self.size() == 0 {
            return composed(&p, self, affine);
        }
        match self.has_op(Op::GroupNorm) {
            true => Ok(fused(op, p, self, affine)?.0),
            false => recomputed(op, p, self, affine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use kiln_cpu::Cpu;

    /// Compares values and gradients of the fused op and of its definition.
    fn compare(x: &[usize], p: GroupNormParams, channels: &[usize]) -> Result<()> {
        let cpu = Cpu::poisoned();
        let random = |shape: &[usize], k: f64| {
            let n = shape.iter().product::<usize>();
            let values: Vec<f64> = (0..n).map(|i| ((i as f64 + 1.0) * k).sin() + 0.2).collect();
            Ok::<_, Error>(Tensor::from_f64(&cpu, &values, shape, DType::F64)?.requires_grad())
        };
        let t = [random(x, 1.7)?, random(channels, 0.9)?, random(channels, 2.3)?];
        let g = random(x, 3.1)?.detach();
        for (scale, shift) in [
            (None, None),
            (Some(&t[1]), None),
            (None, Some(&t[2])),
            (Some(&t[1]), Some(&t[2])),
        ] {
            let fused = t[0].group_like("norm", p, (scale, shift), channels)?;
            let plain = composed(&p, &t[0], (scale, shift))?;
            let (a, b) = (fused.backward_with(&g)?, plain.backward_with(&g)?);
            let close = |a: &Tensor<Cpu>, b: &Tensor<Cpu>| {
                for (a, b) in a.to_f64()?.into_iter().zip(b.to_f64()?) {
                    assert!((a - b).abs() <= 1e-9 * (1.0 + b.abs()), "{a} and {b}");
                }
                Ok::<_, Error>(())
            };
            close(&fused, &plain)?;
            for t in &t {
                match (a.get(t), b.get(t)) {
                    (Some(a), Some(b)) => close(a, b)?,
                    (a, b) => assert!(a.is_none() && b.is_none()),
                }
            }
        }
        Ok(())
    }

    #[test]
    fn fused_norms_are_their_definitions() -> Result<()> {
        let x = [3, 4, 6];
        let shape = Shape::new(&x)?;
        compare(&x, GroupNormParams::batch("t", &shape, 1e-3)?, &[6])?;
        for groups in [1, 2, 6] {
            compare(&x, GroupNormParams::group("t", &shape, groups, 1e-3)?, &[6])?;
        }
        for rms in [false, true] {
            let normalized = Shape::new(&[4, 6])?;
            let p = GroupNormParams::layer("t", &shape, &normalized, 1e-3, rms)?;
            compare(&x, p, &[4, 6])?;
        }
        Ok(())
    }
}
