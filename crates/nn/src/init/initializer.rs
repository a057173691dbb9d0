//! Initializers and their names.

use super::orthogonal::orthogonal;
use crate::ops::random;
use crate::{Backend, DType, Error, Result, Stream, Tensor};
use kiln_core::Shape;
use kiln_core::ops::Distribution;
use std::fmt;
use std::str::FromStr;

/// The fan-in and fan-out of a weight (`torch.nn.init._calculate_fan_in_and_fan_out`): each is a number of channels times the
/// number of elements of the kernel's window.
///
/// ```
/// # use kiln_nn::{Shape, init::Fan};
/// let fan = Fan::of(&Shape::new(&[8, 5, 5, 3])?); // the kernel of a convolution from 3 to 8 channels
/// assert_eq!(fan, Fan { fan_in: 75, fan_out: 200 });
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fan {
    /// The number of inputs that one output depends on.
    pub fan_in: usize,
    /// The number of outputs that one input contributes to.
    pub fan_out: usize,
}

impl Fan {
    /// The fans of a weight `[out, …, in]`; both fans of a vector are its length. As in PyTorch and Keras, the shape alone
    /// decides, for grouped and transposed convolutions too.
    ///
    /// See the example of [`Fan`].
    pub fn of(shape: &Shape) -> Fan {
        let n = shape.size();
        match shape.dims() {
            [] => Fan { fan_in: 1, fan_out: 1 },
            [one] => Fan {
                fan_in: *one,
                fan_out: *one,
            },
            [out, .., input] => Fan {
                fan_in: n / (*out).max(1),
                fan_out: n / (*input).max(1),
            },
        }
    }
}

/// The fan that the variance of a weight is divided by (`mode` of `torch.nn.init.kaiming_uniform_`).
///
/// ```
/// # use kiln_nn::{Initializer, init::{Nonlinearity, Scaled}, layers::Linear};
/// let (out, mean) = (Scaled::FanOut, Scaled::FanMean);
/// assert_eq!(Initializer::kaiming_normal(mean, Nonlinearity::Linear), Initializer::xavier_normal(1.0));
/// assert_ne!(Initializer::kaiming_normal(out, Nonlinearity::Linear), Initializer::xavier_normal(1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaled {
    /// The fan-in: activations keep their variance in the forward pass.
    FanIn,
    /// The fan-out: gradients keep their variance in the backward pass.
    FanOut,
    /// The mean of fan-in and fan-out.
    FanMean,
}

/// The family of a distribution whose variance is given.
///
/// ```
/// # use kiln_nn::{Initializer, init::{Scaled, Spread}};
/// let lecun_normal = Initializer::VarianceScaling { scale: 1.0, fan: Scaled::FanIn, spread: Spread::TruncatedNormal };
/// assert_eq!("lecun_normal".parse::<Initializer>()?, lecun_normal);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Uniform around 0.
    Uniform,
    /// Normal around 0.
    Normal,
    /// Normal cut at two standard deviations and widened to keep the variance (Keras's normal initializers).
    TruncatedNormal,
}

/// The function that follows a layer; its gain keeps the variance constant through both (`torch.nn.init.calculate_gain`).
///
/// ```
/// # use kiln_nn::{init::Nonlinearity, layers::Relu};
/// assert_eq!(Nonlinearity::Relu.gain(), 2f64.sqrt());
/// assert_eq!(Nonlinearity::LeakyRelu(1.0).gain(), 1.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nonlinearity {
    /// No function: gain 1.
    Linear,
    /// ReLU: gain √2.
    Relu,
    /// Leaky ReLU of this slope: gain √(2/(1 + slope²)).
    LeakyRelu(f64),
    /// tanh: gain 5/3.
    Tanh,
    /// The logistic function: gain 1.
    Sigmoid,
    /// SELU: gain 3/4.
    Selu,
}

