//! A model together with its optimizer and gradients.

use super::Optimizer;
use crate::{Backend, Gradients, Module, Result, Tensor};

/// A model with the optimizer that updates it and the gradients in between: none of the three can be taken for another model's.
///
/// [`backward`](ModelOptimizer::backward) adds gradients and [`step`](ModelOptimizer::step) uses them up, as `loss.backward()`,
/// `optimizer.step()` and `optimizer.zero_grad()` do in PyTorch.
///
/// ```
/// use kiln_nn::layers::Linear;
/// use kiln_nn::optim::{Adam, ModelOptimizer};
/// use kiln_nn::{DType, Init, Layer, Reduction, Rng, Tensor};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::randn(&cpu, &[32, 4], DType::F32, &mut Rng::new(0))?;
/// let y = x.sum(&[1], true)?;
/// let model = Linear::new(&mut Init::new(&cpu, 0), 4, 1)?;
/// let mut training = ModelOptimizer::new(model, Adam::new(0.1));
/// for _ in 0..200 {
///     for half in [0, 16] {
///         let (x, y) = (x.narrow(0, half, 16)?, y.narrow(0, half, 16)?);
///         training.backward(|model| 0.5 * model.forward(&x)?.mse_loss(&y, Reduction::Mean)?)?;
///     }
///     training.clip_norm(1.0)?;
///     training.step()?;
/// }
/// assert!(training.model().forward(&x)?.mse_loss(&y, Reduction::Mean)?.item()? < 1e-2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ModelOptimizer<B: Backend, M, O> {
    model: M,
    optimizer: O,
    grads: Gradients<B>,
}

impl<B: Backend, M: Module<B>, O: Optimizer<B>> ModelOptimizer<B, M, O> {
    /// A model and the optimizer for it, without gradients.
    ///
    /// See the example of [`ModelOptimizer`].
    pub fn new(model: M, optimizer: O) -> Self {
        ModelOptimizer {
            model,
            optimizer,
            grads: Gradients::default(),
        }
    }

    /// Computes a loss of the model and adds its gradients to those since the last step. Returns the loss, untracked.
    ///
    /// See the example of [`ModelOptimizer`].
    ///
    /// # Errors
    /// Those of `loss` and of [`Tensor::backward`]; the gradients are as before then.
    pub fn backward(&mut self, loss: impl FnOnce(&M) -> Result<Tensor<B>>) -> Result<Tensor<B>> {
        let loss = loss(&self.model)?;
        // What is not the model's, such as the gradient of an input, goes.
        let found = loss.backward()?.take(self.model.parameters());
        self.grads.accumulate(found)?;
        Ok(loss.detach())
    }

    /// Scales the gradients so that their norm is at most `max_norm` (`torch.nn.utils.clip_grad_norm_`); returns the norm before.
    ///
    /// See the example of [`ModelOptimizer`].
    ///
    /// # Errors
    /// As [`Gradients::clip_norm`].
    pub fn clip_norm(&mut self, max_norm: f64) -> Result<Tensor<B>> {
        self.grads.clip_norm(self.model.parameters(), max_norm)
    }

    /// Updates the parameters by the gradients since the last step, which are gone after it.
    ///
    /// See the example of [`ModelOptimizer`].
    ///
    /// # Errors
    /// As [`Optimizer::step`]; the gradients are kept then.
    pub fn step(&mut self) -> Result<()> {
        self.optimizer.step(&mut self.model, &self.grads)?;
        self.zero_grad();
        Ok(())
    }

    /// Forgets the gradients since the last step.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Linear, optim::{ModelOptimizer, Sgd}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let x = Tensor::ones(&cpu, &[1, 4], DType::F32)?;
    /// let mut training = ModelOptimizer::new(Linear::new(&mut Init::new(&cpu, 0), 4, 1)?, Sgd::new(0.1));
    /// training.backward(|model| model.forward(&x)?.sum(&[], false))?;
    /// assert_eq!(training.grads().len(), 2);
    /// training.zero_grad();
    /// assert!(training.grads().is_empty() && training.step().is_err());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn zero_grad(&mut self) {
        self.grads = Gradients::default();
    }

    /// The model.
    ///
    /// See the example of [`ModelOptimizer`].
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model, to switch its mode, to freeze a part of it or to load weights.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::BatchNorm, optim::{ModelOptimizer, Sgd}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut training = ModelOptimizer::new(BatchNorm::new(&mut Init::new(&cpu, 0), 3)?, Sgd::new(0.1));
    /// training.model_mut().eval();
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn model_mut(&mut self) -> &mut M {
        &mut self.model
    }

    /// The optimizer, for its learning rate and its state dictionary.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::Linear, optim::{ModelOptimizer, Optimizer, Sgd}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut training = ModelOptimizer::new(Linear::new(&mut Init::new(&cpu, 0), 4, 1)?, Sgd::new(0.1));
    /// training.optimizer_mut().set_lr(0.01);
    /// assert_eq!(training.optimizer_mut().lr(), 0.01);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// The gradients since the last step.
    ///
    /// See the example of [`ModelOptimizer::zero_grad`].
    pub fn grads(&self) -> &Gradients<B> {
        &self.grads
    }

    /// The model and the optimizer.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear, optim::{ModelOptimizer, Sgd}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let training = ModelOptimizer::new(Linear::new(&mut Init::new(&cpu, 0), 4, 1)?, Sgd::new(0.1));
    /// let (model, _) = training.into_parts();
    /// assert_eq!(model.num_parameters(), 5);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn into_parts(self) -> (M, O) {
        (self.model, self.optimizer)
    }
}
