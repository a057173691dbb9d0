//! What all optimizers share: matching parameters with gradients and state, groups, and the calls to the backend.

mod update;

use super::algorithm::Algorithm;
use super::group::Group;
use super::undecided::{ROWS, Undecided};
use super::{Applied, Optimizer, check_positive};
use crate::module::{ParamId, StateDict, Value};
use crate::{Backend, DType, Error, Gradients, Indices, Module, Param, Result, Shape, StorageSnapshot, Tensor};
use std::collections::BTreeMap;
use std::fmt;

/// The optimizer's record of one parameter.
struct Slot<B: Backend> {
    /// The parameter that the state belongs to; known from the first step on, or from the first one after a state was loaded.
    param: Option<ParamId>,
    /// Its steps, as if every update that the device decides about were made.
    steps: u64,
    /// Made where the parameter first meets a gradient.
    state: Option<Vec<Tensor<B>>>,
    /// The block of scalars that the next step reads; set for every parameter that trains.
    block: Option<usize>,
}

impl<B: Backend> Default for Slot<B> {
    fn default() -> Self {
        Slot {
            param: None,
            steps: 0,
            state: None,
            block: None,
        }
    }
}

/// The scalars of parameters that share group, number of steps and dtype: those of one call to the backend. A table of them where
/// the device decides about updates.
struct Block<B: Backend> {
    group: usize,
    scalars: Tensor<B>,
}

/// What the parameters of a block share: group, number of steps, how many of these are undecided, and dtype.
type Key = (usize, u64, usize, DType);

/// One parameter of a step, with all that its update takes.
struct Work<'a, B: Backend> {
    name: String,
    param: &'a mut Param<B>,
    grad: &'a Tensor<B>,
    block: usize,
    state: Vec<Tensor<B>>,
}

/// A parameter's name, the parameter, and its gradient.
type Pair<'a, B> = (String, &'a mut Param<B>, &'a Tensor<B>);

/// An optimizer: an [`Algorithm`] with its groups and the state of every parameter.
///
/// See the examples of [`Adam`](super::Adam) and of [`Algorithm`].
pub struct Optim<B: Backend, A: Algorithm> {
    pub(super) algorithm: A,
    lr: f64,
    grad_scale: f64,
    groups: Vec<Group>,
    skip_missing: bool,
    maximize: bool,
    slots: BTreeMap<String, Slot<B>>,
    blocks: Vec<Block<B>>,
    /// The updates that the device has decided about, once there are any.
    undecided: Option<Undecided<B>>,
    /// Where the parameters are, known from the first step or a loaded state on.
    backend: Option<B>,
}

impl<B: Backend, A: Algorithm> fmt::Debug for Optim<B, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.slots.values().filter(|s| s.state.is_some()).count();
        write!(f, "{}(lr {}, {known} parameters)", A::NAME, self.lr)
    }
}

/// State is kept in the precision of arithmetic.
fn state_dtype(param: DType) -> DType {
    if param == DType::F64 { DType::F64 } else { DType::F32 }
}

#[compiled_once]
impl<B: Backend, A: Algorithm> Optim<B, A> {
    /// An optimizer that runs `algorithm`.
    ///
    /// See the example of [`Algorithm`].
    pub fn with(algorithm: A, lr: f64) -> Self {
        Optim {
            algorithm,
            lr,
            grad_scale: 1.0,
            groups: Vec::new(),
            skip_missing: false,
            maximize: false,
            slots: BTreeMap::new(),
            blocks: Vec::new(),
            undecided: None,
            backend: None,
        }
    }

    /// Adds a group. A parameter belongs to the first group that selects it, else to the optimizer's own options.
    ///
    /// See the example of [`Group`].
    pub fn group(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// Adds several groups, such as those of [`ByName::groups`](super::ByName::groups).
    ///
    /// See the example of [`ByName`](super::ByName).
    pub fn groups(mut self, groups: impl IntoIterator<Item = Group>) -> Self {
        self.groups.extend(groups);
        self
    }

    /// Leaves trainable parameters without a gradient as they are instead of refusing the step: for models that use
    /// only a part of themselves in a step.
    ///
    /// ```
    /// # use kiln_nn::{Gradients, Init};
    /// use kiln_nn::optim::{Optimizer, Sgd};
    /// # use kiln_nn::layers::Linear;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
    /// let none = Gradients::default();
    /// assert!(Sgd::new(0.1).step(&mut model, &none).is_err());
    /// assert!(Sgd::new(0.1).skip_missing_gradients().step(&mut model, &none).is_ok());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn skip_missing_gradients(mut self) -> Self {
        self.skip_missing = true;
        self
    }

