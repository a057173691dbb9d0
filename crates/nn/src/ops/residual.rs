//! Sums of a residual stream, with dropout of what is added, and their layer norm, as one fused op each.
//!
//! The sum and its norm are two nodes of the graph, recorded by one op. Going back, the norm's rule is given the gradient that the sum has
//! otherwise ([`Rule::adds_to`]) and returns the gradient of both, and leaves that of the branch to the sum's rule.

use super::random::drop_at;
use super::reduce::acc_dtype;
use crate::autograd::{Cast, Recompute, Rule, RuleContext, autocast_dtype, is_grad_enabled, vjp};
use crate::tensor::same_dtype;
use crate::{Backend, DType, Error, Indices, Result, Shape, Stream, Tensor};
use kiln_core::ops::{Distribution, Op, RandomParams, ResidualNormGrads, ResidualNormInputs, ResidualParams, RowNorm};
use std::sync::{Arc, Mutex};

/// Dropout of one call: the probability that an element becomes zero, the stream of a layer, and a step that no other call has, as
/// [`Tensor::dropout_at`] takes them. [`Dropout::draw`](crate::layers::Dropout::draw) makes one.
#[derive(Clone, Debug)]
pub struct DropoutDraw<B: Backend> {
    /// The probability that an element becomes zero.
    pub p: f64,
    /// The stream of the layer.
    pub stream: Stream,
    /// A one-element i32 tensor that [`Counter::tick`](crate::Counter::tick) returns.
    pub step: Indices<B>,
}

impl<B: Backend> DropoutDraw<B> {
    /// The parameters of dropout of `size` elements.
    pub(in crate::ops) fn params(&self, size: usize) -> Result<RandomParams> {
        let key = self.stream.key(0);
        self.step.require("dropout", DType::I32)?;
        if self.step.size() != 1 {
            return Err(Error::invalid("dropout", "step", self.step.shape(), "one element"));
        }
        RandomParams::new("dropout", Distribution::Kept, size, (self.p, 0.0), key.seed, key.stream)
    }
}

/// The gradients of a sum and of its branch that the rule of the norm leaves to the rule of the sum.
type Left<B> = Arc<Mutex<Option<(Tensor<B>, Tensor<B>)>>>;

fn take<B: Backend>(left: &Left<B>) -> Option<(Tensor<B>, Tensor<B>)> {
    // The lock is held only during the exchange, so a panic cannot have left the value half-changed.
    left.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
}

/// The rule of `s = x + dropout(y)`.
struct Add<B: Backend> {
    p: ResidualParams,
    drop: Option<(RandomParams, Indices<B>)>,
    half: DType,
    left: Left<B>,
}

impl<B: Backend> Rule<B> for Add<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let g = cx.grad;
        let of_x = Some(g.clone());
        if !cx.needs(1) {
            return Ok(vec![of_x, None]);
        }
        if is_grad_enabled() {
            return Ok(vec![of_x, Some(dropped(g, self.drop.as_ref())?.to_dtype(self.half)?)]);
        }
        if let Some((_, dy)) = take(&self.left).filter(|(ds, _)| Arc::ptr_eq(ds.memory(), g.memory())) {
            return Ok(vec![of_x, Some(dy)]);
        }
        if self.drop.is_none() && g.dtype() == self.half {
            return Ok(vec![of_x, Some(g.clone())]);
        }
        let mut dy = g.backend().alloc(self.half, g.size())?;
        let step = self.drop.as_ref().map(|(_, step)| step.buffer());
        g.backend().residual_add_grad(&self.p, g.buffer(), step, &mut dy)?;
        Ok(vec![of_x, Some(Tensor::from_buffer(g.backend(), dy, *g.shape()))])
    }
}

/// The rule of the norm of `s`.
struct Norm<B: Backend> {
    p: ResidualParams,
    s: Tensor<B>,
    scale: Tensor<B>,
    shift: Tensor<B>,
    mean: B::Buffer,
    rstd: B::Buffer,
    half: DType,
    /// The step of dropout, and the place where the gradient of the branch is left, if it differs from that of the sum.
    branch: Option<(Option<Indices<B>>, Left<B>)>,
}