impl Nonlinearity {
    /// The factor for the standard deviation of the weight.
    ///
    /// See the example of [`Nonlinearity`].
    pub fn gain(self) -> f64 {
        match self {
            Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
            Nonlinearity::Relu => 2f64.sqrt(),
            Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Nonlinearity::Tanh => 5.0 / 3.0,
            Nonlinearity::Selu => 0.75,
        }
    }
}

/// How a parameter gets its first values.
///
/// Parses from its name, with arguments in parentheses where it takes any: `zeros`, `constant(0.1)`,
/// `uniform(-0.1, 0.1)`, `normal(0, 0.02)`, `truncated_normal(0, 0.02)`, `orthogonal`, `orthogonal(1.4)`,
/// `kaiming_uniform`, `kaiming_normal`, `xavier_uniform`, `xavier_normal` (PyTorch), `he_uniform`, `he_normal`,
/// `glorot_uniform`, `glorot_normal`, `lecun_uniform`, `lecun_normal` (Keras, whose normals are truncated) and
/// `torch` (PyTorch's default for Linear and Conv).
///
/// ```
/// use kiln_nn::{Init, Initializer};
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let initializer: Initializer = "truncated_normal(0, 0.02)".parse()?;
/// assert!(init.tensor(&[64, 64], &initializer)?.to_f64()?.iter().all(|v| v.abs() <= 0.04 + 1e-6));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initializer {
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
    /// The same value for every element.
    Constant(f64),
    /// Uniform on `low ≤ x < high`.
    Uniform {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// Normal distribution.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Normal, redrawn outside of two standard deviations.
    TruncatedNormal {
        /// Mean before the cut.
        mean: f64,
        /// Standard deviation before the cut.
        std: f64,
    },
    /// Variance `scale / fan`: the family of LeCun (1998, scale 1), Glorot and Bengio (2010, the mean of both fans)
    /// and He et al. (2015, scale 2).
    VarianceScaling {
        /// The variance times the fan: the square of the gain.
        scale: f64,
        /// The fan that the variance is divided by.
        fan: Scaled,
        /// The family of the distribution.
        spread: Spread,
    },
    /// Orthonormal rows or columns (whichever are fewer) of the weight seen as `[out, rest]`, times a gain
    /// (Saxe et al. 2013; `torch.nn.init.orthogonal_`).
    Orthogonal {
        /// The length of each vector.
        gain: f64,
    },
}

