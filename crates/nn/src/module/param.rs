//! Parameters: the tensors that training changes.

use crate::{Backend, DType, Result, Tensor};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// The order of a parameter's dimensions compared with PyTorch's.
///
/// ```
/// # use kiln_nn::{Init, layers::{Conv2d, Linear}, module::ParamLayout};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let (conv, layer) = (Conv2d::new(init, 3, 8, 5)?, Linear::new(init, 4, 2)?);
/// assert_eq!((conv.weight.layout(), layer.weight.layout()), (ParamLayout::Kernel, ParamLayout::Same));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ParamLayout {
    /// As in PyTorch.
    #[default]
    Same,
    /// A convolution's kernel: `[O, k…, I]` here, `[O, I, k…]` in PyTorch (for transposed ones `O` and `I` swap).
    Kernel,
    /// A matrix `[out, in]` here that PyTorch code keeps as `[in, out]`, such as those of `Conv1D` in Hugging Face's GPT-2.
    Transposed,
}

/// The identity of a parameter, independent of its name. It stays the same when the parameter moves, takes other values
/// or another dtype, or is frozen and unfrozen. It is not saved.
///
/// See the example of [`Param::identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(u64);

impl ParamId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        ParamId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A tensor that an optimizer may change: a leaf of every graph that it is part of (`torch.nn.Parameter`). It
/// dereferences to its [`Tensor`].
///
/// ```
/// use kiln_nn::{Param, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let scale = Param::new(Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[2])?);
/// let grads = scale.mul_scalar(3.0)?.sum(&[], false)?.backward()?;
/// assert_eq!(grads.get(&scale).map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![3.0, 3.0]));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Param<B: Backend> {
    id: ParamId,
    tensor: Tensor<B>,
    trainable: bool,
    layout: ParamLayout,
}

/// A parameter of its own with the same values, layout and `trainable`, and another identity: it shares the memory until one of
/// the two changes.
impl<B: Backend> Clone for Param<B> {
    fn clone(&self) -> Self {
        Param {
            id: ParamId::next(),
            tensor: match self.trainable {
                true => self.tensor.requires_grad(),
                false => self.tensor.detach(),
            },
            trainable: self.trainable,
            layout: self.layout,
        }
    }
}

#[compiled_once]
impl<B: Backend> Param<B> {
    /// A trainable parameter that starts with the values of `tensor`.
    ///
    /// See the example of [`Param`].
    pub fn new(tensor: Tensor<B>) -> Self {
        Param {
            id: ParamId::next(),
            tensor: tensor.requires_grad(),
            trainable: true,
            layout: ParamLayout::Same,
        }
    }

