//! The context that layers are built with, and initialisation schemes.

mod initializer;
mod orthogonal;

pub use initializer::{Fan, Initializer, Nonlinearity, Scaled, Spread};

use crate::{Backend, DType, Param, Result, Stream, Tensor};
use kiln_core::Shape;

/// The initialisers that layers use for their parameters.
///
/// ```
/// use kiln_nn::{Init, Initializer, Scheme, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// let mut init = Init::new(&cpu, 0).scheme(Scheme::Keras);
/// assert_eq!(Linear::new(&mut init, 4, 2)?.bias.map(|b| b.to_vec::<f32>()).transpose()?, Some(vec![0.0; 2]));
/// init.set_scheme(Scheme::With { weight: Initializer::Orthogonal { gain: 1.0 }, bias: Initializer::Constant(0.1) });
/// assert_eq!(Linear::new(&mut init, 4, 2)?.bias.map(|b| b.to_vec::<f32>()).transpose()?, Some(vec![0.1; 2]));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
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
///
/// ```
/// use kiln_nn::{Init, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// let made = |seed| Linear::new(&mut Init::new(&cpu, seed), 4, 2)?.weight.to_vec::<f32>();
/// assert_eq!(made(42)?, made(42)?);
/// assert_ne!(made(42)?, made(43)?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Init<B: Backend> {
    backend: B,
    dtype: DType,
    scheme: Scheme,
    seed: u64,
    stream: u32,
}

#[compiled_once]
impl<B: Backend> Init<B> {
    /// A context for f32 parameters with PyTorch's default initialisation ([`Scheme::Torch`]).
    ///
    /// See the example of [`Init`].
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
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut init = Init::new(&cpu, 0).dtype(DType::BF16);
    /// assert_eq!(Linear::new(&mut init, 4, 2)?.weight.dtype(), DType::BF16);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Sets the scheme; [`Scheme::Torch`] by default.
    ///
    /// See the example of [`Scheme`].
    pub fn scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// Changes the scheme for the layers made from here on.
    ///
    /// See the example of [`Scheme`].
    pub fn set_scheme(&mut self, scheme: Scheme) {
        self.scheme = scheme;
    }

    /// The backend.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let init = Init::new(&kiln_cpu::Cpu::new(), 0);
    /// assert_eq!(Tensor::zeros(init.backend(), &[3], init.param_dtype())?.dtype(), DType::F32);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The dtype of the parameters.
    ///
    /// See the example of [`Init::backend`].
    pub fn param_dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype of statistics, such as running means: f64 for f64 parameters, else f32.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let init = Init::new(&kiln_cpu::Cpu::new(), 0).dtype(DType::BF16);
    /// assert_eq!(init.state_dtype(), DType::F32);
    /// ```
    pub fn state_dtype(&self) -> DType {
        if self.dtype == DType::F64 {
            DType::F64
        } else {
            DType::F32
        }
    }

    /// The seed.
    ///
    /// ```
    /// # use kiln_nn::Init;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// assert_eq!(Init::new(&kiln_cpu::Cpu::new(), 42).seed(), 42);
    /// ```
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Takes the next random stream.
    ///
    /// ```
    /// # use kiln_nn::Init;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut init = Init::new(&kiln_cpu::Cpu::new(), 42);
    /// assert_ne!(init.next_stream(), init.next_stream());
    /// ```
    pub fn next_stream(&mut self) -> Stream {
        let stream = Stream::new(self.seed, self.stream);
        self.stream = self.stream.wrapping_add(1);
        stream
    }

    /// A tensor drawn by `initializer`, whose fans are those of a weight `[out, …, in]`. Takes a stream.
    ///
    /// ```
    /// # use kiln_nn::{Init, Initializer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let table = init.tensor(&[100, 8], &Initializer::Uniform { low: -0.5, high: 0.5 })?;
    /// assert!(table.to_f64()?.iter().all(|v| (-0.5..0.5).contains(v)));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::Init;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let weight = init.weight(&[10, 64])?; // uniform on ±1/√64
    /// assert!(weight.to_f64()?.iter().all(|v| v.abs() <= 0.125));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Init::tensor`].
    pub fn weight(&mut self, shape: &[usize]) -> Result<Param<B>> {
        Ok(Param::new(self.scheme_weight(shape)?))
    }

    /// The kernel of a convolution `[O, k…, I]`, by the scheme. Takes a stream.
    ///
    /// ```
    /// # use kiln_nn::{Init, module::ParamLayout};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let kernel = init.kernel(&[8, 5, 5, 3])?;
    /// assert_eq!(kernel.layout(), ParamLayout::Kernel);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::Init;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let bias = init.bias(10, &[10, 64])?; // uniform on ±1/√64
    /// assert!(bias.to_f64()?.iter().all(|v| v.abs() <= 0.125));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::Init;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// assert_eq!(init.table(1000, 64)?.shape().dims(), [1000, 64]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::Init;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// assert_eq!(init.constant(&[3], 1.0)?.to_vec::<f32>()?, [1.0; 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape that overflows, memory.
    pub fn constant(&self, shape: &[usize], value: f64) -> Result<Param<B>> {
        Ok(Param::new(Tensor::full(&self.backend, shape, self.dtype, value)?))
    }
}
