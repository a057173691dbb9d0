//! Layers whose weight is computed from other parameters in every forward pass.

use super::{Conv, ConvTranspose, Layer, Linear};
use crate::init::Initializer;
use crate::{Backend, Error, Init, Mode, Module, Param, Result, State, Tensor, no_grad};

/// A layer with one weight, which can run with another in its place: [`Linear`] and convolutions.
///
/// ```
/// use kiln_nn::layers::{Linear, Weighted};
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let layer = Linear::new(&mut Init::new(&cpu, 0), 3, 2)?;
/// let x = Tensor::ones(&cpu, &[1, 3], DType::F32)?;
/// let (y, same) = (layer.forward(&x)?, layer.call_with(layer.weight(), &x)?);
/// assert_eq!(y.to_vec::<f32>()?, same.to_vec::<f32>()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub trait Weighted<B: Backend>: Layer<B> + Clone + 'static {
    /// The weight.
    ///
    /// See the example of [`Weighted`].
    fn weight(&self) -> &Param<B>;

    /// The axis of the weight that counts the outputs.
    fn output_axis(&self) -> usize {
        0
    }

    /// The layer's function with `weight` in place of its own, which has the same shape.
    ///
    /// See the example of [`Weighted`].
    ///
    /// # Errors
    /// Those of [`Layer::call`]; a weight of another shape.
    fn call_with(&self, weight: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>>;
}

impl<B: Backend> Weighted<B> for Linear<B> {
    fn weight(&self) -> &Param<B> {
        &self.weight
    }
    fn call_with(&self, weight: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.run(weight, x)
    }
}

impl<B: Backend, const R: usize> Weighted<B> for Conv<B, R> {
    fn weight(&self) -> &Param<B> {
        &self.weight
    }
    fn call_with(&self, weight: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.run(weight, x)
    }
}

impl<B: Backend, const R: usize> Weighted<B> for ConvTranspose<B, R> {
    fn weight(&self) -> &Param<B> {
        &self.weight
    }
    fn output_axis(&self) -> usize {
        R + 1
    }
    fn call_with(&self, weight: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.run(weight, x)
    }
}

/// A layer whose weight is `g·v/‖v‖`, a length and a direction for each entry of its first axis (`torch.nn.utils.weight_norm`;
/// Salimans and Kingma 2016). The direction is the layer's own parameter.
///
/// ```
/// use kiln_nn::layers::{Linear, WeightNorm};
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let mut layer = WeightNorm::new(Linear::builder(3, 2).bias(false).build(&mut Init::new(&cpu, 0))?)?;
/// layer.weight_g.assign(&Tensor::zeros(&cpu, &[2, 1], DType::F32)?)?;
/// let y = layer.forward(&Tensor::ones(&cpu, &[1, 3], DType::F32)?)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct WeightNorm<B: Backend, L: Weighted<B> + 'static> {
    /// The lengths, `[O, 1, …]`.
    pub weight_g: Param<B>,
    /// The layer, with the directions as its weight.
    pub layer: L,
}

/// The root of the sum of squares of each entry of the first axis.
fn lengths<B: Backend>(v: &Tensor<B>) -> Result<Tensor<B>> {
    let axes: Vec<isize> = (1..v.rank() as isize).collect();
    v.norm(2.0, &axes, true)
}

impl<B: Backend, L: Weighted<B>> WeightNorm<B, L> {
    /// The layer with the lengths that its weight has.
    ///
    /// See the example of [`WeightNorm`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(layer: L) -> Result<Self> {
        let weight_g = Param::new(no_grad(|| lengths(layer.weight()))?);
        Ok(WeightNorm { weight_g, layer })
    }
}

impl<B: Backend, L: Weighted<B>> Layer<B> for WeightNorm<B, L> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let v = self.layer.weight().tensor();
        let weight = v.mul(&self.weight_g.div(&lengths(v)?)?)?;
        self.layer.call_with(&weight, x)
    }
}

