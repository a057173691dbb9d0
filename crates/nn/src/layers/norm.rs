//! Norms within a sample: layer, RMS, group and instance norm.

use super::{Dropout, Layer, check_eps};
use crate::ops::DropoutDraw;
use crate::{Backend, DType, Error, Init, Module, Param, Result, Tensor, autocast_dtype, trace};
use std::marker::PhantomData;

/// Layer norm over the last dimensions (Ba et al. 2016; `torch.nn.LayerNorm`): the output has the shape of the input.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::LayerNorm};
/// # let cpu = kiln_cpu::Cpu::new();
/// let norm = LayerNorm::new(&mut Init::new(&cpu, 0), &[16])?;
/// let x = Tensor::randn(&cpu, &[2, 5, 16], DType::F32, &mut Rng::new(0))?;
/// let y = norm.forward(&x)?;
/// assert!(y.mean(&[-1], false)?.to_f64()?.iter().all(|mean| mean.abs() < 1e-5));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct LayerNorm<B: Backend> {
    /// The scale, of the normalised shape.
    pub weight: Option<Param<B>>,
    /// The shift, of the normalised shape.
    pub bias: Option<Param<B>>,
    #[module(skip)]
    shape: Vec<usize>,
    eps: f64,
}

/// RMS norm over the last dimensions: `x/√(mean(x²) + eps)·weight` (Zhang and Sennrich 2019; `torch.nn.RMSNorm`).
///
/// ```
/// use kiln_nn::{Init, Layer, Tensor, layers::RmsNorm};
/// # let cpu = kiln_cpu::Cpu::new();
/// let norm = RmsNorm::new(&mut Init::new(&cpu, 0), &[2])?;
/// let y = norm.forward(&Tensor::from_slice(&cpu, &[1.0f32, 7.0], &[2])?)?.to_f64()?;
/// assert!((y[0] - 0.2).abs() < 1e-5 && (y[1] - 1.4).abs() < 1e-5); // the root of the mean square was 5
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct RmsNorm<B: Backend> {
    /// The scale, of the normalised shape.
    pub weight: Option<Param<B>>,
    #[module(skip)]
    shape: Vec<usize>,
    eps: f64,
}

/// Group norm of `[N, …, C]` (Wu and He 2018; `torch.nn.GroupNorm`): each sample's channels in groups of neighbours, each
/// group normalised over its channels and all positions.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::GroupNorm};
/// # let cpu = kiln_cpu::Cpu::new();
/// let norm = GroupNorm::new(&mut Init::new(&cpu, 0), 4, 16)?;
/// let x = Tensor::randn(&cpu, &[2, 8, 8, 16], DType::F32, &mut Rng::new(0))?;
/// let means = norm.forward(&x)?.reshape((2, 64, 4, 4))?.mean(&[1, 3], false)?; // of each sample and group
/// assert!(means.to_f64()?.iter().all(|mean| mean.abs() < 1e-5));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct GroupNorm<B: Backend> {
    /// The scale `[C]`.
    pub weight: Option<Param<B>>,
    /// The shift `[C]`.
    pub bias: Option<Param<B>>,
    groups: usize,
    eps: f64,
}

/// Instance norm of `[N, …, C]`: each channel of each sample over its positions (Ulyanov et al. 2016;
/// `torch.nn.InstanceNorm1d`, `2d`, `3d`). As in PyTorch, without scale and shift by default.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::InstanceNorm};
/// # let cpu = kiln_cpu::Cpu::new();
/// let norm = InstanceNorm::new(&mut Init::new(&cpu, 0), 3)?;
/// let x = Tensor::randn(&cpu, &[2, 8, 8, 3], DType::F32, &mut Rng::new(0))?;
/// let means = norm.forward(&x)?.mean(&[1, 2], false)?; // of each sample and channel
/// assert!(means.to_f64()?.iter().all(|mean| mean.abs() < 1e-5));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct InstanceNorm<B: Backend> {
    /// The scale `[C]`.
    pub weight: Option<Param<B>>,
    /// The shift `[C]`.
    pub bias: Option<Param<B>>,
    channels: usize,
    eps: f64,
}