    /// Climbs instead of descending: every gradient counts with the opposite sign.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor};
    /// use kiln_nn::optim::{Optimizer, Sgd};
    /// # use kiln_nn::layers::Linear;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
    /// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
    /// let reward = model.forward(&x)?.mean(&[], false)?;
    /// Sgd::new(0.1).maximize(true).step(&mut model, &reward.backward()?)?;
    /// assert!(model.forward(&x)?.mean(&[], false)?.item()? > reward.item()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn maximize(mut self, maximize: bool) -> Self {
        self.maximize = maximize;
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
        check_positive(A::NAME, "grad_scale", self.grad_scale)?;
        for g in &self.groups {
            check_positive(A::NAME, "lr_factor", g.lr_factor)?;
            check_positive(A::NAME, "weight_decay", g.weight_decay.unwrap_or(0.0))?;
        }
        self.algorithm.check()
    }

    /// The block and the state of a parameter, taken out of its slot or new.
    fn take(&mut self, name: &str, param: &Param<B>) -> Result<(usize, Vec<Tensor<B>>)> {
        let dtype = state_dtype(param.dtype());
        let slot = self.slots.get_mut(name).filter(|s| s.param == Some(param.identity()));
        let Some((slot, block)) = slot.and_then(|s| s.block.map(|block| (s, block))) else {
            return Err(Error::invalid(
                A::NAME,
                "parameter",
                name,
                "one that `prepare` has seen",
            ));
        };
        let Some(state) = &slot.state else {
            let lr = self.options(self.blocks[block].group).0;
            let new = |name: &&str| {
                let shape = self.algorithm.state_shape(name, param.shape());
                Tensor::full(param.backend(), &shape, dtype, self.algorithm.initial(name, lr))
            };
            let state = self.algorithm.states().iter().map(new).collect::<Result<_>>()?;
            return Ok((block, state));
        };
        let names = self.algorithm.states();
        let shapes = names.iter().map(|name| self.algorithm.state_shape(name, param.shape()));
        let wrong = |(s, shape): &(&Tensor<B>, Shape)| s.shape() != shape || s.dtype() != dtype;
        if let Some((wrong, shape)) = state.iter().zip(shapes).find(wrong) {
            let op = A::NAME;
            let e = if wrong.dtype() != dtype {
                let (lhs, rhs) = (dtype, wrong.dtype());
                Error::DTypeMismatch { op, lhs, rhs }
            } else {
                let (lhs, rhs) = (shape, *wrong.shape());
                Error::ShapeMismatch { op, lhs, rhs }
            };
            return Err(e.within(name, "optimizer state"));
        }
        Ok((block, slot.state.take().unwrap_or_default()))
    }

    /// Writes the scalars of a block, into the memory they had in the step before.
    fn write(&mut self, block: usize, backend: &B, (group, steps, undecided, dtype): Key) -> Result<()> {
        let (lr, _) = self.options(group);
        let scale = if self.maximize {
            -self.grad_scale
        } else {
            self.grad_scale
        };
        let row = |missed: usize| {
            let mut values = self.algorithm.scalars(lr, steps.saturating_sub(missed as u64) + 1);
            values[3] *= scale;
            values
        };
        let mut values = row(0);
        let mut shape = vec![values.len()];
        if self.undecided.is_some() {
            for missed in 1..ROWS {
                let last = values.len() - shape[0];
                match missed <= undecided {
                    true => values.extend(row(missed)),
                    false => values.extend_from_within(last..),
                }
            }
            shape.insert(0, ROWS);
        }
        let dtype = state_dtype(dtype);
        let fits = |b: &Block<B>| b.scalars.dtype() == dtype && b.scalars.shape()[..] == shape;
        if !self.blocks.get(block).is_some_and(fits) {
            self.blocks.truncate(block);
            let scalars = Tensor::from_f64(backend, &values, &shape, dtype)?;
            self.blocks.push(Block { group, scalars });
            return Ok(());
        }
        let to = &mut self.blocks[block];
        to.group = group;
        match dtype {
            DType::F64 => to.scalars.write(&values),
            _ => to.scalars.write(&values.iter().map(|&v| v as f32).collect::<Vec<_>>()),
        }
    }

    /// Updates the parameters, where `found_inf` is 0 if it is given.
    fn change(
        &mut self,
        model: &mut dyn Module<B>,
        grads: &Gradients<B>,
        found_inf: Option<&Indices<B>>,
    ) -> Result<Applied> {
        let leaves = found_inf.map(|found| found.reshape(())?.to_mask()).transpose()?;
        let mut work = Vec::new();
        let mut result = Ok(());
        for (name, param, grad) in self.pair(model, grads)? {
            match self.take(&name, param) {
                Ok((block, state)) => work.push(Work {
                    name,
                    param,
                    grad,
                    block,
                    state,
                }),
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        if result.is_ok() {
            work.sort_by_key(|w| w.block);
            let mut calls = work.chunk_by_mut(|a, b| a.block == b.block);
            result = calls.try_for_each(|call| self.update(call, leaves.as_ref()));
        }
        let mut names = Vec::with_capacity(work.len());
        for w in work {
            if let Some(slot) = self.slots.get_mut(&w.name) {
                slot.state = Some(w.state);
            }
            names.push(w.name);
        }
        names.sort_unstable();
        if let Some(undecided) = &mut self.undecided {
            result = result.and_then(|()| undecided.add(found_inf));
        }
        result.map(|()| Applied::new(names))
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

#[compiled_once]
impl<B: Backend, A: Algorithm> Optimizer<B> for Optim<B, A> {
    fn prepare(&mut self, model: &dyn Module<B>) -> Result<()> {
        self.check()?;
        if self.undecided.as_ref().is_some_and(Undecided::is_full) {
            self.settle()?;
        }
        let mut keyed = Vec::new();
        for (name, param) in model.named_parameters() {
            if !param.is_trainable() {
                param.keep_half()?;
                continue;
            }
            let slot = self.slots.get(&name);
            let kept = slot.filter(|s| s.state.is_some()).and_then(|s| s.param);
            if kept.is_some_and(|id| id != param.identity()) {
                let (op, parameter) = (A::NAME, name);
                return Err(Error::OtherParameter { op, parameter });
            }
            if A::FUSED.is_some_and(|op| param.has_op(op)) {
                // A recorded step reads the copy that its update wrote.
                param.refresh_half()?;
            }
            let group = self.groups.iter().position(|g| (g.select)(&name)).unwrap_or(usize::MAX);
            let steps = slot.map_or(0, |s| s.steps);
            let undecided = self.undecided.as_ref().map_or(0, |u| u.of(&name));
            keyed.push(((group, steps, undecided, param.dtype()), name, param));
        }
        if let Some((_, _, param)) = keyed.first() {
            self.backend.get_or_insert_with(|| param.backend().clone());
        }
        self.slots.values_mut().for_each(|s| s.block = None);
        let Some(backend) = self.backend.clone() else {
            return Ok(());
        };
        keyed.sort_by_key(|(key, ..)| *key);
        for (block, shared) in keyed.chunk_by(|a, b| a.0 == b.0).enumerate() {
            self.write(block, &backend, shared[0].0)?;
            for (_, name, param) in shared {
                let slot = self.slots.entry(name.clone()).or_default();
                slot.block = Some(block);
                slot.param = Some(param.identity());
            }
        }
        Ok(())
    }

    fn apply(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<Applied> {
        self.change(model, grads, None)
    }

    fn apply_if_finite(
        &mut self,
        model: &mut dyn Module<B>,
        grads: &Gradients<B>,
        found_inf: &Indices<B>,
    ) -> Result<Applied> {
        if self.undecided.is_none() {
            self.undecided = Some(Undecided::new(found_inf.backend())?);
            self.prepare(model)?;
        }
        self.change(model, grads, Some(found_inf))
    }

    fn count(&mut self, applied: &Applied) {
        for name in applied.names() {
            if let Some(slot) = self.slots.get_mut(name) {
                slot.steps += 1;
            }
        }
        if let Some(undecided) = &mut self.undecided {
            undecided.count(applied.names());
        }
    }

    fn settle(&mut self) -> Result<()> {
        let Some(undecided) = &mut self.undecided else {
            return Ok(());
        };
        for (name, missed) in undecided.read()? {
            if let Some(slot) = self.slots.get_mut(&name) {
                slot.steps = slot.steps.saturating_sub(missed);
            }
        }
        undecided.clear()
    }

    fn storage(&self, storage: &mut StorageSnapshot) {
        for slot in self.slots.values() {
            let block = slot.block.map_or(0, |b| b as u64 + 1);
            storage.numbers(&[block, u64::from(slot.state.is_some())]);
            slot.state.iter().flatten().for_each(|s| storage.tensor(s));
        }
        for block in &self.blocks {
            storage.numbers(&[block.group as u64]);
            storage.tensor(&block.scalars);
        }
        self.undecided.iter().for_each(|u| u.storage(storage));
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn set_grad_scale(&mut self, scale: f64) {
        self.grad_scale = scale;
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
        let missed = self
            .undecided
            .as_ref()
            .map_or_else(|| Ok(BTreeMap::new()), Undecided::read)?;
        for (parameter, slot) in &self.slots {
            let Some(state) = &slot.state else { continue };
            let steps = slot.steps.saturating_sub(missed.get(parameter).copied().unwrap_or(0));
            let steps = [i32::try_from(steps).unwrap_or(i32::MAX)];
            let steps = Indices::from_slice(backend, &steps, &[])?;
            dict.insert(format!("{parameter}.step"), Value::Int(steps));
            for (name, tensor) in names.iter().zip(state) {
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
            let state = Some(state.collect::<Result<Vec<_>>>()?);
            let slot = Slot {
                steps,
                state,
                ..Slot::default()
            };
            slots.insert(parameter.to_string(), slot);
        }
        if let Some((_, value)) = state.iter().next() {
            if state.get("lr").is_none() {
                return Err(refuse("lr", "two i32"));
            }
            self.backend = Some(value.backend().clone());
        }
        if let Some(undecided) = &mut self.undecided {
            undecided.clear()?;
        }
        (self.lr, self.slots) = (lr, slots);
        Ok(())
    }
}
