//! Gradients of parameters that reach them through casts: mixed precision casts each parameter, and so each of its gradients, and a cast of
//! all at the end of the backward pass costs a device as much as that of one did.

use super::sum::add_into;
use crate::tensor::NodeId;
use crate::{Backend, DType, Result, Tensor};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;

/// Gradients that wait to be cast, all of one dtype, to another.
pub(super) struct LeafCasts<B: Backend> {
    waiting: Vec<(NodeId, Tensor<B>)>,
    dtype: Option<DType>,
    done: Vec<(NodeId, Tensor<B>)>,
}

impl<B: Backend> Default for LeafCasts<B> {
    fn default() -> Self {
        LeafCasts {
            waiting: Vec::new(),
            dtype: None,
            done: Vec::new(),
        }
    }
}

impl<B: Backend> LeafCasts<B> {
    /// Has `grad` cast to `dtype` for a leaf.
    pub(super) fn push(&mut self, leaf: NodeId, grad: Tensor<B>, dtype: DType) -> Result<()> {
        let differs = self
            .waiting
            .first()
            .is_some_and(|(_, first)| first.dtype() != grad.dtype());
        if differs || self.dtype.is_some_and(|other| other != dtype) {
            self.cast()?;
        }
        self.dtype = Some(dtype);
        self.waiting.push((leaf, grad));
        Ok(())
    }

    fn cast(&mut self) -> Result<()> {
        let (leaves, grads): (Vec<NodeId>, Vec<Tensor<B>>) = mem::take(&mut self.waiting).into_iter().unzip();
        let Some(dtype) = self.dtype.take() else {
            return Ok(());
        };
        let cast = Tensor::each_to_dtype(&grads.iter().collect::<Vec<_>>(), dtype)?;
        self.done.extend(leaves.into_iter().zip(cast));
        Ok(())
    }

    /// Casts what waits, and adds all to the gradients of the leaves.
    pub(super) fn add_to(mut self, grads: &mut HashMap<NodeId, Tensor<B>>) -> Result<()> {
        self.cast()?;
        for (leaf, grad) in self.done {
            match grads.entry(leaf) {
                Entry::Vacant(entry) => drop(entry.insert(grad)),
                Entry::Occupied(mut entry) => add_into(entry.get_mut(), &grad)?,
            }
        }
        Ok(())
    }
}
