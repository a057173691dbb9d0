//! What all optimizers share: matching parameters with gradients and state, groups, and the calls to the backend.

use super::{Optimizer, check_positive};
use crate::module::{StateDict, Value};
use crate::{Backend, DType, Error, Gradients, Indices, Module, Param, Result, Tensor};
use kiln_core::Buffer;
use kiln_core::ops::OptimSlot;
use std::collections::BTreeMap;
use std::fmt;

/// An update rule over one set of parameters at the same step.
pub trait Algorithm: Clone + Send + Sync + 'static {
    /// What errors call the optimizer.
    const NAME: &'static str;

    /// Checks the hyper-parameters.
    ///
    /// # Errors
    /// One outside its domain.
    fn check(&self) -> Result<()>;

    /// The weight decay of parameters whose group has none of its own.
    fn weight_decay(&self) -> f64;

    /// Names of the state kept per parameter, in the order of the backend's update; those of `torch.optim`.
    fn states(&self) -> Vec<&'static str>;

    /// What the state starts with.
    fn initial(&self) -> f64 {
        0.0
    }

    /// The block `[lr, c1, c2, scale]` of the backend's update; `step` counts from 1.
    fn scalars(&self, lr: f64, step: u64) -> [f64; 4];

    /// The backend's update.
    ///
    /// # Errors
    /// The backend's.
    fn update<B: Backend>(
        &self,
        weight_decay: f64,
        backend: &B,
        scalars: &B::Buffer,
        slots: &mut [OptimSlot<'_, B::Buffer>],
    ) -> Result<()>;
}

/// Options of the parameters that a predicate selects by dotted name.
pub struct Group {
    select: Box<dyn Fn(&str) -> bool + Send>,
    lr_factor: f64,
    weight_decay: Option<f64>,
}

impl Group {
    /// The parameters whose dotted names `select` accepts, with the optimizer's own options.
    pub fn new(select: impl Fn(&str) -> bool + Send + 'static) -> Self {
        Group {
            select: Box::new(select),
            lr_factor: 1.0,
            weight_decay: None,
        }
    }

    /// Multiplies the learning rate: the group follows the optimizer's rate and its schedule at this ratio.
    pub fn lr_factor(mut self, factor: f64) -> Self {
        self.lr_factor = factor;
        self
    }

    /// Sets the weight decay.
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = Some(weight_decay);
        self
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("lr_factor", &self.lr_factor)
            .field("weight_decay", &self.weight_decay)
            .finish_non_exhaustive()
    }
}

/// The optimizer state of one parameter.
struct Slot<B: Backend> {
    steps: u64,
    state: Vec<Tensor<B>>,
}

/// One parameter of a step, with all that its update takes.
struct Work<'a, B: Backend> {
    name: String,
    param: &'a mut Param<B>,
    grad: &'a Tensor<B>,
    group: usize,
    slot: Slot<B>,
}

/// A parameter's name, the parameter, and its gradient.
type Pair<'a, B> = (String, &'a mut Param<B>, &'a Tensor<B>);

impl<B: Backend> Work<'_, B> {
    /// Parameters of one call share these.
    fn key(&self) -> (usize, u64, DType) {
        (self.group, self.slot.steps, self.param.dtype())
    }
}

/// An optimizer: an [`Algorithm`] with its groups and the state of every parameter.
pub struct Optim<B: Backend, A: Algorithm> {
    pub(super) algorithm: A,
    lr: f64,
    groups: Vec<Group>,
    skip_missing: bool,
    slots: BTreeMap<String, Slot<B>>,
    scalars: Vec<B::Buffer>,
    /// Where the parameters are, known from the first step or a loaded state on.
    backend: Option<B>,
}

impl<B: Backend, A: Algorithm> fmt::Debug for Optim<B, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(lr {}, {} parameters)", A::NAME, self.lr, self.slots.len())
    }
}

/// State is kept in the precision of arithmetic.
fn state_dtype(param: DType) -> DType {
    if param == DType::F64 { DType::F64 } else { DType::F32 }
}

impl<B: Backend, A: Algorithm> Optim<B, A> {
    /// An optimizer that runs `algorithm`.
    pub fn with(algorithm: A, lr: f64) -> Self {
        Optim {
            algorithm,
            lr,
            groups: Vec::new(),
            skip_missing: false,
            slots: BTreeMap::new(),
            scalars: Vec::new(),
            backend: None,
        }
    }

