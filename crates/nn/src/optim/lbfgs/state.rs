//! The state of L-BFGS between steps, and how it is saved.

use crate::module::{StateDict, Value};
use crate::{Backend, DType, Error, Indices, Result, Tensor, no_grad};
use std::collections::VecDeque;

pub(super) const OP: &str = "lbfgs";

/// A step and the change of the gradient over it.
pub(super) struct Change<B: Backend> {
    pub(super) grad: Tensor<B>,
    pub(super) step: Tensor<B>,
    /// One divided by their product.
    pub(super) ro: Tensor<B>,
}

impl<B: Backend> Clone for Change<B> {
    fn clone(&self) -> Self {
        Change {
            grad: self.grad.clone(),
            step: self.step.clone(),
            ro: self.ro.clone(),
        }
    }
}

/// Where the last iteration went, and the gradient that it began with.
pub(super) struct Last<B: Backend> {
    pub(super) direction: Tensor<B>,
    pub(super) grad: Tensor<B>,
    pub(super) t: f64,
}

impl<B: Backend> Clone for Last<B> {
    fn clone(&self) -> Self {
        Last {
            direction: self.direction.clone(),
            grad: self.grad.clone(),
            t: self.t,
        }
    }
}

/// The history and the counts between steps.
pub(super) struct State<B: Backend> {
    pub(super) iterations: u64,
    pub(super) evaluations: u64,
    pub(super) last: Option<Last<B>>,
    pub(super) history: VecDeque<Change<B>>,
}

impl<B: Backend> Clone for State<B> {
    fn clone(&self) -> Self {
        State {
            iterations: self.iterations,
            evaluations: self.evaluations,
            last: self.last.clone(),
            history: self.history.clone(),
        }
    }
}

impl<B: Backend> Default for State<B> {
    fn default() -> Self {
        State {
            iterations: 0,
            evaluations: 0,
            last: None,
            history: VecDeque::new(),
        }
    }
}

impl<B: Backend> State<B> {
    /// The entries of a dictionary; none before the first iteration.
    pub(super) fn save(&self, lr: f64) -> Result<StateDict<B>> {
        let mut dict = StateDict::new();
        let Some(last) = &self.last else {
            return Ok(dict);
        };
        let b = last.grad.backend();
        for (name, value) in [("lr", lr), ("t", last.t)] {
            let bits = value.to_bits();
            let halves = [bits as u32 as i32, (bits >> 32) as u32 as i32];
            dict.insert(name, Value::Int(Indices::from_slice(b, &halves, &[2])?));
        }
        let counts = [("n_iter", self.iterations), ("func_evals", self.evaluations)];
        for (name, count) in counts {
            let count = [i32::try_from(count).unwrap_or(i32::MAX)];
            dict.insert(name, Value::Int(Indices::from_slice(b, &count, &[])?));
        }
        dict.insert("d", Value::Float(last.direction.clone()));
        dict.insert("prev_flat_grad", Value::Float(last.grad.clone()));
        for (i, change) in self.history.iter().enumerate() {
            dict.insert(format!("old_dirs.{i}"), Value::Float(change.grad.clone()));
            dict.insert(format!("old_stps.{i}"), Value::Float(change.step.clone()));
        }
        Ok(dict)
    }

    /// The state of a dictionary, with its learning rate; `lr` where it is empty.
    pub(super) fn load(state: &StateDict<B>, mut lr: f64) -> Result<(Self, f64)> {
        let mut loaded = State::default();
        if !state.is_empty() {
            let direction = vector(state, "d", None)?;
            let like = Some(&direction);
            let last = Last {
                grad: vector(state, "prev_flat_grad", like)?,
                t: f64::from_bits(number(state, "t", 2)?),
                direction: direction.clone(),
            };
            lr = f64::from_bits(number(state, "lr", 2)?);
            loaded.iterations = number(state, "n_iter", 1)?;
            loaded.evaluations = number(state, "func_evals", 1)?;
            for i in 0..state.len().saturating_sub(6) / 2 {
                let grad = vector(state, &format!("old_dirs.{i}"), like)?;
                let step = vector(state, &format!("old_stps.{i}"), like)?;
                let ro = dot(&grad, &step)?.reciprocal()?;
                loaded.history.push_back(Change { grad, step, ro });
            }
            loaded.last = Some(last);
            if state.len() % 2 == 1 {
                return Err(refuse("an entry too many", "the entries that this optimizer saves"));
            }
        }
        Ok((loaded, lr))
    }
}

fn refuse(name: &str, expected: &str) -> Error {
    Error::invalid(OP, "state", name, expected)
}

/// A saved vector, of the size and dtype of another.
fn vector<B: Backend>(state: &StateDict<B>, name: &str, like: Option<&Tensor<B>>) -> Result<Tensor<B>> {
    let found = state.float(name).filter(|v| {
        let wide = matches!(v.dtype(), DType::F32 | DType::F64);
        wide && v.rank() == 1 && like.is_none_or(|l| l.shape() == v.shape() && l.dtype() == v.dtype())
    });
    found
        .cloned()
        .ok_or_else(|| refuse(name, "a vector of all parameters' values"))
}

/// A saved number of one or two i32.
fn number<B: Backend>(state: &StateDict<B>, name: &str, halves: usize) -> Result<u64> {
    match state.get(name) {
        Some(Value::Int(i)) if i.size() == halves => {
            let values = i.to_vec::<i32>()?;
            let low = values.first().map_or(0, |&v| u64::from(v as u32));
            Ok(low | values.get(1).map_or(0, |&v| u64::from(v as u32) << 32))
        }
        _ => Err(refuse(name, "one i32, or two of an f64")),
    }
}

/// Σab.
pub(super) fn dot<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    no_grad(|| a.mul(b)?.sum(&[], false))
}
