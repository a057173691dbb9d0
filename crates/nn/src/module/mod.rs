//! The parts of a model: parameters, buffers, and the walk that names them.
//!
//! A [`Module`] is anything that can be walked. The walk gives every parameter and buffer its dotted name, the one
//! that PyTorch's state dictionary would give it: `features.3.weight`, `norm.running_mean`.

mod containers;
mod entries;
mod param;
mod pattern;
mod state;
mod state_dict;
mod walk;

pub(crate) use entries::{Entries, EntriesMut, copyable, entries, entries_mut, is_training, modules};
pub use param::{Param, ParamId, ParamLayout};
pub use pattern::NamePattern;
pub use state::{Counter, Mode, State};
pub use state_dict::{StateDict, Value};
pub use walk::{Entry, EntryMut, Runnable, Walk, WalkMut, Walkable};

use crate::weights::{self, LoadOptions, LoadReport, WeightsError};
use crate::{Backend, DType, Result};
use std::path::Path;

/// A layer, a model, a list of either, or plain data, which has no parameters and no buffers (`torch.nn.Module`).
///
/// Every [`Walkable`] type is a module; `#[derive(Module)]` makes a struct walkable. All methods are built on the walk
/// and work on `dyn Module<B>` too.
///
/// ```
/// use kiln_nn::{Init, Module, Sequential, layers::{BatchNorm, Linear}};
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let mut net = Sequential::new().push(Linear::new(init, 4, 8)?).push(BatchNorm::new(init, 8)?);
/// let names: Vec<String> = net.state_dict().names().map(str::to_string).collect();
/// assert_eq!(names[..4], ["0.bias", "0.weight", "1.bias", "1.num_batches_tracked"]);
/// net.eval();
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[compiled_once]
pub trait Module<B: Backend>: Walkable<B> {
    /// Every parameter, trainable or not, with its dotted name, in the order of the walk.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = Linear::new(init, 4, 2)?;
    /// let shapes: Vec<_> = layer.named_parameters().iter().map(|(name, p)| format!("{name} {}", p.shape())).collect();
    /// assert_eq!(shapes, ["weight [2, 4]", "bias [2]"]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn named_parameters(&self) -> Vec<(String, &Param<B>)> {
        entries::parameters(entries(self))
    }

    /// Every parameter, trainable or not, in the order of the walk (`model.parameters()` of PyTorch).
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = Linear::new(init, 4, 2)?;
    /// let grads = layer.forward(&Tensor::ones(&cpu, &[1, 4], DType::F32)?)?.sum(&[], false)?.backward()?;
    /// assert!(layer.parameters().into_iter().all(|p| grads.get(p).is_some()));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn parameters(&self) -> Vec<&Param<B>> {
        entries::unnamed(entries(self))
    }

    /// As [`Module::named_parameters`], mutable.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut layer = Linear::new(init, 4, 2)?;
    /// for (_, p) in layer.named_parameters_mut() {
    ///     p.assign(&p.detach().mul_scalar(0.5)?)?;
    /// }
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn named_parameters_mut(&mut self) -> Vec<(String, &mut Param<B>)> {
        entries::parameters_mut(entries_mut(self))
    }

    /// Number of values in all parameters.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// assert_eq!(Linear::new(init, 4, 2)?.num_parameters(), 4 * 2 + 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn num_parameters(&self) -> usize {
        entries::size(entries(self), |_| true)
    }

    /// Number of values in the parameters that train.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut layer = Linear::new(init, 4, 2)?;
    /// layer.weight.set_trainable(false);
    /// assert_eq!(layer.num_trainable(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn num_trainable(&self) -> usize {
        entries::size(entries(self), Param::is_trainable)
    }

    /// Switches layers that behave differently in training (dropout, batch norm) to training, their initial mode.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::Dropout};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut dropout = Dropout::new(init, 0.5)?;
    /// let x = Tensor::ones(&cpu, &[8], DType::F32)?;
    /// dropout.eval();
    /// assert_eq!(dropout.forward(&x)?.to_vec::<f32>()?, [1.0; 8]);
    /// dropout.train();
    /// assert_ne!(dropout.forward(&x)?.to_vec::<f32>()?, [1.0; 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn train(&mut self) {
        entries::set_training(entries_mut(self), true);
    }

    /// Switches layers that behave differently in training to evaluation.
    ///
    /// See the example of [`Module::train`].
    fn eval(&mut self) {
        entries::set_training(entries_mut(self), false);
    }

    /// Keeps layers that behave differently in training in evaluation, whatever [`Module::train`] says, or lets them change again: batch
    /// norms that are pinned and frozen are the frozen batch norms of fine-tuned networks (`torchvision.ops.FrozenBatchNorm2d`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut norm = BatchNorm::new(init, 3)?;
    /// norm.pin_eval(true);
    /// norm.freeze();
    /// norm.train();
    /// let y = norm.forward(&Tensor::full(&cpu, &[4, 3], DType::F32, 5.0)?)?;
    /// assert!(y.min(&[], false)?.item()? > 4.9); // by the running mean, which is 0 and stays so
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn pin_eval(&mut self, pinned: bool) {
        entries::pin_eval(entries_mut(self), pinned);
    }

    /// Stops every parameter from training: no gradient is computed for it and no optimizer changes it.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut layer = Linear::new(init, 4, 2)?;
    /// layer.freeze();
    /// assert_eq!(layer.num_trainable(), 0);
    /// layer.unfreeze();
    /// assert_eq!(layer.num_trainable(), 10);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn freeze(&mut self) {
        self.set_trainable(&|_| true, false);
    }

    /// Lets every parameter train.
    ///
    /// See the example of [`Module::freeze`].
    fn unfreeze(&mut self) {
        self.set_trainable(&|_| true, true);
    }

    /// Freezes or unfreezes the parameters whose dotted names `select` accepts; returns how many those were.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, Sequential, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut net = Sequential::new().push(Linear::new(init, 4, 8)?).push_named("head", Linear::new(init, 8, 2)?)?;
    /// net.freeze();
    /// assert_eq!(net.set_trainable(&|name| name.starts_with("head."), true), 2);
    /// assert_eq!(net.num_trainable(), 18);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn set_trainable(&mut self, select: &dyn Fn(&str) -> bool, trainable: bool) -> usize {
        entries::set_trainable(entries_mut(self), select, trainable)
    }

    /// Parameters, buffers and counters by dotted name, sharing their memory until the model changes
    /// (`torch.nn.Module.state_dict`).
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (layer, mut other) = (Linear::new(init, 4, 2)?, Linear::new(init, 4, 2)?);
    /// other.load_state_dict(&layer.state_dict(), LoadOptions::strict())?;
    /// assert_eq!(other.weight.to_f64()?, layer.weight.to_f64()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn state_dict(&self) -> StateDict<B> {
        StateDict::of(self)
    }

    /// As [`Module::state_dict`], with convolution kernels in PyTorch's order of dimensions. The kernels are copies; the
    /// rest shares its memory with the model.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = Conv2d::new(init, 3, 8, 5)?;
    /// let dict = conv.torch_state_dict()?;
    /// assert_eq!(dict.float("weight").map(|w| w.shape().to_vec()), Some(vec![8, 3, 5, 5]));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    fn torch_state_dict(&self) -> Result<StateDict<B>> {
        weights::torch_state_dict(&entries(self))
    }

    /// Copies values from a dictionary by name, converting dtypes (`torch.nn.Module.load_state_dict`). The report lists
    /// the entries that were loaded and those that were not.
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (small, mut large) = (Linear::builder(4, 2).bias(false).build(init)?, Linear::new(init, 4, 2)?);
    /// assert!(large.load_state_dict(&small.state_dict(), LoadOptions::strict()).is_err());
    /// let report = large.load_state_dict(&small.state_dict(), LoadOptions::partial())?;
    /// assert_eq!((report.loaded, report.missing), (vec!["weight".to_string()], vec!["bias".to_string()]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WeightsError::Misfit`] when the names or shapes do not fit and the options are strict: nothing has changed
    /// then.
    fn load_state_dict(&mut self, dict: &StateDict<B>, options: LoadOptions) -> Result<LoadReport, WeightsError> {
        weights::load_state_dict(entries_mut(self), dict, options)
    }

    /// Writes parameters, buffers and counters to a safetensors file, whole or not at all
    /// (see [`weights::write`]).
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// # let path = std::env::temp_dir().join(format!("kiln-nn-save-{}.safetensors", std::process::id()));
    /// let (layer, mut other) = (Linear::new(init, 4, 2)?, Linear::new(init, 4, 2)?);
    /// layer.save(&path)?;
    /// other.load(&path, LoadOptions::strict())?;
    /// assert_eq!(other.weight.to_f64()?, layer.weight.to_f64()?);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WeightsError::File`] with the path.
    fn save(&self, path: &Path) -> Result<(), WeightsError> {
        weights::write(path, &self.state_dict(), &weights::Metadata::new())
    }

    /// Loads a safetensors file, tensor by tensor, into the model's memory.
    ///
    /// See the example of [`Module::save`].
    ///
    /// # Errors
    /// As [`WeightsFile::open`](weights::WeightsFile::open) and
    /// [`WeightsFile::load_into`](weights::WeightsFile::load_into).
    fn load(&mut self, path: &Path, options: LoadOptions) -> Result<LoadReport, WeightsError> {
        weights::WeightsFile::open(path)?.load_into(self, options)
    }

    /// Moves every parameter, buffer and counter to another device of the same backend, through the host
    /// (`torch.nn.Module.to` with a device). Nothing has changed after an error.
    ///
    /// A model on another backend has another type: it is made there, and given the values by [`StateDict::to_device`]. The state of
    /// an optimizer moves in the same way, by its own state dictionary.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let (cpu, other) = (kiln_cpu::Cpu::new(), kiln_cpu::Cpu::new());
    /// let mut layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
    /// let before = layer.weight.to_f64()?;
    /// layer.to_device(&other)?;
    /// assert_eq!(layer.weight.to_f64()?, before);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dtype that the other device does not have, memory.
    fn to_device(&mut self, backend: &B) -> Result<()> {
        state_dict::to_device(entries_mut(self), backend)
    }

    /// Converts every parameter to `dtype`. Buffers keep the precision of arithmetic: f64 with f64, else f32.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Module, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut norm = BatchNorm::new(init, 3)?;
    /// norm.to_dtype(DType::BF16)?;
    /// assert_eq!(norm.weight.as_ref().map(|weight| weight.dtype()), Some(DType::BF16));
    /// assert_eq!(norm.running().map(|(mean, _)| mean.dtype()), Some(DType::F32));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dtype that the backend does not compute in, memory.
    fn to_dtype(&mut self, dtype: DType) -> Result<()> {
        entries::to_dtype(entries_mut(self), dtype)
    }
}

impl<B: Backend, M: Walkable<B> + ?Sized> Module<B> for M {}