/// The options of the norms of this file.
///
/// See the example of [`LayerNorm::builder`].
#[derive(Clone, Debug)]
pub struct NormBuilder<B, Kind> {
    kind: Kind,
    shape: Vec<usize>,
    eps: f64,
    affine: bool,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend, Kind> NormBuilder<B, Kind> {
    /// The number that is added to the variance (or the mean square).
    ///
    /// ```
    /// # use kiln_nn::{Init, Layer, Tensor, layers::RmsNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = RmsNorm::builder(&[2]).eps(3.0).build(init)?;
    /// let y = norm.forward(&Tensor::from_slice(&cpu, &[-1.0f32, 1.0], &[2])?)?; // mean square 1
    /// assert_eq!(y.to_vec::<f32>()?, [-0.5, 0.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// With or without scale and shift: by default with, but for [`InstanceNorm`]. [`RmsNorm`] has no shift.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::InstanceNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = InstanceNorm::builder(16).affine(true).build(init)?;
    /// assert!(norm.weight.is_some() && norm.bias.is_some());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn affine(mut self, affine: bool) -> Self {
        self.affine = affine;
        self
    }

    fn check(&self, op: &'static str, argument: &'static str) -> Result<()> {
        if self.shape.is_empty() || self.shape.contains(&0) {
            let expected = "one dimension or more, each at least 1";
            return Err(Error::invalid(op, argument, format!("{:?}", self.shape), expected));
        }
        check_eps(op, self.eps)
    }

    fn param(&self, init: &Init<B>, value: f64) -> Result<Option<Param<B>>> {
        self.affine.then(|| init.constant(&self.shape, value)).transpose()
    }
}

/// Builds a [`LayerNorm`].
///
/// See the example of [`LayerNorm::builder`].
#[derive(Clone, Copy, Debug)]
pub struct LayerKind;
/// Builds an [`RmsNorm`].
///
/// See the example of [`RmsNorm::builder`].
#[derive(Clone, Copy, Debug)]
pub struct RmsKind;
/// Builds a [`GroupNorm`] with this number of groups.
///
/// See the example of [`GroupNorm::builder`].
#[derive(Clone, Copy, Debug)]
pub struct GroupKind(usize);
/// Builds an [`InstanceNorm`].
///
/// See the example of [`InstanceNorm::builder`].
#[derive(Clone, Copy, Debug)]
pub struct InstanceKind;

#[compiled_once]
impl<B: Backend> LayerNorm<B> {
    /// Normalises the last dimensions, which are `shape`; eps 1e-5, with scale and shift.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::LayerNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = LayerNorm::new(init, &[4, 8])?; // over the last two dimensions
    /// let x = Tensor::randn(&cpu, &[2, 4, 8], DType::F32, &mut Rng::new(0))?;
    /// assert!(norm.forward(&x)?.mean(&[1, 2], false)?.to_f64()?.iter().all(|mean| mean.abs() < 1e-5));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An empty shape, memory.
    pub fn new(init: &mut Init<B>, shape: &[usize]) -> Result<Self> {
        Self::builder(shape).build(init)
    }

    /// A layer with options.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::LayerNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = LayerNorm::builder(&[16]).eps(1e-6).affine(false).build(init)?;
    /// assert_eq!(norm.num_parameters(), 0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(shape: &[usize]) -> NormBuilder<B, LayerKind> {
        NormBuilder {
            kind: LayerKind,
            shape: shape.to_vec(),
            eps: 1e-5,
            affine: true,
            backend: PhantomData,
        }
    }
}

#[compiled_once]
impl<B: Backend> LayerNorm<B> {
    /// The norm of `x` as products read it: inside of [`autocast`](crate::autocast) in its half, computed in f32 and rounded once, where
    /// [`forward`](Layer::forward) gives f32; elsewhere the same.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Tensor, autocast, layers::LayerNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let norm = LayerNorm::new(&mut Init::new(&cpu, 0), &[8])?;
    /// let x = Tensor::ones(&cpu, &[2, 8], DType::F32)?;
    /// assert_eq!(autocast(DType::BF16, || norm.forward_half(&x))?.dtype(), DType::BF16);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::layer_norm`].
    pub fn forward_half(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        trace::scope(self, x, || match (&self.weight, &self.bias, self.shape.len()) {
            (Some(weight), Some(bias), 1) => Ok(x.residual_norm(None, weight, bias, self.eps)?.1),
            _ => {
                let n = self.call(x)?;
                let half = autocast_dtype().filter(|_| n.dtype() != DType::F64);
                n.to_dtype(half.unwrap_or(n.dtype()))
            }
        })
    }

