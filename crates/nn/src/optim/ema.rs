//! A moving average of a model's parameters.

use crate::module::{Entries, Entry, StateDict, Value, entries};
use crate::{Backend, DType, Error, Module, Result, no_grad};
use std::collections::HashSet;

const OP: &str = "ema";

/// The exponential moving average of a model's parameters (`torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`;
/// Polyak and Juditsky 1992): `average ← average + (1 − decay)·(parameter − average)` after every step. Buffers and
/// counters are those of the last update. Evaluate a second model with it, or a target net that follows the first.
///
/// ```
/// use kiln_nn::layers::Linear;
/// use kiln_nn::optim::{Ema, Optimizer, Sgd};
/// use kiln_nn::{DType, Init, Layer, LoadOptions, Module, Tensor};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cpu = kiln_cpu::Cpu::new();
/// # let x = Tensor::ones(&cpu, &[2, 3], DType::F32)?;
/// let new = |seed| Linear::new(&mut Init::new(&cpu, seed), 3, 1);
/// let (mut model, mut averaged) = (new(0)?, new(1)?);
/// let mut ema = Ema::new(&model, 0.99)?;
/// let mut sgd = Sgd::new(0.1);
/// for _ in 0..10 {
///     let loss = model.forward(&x)?.square()?.mean(&[], false)?;
///     sgd.step(&mut model, &loss.backward()?)?;
///     ema.update(&model)?;
/// }
/// averaged.load_state_dict(ema.state_dict(), LoadOptions::strict())?;
/// assert_ne!(averaged.weight.to_vec::<f32>()?, model.weight.to_vec::<f32>()?);
/// # Ok(())
/// # }
/// ```
pub struct Ema<B: Backend> {
    decay: f64,
    average: StateDict<B>,
}

#[compiled_once]
impl<B: Backend> Ema<B> {
    /// An average that starts with the values of `model`, in f32 for parameters of f16 and bf16.
    ///
    /// See the example of [`Ema`].
    ///
    /// # Errors
    /// A decay outside `0..=1`, memory.
    pub fn new<M: Module<B> + ?Sized>(model: &M, decay: f64) -> Result<Self> {
        let entries = entries(model);
        let mut start = StateDict::of_entries(&entries).copy()?;
        for (name, entry) in entries {
            // Steps of a thousandth would be lost in the eight bits of a bf16.
            if let Entry::Param(p) = entry
                && p.dtype() != DType::F64
            {
                start.insert(name, Value::Float(p.detach().copy()?.to_dtype(DType::F32)?));
            }
        }
        Ema::resume(start, decay)
    }

    /// An average that goes on from the values of [`Ema::state_dict`].
    ///
    /// ```
    /// # use kiln_nn::Init;
    /// use kiln_nn::optim::Ema;
    /// # use kiln_nn::layers::Linear;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
    /// let saved = Ema::new(&model, 0.99)?.state_dict().copy()?;
    /// let ema = Ema::resume(saved, 0.99)?;
    /// assert!(ema.state_dict().float("weight").is_some());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A decay outside `0..=1`.
    pub fn resume(average: StateDict<B>, decay: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&decay) {
            return Err(Error::invalid(OP, "decay", decay, "a number from 0 to 1"));
        }
        Ok(Ema { decay, average })
    }

    /// The averages by the names of the model's state dictionary.
    ///
    /// See the example of [`Ema`].
    pub fn state_dict(&self) -> &StateDict<B> {
        &self.average
    }

    /// Moves the averages towards the values of `model`. Nothing has changed after an error.
    ///
    /// See the example of [`Ema`].
    ///
    /// # Errors
    /// A model with other names or shapes than the one that it began with, memory.
    pub fn update<M: Module<B> + ?Sized>(&mut self, model: &M) -> Result<()> {
        self.update_from(entries(model))
    }

    fn update_from(&mut self, entries: Entries<'_, B>) -> Result<()> {
        let now = StateDict::of_entries(&entries);
        let parameters = entries
            .into_iter()
            .filter(|(_, entry)| matches!(entry, Entry::Param(_)));
        let parameters: HashSet<String> = parameters.map(|(name, _)| name).collect();
        let mut next = StateDict::new();
        for (name, value) in now.iter() {
            let expected = "names and shapes of the model that the average began with";
            let stranger = || Error::invalid(OP, "model", name, expected);
            let before = self.average.get(name).ok_or_else(stranger)?;
            if before.shape() != value.shape() {
                return Err(stranger());
            }
            let value = match (before, value) {
                (Value::Float(mean), Value::Float(now)) if parameters.contains(name) => {
                    let now = now.to_dtype(mean.dtype())?;
                    let moved = no_grad(|| mean.add(&now.sub(mean)?.mul_scalar(1.0 - self.decay)?))?;
                    Value::Float(moved)
                }
                (_, Value::Float(now)) => Value::Float(now.copy()?),
                (_, Value::Int(now)) => Value::Int(now.copy()?),
            };
            next.insert(name, value);
        }
        self.average = next;
        Ok(())
    }
}