    /// Adds a group. A parameter belongs to the first group that selects it, else to the optimizer's own options.
    pub fn group(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// Leaves trainable parameters without a gradient as they are instead of refusing the step: for models that use
    /// only a part of themselves in a step.
    pub fn skip_missing_gradients(mut self) -> Self {
        self.skip_missing = true;
        self
    }

    fn options(&self, group: usize) -> (f64, f64) {
        let default = self.algorithm.weight_decay();
        match self.groups.get(group) {
            Some(g) => (self.lr * g.lr_factor, g.weight_decay.unwrap_or(default)),
            None => (self.lr, default),
        }
    }

    fn check(&self) -> Result<()> {
        check_positive(A::NAME, "lr", self.lr)?;
        for g in &self.groups {
            check_positive(A::NAME, "lr_factor", g.lr_factor)?;
            check_positive(A::NAME, "weight_decay", g.weight_decay.unwrap_or(0.0))?;
        }
        self.algorithm.check()
    }

    /// The state of a parameter, taken out of the map or new.
    fn take_slot(&mut self, name: &str, param: &Param<B>) -> Result<Slot<B>> {
        let dtype = state_dtype(param.dtype());
        if let Some(slot) = self.slots.remove(name) {
            let wrong = slot
                .state
                .iter()
                .find(|s| s.shape() != param.shape() || s.dtype() != dtype);
            let Some(wrong) = wrong else { return Ok(slot) };
            let e = Error::ShapeMismatch {
                op: A::NAME,
                lhs: *param.shape(),
                rhs: *wrong.shape(),
            };
            let e = if wrong.dtype() != dtype {
                Error::DTypeMismatch {
                    op: A::NAME,
                    lhs: dtype,
                    rhs: wrong.dtype(),
                }
            } else {
                e
            };
            self.slots.insert(name.to_string(), slot);
            return Err(e.within(name, "optimizer state"));
        }
        let state = self.algorithm.states();
        let initial = self.algorithm.initial();
        let state = state
            .iter()
            .map(|_| Tensor::full(param.backend(), param.shape(), dtype, initial));
        Ok(Slot {
            steps: 0,
            state: state.collect::<Result<_>>()?,
        })
    }

    /// Updates the parameters of one call, all of one key; `block` counts the calls of this step.
    fn update(&mut self, block: usize, work: &mut [Work<'_, B>]) -> Result<()> {
        let Some(first) = work.first() else { return Ok(()) };
        let (group, steps, dtype) = first.key();
        let backend = first.param.backend().clone();
        let (lr, weight_decay) = self.options(group);
        let scalars = self.algorithm.scalars(lr, steps + 1);
        let dtype = state_dtype(dtype);
        if self.scalars.get(block).is_none_or(|s| s.dtype() != dtype) {
            self.scalars.truncate(block);
            self.scalars.push(backend.alloc(dtype, scalars.len())?);
        }
        let buffer = &mut self.scalars[block];
        if dtype == DType::F64 {
            let bytes: Vec<u8> = scalars.iter().flat_map(|s| s.to_ne_bytes()).collect();
            backend.upload_bytes(&bytes, buffer)?;
        } else {
            let bytes: Vec<u8> = scalars.iter().flat_map(|&s| (s as f32).to_ne_bytes()).collect();
            backend.upload_bytes(&bytes, buffer)?;
        }
        let slots: Result<Vec<_>> = work
            .iter_mut()
            .map(|w| {
                Ok(OptimSlot {
                    param: w.param.buffer_mut()?,
                    grad: w.grad.buffer(),
                    state: w.slot.state.iter_mut().map(Tensor::buffer_mut).collect::<Result<_>>()?,
                })
            })
            .collect();
        self.algorithm.update(weight_decay, &backend, buffer, &mut slots?)?;
        for w in work {
            w.slot.steps += 1;
        }
        Ok(())
    }

    /// Pairs parameters with gradients, checking all before anything changes.
    fn pair<'a>(&self, model: &'a mut dyn Module<B>, grads: &'a Gradients<B>) -> Result<Vec<Pair<'a, B>>> {
        let mut pairs = Vec::new();
        for (name, param) in model.named_parameters_mut() {
            if !param.is_trainable() {
                continue;
            }
            let Some(grad) = grads.get(param) else {
                if self.skip_missing {
                    continue;
                }
                return Err(Error::MissingGradient { parameter: name });
            };
            if grad.shape() != param.shape() {
                let (lhs, rhs) = (*param.shape(), *grad.shape());
                let op = A::NAME;
                return Err(Error::ShapeMismatch { op, lhs, rhs }.within(&name, "gradient"));
            }
            crate::tensor::same_dtype(A::NAME, param, grad).map_err(|e| e.within(&name, "gradient"))?;
            pairs.push((name, param, grad));
        }
        Ok(pairs)
    }
}

impl<B: Backend, A: Algorithm> Optimizer<B> for Optim<B, A> {
    fn step(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<()> {
        self.check()?;
        let mut work = Vec::new();
        let mut result = Ok(());
        for (name, param, grad) in self.pair(model, grads)? {
            self.backend.get_or_insert_with(|| param.backend().clone());
            let group = self.groups.iter().position(|g| (g.select)(&name)).unwrap_or(usize::MAX);
            match self.take_slot(&name, param) {
                Ok(slot) => work.push(Work {
                    name,
                    param,
                    grad,
                    group,
                    slot,
                }),
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        if result.is_ok() {
            work.sort_by_key(Work::key);
            let calls = work.chunk_by_mut(|a, b| a.key() == b.key());
            result = calls.enumerate().try_for_each(|(block, call)| self.update(block, call));
        }
        self.slots.extend(work.into_iter().map(|w| (w.name, w.slot)));
        result
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn state_dict(&self) -> Result<StateDict<B>> {
        let mut dict = StateDict::new();
        let names = self.algorithm.states();
        let Some(backend) = &self.backend else {
            return Ok(dict);
        };
        let bits = self.lr.to_bits();
        let halves = [bits as u32 as i32, (bits >> 32) as u32 as i32];
        dict.insert("lr", Value::Int(Indices::from_slice(backend, &halves, &[2])?));
        for (parameter, slot) in &self.slots {
            let steps = [i32::try_from(slot.steps).unwrap_or(i32::MAX)];
            let steps = Indices::from_slice(backend, &steps, &[])?;
            dict.insert(format!("{parameter}.step"), Value::Int(steps));
            for (name, tensor) in names.iter().zip(&slot.state) {
                dict.insert(format!("{parameter}.{name}"), Value::Float(tensor.clone()));
            }
        }
        Ok(dict)
    }

    fn load_state_dict(&mut self, state: &StateDict<B>) -> Result<()> {
        let refuse = |name: &str, expected: &str| Error::invalid(A::NAME, "state", name, expected);
        let names = self.algorithm.states();
        let mut lr = self.lr;
        let mut slots = BTreeMap::new();
        for (entry, value) in state.iter() {
            if entry == "lr" {
                let Value::Int(bits) = value else {
                    return Err(refuse(entry, "two i32"));
                };
                let &[low, high] = bits.to_vec::<i32>()?.as_slice() else {
                    return Err(refuse(entry, "two i32"));
                };
                lr = f64::from_bits(u64::from(low as u32) | u64::from(high as u32) << 32);
                continue;
            }
            let Some((parameter, field)) = entry.rsplit_once('.') else {
                return Err(refuse(entry, "a parameter and a field"));
            };
            if field != "step" {
                if !names.contains(&field) {
                    return Err(refuse(entry, &format!("one of {names:?} or step")));
                }
                let steps = format!("{parameter}.step");
                if state.get(&steps).is_none() {
                    return Err(refuse(&steps, &format!("the steps that `{entry}` comes from")));
                }
                continue;
            }
            let steps = match value {
                Value::Int(i) if i.size() == 1 => i.to_vec::<i32>()?[0],
                _ => return Err(refuse(entry, "one i32")),
            };
            let steps = u64::try_from(steps).map_err(|_| refuse(entry, "0 or more"))?;
            let state = names.iter().map(|name| {
                let full = format!("{parameter}.{name}");
                state
                    .float(&full)
                    .cloned()
                    .ok_or_else(|| refuse(&full, "a tensor of that name"))
            });
            let state = state.collect::<Result<Vec<_>>>()?;
            slots.insert(parameter.to_string(), Slot { steps, state });
        }
        if let Some((_, value)) = state.iter().next() {
            if state.get("lr").is_none() {
                return Err(refuse("lr", "two i32"));
            }
            self.backend = Some(value.backend().clone());
        }
        (self.lr, self.slots) = (lr, slots);
        Ok(())
    }
}