    /// The sum of a residual stream `x` and what a branch adds to it, with dropout if there is a layer of it, and its norm as [`LayerNorm::forward_half`]: in one
    /// pass both ways where the norm is over one dimension with scale and shift. See [`Tensor::residual_norm`].
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::{Dropout, LayerNorm}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (norm, dropout) = (LayerNorm::new(init, &[4])?, Dropout::new(init, 0.0)?);
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[1, 4])?;
    /// let (sum, normed) = norm.forward_sum(&x, &x, Some(&dropout))?;
    /// assert_eq!(sum.to_vec::<f32>()?, [2.0, 4.0, 6.0, 8.0]);
    /// assert_eq!(normed.to_vec::<f32>()?, norm.forward(&sum)?.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::residual_norm`].
    pub fn forward_sum(
        &self,
        x: &Tensor<B>,
        y: &Tensor<B>,
        dropout: Option<&Dropout<B>>,
    ) -> Result<(Tensor<B>, Tensor<B>)> {
        let drawn = dropout.map(Dropout::draw).transpose()?.flatten();
        self.norm_of_sum(x, Some((y, drawn.as_ref())))
    }

    /// The sum of a stream and its last branch, if it has one, and its norm.
    pub(super) fn norm_of_sum(
        &self,
        x: &Tensor<B>,
        branch: Option<(&Tensor<B>, Option<&DropoutDraw<B>>)>,
    ) -> Result<(Tensor<B>, Tensor<B>)> {
        let (Some(weight), Some(bias), 1) = (&self.weight, &self.bias, self.shape.len()) else {
            let sum = match branch {
                Some((y, drawn)) => x.residual_add(y, drawn)?,
                None => x.clone(),
            };
            let normed = self.forward_half(&sum)?;
            return Ok((sum, normed));
        };
        let mut sum = x.clone();
        let normed = trace::scope(self, x, || {
            let (s, n) = x.residual_norm(branch, weight, bias, self.eps)?;
            sum = s;
            Ok(n)
        })?;
        Ok((sum, normed))
    }
}

#[compiled_once]
impl<B: Backend> NormBuilder<B, LayerKind> {
    /// Makes the layer.
    ///
    /// See the example of [`LayerNorm::builder`].
    ///
    /// # Errors
    /// An empty shape, an eps that is negative or not finite, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<LayerNorm<B>> {
        self.check("layer_norm", "normalized_shape")?;
        Ok(LayerNorm {
            weight: self.param(init, 1.0)?,
            bias: self.param(init, 0.0)?,
            shape: self.shape,
            eps: self.eps,
        })
    }
}

#[compiled_once]
impl<B: Backend> RmsNorm<B> {
    /// Normalises the last dimensions, which are `shape`; eps 1e-6, with scale.
    ///
    /// PyTorch's default eps is the machine epsilon of the dtype.
    ///
    /// See the example of [`RmsNorm`].
    ///
    /// # Errors
    /// An empty shape, memory.
    pub fn new(init: &mut Init<B>, shape: &[usize]) -> Result<Self> {
        Self::builder(shape).build(init)
    }

    /// A layer with options.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::RmsNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = RmsNorm::builder(&[16]).eps(1e-5).affine(false).build(init)?;
    /// let x = Tensor::ones(&cpu, &[2, 16], DType::F32)?;
    /// assert!(norm.forward(&x)?.to_f64()?.iter().all(|y| (y - 1.0).abs() < 1e-4));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(shape: &[usize]) -> NormBuilder<B, RmsKind> {
        NormBuilder {
            kind: RmsKind,
            shape: shape.to_vec(),
            eps: 1e-6,
            affine: true,
            backend: PhantomData,
        }
    }
}