/// A layer whose weight is divided by its largest singular value, so that it stretches no vector (`torch.nn.utils.spectral_norm`;
/// Miyato et al. 2018). Each training pass takes one step of the power iteration towards that value.
///
/// ```
/// use kiln_nn::layers::{Linear, SpectralNorm};
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let mut linear = Linear::builder(2, 2).bias(false).build(init)?;
/// linear.weight.assign(&Tensor::from_slice(&cpu, &[4f32, 0.0, 0.0, 1.0], &[2, 2])?)?;
/// let layer = SpectralNorm::new(init, linear)?;
/// let y = layer.forward(&Tensor::ones(&cpu, &[1, 2], DType::F32)?)?.to_vec::<f32>()?;
/// assert!((y[0] - 1.0).abs() < 1e-6 && (y[1] - 0.25).abs() < 1e-6);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct SpectralNorm<B: Backend, L: Weighted<B> + 'static> {
    /// The layer, with the weight before its division.
    pub layer: L,
    weight_u: State<B>,
    weight_v: State<B>,
    steps: usize,
    mode: Mode,
}

/// The least length of a vector that is divided by its length.
const EPS: f64 = 1e-12;

fn unit<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    x.div(&x.norm(2.0, &[], false)?.clamp_min(EPS)?)
}

impl<B: Backend, L: Weighted<B>> SpectralNorm<B, L> {
    /// The layer with a random start, fifteen steps of the power iteration, and one more in each training pass. Takes two
    /// streams of `init`.
    ///
    /// See the example of [`SpectralNorm`].
    ///
    /// # Errors
    /// A weight without elements, memory.
    pub fn new(init: &mut Init<B>, layer: L) -> Result<Self> {
        let matrix = no_grad(|| matrix(&layer))?;
        let &[rows, columns] = matrix.shape().dims() else {
            return Err(Error::invalid("spectral_norm", "weight", matrix.shape(), "a matrix"));
        };
        if rows * columns == 0 {
            return Err(Error::invalid(
                "spectral_norm",
                "weight",
                matrix.shape(),
                "at least one element",
            ));
        }
        let normal = Initializer::Normal { mean: 0.0, std: 1.0 };
        let mut draw = |size| init.tensor(&[size], &normal)?.to_dtype(init.state_dtype());
        let (u, v) = (unit(&draw(rows)?)?, unit(&draw(columns)?)?);
        let norm = SpectralNorm {
            layer,
            weight_u: State::new(u),
            weight_v: State::new(v),
            steps: 1,
            mode: Mode::default(),
        };
        norm.iterate(15)?;
        Ok(norm)
    }

    /// Sets the steps of the power iteration in a training pass (`n_power_iterations`); 1 by default.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::{Linear, SpectralNorm}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let linear = Linear::new(init, 8, 8)?;
    /// let layer = SpectralNorm::new(init, linear)?.power_iterations(3);
    /// # let _ = layer;
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn power_iterations(mut self, steps: usize) -> Self {
        self.steps = steps;
        self
    }

    /// Moves both vectors towards the singular ones of the largest value.
    fn iterate(&self, steps: usize) -> Result<()> {
        no_grad(|| {
            let w = matrix(&self.layer)?.to_dtype(self.weight_u.get().dtype())?;
            for _ in 0..steps {
                let v = unit(&self.weight_u.get().matmul(&w)?)?;
                let u = unit(&w.matmul(&v)?)?;
                self.weight_v.assign(&v)?;
                self.weight_u.assign(&u)?;
            }
            Ok(())
        })
    }
}

/// The weight as a matrix with a row for each output.
fn matrix<B: Backend, L: Weighted<B>>(layer: &L) -> Result<Tensor<B>> {
    let weight = layer.weight().tensor();
    let axis = layer.output_axis();
    let mut axes: Vec<isize> = (0..weight.rank() as isize).collect();
    axes.remove(axis);
    axes.insert(0, axis as isize);
    let first = weight.permute(&axes)?;
    let rows = first.shape()[0];
    let columns = first.size() / rows.max(1);
    first.reshape(&[rows, columns])
}

impl<B: Backend, L: Weighted<B>> Layer<B> for SpectralNorm<B, L> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        if self.mode.is_training() {
            self.iterate(self.steps)?;
        }
        // Copies: the next pass moves the vectors while this one's gradient still needs them.
        let weight = self.layer.weight().tensor();
        let [u, v] = [&self.weight_u, &self.weight_v].map(|s| s.get().copy()?.to_dtype(weight.dtype()));
        let largest = u?.mul(&matrix(&self.layer)?.matmul(&v?)?)?.sum(&[], false)?;
        self.layer.call_with(&weight.div(&largest)?, x)
    }
}
