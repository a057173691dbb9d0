//! The context that layers are built with, and initialisation schemes.

mod initializer;
mod orthogonal;

pub use initializer::{Fan, Initializer, Nonlinearity, Scaled, Spread};

use crate::{Backend, DType, Param, Result, Stream, Tensor};
use kiln_core::Shape;

/// The initialisers that layers use for their parameters.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Scheme {
    /// PyTorch's defaults: Linear and convolutions draw weights and biases from U(−1/√fan_in, 1/√fan_in) (its
    /// `kaiming_uniform_(a=√5)`), embeddings from N(0, 1).
    #[default]
    Torch,
    /// Keras's defaults: Glorot uniform weights and zero biases, embeddings from U(−0.05, 0.05).
    Keras,
    /// The same initializers for the weights and for the biases of every layer (embeddings use `weight`).
    With {
        /// For weights.
        weight: Initializer,
        /// For biases.
        bias: Initializer,
    },
}

/// The context that layers are built with: the backend, the dtype, the scheme, and the next random stream.
///
/// Each parameter and each random layer takes the next stream of the seed, from the
/// [streams reserved for this purpose](kiln_core::philox::spaces::INIT), so a model's initial weights are a pure
/// function of the seed and the order in which its layers are made.
#[derive(Clone, Debug)]
pub struct Init<B: Backend> {
    backend: B,
    dtype: DType,
    scheme: Scheme,
    seed: u64,
    stream: u32,
}

impl<B: Backend> Init<B> {
    /// A context for f32 parameters with PyTorch's default initialisation ([`Scheme::Torch`]).
    pub fn new(backend: &B, seed: u64) -> Self {
        Init {
            backend: backend.clone(),
            dtype: DType::F32,
            scheme: Scheme::Torch,
            seed,
            stream: 0,
        }
    }

    /// Sets the dtype of the parameters; f32 by default.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Sets the scheme; [`Scheme::Torch`] by default.
    pub fn scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// Changes the scheme for the layers made from here on.
    pub fn set_scheme(&mut self, scheme: Scheme) {
        self.scheme = scheme;
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The dtype of the parameters.
    pub fn param_dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype of statistics, such as running means: f64 for f64 parameters, else f32.
    pub fn state_dtype(&self) -> DType {
        if self.dtype == DType::F64 {
            DType::F64
        } else {
            DType::F32
        }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Takes the next random stream.
    pub fn next_stream(&mut self) -> Stream {
        let stream = Stream::new(self.seed, self.stream);
        self.stream = self.stream.wrapping_add(1);
        stream
    }

    /// A tensor drawn by `initializer`, whose fans are those of a weight `[out, …, in]`. Takes a stream.
    ///
    /// # Errors
    /// A shape that overflows, parameters outside their domain, memory.
    pub fn tensor(&mut self, shape: &[usize], initializer: &Initializer) -> Result<Tensor<B>> {
        let shape = Shape::new(shape)?;
        let stream = self.next_stream();
        initializer.draw(&self.backend, &shape, Fan::of(&shape), self.dtype, stream)
    }

    /// The weight of a linear layer `[out, in]`, by the scheme. Takes a stream.
    ///
    /// # Errors
    /// As [`Init::tensor`].
    pub fn weight(&mut self, shape: &[usize]) -> Result<Param<B>> {
        Ok(Param::new(self.scheme_weight(shape)?))
    }

    /// The kernel of a convolution `[O, k…, I]`, by the scheme. Takes a stream.
    ///
    /// # Errors
    /// As [`Init::tensor`].
    pub fn kernel(&mut self, shape: &[usize]) -> Result<Param<B>> {
        Ok(Param::kernel(self.scheme_weight(shape)?))
    }

    fn scheme_weight(&mut self, shape: &[usize]) -> Result<Tensor<B>> {
        let initializer = match self.scheme {
            Scheme::Torch => Initializer::TORCH,
            Scheme::Keras => Initializer::xavier_uniform(1.0),
            Scheme::With { weight, .. } => weight,
        };
        self.tensor(shape, &initializer)
    }

    /// The bias `[size]` of a layer with the weight shape `weight`, by the scheme. Takes a stream.
    ///
    /// # Errors
    /// As [`Init::tensor`].
    pub fn bias(&mut self, size: usize, weight: &[usize]) -> Result<Param<B>> {
        let weight = Shape::new(weight)?;
        let initializer = match self.scheme {
            Scheme::Torch => Initializer::TORCH,
            Scheme::Keras => Initializer::Zeros,
            Scheme::With { bias, .. } => bias,
        };
        // The bounds of a bias come from the fans of its weight.
        let stream = self.next_stream();
        let (shape, fan) = (Shape::new(&[size])?, Fan::of(&weight));
        let drawn = initializer.draw(&self.backend, &shape, fan, self.dtype, stream)?;
        Ok(Param::new(drawn))
    }

    /// The table of an embedding `[count, dim]`, by the scheme. Takes a stream.
    ///
    /// # Errors
    /// As [`Init::tensor`].
    pub fn table(&mut self, count: usize, dim: usize) -> Result<Param<B>> {
        let initializer = match self.scheme {
            Scheme::Torch => Initializer::Normal { mean: 0.0, std: 1.0 },
            Scheme::Keras => Initializer::Uniform { low: -0.05, high: 0.05 },
            Scheme::With { weight, .. } => weight,
        };
        Ok(Param::new(self.tensor(&[count, dim], &initializer)?))
    }

    /// A parameter whose elements are all `value`, such as the scale of a norm. Takes no stream.
    ///
    /// # Errors
    /// A shape that overflows, memory.
    pub fn constant(&self, shape: &[usize], value: f64) -> Result<Param<B>> {
        Ok(Param::new(Tensor::full(&self.backend, shape, self.dtype, value)?))
    }
}
