//! The parts of a model: parameters, buffers, and the walk that names them.
//!
//! A [`Module`] is anything that can be walked. The walk gives every parameter and buffer its dotted name, the one
//! that PyTorch's state dictionary would give it: `features.3.weight`, `norm.running_mean`.

mod containers;
mod param;
mod state;
mod state_dict;
mod walk;

pub use param::{Param, ParamId, ParamLayout};
pub use state::{Counter, Mode, State};
pub use state_dict::{StateDict, Value};
pub use walk::{Entry, EntryMut, Walk, WalkMut, Walkable};

use crate::weights::{self, LoadOptions, LoadReport, WeightsError};
use crate::{Backend, DType, Result};
use std::path::Path;

/// A layer, a model, a list of either, or plain data, which has no parameters and no buffers (`torch.nn.Module`).
///
/// Every [`Walkable`] type is a module; `#[derive(Module)]` makes a struct walkable. All methods are built on the walk
/// and work on `dyn Module<B>` too.
pub trait Module<B: Backend>: Walkable<B> {
    /// Every parameter, trainable or not, with its dotted name, in the order of the walk.
    fn named_parameters(&self) -> Vec<(String, &Param<B>)> {
        let mut found = Vec::new();
        self.walk(&mut Walk::new(&mut |name, entry| {
            if let Entry::Param(p) = entry {
                found.push((name.to_string(), p));
            }
        }));
        found
    }

    /// Every parameter, trainable or not, in the order of the walk (`model.parameters()` of PyTorch).
    fn parameters(&self) -> Vec<&Param<B>> {
        self.named_parameters().into_iter().map(|(_, p)| p).collect()
    }

    /// As [`Module::named_parameters`], mutable.
    fn named_parameters_mut(&mut self) -> Vec<(String, &mut Param<B>)> {
        let mut found = Vec::new();
        self.walk_mut(&mut WalkMut::new(&mut |name, entry| {
            if let EntryMut::Param(p) = entry {
                found.push((name.to_string(), p));
            }
        }));
        found
    }

    /// Number of values in all parameters.
    fn num_parameters(&self) -> usize {
        self.named_parameters().iter().map(|(_, p)| p.size()).sum()
    }

    /// Number of values in the parameters that train.
    fn num_trainable(&self) -> usize {
        let all = self.named_parameters();
        all.iter()
            .filter(|(_, p)| p.is_trainable())
            .map(|(_, p)| p.size())
            .sum()
    }

    /// Switches layers that behave differently in training (dropout, batch norm) to training, their initial mode.
    fn train(&mut self) {
        set_mode(self, true);
    }

    /// Switches layers that behave differently in training to evaluation.
    fn eval(&mut self) {
        set_mode(self, false);
    }

    /// Stops every parameter from training: no gradient is computed for it and no optimizer changes it.
    fn freeze(&mut self) {
        self.set_trainable(&|_| true, false);
    }

    /// Lets every parameter train.
    fn unfreeze(&mut self) {
        self.set_trainable(&|_| true, true);
    }

    /// Freezes or unfreezes the parameters whose dotted names `select` accepts; returns how many those were.
    fn set_trainable(&mut self, select: &dyn Fn(&str) -> bool, trainable: bool) -> usize {
        let mut count = 0;
        for (name, param) in self.named_parameters_mut() {
            if select(&name) {
                param.set_trainable(trainable);
                count += 1;
            }
        }
        count
    }

    /// Parameters, buffers and counters by dotted name, sharing their memory until the model changes
    /// (`torch.nn.Module.state_dict`).
    fn state_dict(&self) -> StateDict<B> {
        StateDict::of(self)
    }

    /// As [`Module::state_dict`], with convolution kernels in PyTorch's order of dimensions. The kernels are copies; the
    /// rest shares its memory with the model.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    fn torch_state_dict(&self) -> Result<StateDict<B>> {
        weights::torch_state_dict(self)
    }

    /// Copies values from a dictionary by name, converting dtypes (`torch.nn.Module.load_state_dict`). The report lists
    /// the entries that were loaded and those that were not.
    ///
    /// # Errors
    /// [`WeightsError::Misfit`] when the names or shapes do not fit and the options are strict: nothing has changed
    /// then.
    fn load_state_dict(&mut self, dict: &StateDict<B>, options: LoadOptions) -> Result<LoadReport, WeightsError> {
        weights::load_state_dict(self, dict, options)
    }

    /// Writes parameters, buffers and counters to a safetensors file, whole or not at all
    /// (see [`weights::write`]).
    ///
    /// # Errors
    /// [`WeightsError::File`] with the path.
    fn save(&self, path: &Path) -> Result<(), WeightsError> {
        weights::write(path, &self.state_dict(), &weights::Metadata::new())
    }

    /// Loads a safetensors file, tensor by tensor, into the model's memory.
    ///
    /// # Errors
    /// As [`WeightsFile::open`](weights::WeightsFile::open) and
    /// [`WeightsFile::load_into`](weights::WeightsFile::load_into).
    fn load(&mut self, path: &Path, options: LoadOptions) -> Result<LoadReport, WeightsError> {
        weights::WeightsFile::open(path)?.load_into(self, options)
    }

    /// Converts every parameter to `dtype`. Buffers keep the precision of arithmetic: f64 with f64, else f32.
    ///
    /// # Errors
    /// A dtype that the backend does not compute in, memory.
    fn to_dtype(&mut self, dtype: DType) -> Result<()> {
        let mut result = Ok(());
        self.walk_mut(&mut WalkMut::new(&mut |name, entry| {
            let converted = match entry {
                EntryMut::Param(p) => p.to_dtype(dtype),
                EntryMut::State(s) => s.to_dtype(if dtype == DType::F64 { DType::F64 } else { DType::F32 }),
                EntryMut::Counter(_) | EntryMut::Mode(_) => Ok(()),
            };
            if let (Ok(()), Err(e)) = (&result, converted) {
                result = Err(e.within(name, "parameter"));
            }
        }));
        result
    }
}

fn set_mode<B: Backend, M: Module<B> + ?Sized>(module: &mut M, training: bool) {
    module.walk_mut(&mut WalkMut::new(&mut |_, entry| {
        if let EntryMut::Mode(m) = entry {
            m.set_training(training);
        }
    }));
}

impl<B: Backend, M: Walkable<B> + ?Sized> Module<B> for M {}
