//! Batch norm in training with running statistics, together with what stands behind it in residual networks: a residual that is added,
//! and a ReLU.

use super::batch::{OP, wide_or_cast};
use super::behind::Behind;
use super::{Affine, check_affine, inputs, of_inputs};
use crate::autograd::{
    Cast, Node, NormOfInput, NormSums, Recompute, RecomputedFrom, Rule, RuleContext, Slope, is_grad_enabled, vjp,
};
use crate::ops::acc_dtype;
use crate::ops::activation::mask_relu_grad;
use crate::{Backend, Counter, Result, Shape, State, Tensor};
use kiln_core::ops::{self, Activation, BatchNormGrads, BatchNormInputs, BatchNormParams, BatchNormTrainParams, Op};
use std::sync::Arc;

/// The running statistics of a batch norm.
pub(crate) struct RunningStats<'a, B: Backend> {
    /// The mean of each channel.
    pub(crate) mean: &'a State<B>,
    /// The unbiased variance of each channel.
    pub(crate) var: &'a State<B>,
    /// The number of batches seen.
    pub(crate) batches: &'a Counter<B>,
}

impl<B: Backend> RunningStats<'_, B> {
    /// Moves the statistics towards those of a batch with `count` values per channel, whose variance is the biased one.
    fn blend(&self, mean: &Tensor<B>, var: &Tensor<B>, count: usize, momentum: f64) -> Result<()> {
        self.mean.blend(mean, momentum)?;
        // The op has refused a single value per channel, so the divisor is at least 1.
        let count = count as f64;
        self.var.blend(&var.mul_scalar(count / (count - 1.0))?, momentum)
    }
}

/// The rule of the fused op. Behind a residual it reads its result, in place of the residual, which it does not keep. Without one, `x`
/// says where a ReLU's result is positive.
struct BatchNorm<B: Backend> {
    p: BatchNormParams,
    x: Tensor<B>,
    scale: Option<Tensor<B>>,
    shift: Option<Tensor<B>>,
    mean: Tensor<B>,
    rstd: Tensor<B>,
    /// True if there is a residual, the last of the inputs.
    residual: bool,
    /// The residual, where the result is computed again.
    again: Option<RecomputedFrom<B>>,
}

impl<B: Backend> Rule<B> for BatchNorm<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let affine = (self.scale.as_ref(), self.shift.as_ref());
        let inputs = inputs(&self.x, affine);
        let relu = self.p.relu == 1 && !cx.slope_applied();
        let y = (relu && self.residual && cx.norm_sums().is_none()).then(|| cx.output());
        if is_grad_enabled() {
            let g = match y {
                Some(y) => mask_relu_grad(y, cx.grad)?,
                None => cx.grad.clone(),
            };
            let mut grads = vjp(&inputs, &g, |t| {
                let y = of_inputs(&self.p.group_norm(), t, [affine.0.is_some(), affine.1.is_some()])?;
                if relu && !self.residual { y.relu() } else { Ok(y) }
            })?;
            grads.extend(self.residual.then_some(Some(g)));
            return Ok(grads);
        }
        if let Some(sums) = cx.norm_sums() {
            return self.grads_of_sums(cx, sums);
        }
        let (x, backend) = (&self.x, self.x.backend());
        let p = BatchNormParams {
            relu: u32::from(relu),
            ..self.p
        };
        let like = affine.0.or(affine.1).unwrap_or(x);
        let channels = Shape::new(&[p.channels as usize])?;
        let (mut dscale, mut dshift) = (like.alloc_like(channels)?, like.alloc_like(channels)?);
        let mut dx = x.alloc_like(*x.shape())?;
        let wanted = self.residual && cx.needs(inputs.len());
        // Without a ReLU and a second term the gradient of the residual is that of the result.
        let own = wanted && (y.is_some() || cx.more_grad().is_some());
        let mut dr = own.then(|| x.alloc_like(*x.shape())).transpose()?;
        let of = BatchNormInputs {
            x: x.buffer(),
            scale: affine.0.map(Tensor::buffer),
            shift: affine.1.map(Tensor::buffer),
            mean: self.mean.buffer(),
            rstd: self.rstd.buffer(),
            y: y.map(Tensor::buffer),
        };
        let to = BatchNormGrads {
            dx: &mut dx,
            dr: dr.as_mut(),
            dscale: &mut dscale,
            dshift: &mut dshift,
        };
        backend.batch_norm_grad(&p, &of, cx.grad.buffer(), cx.more_grad().map(Tensor::buffer), to)?;
        let tensor = |buffer, shape: &Shape| Some(Tensor::from_buffer(backend, buffer, *shape));
        let mut grads = vec![tensor(dx, x.shape())];
        grads.extend(self.scale.is_some().then(|| tensor(dscale, &channels)));
        grads.extend(self.shift.is_some().then(|| tensor(dshift, &channels)));
        if self.residual {
            let dr = dr.and_then(|dr| tensor(dr, x.shape()));
            grads.push(dr.or_else(|| wanted.then(|| cx.grad.clone())));
        }
        Ok(grads)
    }

    fn saves_output(&self) -> bool {
        self.p.relu == 1 && self.residual
    }

    fn activation(&self) -> Option<Slope<B>> {
        let f = Activation::Relu;
        (self.p.relu == 1).then_some(Slope { f, input: None })
    }

    fn adds_two_grads(&self) -> bool {
        true
    }

    fn recompute(&self) -> Option<Recompute<'_, B>> {
        if self.residual && self.again.is_none() {
            return None;
        }
        Some(Box::new(|again| {
            let (x, backend) = (&self.x, self.x.backend());
            let residual = self.again.as_ref().and_then(|residual| residual.tensor(again));
            let [residual, scale, shift] =
                [residual, self.scale.as_ref(), self.shift.as_ref()].map(|t| t.map(Tensor::buffer));
            let (mean, rstd) = (self.mean.buffer(), self.rstd.buffer());
            let mut y = x.alloc_like(*x.shape())?;
            backend.batch_norm_apply(&self.p, x.buffer(), residual, scale, shift, mean, rstd, &mut y)?;
            Ok(Tensor::from_buffer(backend, y, *x.shape()))
        }))
    }

    fn recomputed_from(&self) -> Option<&Arc<Node<B>>> {
        self.again.as_ref()?.node()
    }

    fn takes_norm_sums(&self) -> Option<NormOfInput<B>> {
        Some(NormOfInput {
            x: self.x.clone(),
            scale: self.scale.clone(),
            shift: self.shift.clone(),
            mean: self.mean.clone(),
            rstd: self.rstd.clone(),
            y: None,
            relu: self.p.relu == 1,
        })
    }
}

