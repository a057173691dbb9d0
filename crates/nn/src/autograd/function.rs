//! Ops with a gradient of the caller's own.

use super::mode::no_grad;
use crate::tensor::{Rule, RuleContext};
use crate::{Backend, Error, Result, Tensor};

/// A rule that a closure writes.
struct Custom<F> {
    op: &'static str,
    inputs: Vec<(crate::Shape, crate::DType)>,
    backward: F,
}

impl<B: Backend, F> Rule<B> for Custom<F>
where
    F: Fn(&RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> + Send + Sync + 'static,
{
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let grads = (self.backward)(cx)?;
        let refuse = |found: String, expected: String| Error::invalid(self.op, "gradients", found, expected);
        if grads.len() != self.inputs.len() {
            return Err(refuse(
                grads.len().to_string(),
                format!("one for each of {} inputs", self.inputs.len()),
            ));
        }
        for (i, ((shape, dtype), grad)) in self.inputs.iter().zip(&grads).enumerate() {
            let Some(grad) = grad else { continue };
            if grad.shape() != shape || grad.dtype() != *dtype {
                let found = format!("{} of {} for input {i}", grad.dtype(), grad.shape());
                return Err(refuse(found, format!("{dtype} of {shape}")));
            }
        }
        Ok(grads)
    }
}

/// An op of the caller's own (`torch.autograd.Function`): the result of `forward`, which is not recorded, with a gradient by
/// `backward`. That is given the gradient of the result, [`RuleContext::grad`], and returns one for each input, of its shape and
/// dtype, or `None` where there is none. Tensors that it reads move into it. Written in differentiable ops, it has gradients of
/// its own.
///
/// ```
/// use kiln_nn::{DType, Tensor, autograd::function};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// // Reversed gradients, for adversarial training (Ganin and Lempitsky 2015).
/// let x = Tensor::ones(&cpu, &[3], DType::F32)?.requires_grad();
/// let y = function("reverse_gradient", &[&x], || Ok(x.clone()), |cx| Ok(vec![Some(cx.grad.neg()?)]))?;
/// let grads = y.sum(&[], false)?.backward()?;
/// assert_eq!(grads.get(&x).unwrap().to_vec::<f32>()?, [-1.0; 3]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `forward`. In the backward pass those of `backward`, and [`Error::InvalidArgument`] for gradients of another number,
/// shape or dtype than the inputs have.
pub fn function<B: Backend>(
    op: &'static str,
    inputs: &[&Tensor<B>],
    forward: impl FnOnce() -> Result<Tensor<B>>,
    backward: impl Fn(&RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> + Send + Sync + 'static,
) -> Result<Tensor<B>> {
    let y = no_grad(forward)?.detach();
    let inputs_of = inputs.iter().map(|t| (*t.shape(), t.dtype())).collect();
    Ok(y.record(op, inputs, || Custom {
        op,
        inputs: inputs_of,
        backward,
    }))
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// `f(self)` with the gradient of the identity (the straight-through estimator; Bengio et al. 2013): for functions whose own
    /// gradient is zero, such as rounding.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # fn main() -> kiln_nn::Result<()> {
    /// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[0.4f32, 1.7], &[2])?.requires_grad();
    /// let y = x.straight_through(|x| x.round())?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 2.0]);
    /// assert_eq!(y.sum(&[], false)?.backward()?.get(&x).unwrap().to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `f`; in the backward pass, an `f` whose result has another shape or dtype.
    pub fn straight_through(&self, f: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>) -> Result<Tensor<B>> {
        function(
            "straight_through",
            &[self],
            || f(self),
            |cx| Ok(vec![Some(cx.grad.clone())]),
        )
    }

    /// The same values, whose gradient becomes `hook` of it on the way back (`torch.Tensor.register_hook`): to look at
    /// gradients, to clip or to scale them at one place of a net.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # fn main() -> kiln_nn::Result<()> {
    /// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[0.1f32, 2.0], &[2])?.requires_grad();
    /// let y = x.with_grad_hook(|g| g.clamp(-1.0, 1.0))?.square()?;
    /// assert_eq!(y.sum(&[], false)?.backward()?.get(&x).unwrap().to_vec::<f32>()?, [0.2, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// In the backward pass, those of `hook`, and a result of another shape or dtype.
    pub fn with_grad_hook(
        &self,
        hook: impl Fn(&Tensor<B>) -> Result<Tensor<B>> + Send + Sync + 'static,
    ) -> Result<Tensor<B>> {
        function(
            "grad_hook",
            &[self],
            || Ok(self.clone()),
            move |cx| Ok(vec![Some(hook(cx.grad)?)]),
        )
    }
}
