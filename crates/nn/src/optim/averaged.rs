//! Averages of a model's parameters over the steps of its training.

use super::update_bn::statistics;
use crate::module::{Entries, EntriesMut, Entry, EntryMut, StateDict, Value, entries, entries_mut};
use crate::{Backend, DType, Error, Indices, Module, Result, State, Tensor};

const OP: &str = "averaged_model";

/// The average of a model's parameters over its updates (`torch.optim.swa_utils.AveragedModel`): an exponential moving average
/// ([`ema`](AveragedModel::ema)) or the equal mean of stochastic weight averaging ([`swa`](AveragedModel::swa)). The first update
/// copies the parameters. Buffers are those of the last update unless [`use_buffers`](AveragedModel::use_buffers) averages them
/// too. Averages of f16 and bf16 are kept in f32.
///
/// ```
/// use kiln_nn::layers::Linear;
/// use kiln_nn::optim::{AveragedModel, Optimizer, Sgd};
/// use kiln_nn::{DType, Init, Layer, Module, Tensor};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cpu = kiln_cpu::Cpu::new();
/// # let x = Tensor::ones(&cpu, &[2, 3], DType::F32)?;
/// let new = |seed| Linear::new(&mut Init::new(&cpu, seed), 3, 1);
/// let (mut model, mut averaged) = (new(0)?, new(1)?);
/// let mut average = AveragedModel::ema(&model, 0.99)?;
/// let mut sgd = Sgd::new(0.1);
/// for _ in 0..10 {
///     let loss = model.forward(&x)?.square()?.mean(&[], false)?;
///     sgd.step(&mut model, &loss.backward()?)?;
///     average.update(&model)?;
/// }
/// average.copy_to(&mut averaged)?;
/// assert_ne!(averaged.weight.to_vec::<f32>()?, model.weight.to_vec::<f32>()?);
/// # Ok(())
/// # }
/// ```
pub struct AveragedModel<B: Backend> {
    /// The decay of a moving average; `None` for an equal mean.
    decay: Option<f64>,
    use_buffers: bool,
    /// The averages of parameters and float buffers, by name, in the model's order.
    floats: Vec<(String, State<B>)>,
    counters: Vec<(String, Indices<B>)>,
    updates: u64,
}

/// The values of the parameters and float buffers of a model; true for parameters.
fn floats<'a, B: Backend>(entries: &'a Entries<'_, B>) -> impl Iterator<Item = (&'a str, Tensor<B>, bool)> {
    entries.iter().filter_map(|(name, entry)| match entry {
        Entry::Param(p) => Some((&name[..], p.detach(), true)),
        Entry::State(s) => Some((&name[..], s.get(), false)),
        Entry::Counter(_) | Entry::Mode(_) => None,
    })
}

fn counters<B: Backend>(entries: &Entries<'_, B>) -> Result<Vec<(String, Indices<B>)>> {
    let values = StateDict::of_entries(entries);
    let counters = values.iter().filter_map(|(name, value)| match value {
        Value::Int(counter) => Some((name.to_string(), counter)),
        Value::Float(_) => None,
    });
    counters.map(|(name, counter)| Ok((name, counter.copy()?))).collect()
}