    /// A trainable convolution kernel ([`ParamLayout::Kernel`]) that starts with the values of `tensor`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Param, Tensor, module::ParamLayout};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let kernel = Param::kernel(Tensor::zeros(&cpu, &[8, 5, 5, 3], DType::F32)?);
    /// assert_eq!(kernel.layout(), ParamLayout::Kernel);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn kernel(tensor: Tensor<B>) -> Self {
        Param {
            layout: ParamLayout::Kernel,
            ..Param::new(tensor)
        }
    }

    /// The identity of this parameter. ([`Tensor::id`] is the id of its node in the graph, which can change.)
    ///
    /// ```
    /// # use kiln_nn::{DType, Module, Param, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut p = Param::new(Tensor::ones(&cpu, &[2], DType::F32)?);
    /// let before = p.identity();
    /// p.to_dtype(DType::F64)?;
    /// assert_eq!(p.identity(), before);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn identity(&self) -> ParamId {
        self.id
    }

    /// The tensor; tracked while the parameter trains.
    ///
    /// ```
    /// # use kiln_nn::{DType, Param, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let p = Param::new(Tensor::ones(&cpu, &[2], DType::F32)?);
    /// assert!(p.tensor().is_tracked());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn tensor(&self) -> &Tensor<B> {
        &self.tensor
    }

    /// The order of the dimensions compared with PyTorch's.
    ///
    /// See the example of [`Param::kernel`].
    pub fn layout(&self) -> ParamLayout {
        self.layout
    }

    /// Says how weights of PyTorch have this parameter's dimensions. Its values stay as they are.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear, module::ParamLayout};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut conv1d = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
    /// conv1d.weight.set_layout(ParamLayout::Transposed);
    /// let dict = conv1d.torch_state_dict()?;
    /// assert_eq!((conv1d.weight.shape().dims(), dict.float("weight").map(|w| w.shape().to_vec())), (&[2, 4][..], Some(vec![4, 2])));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn set_layout(&mut self, layout: ParamLayout) {
        self.layout = layout;
    }

    /// True if gradients are computed for this parameter and optimizers change it.
    ///
    /// See the example of [`Param::set_trainable`].
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// Freezes or unfreezes the parameter. Graphs recorded before keep what they recorded.
    ///
    /// ```
    /// # use kiln_nn::{DType, Module, Param, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut p = Param::new(Tensor::ones(&cpu, &[2], DType::F32)?);
    /// p.set_trainable(false);
    /// assert!(!p.is_trainable() && !p.tensor().is_tracked());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn set_trainable(&mut self, trainable: bool) {
        if trainable != self.trainable {
            self.trainable = trainable;
            self.tensor = if trainable {
                self.tensor.requires_grad()
            } else {
                self.tensor.detach()
            };
        }
    }

    /// Overwrites the values in place.
    ///
    /// ```
    /// # use kiln_nn::{DType, Param, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut p = Param::new(Tensor::zeros(&cpu, &[2], DType::F32)?);
    /// p.assign(&Tensor::from_slice(&cpu, &[3.0f32, 4.0], &[2])?)?;
    /// assert_eq!(p.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A tensor of another shape or dtype.
    pub fn assign(&mut self, values: &Tensor<B>) -> Result<()> {
        self.tensor.assign(values)
    }

    /// Converts to another float dtype. The parameter becomes a new leaf.
    ///
    /// ```
    /// # use kiln_nn::{DType, Module, Param, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut p = Param::new(Tensor::ones(&cpu, &[2], DType::F32)?);
    /// p.to_dtype(DType::BF16)?;
    /// assert_eq!(p.dtype(), DType::BF16);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dtype that the backend does not compute in.
    pub fn to_dtype(&mut self, dtype: DType) -> Result<()> {
        if dtype != self.dtype() {
            self.replace(self.tensor.detach().to_dtype(dtype)?);
        }
        Ok(())
    }

    /// Takes other values in their memory. Gradients of the values before are no longer the parameter's.
    pub(super) fn replace(&mut self, values: Tensor<B>) {
        self.tensor = if self.trainable { values.requires_grad() } else { values };
    }

    /// Becomes `tensor`, of the same shape and dtype, in the graphs to come: another place in a graph for the same values.
    pub(crate) fn stand_in(&mut self, tensor: Tensor<B>) {
        self.tensor = tensor;
    }

    /// The memory for an optimizer's update, and that of the copy in half precision which mixed precision reads in place of casting,
    /// if one is wanted. [`updated`](Param::updated) follows. With `may_leave` the update may write neither.
    pub(crate) fn buffers_mut(&mut self, may_leave: bool) -> Result<(&mut B::Buffer, Option<&mut B::Buffer>)> {
        self.tensor.buffers_mut(may_leave)
    }

    /// Ends an update of both buffers of [`buffers_mut`](Param::buffers_mut).
    pub(crate) fn updated(&self) {
        self.tensor.half_written();
    }

    /// The memory, for writing values.
    pub(crate) fn buffer_mut(&mut self) -> Result<&mut B::Buffer> {
        self.tensor.buffer_mut()
    }
}

impl<B: Backend> Deref for Param<B> {
    type Target = Tensor<B>;
    fn deref(&self) -> &Tensor<B> {
        &self.tensor
    }
}

impl<B: Backend> AsRef<Tensor<B>> for Param<B> {
    fn as_ref(&self) -> &Tensor<B> {
        &self.tensor
    }
}

impl<B: Backend> fmt::Debug for Param<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Param({}, {})", self.tensor.shape(), self.tensor.dtype())
    }
}