impl<B: Backend> Norm<B> {
    /// The parameters without dropout, which is in `s`.
    fn undropped(&self) -> ResidualParams {
        ResidualParams {
            drop: 0.0,
            seed: 0,
            stream: 0,
            ..self.p
        }
    }
}

impl<B: Backend> Rule<B> for Norm<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (s, scale, backend) = (&self.s, &self.scale, self.s.backend());
        if is_grad_enabled() {
            let (eps, half) = (self.p.eps, self.half);
            return vjp(&[s, scale, &self.shift], cx.grad, |t| {
                norm_of(&t[0], &t[1], &t[2], eps, half)
            });
        }
        let mut ds = s.alloc_like(*s.shape())?;
        let (mut dscale, mut dshift) = (scale.alloc_like(*scale.shape())?, scale.alloc_like(*scale.shape())?);
        let branch = self.branch.as_ref();
        let mut dy = branch.map(|_| backend.alloc(self.half, s.size())).transpose()?;
        let inputs = ResidualNormInputs {
            s: s.buffer(),
            scale: scale.buffer(),
            mean: &self.mean,
            rstd: &self.rstd,
            g: cx.grad.buffer(),
            more: cx.more_grad().map(Tensor::buffer),
            sum: cx.sum().map(Tensor::buffer),
            step: branch.and_then(|(step, _)| step.as_ref()).map(Indices::buffer),
        };
        let grads = ResidualNormGrads {
            ds: &mut ds,
            dy: dy.as_mut(),
            dscale: &mut dscale,
            dshift: &mut dshift,
        };
        backend.residual_norm_grad(&self.p, &inputs, grads)?;
        let ds = Tensor::from_buffer(backend, ds, *s.shape());
        if let (Some((_, left)), Some(dy)) = (branch, dy) {
            let both = (ds.clone(), Tensor::from_buffer(backend, dy, *s.shape()));
            *left.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(both);
        }
        let of_vector = |buffer| Some(Tensor::from_buffer(backend, buffer, *scale.shape()));
        Ok(vec![Some(ds), of_vector(dscale), of_vector(dshift)])
    }

    fn adds_to(&self) -> Option<usize> {
        Some(0)
    }

    fn adds_two_grads(&self) -> bool {
        true
    }

    fn row_norm(&self) -> Option<RowNorm<'_, B::Buffer>> {
        Some(RowNorm {
            p: self.undropped(),
            s: self.s.buffer(),
            mean: &self.mean,
            rstd: &self.rstd,
            scale: self.scale.buffer(),
            shift: self.shift.buffer(),
        })
    }

    fn recompute(&self) -> Option<Recompute<'_, B>> {
        Some(Box::new(|_| {
            let (s, backend) = (&self.s, self.s.backend());
            let statistic = || backend.alloc(acc_dtype(s.dtype()), self.p.rows as usize);
            let (mut n, mut mean, mut rstd) = (backend.alloc(self.half, s.size())?, statistic()?, statistic()?);
            let (scale, shift, p) = (self.scale.buffer(), self.shift.buffer(), self.undropped());
            backend.residual_norm(&p, s.buffer(), None, None, scale, shift, &mut n, &mut mean, &mut rstd)?;
            Ok(Tensor::from_buffer(backend, n, *s.shape()))
        }))
    }
}

/// Dropout of `y`, if there is any.
fn dropped<B: Backend>(y: &Tensor<B>, drop: Option<&(RandomParams, Indices<B>)>) -> Result<Tensor<B>> {
    drop.map_or_else(|| Ok(y.clone()), |(p, step)| drop_at(p, step, y))
}

/// The definition of the sum in other ops.
fn sum_of<B: Backend>(x: &Tensor<B>, y: &Tensor<B>, drop: Option<&(RandomParams, Indices<B>)>) -> Result<Tensor<B>> {
    x.add(&dropped(y, drop)?.to_dtype(x.dtype())?)
}

/// The definition of the norm in other ops.
fn norm_of<B: Backend>(
    s: &Tensor<B>,
    scale: &Tensor<B>,
    shift: &Tensor<B>,
    eps: f64,
    half: DType,
) -> Result<Tensor<B>> {
    let s = s.to_dtype(scale.dtype())?;
    let normed = s.layer_norm(&[scale.size()], Some(scale), Some(shift), eps)?;
    normed.to_dtype(half)
}

