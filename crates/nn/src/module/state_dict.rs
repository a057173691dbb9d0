//! State dictionaries: the parameters, buffers and counters of a model by dotted name.

use super::entries::{Entries, EntriesMut, entries};
use super::state::State;
use super::walk::{Entry, EntryMut, Walkable};
use crate::{Backend, DType, Indices, Result, Shape, Tensor};
use std::collections::BTreeMap;

/// An entry of a state dictionary.
///
/// ```
/// # use kiln_nn::{Init, layers::BatchNorm, module::{StateDict, Value}};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let dict = StateDict::of(&BatchNorm::new(init, 3)?);
/// let counted = dict.iter().filter(|(_, value)| matches!(value, Value::Int(_))).count();
/// assert_eq!(counted, 1); // the number of batches
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Value<B: Backend> {
    /// A parameter or a buffer.
    Float(Tensor<B>),
    /// A counter.
    Int(Indices<B>),
}

impl<B: Backend> From<&Tensor<B>> for Value<B> {
    fn from(tensor: &Tensor<B>) -> Self {
        Value::Float(tensor.detach())
    }
}

impl<B: Backend> From<&Indices<B>> for Value<B> {
    fn from(indices: &Indices<B>) -> Self {
        Value::Int(indices.clone())
    }
}

#[compiled_once]
impl<B: Backend> Value<B> {
    /// The dimensions.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor, module::Value};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let value = Value::from(&Tensor::zeros(&cpu, &[2, 3], DType::F32)?);
    /// assert_eq!(value.shape().dims(), [2, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn shape(&self) -> &Shape {
        match self {
            Value::Float(t) => t.shape(),
            Value::Int(i) => i.shape(),
        }
    }

    /// The backend that the values lie on.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor, module::Value};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let value = Value::from(&Tensor::zeros(&cpu, &[2, 3], DType::F32)?);
    /// assert_eq!(Tensor::ones(value.backend(), &[1], value.dtype())?.item()?, 1.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn backend(&self) -> &B {
        match self {
            Value::Float(t) => t.backend(),
            Value::Int(i) => i.backend(),
        }
    }

    pub(crate) fn buffer(&self) -> &B::Buffer {
        match self {
            Value::Float(t) => t.buffer(),
            Value::Int(i) => i.buffer(),
        }
    }

    /// The element type.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor, module::Value};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let value = Value::from(&Tensor::zeros(&cpu, &[2, 3], DType::F32)?);
    /// assert_eq!(value.dtype(), DType::F32);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn dtype(&self) -> DType {
        match self {
            Value::Float(t) => t.dtype(),
            Value::Int(i) => i.dtype(),
        }
    }
}

/// Tensors by dotted name, sorted by name. A dictionary shares memory with the model that it came from until that model
/// changes: a snapshot without a copy.
///
/// A model that changes while a snapshot is held moves to new memory, which invalidates a captured step. A snapshot that is
/// kept during training, such as an average of weights, should be a [`copy`](StateDict::copy).
///
/// ```
/// use kiln_nn::{Init, Sequential, layers::Linear, module::StateDict};
/// # let cpu = kiln_cpu::Cpu::new();
/// let net = Sequential::new().push(Linear::new(&mut Init::new(&cpu, 0), 4, 2)?);
/// let dict = StateDict::of(&net);
/// assert_eq!(dict.names().collect::<Vec<_>>(), ["0.bias", "0.weight"]);
/// assert_eq!(dict.float("0.weight").map(|w| w.shape().to_vec()), Some(vec![2, 4]));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct StateDict<B: Backend> {
    entries: BTreeMap<String, Value<B>>,
}

impl<B: Backend> Default for StateDict<B> {
    fn default() -> Self {
        StateDict {
            entries: BTreeMap::new(),
        }
    }
}

#[compiled_once]
impl<B: Backend> StateDict<B> {
    /// A dictionary without entries.
    ///
    /// ```
    /// # use kiln_nn::module::StateDict;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// assert!(StateDict::<kiln_cpu::Cpu>::new().is_empty());
    /// ```
    pub fn new() -> Self {
        StateDict::default()
    }

    /// The contents of `module`: parameters, buffers and counters.
    ///
    /// See the example of [`StateDict`].
    pub fn of(module: &(impl Walkable<B> + ?Sized)) -> Self {
        StateDict::of_entries(&entries(module))
    }

    pub(crate) fn of_entries(entries: &Entries<'_, B>) -> Self {
        let mut dict = StateDict::new();
        for (name, entry) in entries {
            match entry {
                Entry::Param(p) => dict.insert(name, Value::Float(p.tensor().detach())),
                Entry::State(s) => dict.insert(name, Value::Float(s.get())),
                Entry::Counter(c) => dict.insert(name, Value::Int(c.get())),
                Entry::Mode(_) => {}
            }
        }
        dict
    }

    /// The dictionary on another device or backend, through the host: how a model moves to a GPU (`torch.nn.Module.to`).
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # let (cpu, other) = (kiln_cpu::Cpu::new(), kiln_cpu::Cpu::new());
    /// let layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
    /// let mut moved = Linear::new(&mut Init::new(&other, 0), 4, 2)?;
    /// moved.load_state_dict(&layer.state_dict().to_device(&other)?, LoadOptions::strict())?;
    /// assert_eq!(moved.weight.to_f64()?, layer.weight.to_f64()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::to_device`].
    pub fn to_device<C: Backend>(&self, backend: &C) -> Result<StateDict<C>> {
        let moved = |value: &Value<B>| match value {
            Value::Float(t) => t.to_device(backend).map(Value::Float),
            Value::Int(i) => i.to_device(backend).map(Value::Int),
        };
        let entries = self.entries.iter().map(|(name, v)| Ok((name.clone(), moved(v)?)));
        Ok(StateDict {
            entries: entries.collect::<Result<_>>()?,
        })
    }

