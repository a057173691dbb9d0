//! The fully connected layer.

use super::{Layer, Lora};
use crate::autograd::recompute;
use crate::module::Runnable;
use crate::ops::activate;
use crate::{Backend, Error, Init, Param, Result, Shape, Tensor, Walk, WalkMut, Walkable, trace};
use kiln_core::ModuleId;
use kiln_core::ops::{Activation, MatmulParams};
use std::marker::PhantomData;

/// `y = f(x·Wᵀ + b)` over the last dimension (`torch.nn.Linear`, fused with an activation if one is set).
///
/// Input `[…, in]`, output `[…, out]`; `weight` is `[out, in]`, `bias` is `[out]`.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Tensor, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// let layer = Linear::new(&mut Init::new(&cpu, 0), 64, 10)?;
/// let x = Tensor::zeros(&cpu, &[32, 64], DType::F32)?;
/// assert_eq!(layer.forward(&x)?.shape().dims(), [32, 10]);
/// assert_eq!(layer.weight.shape().dims(), [10, 64]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Linear<B: Backend> {
    /// The matrix `[out, in]`.
    pub weight: Param<B>,
    /// The bias `[out]`.
    pub bias: Option<Param<B>>,
    /// A low-rank addition to the weight, before the activation; none unless a model is fine-tuned by it
    /// ([`LoraOptions`](crate::lora::LoraOptions)).
    pub lora: Option<Box<Lora<B>>>,
    activation: Activation,
}

impl<B: Backend> Walkable<B> for Linear<B> {
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        Some(self.duplicate())
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        walk.field("weight", &self.weight);
        walk.field("bias", &self.bias);
        if let Some(lora) = &self.lora {
            lora.walk(walk);
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        if walk.layer(self) {
            return;
        }
        walk.field("weight", &mut self.weight);
        walk.field("bias", &mut self.bias);
        if let Some(lora) = &mut self.lora {
            lora.walk_mut(walk);
        }
    }
}

/// The options of a [`Linear`].
///
/// See the example of [`Linear::builder`].
#[derive(Clone, Copy, Debug)]
pub struct LinearBuilder<B> {
    inputs: usize,
    outputs: usize,
    bias: bool,
    activation: Activation,
    backend: PhantomData<fn() -> B>,
}

#[compiled_once]
impl<B: Backend> Linear<B> {
    /// A layer from `inputs` to `outputs` features, with a bias.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = Linear::new(init, 64, 10)?;
    /// let tokens = Tensor::zeros(&cpu, &[2, 7, 64], DType::F32)?;
    /// assert_eq!(layer.forward(&tokens)?.shape().dims(), [2, 7, 10]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// No inputs or no outputs, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, outputs: usize) -> Result<Self> {
        Self::builder(inputs, outputs).build(init)
    }

    /// A layer with options.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Init, Layer, Rng, Tensor, layers::{Linear, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = Linear::builder(64, 10).bias(false).activation(Activation::Relu).build(init)?;
    /// let x = Tensor::randn(&cpu, &[32, 64], DType::F32, &mut Rng::new(0))?;
    /// assert!(layer.forward(&x)?.to_f64()?.iter().all(|&y| y >= 0.0));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(inputs: usize, outputs: usize) -> LinearBuilder<B> {
        LinearBuilder {
            inputs,
            outputs,
            bias: true,
            activation: Activation::None,
            backend: PhantomData,
        }
    }
}

#[compiled_once]
impl<B: Backend> Linear<B> {
    /// The results of several layers for one input, side by side along the last dimension: `[…, in]` to `[…, Σ out]`. Layers that have a
    /// bias and no activation are one product ([`Tensor::linear_joined`]), such as those of queries, keys and values of attention.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let [query, key] = [Linear::new(init, 8, 4)?, Linear::new(init, 8, 6)?];
    /// let x = Tensor::ones(&cpu, &[2, 8], DType::F32)?;
    /// let both = Linear::forward_joined(&[&query, &key], &x)?;
    /// assert_eq!(both.narrow(1, 4, 6)?.to_vec::<f32>()?, key.forward(&x)?.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::linear_joined`].
    pub fn forward_joined(layers: &[&Linear<B>], x: &Tensor<B>) -> Result<Tensor<B>> {
        let ids: Vec<ModuleId> = layers.iter().map(|layer| layer.module_id()).collect();
        let plain = layers.iter().map(|layer| match (&layer.bias, layer.activation) {
            (Some(bias), Activation::None) if layer.addition().is_none() => {
                Some((layer.weight.tensor(), bias.tensor()))
            }
            _ => None,
        });
        match plain.collect::<Option<Vec<_>>>() {
            Some(layers) if !trace::is_on() && !recompute::selects(&ids) => x.linear_joined(&layers),
            _ => {
                let parts = layers
                    .iter()
                    .map(|layer| layer.forward(x))
                    .collect::<Result<Vec<_>>>()?;
                Tensor::concat(&parts.iter().collect::<Vec<_>>(), -1)
            }
        }
    }

    /// The layer's function with this weight.
    pub(super) fn run(&self, weight: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        let Some(lora) = self.addition() else {
            return x.linear(weight, self.bias.as_deref(), self.activation);
        };
        let y = x.linear(weight, self.bias.as_deref(), Activation::None)?;
        activate(self.activation, y.add(&lora.added(x)?)?)
    }

    /// The addition that the weight does not have in it.
    fn addition(&self) -> Option<&Lora<B>> {
        self.lora.as_deref().filter(|lora| !lora.merged)
    }
}

#[compiled_once]
impl<B: Backend> LinearBuilder<B> {
    /// With or without a bias; with by default.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = Linear::builder(64, 10).bias(false).build(init)?;
    /// assert_eq!(layer.num_parameters(), 640);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Applies an activation to the result, in the same kernel.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Init, Layer, Tensor, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = Linear::builder(64, 10).activation(Activation::Tanh).build(init)?;
    /// let x = Tensor::full(&cpu, &[1, 64], DType::F32, 100.0)?;
    /// assert!(layer.forward(&x)?.to_f64()?.iter().all(|y| y.abs() <= 1.0));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Makes the layer.
    ///
    /// See the example of [`Linear::builder`].
    ///
    /// # Errors
    /// As [`Linear::new`].
    pub fn build(self, init: &mut Init<B>) -> Result<Linear<B>> {
        for (name, value) in [("inputs", self.inputs), ("outputs", self.outputs)] {
            if value == 0 {
                return Err(Error::invalid("linear", name, 0, "at least 1"));
            }
        }
        let shape = [self.outputs, self.inputs];
        Ok(Linear {
            weight: init.weight(&shape)?,
            bias: self.bias.then(|| init.bias(self.outputs, &shape)).transpose()?,
            lora: None,
            activation: self.activation,
        })
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for Linear<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.run(&self.weight, x)
    }

    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        let w = self.weight.shape();
        let p = Shape::new(&[input.size() / w[1], w[1]]).and_then(|x| MatmulParams::new("linear", &x, w, false, true));
        p.map_or(0, |(p, _)| p.flops())
    }
}