impl Initializer {
    /// PyTorch's default for Linear and Conv: `kaiming_uniform_(a=√5)`, that is U(−1/√fan_in, 1/√fan_in).
    ///
    /// ```
    /// # use kiln_nn::Initializer;
    /// assert_eq!("torch".parse::<Initializer>()?, Initializer::TORCH);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub const TORCH: Initializer = Initializer::VarianceScaling {
        scale: 1.0 / 3.0,
        fan: Scaled::FanIn,
        spread: Spread::Uniform,
    };

    fn scaled(gain: f64, fan: Scaled, spread: Spread) -> Self {
        Initializer::VarianceScaling {
            scale: gain * gain,
            fan,
            spread,
        }
    }

    /// `torch.nn.init.kaiming_uniform_`.
    ///
    /// ```
    /// # use kiln_nn::{Init, Initializer, init::{Nonlinearity, Scaled}, layers::Relu};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let he_uniform = Initializer::kaiming_uniform(Scaled::FanIn, Nonlinearity::Relu);
    /// let weight = init.tensor(&[10, 600], &he_uniform)?; // uniform on ±√(6/600)
    /// assert!(weight.to_f64()?.iter().all(|v| v.abs() <= 0.1 + 1e-6));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn kaiming_uniform(fan: Scaled, nonlinearity: Nonlinearity) -> Self {
        Self::scaled(nonlinearity.gain(), fan, Spread::Uniform)
    }

    /// `torch.nn.init.kaiming_normal_`.
    ///
    /// ```
    /// # use kiln_nn::{Init, Initializer, init::{Nonlinearity, Scaled}, layers::Relu};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let weight = init.tensor(&[500, 200], &Initializer::kaiming_normal(Scaled::FanIn, Nonlinearity::Relu))?;
    /// assert!((weight.std(&[], 1, false)?.item()? - 0.1).abs() < 1e-3); // √(2/200)
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn kaiming_normal(fan: Scaled, nonlinearity: Nonlinearity) -> Self {
        Self::scaled(nonlinearity.gain(), fan, Spread::Normal)
    }

    /// `torch.nn.init.xavier_uniform_`; with gain 1 Keras's `glorot_uniform`.
    ///
    /// ```
    /// # use kiln_nn::{Init, Initializer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let weight = init.tensor(&[300, 300], &Initializer::xavier_uniform(1.0))?; // uniform on ±√(6/600)
    /// assert!(weight.to_f64()?.iter().all(|v| v.abs() <= 0.1 + 1e-6));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn xavier_uniform(gain: f64) -> Self {
        Self::scaled(gain, Scaled::FanMean, Spread::Uniform)
    }

    /// `torch.nn.init.xavier_normal_`.
    ///
    /// ```
    /// # use kiln_nn::{Init, Initializer};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let weight = init.tensor(&[500, 300], &Initializer::xavier_normal(1.0))?;
    /// assert!((weight.std(&[], 1, false)?.item()? - 0.05).abs() < 1e-3); // √(2/800)
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn xavier_normal(gain: f64) -> Self {
        Self::scaled(gain, Scaled::FanMean, Spread::Normal)
    }

    /// A new tensor with numbers of the stream.
    pub(super) fn draw<B: Backend>(
        &self,
        backend: &B,
        shape: &Shape,
        fan: Fan,
        dtype: DType,
        stream: Stream,
    ) -> Result<Tensor<B>> {
        let drawn = |op, distribution, parameters, dtype| {
            let key = stream.key(0);
            random::draw(backend, (op, distribution, parameters), shape, dtype, key)
        };
        let uniform = |low, high| drawn("uniform", Distribution::Uniform, (low, high), dtype);
        let normal = |mean, std| drawn("normal", Distribution::Normal, (mean, std), dtype);
        let truncated = |mean, std| drawn("truncated_normal", Distribution::TruncatedNormal, (mean, std), dtype);
        match *self {
            Initializer::Zeros => Tensor::zeros(backend, shape, dtype),
            Initializer::Ones => Tensor::ones(backend, shape, dtype),
            Initializer::Constant(value) => Tensor::full(backend, shape, dtype, value),
            Initializer::Uniform { low, high } => uniform(low, high),
            Initializer::Normal { mean, std } => normal(mean, std),
            Initializer::TruncatedNormal { mean, std } => truncated(mean, std),
            Initializer::VarianceScaling {
                scale,
                fan: kind,
                spread,
            } => {
                let fan = match kind {
                    Scaled::FanIn => fan.fan_in as f64,
                    Scaled::FanOut => fan.fan_out as f64,
                    Scaled::FanMean => (fan.fan_in as f64 + fan.fan_out as f64) / 2.0,
                };
                let std = (scale / fan.max(1.0)).sqrt();
                match spread {
                    Spread::Uniform => uniform(-(3f64.sqrt() * std), 3f64.sqrt() * std),
                    Spread::Normal => normal(0.0, std),
                    // The standard deviation of a standard normal cut at ±2.
                    Spread::TruncatedNormal => truncated(0.0, std / 0.879_625_661_034_239_8),
                }
            }
            Initializer::Orthogonal { gain } => {
                let rows = shape
                    .first()
                    .copied()
                    .filter(|_| shape.rank() >= 2)
                    .ok_or(Error::Rank {
                        op: "orthogonal",
                        expected: "2 or more",
                        rank: shape.rank(),
                    })?;
                if !gain.is_finite() {
                    return Err(Error::invalid("orthogonal", "gain", gain, "a finite number"));
                }
                let drawn = drawn("orthogonal", Distribution::Normal, (0.0, 1.0), DType::F32)?.to_f64()?;
                Tensor::from_f64(backend, &orthogonal(drawn, rows, gain)?, shape, dtype)
            }
        }
    }
}