#[compiled_once]
impl<B: Backend> AveragedModel<B> {
    /// The exponential moving average (`get_ema_multi_avg_fn`; Polyak and Juditsky 1992):
    /// `average ← decay·average + (1 − decay)·parameter` at every update.
    ///
    /// See the example of [`AveragedModel`].
    ///
    /// # Errors
    /// A decay outside `0..=1`, memory.
    pub fn ema<M: Module<B> + ?Sized>(model: &M, decay: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&decay) {
            return Err(Error::invalid(OP, "decay", decay, "a number from 0 to 1"));
        }
        AveragedModel::start(&entries(model), Some(decay))
    }

    /// The equal mean of the parameters at every update (`get_swa_multi_avg_fn`; Izmailov and others 2018).
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Tensor, layers::Linear};
    /// use kiln_nn::optim::AveragedModel;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut model = Linear::new(&mut Init::new(&cpu, 0), 2, 1)?;
    /// let mut average = AveragedModel::swa(&model)?;
    /// for value in [1.0, 2.0, 6.0] {
    ///     model.weight.assign(&Tensor::full(&cpu, &[1, 2], DType::F32, value)?)?;
    ///     average.update(&model)?;
    /// }
    /// let mean = average.state_dict().float("weight").map(|t| t.to_f64()).transpose()?;
    /// assert_eq!((mean, average.updates()), (Some(vec![3.0, 3.0]), 3));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Memory.
    pub fn swa<M: Module<B> + ?Sized>(model: &M) -> Result<Self> {
        AveragedModel::start(&entries(model), None)
    }

    fn start(entries: &Entries<'_, B>, decay: Option<f64>) -> Result<Self> {
        let copied = |(name, value, is_param): (&str, Tensor<B>, bool)| {
            // Steps of a thousandth would be lost in the eight bits of a bf16.
            let value = match is_param && value.dtype() != DType::F64 {
                true => value.copy()?.to_dtype(DType::F32)?,
                false => value.copy()?,
            };
            Ok((name.to_string(), State::new(value)))
        };
        Ok(AveragedModel {
            decay,
            use_buffers: false,
            floats: floats(entries).map(copied).collect::<Result<_>>()?,
            counters: counters(entries)?,
            updates: 0,
        })
    }

    /// Averages float buffers, such as running statistics, as the parameters. Without it, the statistics of an averaged batch norm
    /// are those of the last model.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::BatchNorm, optim::AveragedModel};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let model = BatchNorm::<kiln_cpu::Cpu>::new(&mut Init::new(&cpu, 0), 3)?;
    /// let average = AveragedModel::ema(&model, 0.999)?.use_buffers();
    /// # assert_eq!(average.updates(), 0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn use_buffers(mut self) -> Self {
        self.use_buffers = true;
        self
    }

    /// The number of updates so far.
    ///
    /// See the example of [`AveragedModel::swa`].
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The averages by the names of the model's state dictionary. The memory is shared until the next update.
    ///
    /// See the example of [`AveragedModel::swa`].
    pub fn state_dict(&self) -> StateDict<B> {
        let mut dict = StateDict::new();
        for (name, average) in &self.floats {
            dict.insert(name.clone(), Value::Float(average.get()));
        }
        for (name, counter) in &self.counters {
            dict.insert(name.clone(), Value::Int(counter.clone()));
        }
        dict
    }

    /// Continues from the values of [`state_dict`](AveragedModel::state_dict) after so many updates. Nothing has changed after an
    /// error about names or shapes.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::Linear, optim::AveragedModel};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
    /// let mut average = AveragedModel::ema(&model, 0.99)?;
    /// average.update(&model)?;
    /// let (saved, updates) = (average.state_dict().copy()?, average.updates());
    /// let mut resumed = AveragedModel::ema(&model, 0.99)?;
    /// resumed.load_state_dict(&saved, updates)?;
    /// assert_eq!(resumed.updates(), 1);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An average that is missing, or of another shape or dtype.
    pub fn load_state_dict(&mut self, saved: &StateDict<B>, updates: u64) -> Result<()> {
        let stranger = |name: &str| Error::invalid(OP, "state", name, "an average of the same shape and dtype");
        let mut values = Vec::new();
        for (name, average) in &self.floats {
            let value = saved.float(name).ok_or_else(|| stranger(name))?;
            let same = average.with(|a| a.shape() == value.shape() && a.dtype() == value.dtype());
            match same {
                true => values.push(value),
                false => return Err(stranger(name)),
            }
        }
        for ((_, average), value) in self.floats.iter().zip(values) {
            average.assign(value)?;
        }
        for (name, counter) in &mut self.counters {
            *counter = saved.int(name).ok_or_else(|| stranger(name))?.copy()?;
        }
        self.updates = updates;
        Ok(())
    }

    /// Moves the averages towards the values of `model`, in place.
    ///
    /// See the example of [`AveragedModel`].
    ///
    /// # Errors
    /// A model with other names or shapes than the one that it began with, before anything has changed; memory.
    pub fn update<M: Module<B> + ?Sized>(&mut self, model: &M) -> Result<()> {
        self.update_from(entries(model))
    }

    fn update_from(&mut self, entries: Entries<'_, B>) -> Result<()> {
        self.check(floats(&entries).map(|(name, value, _)| (name, *value.shape())))?;
        let rate = match (self.updates, self.decay) {
            (0, _) => 1.0,
            (_, Some(decay)) => 1.0 - decay,
            (updates, None) => 1.0 / (updates + 1) as f64,
        };
        for ((_, average), (_, value, is_param)) in self.floats.iter().zip(floats(&entries)) {
            let value = value.to_dtype(average.with(|a| a.dtype()))?;
            match self.updates > 0 && (is_param || self.use_buffers) {
                true => average.blend(&value, rate)?,
                false => average.assign(&value)?,
            }
        }
        self.counters = counters(&entries)?;
        self.updates += 1;
        Ok(())
    }

    /// Takes over the running statistics of the batch norms of a model, which has computed them anew for the averages
    /// ([`update_bn`](super::update_bn())). They stay until the next update.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::BatchNorm, no_grad};
    /// use kiln_nn::optim::{AveragedModel, update_bn};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let mut averaged = BatchNorm::new(&mut Init::new(&cpu, 0), 1)?;
    /// # let x = Tensor::from_slice(&cpu, &[1.0f32, 3.0], &[2, 1])?;
    /// let average = AveragedModel::swa(&averaged)?;
    /// average.copy_to(&mut averaged)?;
    /// update_bn(&mut averaged, |model| no_grad(|| model.forward(&x)))?;
    /// average.take_statistics(&averaged)?;
    /// assert_eq!(average.state_dict().float("running_mean").map(|t| t.to_f64()).transpose()?, Some(vec![2.0]));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A model with other names or shapes, before anything has changed; memory.
    pub fn take_statistics<M: Module<B> + ?Sized>(&self, model: &M) -> Result<()> {
        let own = entries(model);
        self.check(floats(&own).map(|(name, value, _)| (name, *value.shape())))?;
        let taken = statistics(model);
        for (name, average) in &self.floats {
            if let Some(value) = taken.float(name) {
                average.assign(&value.to_dtype(average.with(|a| a.dtype()))?)?;
            }
        }
        Ok(())
    }

    /// Gives the averages to a model: parameters and float buffers, in place. Counters of random layers stay.
    ///
    /// See the example of [`AveragedModel`].
    ///
    /// # Errors
    /// A model with other names or shapes, before anything has changed; memory.
    pub fn copy_to<M: Module<B> + ?Sized>(&self, model: &mut M) -> Result<()> {
        let own = entries(&*model);
        self.check(floats(&own).map(|(name, value, _)| (name, *value.shape())))?;
        self.assign_to(entries_mut(model))
    }

    fn assign_to(&self, entries: EntriesMut<'_, B>) -> Result<()> {
        let mut averages = self.floats.iter();
        for (_, entry) in entries {
            let dtype = match &entry {
                EntryMut::Param(p) => p.dtype(),
                EntryMut::State(s) => s.with(|s| s.dtype()),
                EntryMut::Counter(_) | EntryMut::Mode(_) => continue,
            };
            let Some((_, average)) = averages.next() else { break };
            let value = average.get().to_dtype(dtype)?;
            match entry {
                EntryMut::Param(p) => p.assign(&value)?,
                EntryMut::State(s) => s.assign(&value)?,
                EntryMut::Counter(_) | EntryMut::Mode(_) => {}
            }
        }
        Ok(())
    }

    /// Checks names and shapes of a model's parameters and buffers.
    fn check<'a>(&self, model: impl Iterator<Item = (&'a str, kiln_core::Shape)>) -> Result<()> {
        let expected = "names and shapes of the model that the average began with";
        let mut count = 0;
        for (i, (name, shape)) in model.enumerate() {
            count += 1;
            let own = self.floats.get(i).filter(|(own, _)| own == name);
            if own.is_none_or(|(_, average)| average.with(|a| *a.shape() != shape)) {
                return Err(Error::invalid(OP, "model", name, expected));
            }
        }
        match count == self.floats.len() {
            true => Ok(()),
            false => Err(Error::invalid(OP, "model", format!("{count} tensors"), expected)),
        }
    }
}
