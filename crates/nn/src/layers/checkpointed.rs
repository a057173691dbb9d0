//! Layers that are computed again for their gradients.

use super::Layer;
use crate::autograd::recompute::checkpoint_layer;
use crate::module::Runnable;
use crate::{Backend, Result, Shape, Tensor, Walk, WalkMut, Walkable};
use kiln_core::ModuleId;

/// A layer with activation checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016;
/// `torch.utils.checkpoint`): of its forward pass only the input is kept, and the backward pass computes the layer again. That saves the
/// memory of everything between input and output, and costs a second forward pass of the layer. Values and gradients are those of
/// the layer, with the same random numbers; running statistics move once. Names of parameters, errors and traces are those of the
/// layer.
///
/// [`checkpoint_layers`](crate::autograd::checkpoint_layers) does so with layers of a model by their names.
///
/// ```
/// use kiln_nn::layers::{Checkpointed, Dropout, Linear, Relu};
/// use kiln_nn::{DType, Init, Layer, Module, Sequential, Tensor};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let mut block = |width| -> kiln_nn::Result<Sequential<_>> {
///     Ok(Sequential::new().push(Linear::new(init, width, width)?).push(Relu).push(Dropout::new(init, 0.1)?))
/// };
/// let net = Sequential::new().push(Checkpointed::new(block(8)?)).push(Checkpointed::new(block(8)?));
/// let loss = net.forward(&Tensor::ones(&cpu, &[4, 8], DType::F32)?)?.square()?.sum(&[], false)?;
/// assert!(net.parameters().into_iter().all(|p| loss.backward_retain().unwrap().get(p).is_some()));
/// assert_eq!(net.named_parameters()[0].0, "0.0.weight");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Checkpointed<L> {
    /// The layer.
    pub layer: L,
}

impl<L> Checkpointed<L> {
    /// The layer, computed again for its gradients.
    ///
    /// See the example of [`Checkpointed`].
    pub fn new(layer: L) -> Self {
        Checkpointed { layer }
    }
}

impl<B: Backend, L: Layer<B> + Clone + 'static> Layer<B> for Checkpointed<L> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let copy = || self.layer.duplicate();
        checkpoint_layer(&self.layer, copy, x, &|| self.layer.call(x))
    }

    fn flops(&self, input: &Shape, output: &Shape) -> u64 {
        self.layer.flops(input, output)
    }
}

impl<B: Backend, L: Walkable<B>> Walkable<B> for Checkpointed<L> {
    fn kind(&self) -> &'static str {
        self.layer.kind()
    }
    fn module_id(&self) -> ModuleId {
        self.layer.module_id()
    }
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        self.layer.copied()
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        self.layer.walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        self.layer.walk_mut(walk);
    }
}