impl<B: Backend> BatchNorm<B> {
    /// The gradients where that of the result is already the one before residual and ReLU, and its sums are taken.
    fn grads_of_sums(&self, cx: &RuleContext<'_, B>, sums: &NormSums<B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (x, backend) = (&self.x, self.x.backend());
        let p = BatchNormParams { relu: 0, ..self.p };
        let mut dx = x.alloc_like(*x.shape())?;
        let of = BatchNormInputs {
            x: x.buffer(),
            scale: self.scale.as_ref().map(Tensor::buffer),
            shift: None,
            mean: self.mean.buffer(),
            rstd: self.rstd.buffer(),
            y: None,
        };
        let of_sums = [&sums.dscale, &sums.dshift].map(Tensor::buffer);
        backend.batch_norm_data_grad(&p, &of, cx.grad.buffer(), of_sums[0], of_sums[1], &mut dx)?;
        let mut grads = vec![Some(Tensor::from_buffer(backend, dx, *x.shape()))];
        for (parameter, sum) in [(&self.scale, &sums.dscale), (&self.shift, &sums.dshift)] {
            if let Some(parameter) = parameter {
                grads.push(Some(sum.to_dtype(parameter.dtype())?));
            }
        }
        if self.residual {
            grads.push(cx.needs(grads.len()).then(|| cx.grad.clone()));
        }
        Ok(grads)
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Batch norm in training, which also moves running statistics towards those of the batch and counts it, and what is behind it. The
    /// moments of the tensor may be given, as [`Tensor::conv_with_moments`] gives them.
    pub(crate) fn batch_norm_train(
        &self,
        moments: Option<&Tensor<B>>,
        affine: Affine<'_, B>,
        eps: f64,
        momentum: f64,
        running: RunningStats<'_, B>,
        behind: Behind<'_, B>,
    ) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::like(self) {
            let (scale, shift) = (
                wide_or_cast(&cast, self, affine.0)?,
                wide_or_cast(&cast, self, affine.1)?,
            );
            let affine = (scale.as_deref(), shift.as_deref());
            return self.batch_norm_train(moments, affine, eps, momentum, running, behind);
        }
        // An empty batch is counted, and has no statistics.
        if self.size() == 0 || !self.has_op(Op::BatchNorm) {
            let (y, mean, var) = self.batch_norm(affine.0, affine.1, eps)?;
            running.batches.tick()?;
            if self.size() > 0 {
                running.blend(&mean, &var, self.size() / mean.size(), momentum)?;
            }
            return behind.of(y);
        }
        if !behind.fits(self) {
            let y = self.batch_norm_train(moments, affine, eps, momentum, running, Behind::default())?;
            return behind.of(y);
        }
        let mut p = BatchNormTrainParams::new(OP, self.shape(), eps, momentum)?;
        p.relu = u32::from(behind.relu);
        let channels = Shape::new(&[p.channels as usize])?;
        check_affine(OP, self, affine, &channels, true)?;
        let backend = self.backend();
        let statistic = || backend.alloc(acc_dtype(self.dtype()), channels.size());
        let (mut y, mut mean, mut rstd) = (self.alloc_like(*self.shape())?, statistic()?, statistic()?);
        let of = [moments, affine.0, affine.1, behind.residual];
        let [moments, scale, shift, residual] = of.map(|t| t.map(Tensor::buffer));
        running.mean.update(|m| {
            running.var.update(|v| {
                running.batches.update(|n| {
                    let moved = ops::RunningStats {
                        mean: m.buffer_mut()?,
                        var: v.buffer_mut()?,
                        batches: n.buffer_mut()?,
                    };
                    let x = self.buffer();
                    backend.batch_norm(
                        &p, x, moments, residual, scale, shift, &mut y, &mut mean, &mut rstd, moved,
                    )
                })
            })
        })?;
        let y = Tensor::from_buffer(backend, y, *self.shape());
        let mut inputs = inputs(self, affine);
        inputs.extend(behind.residual);
        Ok(y.record(OP, &inputs, || BatchNorm {
            p: p.batch_norm(),
            x: self.clone(),
            scale: affine.0.cloned(),
            shift: affine.1.cloned(),
            mean: Tensor::from_buffer(backend, mean, channels),
            rstd: Tensor::from_buffer(backend, rstd, channels),
            residual: behind.residual.is_some(),
            again: behind.residual.and_then(RecomputedFrom::new),
        }))
    }
}