#[compiled_once]
impl<B: Backend> NormBuilder<B, RmsKind> {
    /// Makes the layer.
    ///
    /// See the example of [`RmsNorm::builder`].
    ///
    /// # Errors
    /// An empty shape, an eps that is negative or not finite, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<RmsNorm<B>> {
        self.check("rms_norm", "normalized_shape")?;
        Ok(RmsNorm {
            weight: self.param(init, 1.0)?,
            shape: self.shape,
            eps: self.eps,
        })
    }
}

#[compiled_once]
impl<B: Backend> GroupNorm<B> {
    /// Normalises `channels` channels in `groups` groups; eps 1e-5, with scale and shift.
    ///
    /// See the example of [`GroupNorm`].
    ///
    /// # Errors
    /// Groups that do not divide the channels, memory.
    pub fn new(init: &mut Init<B>, groups: usize, channels: usize) -> Result<Self> {
        Self::builder(groups, channels).build(init)
    }

    /// A layer with options.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::GroupNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = GroupNorm::builder(4, 16).eps(1e-6).affine(true).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[2, 8, 8, 16], DType::F32)?;
    /// assert_eq!(norm.forward(&x)?.shape(), x.shape());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(groups: usize, channels: usize) -> NormBuilder<B, GroupKind> {
        NormBuilder {
            kind: GroupKind(groups),
            shape: vec![channels],
            eps: 1e-5,
            affine: true,
            backend: PhantomData,
        }
    }
}

#[compiled_once]
impl<B: Backend> NormBuilder<B, GroupKind> {
    /// Makes the layer.
    ///
    /// See the example of [`GroupNorm::builder`].
    ///
    /// # Errors
    /// Groups that do not divide the channels, an eps that is negative or not finite, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<GroupNorm<B>> {
        self.check("group_norm", "channels")?;
        let GroupKind(groups) = self.kind;
        if groups == 0 || !self.shape[0].is_multiple_of(groups) {
            let expected = format!("a divisor of {} channels", self.shape[0]);
            return Err(Error::invalid("group_norm", "groups", groups, expected));
        }
        Ok(GroupNorm {
            weight: self.param(init, 1.0)?,
            bias: self.param(init, 0.0)?,
            groups,
            eps: self.eps,
        })
    }
}

#[compiled_once]
impl<B: Backend> InstanceNorm<B> {
    /// Normalises each of `channels` channels; eps 1e-5, without scale and shift.
    ///
    /// See the example of [`InstanceNorm`].
    ///
    /// # Errors
    /// No channels, memory.
    pub fn new(init: &mut Init<B>, channels: usize) -> Result<Self> {
        Self::builder(channels).build(init)
    }

    /// A layer with options.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::InstanceNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = InstanceNorm::builder(3).eps(1e-6).affine(true).build(init)?;
    /// assert_eq!(norm.weight.map(|weight| weight.size()), Some(3));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(channels: usize) -> NormBuilder<B, InstanceKind> {
        NormBuilder {
            kind: InstanceKind,
            shape: vec![channels],
            eps: 1e-5,
            affine: false,
            backend: PhantomData,
        }
    }
}

#[compiled_once]
impl<B: Backend> NormBuilder<B, InstanceKind> {
    /// Makes the layer.
    ///
    /// See the example of [`InstanceNorm::builder`].
    ///
    /// # Errors
    /// No channels, an eps that is negative or not finite, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<InstanceNorm<B>> {
        self.check("instance_norm", "channels")?;
        Ok(InstanceNorm {
            weight: self.param(init, 1.0)?,
            bias: self.param(init, 0.0)?,
            channels: self.shape[0],
            eps: self.eps,
        })
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for LayerNorm<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.layer_norm(&self.shape, self.weight.as_deref(), self.bias.as_deref(), self.eps)
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for RmsNorm<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.rms_norm(&self.shape, self.weight.as_deref(), self.eps)
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for GroupNorm<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.group_norm(self.groups, self.weight.as_deref(), self.bias.as_deref(), self.eps)
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for InstanceNorm<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        if x.shape().last() != Some(&self.channels) {
            let expected = format!("{} channels in the last dimension", self.channels);
            return Err(Error::invalid("instance_norm", "input", x.shape(), expected));
        }
        x.instance_norm(self.weight.as_deref(), self.bias.as_deref(), self.eps)
    }
}