impl fmt::Display for Initializer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Initializer::Zeros => f.write_str("zeros"),
            Initializer::Ones => f.write_str("ones"),
            Initializer::Constant(v) => write!(f, "constant({v})"),
            Initializer::Uniform { low, high } => write!(f, "uniform({low}, {high})"),
            Initializer::Normal { mean, std } => write!(f, "normal({mean}, {std})"),
            Initializer::TruncatedNormal { mean, std } => write!(f, "truncated_normal({mean}, {std})"),
            Initializer::VarianceScaling { scale, fan, spread } => {
                write!(f, "variance_scaling({scale}, {fan:?}, {spread:?})")
            }
            Initializer::Orthogonal { gain } => write!(f, "orthogonal({gain})"),
        }
    }
}

impl FromStr for Initializer {
    type Err = Error;

    /// # Errors
    /// An unknown name, or arguments that are not numbers or not as many as the name takes.
    fn from_str(text: &str) -> Result<Self> {
        const EXPECTED: &str = "zeros, ones, constant(c), uniform(low, high), normal(mean, std), \
             truncated_normal(mean, std), kaiming_uniform, kaiming_normal, xavier_uniform, xavier_normal, he_uniform, \
             he_normal, glorot_uniform, glorot_normal, lecun_uniform, lecun_normal, orthogonal(gain) or torch";
        let unknown = || Error::invalid("init", "initializer", text, EXPECTED);
        let (name, arguments) = match text.split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')').ok_or_else(unknown)?),
            None => (text, ""),
        };
        let arguments: Vec<f64> = arguments
            .split(',')
            .filter(|a| !a.trim().is_empty())
            .map(|a| a.trim().parse().map_err(|_| unknown()))
            .collect::<Result<_>>()?;
        let (fan_in, relu) = (Scaled::FanIn, Nonlinearity::Relu);
        Ok(
            match (name.trim().to_ascii_lowercase().as_str(), arguments.as_slice()) {
                ("zeros", []) => Initializer::Zeros,
                ("ones", []) => Initializer::Ones,
                ("torch", []) => Initializer::TORCH,
                ("constant", &[v]) => Initializer::Constant(v),
                ("uniform", &[low, high]) => Initializer::Uniform { low, high },
                ("normal", &[mean, std]) => Initializer::Normal { mean, std },
                ("truncated_normal", &[mean, std]) => Initializer::TruncatedNormal { mean, std },
                ("kaiming_uniform" | "he_uniform", []) => Self::kaiming_uniform(fan_in, relu),
                ("kaiming_normal", []) => Self::kaiming_normal(fan_in, relu),
                ("xavier_uniform" | "glorot_uniform", []) => Self::xavier_uniform(1.0),
                ("xavier_normal", []) => Self::xavier_normal(1.0),
                ("he_normal", []) => Self::scaled(relu.gain(), fan_in, Spread::TruncatedNormal),
                ("glorot_normal", []) => Self::scaled(1.0, Scaled::FanMean, Spread::TruncatedNormal),
                ("lecun_uniform", []) => Self::scaled(1.0, fan_in, Spread::Uniform),
                ("lecun_normal", []) => Self::scaled(1.0, fan_in, Spread::TruncatedNormal),
                ("orthogonal", []) => Initializer::Orthogonal { gain: 1.0 },
                ("orthogonal", &[gain]) => Initializer::Orthogonal { gain },
                _ => return Err(unknown()),
            },
        )
    }
}