    /// The same values in memory of their own.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, StorageSnapshot, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = Linear::new(init, 4, 2)?;
    /// let (kept, mut snapshot) = (layer.state_dict().copy()?, StorageSnapshot::new());
    /// snapshot.module(&layer);
    /// assert!(snapshot.fixed()); // `kept` does not share the layer's memory
    /// assert_eq!(kept.len(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn copy(&self) -> Result<Self> {
        let copied = |value: &Value<B>| match value {
            Value::Float(t) => t.copy().map(Value::Float),
            Value::Int(i) => i.copy().map(Value::Int),
        };
        let entries = self.entries.iter().map(|(name, v)| Ok((name.clone(), copied(v)?)));
        Ok(StateDict {
            entries: entries.collect::<Result<_>>()?,
        })
    }

    /// Adds an entry, or replaces the one with this name.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor, module::{StateDict, Value}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut dict = StateDict::new();
    /// dict.insert("scale", Value::from(&Tensor::ones(&cpu, &[2], DType::F32)?));
    /// assert_eq!(dict.names().collect::<Vec<_>>(), ["scale"]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn insert(&mut self, name: impl Into<String>, value: Value<B>) {
        self.entries.insert(name.into(), value);
    }

    /// The entry with this name.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let dict = Linear::new(init, 4, 2)?.state_dict();
    /// assert_eq!(dict.get("bias").map(|value| value.dtype()), Some(DType::F32));
    /// assert!(dict.get("scale").is_none());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn get(&self, name: &str) -> Option<&Value<B>> {
        self.entries.get(name)
    }

    /// The entry with this name if it is a [`Value::Float`].
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let dict = Linear::new(init, 4, 2)?.state_dict();
    /// assert_eq!(dict.float("weight").map(|w| w.size()), Some(8));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn float(&self, name: &str) -> Option<&Tensor<B>> {
        match self.get(name)? {
            Value::Float(t) => Some(t),
            Value::Int(_) => None,
        }
    }

    /// The entry with this name if it is a [`Value::Int`].
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let dict = BatchNorm::new(init, 3)?.state_dict();
    /// assert_eq!(dict.int("num_batches_tracked").map(|n| n.to_vec::<i32>()).transpose()?, Some(vec![0]));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn int(&self, name: &str) -> Option<&Indices<B>> {
        match self.get(name)? {
            Value::Int(i) => Some(i),
            Value::Float(_) => None,
        }
    }

    /// Removes and returns the entry with this name.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut dict = Linear::new(init, 4, 2)?.state_dict();
    /// assert!(dict.remove("bias").is_some());
    /// assert_eq!(dict.len(), 1);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn remove(&mut self, name: &str) -> Option<Value<B>> {
        self.entries.remove(name)
    }

    /// Every entry, sorted by name.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let dict = Linear::new(init, 4, 2)?.state_dict();
    /// let shapes: Vec<_> = dict.iter().map(|(name, value)| format!("{name} {}", value.shape())).collect();
    /// assert_eq!(shapes, ["bias [2]", "weight [2, 4]"]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value<B>)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The names, sorted.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let dict = Linear::new(init, 4, 2)?.state_dict();
    /// assert_eq!(dict.names().collect::<Vec<_>>(), ["bias", "weight"]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Number of entries.
    ///
    /// See the example of [`StateDict::remove`].
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries.
    ///
    /// See the example of [`StateDict::new`].
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries whose names begin with `prefix.`, under their names without it: one part of a checkpoint.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, Sequential, layers::{Linear, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let net = Sequential::new().push(Relu).push_named("head", Linear::new(init, 4, 2)?)?;
    /// assert_eq!(net.state_dict().part("head").names().collect::<Vec<_>>(), ["bias", "weight"]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn part(&self, prefix: &str) -> Self {
        let inside = |name: &str| Some(name.strip_prefix(prefix)?.strip_prefix('.')?.to_string());
        let entries = self
            .entries
            .iter()
            .filter_map(|(name, v)| Some((inside(name)?, v.clone())))
            .collect();
        StateDict { entries }
    }

    /// Adds every entry of `other`, with `prefix.` before its name.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear, module::StateDict};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut checkpoint = StateDict::new();
    /// checkpoint.insert_part("model", Linear::new(init, 4, 2)?.state_dict());
    /// assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["model.bias", "model.weight"]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn insert_part(&mut self, prefix: &str, other: StateDict<B>) {
        for (name, value) in other.entries {
            self.insert(format!("{prefix}.{name}"), value);
        }
    }
}

/// Moves every value of a module to another device, after all have been copied.
pub(super) fn to_device<B: Backend>(entries: EntriesMut<'_, B>, backend: &B) -> Result<()> {
    let mut moved = Vec::new();
    for (name, entry) in &entries {
        let value = match entry {
            EntryMut::Param(p) => p.to_device(backend).map(Value::Float),
            EntryMut::State(s) => s.get().to_device(backend).map(Value::Float),
            EntryMut::Counter(c) => c.get().to_device(backend).map(Value::Int),
            EntryMut::Mode(_) => continue,
        };
        moved.push(value.map_err(|e| e.within(name, "parameter"))?);
    }
    let stored = entries
        .into_iter()
        .filter(|(_, entry)| !matches!(entry, EntryMut::Mode(_)));
    for ((_, entry), value) in stored.zip(moved) {
        match (entry, value) {
            (EntryMut::Param(p), Value::Float(t)) => p.replace(t),
            (EntryMut::State(s), Value::Float(t)) => *s = State::new(t),
            (EntryMut::Counter(c), Value::Int(i)) => c.replace(i),
            _ => {}
        }
    }
    Ok(())
}