/// The operands of a call in their dtypes: the stream, the branch, and the dtype of the branch and the norm.
fn operands<B: Backend>(
    op: &'static str,
    x: &Tensor<B>,
    y: Option<&Tensor<B>>,
) -> Result<(Tensor<B>, Option<Tensor<B>>, DType)> {
    let Some(low) = autocast_dtype().filter(|_| x.dtype() != DType::F64) else {
        if let Some(y) = y {
            same_dtype(op, x, y)?;
        }
        return Ok((x.clone(), y.cloned(), x.dtype()));
    };
    // A stream in the other half is widened.
    let stream = if x.dtype() == low { low } else { DType::F32 };
    let y = match (y, Cast::low()) {
        (Some(y), Some(cast)) => Some(cast.of(y)?.into_owned()),
        (y, _) => y.cloned(),
    };
    Ok((x.to_dtype(stream)?, y, low))
}

fn check_branch<B: Backend>(op: &'static str, x: &Tensor<B>, y: &Tensor<B>) -> Result<()> {
    match x.shape() == y.shape() {
        true => Ok(()),
        false => Err(Error::ShapeMismatch {
            op,
            lhs: *x.shape(),
            rhs: *y.shape(),
        }),
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The sum of a residual stream and what a branch adds to it, of which dropout may zero elements: `self + dropout(y)`, of one shape
    /// (`x + torch.nn.functional.dropout(y)`), in one pass.
    ///
    /// Inside of [`autocast`](crate::autocast) the stream stays in its dtype, f32 or the half of `autocast`, and the branch is in the
    /// half; elsewhere both have one dtype.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?, Tensor::from_slice(&cpu, &[10f32, 20.0], &[2])?);
    /// assert_eq!(x.residual_add(&y, None)?.to_vec::<f32>()?, [11.0, 22.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes or dtypes that differ, a scalar, a probability outside `0..=1`, a step that is not one i32.
    pub fn residual_add(&self, y: &Tensor<B>, dropout: Option<&DropoutDraw<B>>) -> Result<Tensor<B>> {
        const OP: &str = "residual_add";
        check_branch(OP, self, y)?;
        let (x, y, half) = operands(OP, self, Some(y))?;
        let _off = Cast::high();
        let (p, drop) = params(OP, &x, 0.0, dropout)?;
        let Some(y) = y else { return Ok(x) };
        if !x.has_op(Op::Residual) || x.size() == 0 {
            return sum_of(&x, &y, drop.as_ref());
        }
        add(OP, p, &x, &y, drop, half, &Left::default(), |s| {
            let step = dropout.map(|draw| draw.step.buffer());
            x.backend().residual_add(&p, x.buffer(), y.buffer(), step, s)
        })
    }

    /// The sum of a residual stream and a branch, as [`Tensor::residual_add`], and its layer norm over the last dimension with `scale`
    /// and `shift` (`torch.nn.functional.layer_norm`), in one pass both ways: `[…, C]` to the sum and the norm, both `[…, C]`. Without a
    /// branch the sum is the stream.
    ///
    /// Inside of [`autocast`](crate::autocast) the norm is in the half of `autocast`, as the products that read it want it, and is
    /// computed in f32.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?, Tensor::from_slice(&cpu, &[9f32, 28.0], &[2])?);
    /// let (one, zero) = (Tensor::ones(&cpu, &[2], DType::F32)?, Tensor::zeros(&cpu, &[2], DType::F32)?);
    /// let (s, n) = x.residual_norm(Some((&y, None)), &one, &zero, 1e-5)?;
    /// assert_eq!(s.to_vec::<f32>()?, [10.0, 30.0]);
    /// assert!((n.to_vec::<f32>()?[0] + 1.0).abs() < 1e-4);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::residual_add`]; a scale or shift of another shape or dtype; an `eps` that is negative or not finite.
    pub fn residual_norm(
        &self,
        branch: Option<(&Tensor<B>, Option<&DropoutDraw<B>>)>,
        scale: &Tensor<B>,
        shift: &Tensor<B>,
        eps: f64,
    ) -> Result<(Tensor<B>, Tensor<B>)> {
        const OP: &str = "residual_norm";
        if let Some((y, _)) = branch {
            check_branch(OP, self, y)?;
        }
        let (x, y, half) = operands(OP, self, branch.map(|(y, _)| y))?;
        let _off = Cast::high();
        let dropout = branch.and_then(|(_, dropout)| dropout);
        let (p, drop) = params(OP, &x, eps, dropout)?;
        check_vectors(OP, &x, [scale, shift])?;
        if !x.has_op(Op::Residual) || x.size() == 0 {
            let s = y.map_or_else(|| Ok(x.clone()), |y| sum_of(&x, &y, drop.as_ref()))?;
            let n = norm_of(&s, scale, shift, eps, half)?;
            return Ok((s, n));
        }
        let backend = x.backend();
        let statistic = || backend.alloc(acc_dtype(x.dtype()), p.rows as usize);
        let (mut n, mut mean, mut rstd) = (backend.alloc(half, x.size())?, statistic()?, statistic()?);
        let left = Left::default();
        let mut run = |branch: Option<(&B::Buffer, &mut B::Buffer)>| {
            let step = dropout.map(|draw| draw.step.buffer());
            let (scale, shift) = (scale.buffer(), shift.buffer());
            backend.residual_norm(&p, x.buffer(), branch, step, scale, shift, &mut n, &mut mean, &mut rstd)
        };
        let s = match &y {
            Some(y) => add(OP, p, &x, y, drop.clone(), half, &left, |s| run(Some((y.buffer(), s))))?,
            None => {
                run(None)?;
                x.clone()
            }
        };
        let differs = drop.is_some() || half != x.dtype();
        let wanted = y.is_some_and(|y| y.is_tracked()) && differs;
        let n = Tensor::from_buffer(backend, n, *x.shape()).record(OP, &[&s, scale, shift], || Norm {
            p,
            s: s.clone(),
            scale: scale.clone(),
            shift: shift.clone(),
            mean,
            rstd,
            half,
            branch: wanted.then(|| (drop.map(|(_, step)| step), left)),
        });
        Ok((s, n))
    }
}

/// The recorded sum, computed by `run(s)`.
fn add<B: Backend>(
    op: &'static str,
    p: ResidualParams,
    x: &Tensor<B>,
    y: &Tensor<B>,
    drop: Option<(RandomParams, Indices<B>)>,
    half: DType,
    left: &Left<B>,
    run: impl FnOnce(&mut B::Buffer) -> Result<()>,
) -> Result<Tensor<B>> {
    let mut s = x.alloc_like(*x.shape())?;
    run(&mut s)?;
    let s = Tensor::from_buffer(x.backend(), s, *x.shape());
    Ok(s.record(op, &[x, y], || Add {
        p,
        drop,
        half,
        left: left.clone(),
    }))
}

/// The parameters of a call, and those of its dropout.
#[allow(clippy::type_complexity, reason = "the parts of two structs")]
fn params<B: Backend>(
    op: &'static str,
    x: &Tensor<B>,
    eps: f64,
    dropout: Option<&DropoutDraw<B>>,
) -> Result<(ResidualParams, Option<(RandomParams, Indices<B>)>)> {
    let p = ResidualParams::new(op, x.shape(), eps)?;
    let Some(draw) = dropout else { return Ok((p, None)) };
    let random = draw.params(x.size())?;
    Ok((p.dropout(&random), Some((random, draw.step.clone()))))
}

/// Refuses a scale or shift that is no vector of the width, or of neither the stream's dtype nor its accumulation dtype.
fn check_vectors<B: Backend>(op: &'static str, x: &Tensor<B>, vectors: [&Tensor<B>; 2]) -> Result<()> {
    let width = Shape::new(&[x.shape().last().copied().unwrap_or(0)])?;
    let wide = vectors[0].dtype() == acc_dtype(x.dtype());
    for t in vectors {
        same_dtype(op, if wide { vectors[0] } else { x }, t)?;
        if *t.shape() != width {
            return Err(Error::ShapeMismatch {
                op,
                lhs: *t.shape(),
                rhs: width,
            });
        }
    }
    Ok(())
}
