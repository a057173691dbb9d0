//! Layers with functions that look on.

use super::Layer;
use crate::{Backend, Result, Shape, Tensor, Walk, WalkMut, Walkable};
use kiln_core::ModuleId;
use std::fmt;
use std::sync::Arc;

type Before<B, L> = dyn Fn(&L, &Tensor<B>) -> Result<Option<Tensor<B>>> + Send + Sync;
type After<B, L> = dyn Fn(&L, &Tensor<B>, &Tensor<B>) -> Result<Option<Tensor<B>>> + Send + Sync;
type OfGrad<B> = dyn Fn(&Tensor<B>) -> Result<Tensor<B>> + Send + Sync;

/// A layer with hooks: functions that see what goes into it and what comes out of it, in the forward and in the backward pass, and may
/// put another tensor in its place. Names of parameters, errors and traces are those of the layer.
///
/// Hooks of one kind run in the order in which they were added.
///
/// ```
/// use kiln_nn::layers::{Hooked, Linear};
/// use kiln_nn::{DType, Init, Layer, Module, Sequential, Tensor};
/// use std::sync::{Arc, Mutex};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let kept = Arc::new(Mutex::new(Vec::new()));
/// let features = Arc::clone(&kept);
/// let first = Hooked::new(Linear::new(init, 4, 8)?).forward_hook(move |_, _, y| {
///     features.lock().unwrap().push(y.detach()); // the activations, for a look at them
///     Ok(None)
/// });
/// let last = Hooked::new(Linear::new(init, 8, 2)?).grad_input_hook(|grad| grad.clamp(-1.0, 1.0));
/// let net = Sequential::new().push(first).push(last);
/// let y = net.forward(&Tensor::ones(&cpu, &[3, 4], DType::F32)?)?;
/// y.square()?.sum(&[], false)?.backward()?;
/// assert_eq!(kept.lock().unwrap()[0].shape().dims(), [3, 8]);
/// assert_eq!(net.named_parameters()[0].0, "0.weight");
/// # Ok(())
/// # }
/// ```
pub struct Hooked<B: Backend, L> {
    /// The layer.
    pub layer: L,
    before: Vec<Arc<Before<B, L>>>,
    after: Vec<Arc<After<B, L>>>,
    grad_input: Vec<Arc<OfGrad<B>>>,
    grad_output: Vec<Arc<OfGrad<B>>>,
}

impl<B: Backend, L: Layer<B>> Hooked<B, L> {
    /// The layer, without hooks yet.
    ///
    /// See the example of [`Hooked`].
    pub fn new(layer: L) -> Self {
        Hooked {
            layer,
            before: Vec::new(),
            after: Vec::new(),
            grad_input: Vec::new(),
            grad_output: Vec::new(),
        }
    }

    /// Adds a function that is given the layer and its input before the layer runs, and may return another input
    /// (`torch.nn.Module.register_forward_pre_hook`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::{Hooked, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let relu = Hooked::new(Relu).forward_pre_hook(|_, x| x.neg().map(Some));
    /// assert_eq!(relu.forward(&Tensor::ones(&cpu, &[1], DType::F32)?)?.item()?, 0.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn forward_pre_hook(
        mut self,
        hook: impl Fn(&L, &Tensor<B>) -> Result<Option<Tensor<B>>> + Send + Sync + 'static,
    ) -> Self {
        self.before.push(Arc::new(hook));
        self
    }

    /// Adds a function that is given the layer, its input and its output, and may return another output
    /// (`torch.nn.Module.register_forward_hook`).
    ///
    /// See the example of [`Hooked`].
    pub fn forward_hook(
        mut self,
        hook: impl Fn(&L, &Tensor<B>, &Tensor<B>) -> Result<Option<Tensor<B>>> + Send + Sync + 'static,
    ) -> Self {
        self.after.push(Arc::new(hook));
        self
    }

    /// Adds a function of the gradient of the layer's input, whose result takes its place
    /// (`torch.nn.Module.register_full_backward_hook`, its `grad_input`).
    ///
    /// See the example of [`Hooked`].
    pub fn grad_input_hook(mut self, hook: impl Fn(&Tensor<B>) -> Result<Tensor<B>> + Send + Sync + 'static) -> Self {
        self.grad_input.push(Arc::new(hook));
        self
    }

    /// Adds a function of the gradient of the layer's output, whose result takes its place, before the layer's own gradients are
    /// computed from it (`torch.nn.Module.register_full_backward_pre_hook`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::{Hooked, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let relu = Hooked::new(Relu).grad_output_hook(|grad| grad.mul_scalar(10.0));
    /// let x = Tensor::ones(&cpu, &[1], DType::F32)?.requires_grad();
    /// assert_eq!(relu.forward(&x)?.sum(&[], false)?.backward()?.get(&x).unwrap().item()?, 10.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn grad_output_hook(mut self, hook: impl Fn(&Tensor<B>) -> Result<Tensor<B>> + Send + Sync + 'static) -> Self {
        self.grad_output.push(Arc::new(hook));
        self
    }
}

/// `x` with `hooks` on its gradient, the first of which runs first.
fn watched<B: Backend>(x: Tensor<B>, hooks: &[Arc<OfGrad<B>>]) -> Result<Tensor<B>> {
    let tracked = if x.is_tracked() { hooks } else { &[] };
    tracked.iter().rev().try_fold(x, |x, hook| {
        let hook = Arc::clone(hook);
        x.with_grad_hook(move |grad| hook(grad))
    })
}

impl<B: Backend, L: Layer<B>> Layer<B> for Hooked<B, L> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = watched(x.clone(), &self.grad_input)?;
        for hook in &self.before {
            x = hook(&self.layer, &x)?.unwrap_or(x);
        }
        let mut y = self.layer.call(&x)?;
        for hook in &self.after {
            y = hook(&self.layer, &x, &y)?.unwrap_or(y);
        }
        watched(y, &self.grad_output)
    }

    fn flops(&self, input: &Shape, output: &Shape) -> u64 {
        self.layer.flops(input, output)
    }
}

impl<B: Backend, L: Walkable<B>> Walkable<B> for Hooked<B, L> {
    fn kind(&self) -> &'static str {
        self.layer.kind()
    }
    fn module_id(&self) -> ModuleId {
        self.layer.module_id()
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        self.layer.walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        self.layer.walk_mut(walk);
    }
}

impl<B: Backend, L: Clone> Clone for Hooked<B, L> {
    fn clone(&self) -> Self {
        Hooked {
            layer: self.layer.clone(),
            before: self.before.clone(),
            after: self.after.clone(),
            grad_input: self.grad_input.clone(),
            grad_output: self.grad_output.clone(),
        }
    }
}

impl<B: Backend, L: fmt::Debug> fmt::Debug for Hooked<B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hooks = self.before.len() + self.after.len() + self.grad_input.len() + self.grad_output.len();
        write!(f, "Hooked({:?}, {hooks} hooks)", self.layer)
    }
}
