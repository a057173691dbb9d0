//! The update rules of optimizers.

use crate::{Backend, Result, Shape, Tensor};
use kiln_core::ops::{Op, OptimSlot};

/// An update rule over one set of parameters at the same step.
///
/// A rule is written in tensor ops, [`step`](Algorithm::step), and so runs on every backend. A backend may have a kernel that makes
/// the update of all parameters in one call: then [`FUSED`](Algorithm::FUSED) names it, and [`fused`](Algorithm::fused) calls it.
///
/// ```
/// # use kiln_nn::{Backend, DType, Init, Layer, Result, Tensor};
/// use kiln_nn::optim::{Algorithm, Optim, Optimizer, Update};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// #[derive(Clone)]
/// struct Signum;
///
/// impl Algorithm for Signum {
///     const NAME: &'static str = "signum";
///     fn check(&self) -> Result<()> { Ok(()) }
///     fn weight_decay(&self) -> f64 { 0.0 }
///     fn states(&self) -> Vec<&'static str> { vec!["average"] }
///     fn scalars(&self, lr: f64, _: u64) -> Vec<f64> { vec![lr, 0.0, 0.0, 1.0] }
///     fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
///         let average = u.mean(0, 0.9, &u.penalized()?)?;
///         Ok((u.descended(&average.sign()?)?, vec![average]))
///     }
/// }
///
/// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// # let loss = model.forward(&x)?.square()?.mean(&[], false)?;
/// let mut optimizer = Optim::with(Signum, 1e-3);
/// optimizer.step(&mut model, &loss.backward()?)?;
/// # assert!(model.forward(&x)?.square()?.mean(&[], false)?.item()? < loss.item()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub trait Algorithm: Clone + Send + Sync + 'static {
    /// The optimizer's name in errors.
    const NAME: &'static str;

    /// The backend's op that makes the same update, if there is one.
    const FUSED: Option<Op> = None;

    /// Checks the hyper-parameters.
    ///
    /// # Errors
    /// One outside its domain.
    fn check(&self) -> Result<()>;

    /// The weight decay of parameters whose group has none of its own.
    fn weight_decay(&self) -> f64;

    /// Names of the state kept per parameter, in the order of [`Update::state`]; those of `torch.optim`.
    fn states(&self) -> Vec<&'static str>;

    /// The value that every element of a state starts with, where the first step has this learning rate.
    fn initial(&self, state: &str, lr: f64) -> f64 {
        let _ = (state, lr);
        0.0
    }

    /// The shape of a state: by default the parameter's. `[0]` is that of a state which parameters of this shape do without.
    fn state_shape(&self, state: &str, param: &Shape) -> Shape {
        let _ = state;
        *param
    }

    /// The numbers `[lr, c1, c2, scale]` of a step, counted from 1: the rate, two numbers of the rule's own, and 1, by which the
    /// optimizer multiplies its scale of gradients. A rule without a fused op may have more numbers after them.
    fn scalars(&self, lr: f64, step: u64) -> Vec<f64>;

    /// The new values of one parameter, and its new state, in tensor ops.
    ///
    /// # Errors
    /// Those of the ops.
    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)>;

    /// The update of all parameters by the backend's op [`FUSED`](Algorithm::FUSED). Called where the backend has it.
    ///
    /// # Errors
    /// The backend's.
    fn fused<B: Backend>(
        &self,
        weight_decay: f64,
        backend: &B,
        scalars: &B::Buffer,
        slots: &mut [OptimSlot<'_, B::Buffer>],
    ) -> Result<()> {
        let _ = (weight_decay, scalars, slots);
        match Self::FUSED {
            Some(op) => backend.unsupported(op),
            None => Ok(()),
        }
    }
}

/// The operands of one parameter's update, in the precision of arithmetic: f32, or f64 for f64.
///
/// See the example of [`Algorithm`].
#[derive(Debug)]
pub struct Update<'a, B: Backend> {
    /// The parameter.
    pub param: &'a Tensor<B>,
    /// Its gradient, multiplied by the scale of [`Algorithm::scalars`].
    pub grad: &'a Tensor<B>,
    /// The state, in the order of [`Algorithm::states`].
    pub state: &'a [Tensor<B>],
    /// The learning rate `[]`: on the device, so that a captured step sees the present one.
    pub lr: Tensor<B>,
    /// The rule's own numbers, those of [`Algorithm::scalars`] without rate and scale, each `[]`.
    pub c: Vec<Tensor<B>>,
    /// The weight decay of the parameter's group.
    pub weight_decay: f64,
}

impl<B: Backend> Update<'_, B> {
    /// The gradient with an L2 penalty: `g + weight_decay·p`.
    ///
    /// See the example of [`Algorithm`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn penalized(&self) -> Result<Tensor<B>> {
        match self.weight_decay {
            0.0 => Ok(self.grad.clone()),
            decay => self.grad.add(&self.param.mul_scalar(decay)?),
        }
    }

    /// The parameter and the gradient after weight decay: decoupled, it shrinks the parameter by `lr·weight_decay` of it (Loshchilov
    /// and Hutter 2019); otherwise it is an L2 penalty.
    ///
    /// See the example of [`Algorithm`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn decayed(&self, decoupled: bool) -> Result<(Tensor<B>, Tensor<B>)> {
        if !decoupled || self.weight_decay == 0.0 {
            return Ok((self.param.clone(), self.penalized()?));
        }
        let shrink = self.lr.affine(-self.weight_decay, 1.0)?;
        Ok((self.param.mul(&shrink)?, self.grad.clone()))
    }

    /// The running mean `decay·state[i] + (1 − decay)·x`.
    ///
    /// See the example of [`Algorithm`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn mean(&self, i: usize, decay: f64, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.state[i].mul_scalar(decay)?.add(&x.mul_scalar(1.0 - decay)?)
    }

    /// The parameter after a step: `p − lr·direction`.
    ///
    /// See the example of [`Algorithm`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn descended(&self, direction: &Tensor<B>) -> Result<Tensor<B>> {
        self.param.sub(&direction.mul(&self.lr)?)
    }
}
