//! The kinds of recurrent layers.

use super::builder::RecurrentBuilder;
use super::directions::RecurrentLayers;
use crate::layers::Layer;
use crate::module::Runnable;
use crate::ops::RecurrentCell;
use crate::{Backend, Init, Result, Shape, Tensor, Walk, WalkMut, Walkable};
use kiln_core::ModuleId;
use std::ops::Deref;

/// Declares a kind of recurrent layers, a [`RecurrentLayers`] with a constructor.
macro_rules! kinds {
    ($($(#[$doc:meta])* pub struct $name:ident = $cell:ident, $(#[$of_builder:meta])*;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name<B: Backend>(RecurrentLayers<B>);

        impl<B: Backend> $name<B> {
            /// One layer in one direction, from `inputs` elements to states of `hidden`.
            ///
            #[doc = concat!("See the example of [`", stringify!($name), "`].")]
            ///
            /// # Errors
            /// As [`RecurrentBuilder::build`].
            pub fn new(init: &mut Init<B>, inputs: usize, hidden: usize) -> Result<Self> {
                Self::builder(inputs, hidden).build(init)
            }

            $(#[$of_builder])*
            pub fn builder(inputs: usize, hidden: usize) -> RecurrentBuilder<B, Self> {
                RecurrentBuilder::of(RecurrentCell::$cell, inputs, hidden)
            }
        }

        impl<B: Backend> From<RecurrentLayers<B>> for $name<B> {
            fn from(layers: RecurrentLayers<B>) -> Self {
                $name(layers)
            }
        }

        impl<B: Backend> Deref for $name<B> {
            type Target = RecurrentLayers<B>;
            fn deref(&self) -> &RecurrentLayers<B> {
                &self.0
            }
        }

        impl<B: Backend> Walkable<B> for $name<B> {
            fn kind(&self) -> &'static str {
                self.0.kind()
            }
            fn module_id(&self) -> ModuleId {
                self.0.module_id()
            }
            fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
                Some(Runnable::duplicate(self))
            }
            fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
                self.0.walk(walk);
            }
            fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
                self.0.walk_mut(walk);
            }
        }

        impl<B: Backend> Layer<B> for $name<B> {
            fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                self.0.call(x)
            }
            fn flops(&self, input: &Shape, output: &Shape) -> u64 {
                Layer::flops(&self.0, input, output)
            }
        }
    )*};
}

kinds! {
    /// An Elman network (`torch.nn.RNN`; Elman, "Finding Structure in Time", 1990): `h' = tanh(W·x + b + U·h + d)`, or with a ReLU.
    /// Shapes, results and states are those of [`RecurrentLayers`].
    ///
    /// ```
    /// use kiln_nn::{DType, Init, Layer, Tensor, layers::Rnn};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let rnn = Rnn::new(&mut Init::new(&cpu, 0), 8, 16)?;
    /// let x = Tensor::zeros(&cpu, &[5, 3, 8], DType::F32)?; // 5 steps of 3 sequences
    /// assert_eq!(rnn.forward(&x)?.shape().dims(), [5, 3, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub struct Rnn = Tanh,
    /// Layers with options.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Rnn};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let rnn = Rnn::builder(8, 16).relu().layers(2).bias(false).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[5, 3, 8], DType::F32)?;
    /// assert_eq!(rnn.forward(&x)?.to_vec::<f32>()?, [0.0; 240]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ;
    /// Long short-term memory (`torch.nn.LSTM`; Hochreiter & Schmidhuber 1997, with forget gates, Gers et al. 2000), in PyTorch's order
    /// of the gates: input, forget, cell, output. Shapes, results and states are those of [`RecurrentLayers`].
    ///
    /// ```
    /// use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::Lstm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let lstm = Lstm::new(&mut Init::new(&cpu, 0), 8, 16)?;
    /// let x = Tensor::zeros(&cpu, &[5, 3, 8], DType::F32)?; // 5 steps of 3 sequences
    /// assert_eq!(lstm.forward(&x)?.shape().dims(), [5, 3, 16]);
    /// let shapes: Vec<String> = lstm.named_parameters().iter().map(|(name, p)| format!("{name} {}", p.shape())).collect();
    /// assert_eq!(shapes, ["weight_ih_l0 [64, 8]", "weight_hh_l0 [64, 16]", "bias_ih_l0 [64]", "bias_hh_l0 [64]"]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub struct Lstm = Lstm,
    /// Layers with options.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Lstm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let lstm = Lstm::builder(8, 16).layers(2).dropout(0.1).bidirectional(true).batch_first(true).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[3, 5, 8], DType::F32)?;
    /// assert_eq!(lstm.forward(&x)?.shape().dims(), [3, 5, 32]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ;
    /// Gated recurrent units (`torch.nn.GRU`; Cho et al. 2014, with the reset gate behind the product of the state), in PyTorch's order of
    /// the gates: reset, update, new. Shapes, results and states are those of [`RecurrentLayers`].
    ///
    /// ```
    /// use kiln_nn::{DType, Init, Layer, Tensor, layers::Gru};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let gru = Gru::new(&mut Init::new(&cpu, 0), 8, 16)?;
    /// let x = Tensor::zeros(&cpu, &[5, 3, 8], DType::F32)?; // 5 steps of 3 sequences
    /// assert_eq!(gru.forward(&x)?.shape().dims(), [5, 3, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub struct Gru = Gru,
    /// Layers with options.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Gru};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let gru = Gru::builder(8, 16).layers(3).batch_first(true).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[3, 5, 8], DType::F32)?;
    /// assert_eq!(gru.forward(&x)?.shape().dims(), [3, 5, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ;
}

impl<B: Backend> RecurrentBuilder<B, Lstm<B>> {
    /// The elements of the states after their projection (`proj_size`), fewer than the cells have; 0, the default, for no projection (Sak
    /// et al., "Long Short-Term Memory Based Recurrent Neural Network Architectures", 2014).
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Tensor, layers::Lstm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let lstm = Lstm::builder(8, 16).proj_size(4).build(init)?;
    /// let (y, state) = lstm.forward_from(&Tensor::zeros(&cpu, &[5, 3, 8], DType::F32)?, None)?;
    /// assert_eq!((y.shape()[2], state.c.map(|c| c.shape()[2])), (4, Some(16)));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn proj_size(mut self, elements: usize) -> Self {
        self.projection = elements;
        self
    }
}

impl<B: Backend> RecurrentBuilder<B, Rnn<B>> {
    /// A ReLU in place of the hyperbolic tangent (`nonlinearity='relu'`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Rnn};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let rnn = Rnn::builder(3, 4).relu().build(init)?;
    /// let x = Tensor::ones(&cpu, &[2, 1, 3], DType::F32)?;
    /// assert!(rnn.forward(&x)?.to_vec::<f32>()?.iter().all(|&h| h >= 0.0));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn relu(mut self) -> Self {
        self.cell = RecurrentCell::Relu;
        self
    }
}
