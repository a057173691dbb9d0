//! The gradients that a backward pass returns.

use super::sum::add_into;
use crate::tensor::NodeId;
use crate::{Backend, DType, Error, Result, Shape, Tensor};
use std::collections::{BTreeSet, HashMap};

/// Gradients by the tensor they belong to, each of that tensor's shape and dtype.
///
/// ```
/// # use kiln_nn::{DType, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let w = Tensor::ones(&cpu, &[2], DType::F32)?.requires_grad();
/// let grads = w.mul_scalar(3.0)?.sum(&[], false)?.backward()?;
/// assert_eq!(grads.get(&w).unwrap().to_vec::<f32>()?, [3.0, 3.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Gradients<B: Backend> {
    by_id: HashMap<NodeId, Tensor<B>>,
}

impl<B: Backend> Default for Gradients<B> {
    fn default() -> Self {
        Gradients { by_id: HashMap::new() }
    }
}

impl<B: Backend> std::fmt::Debug for Gradients<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(&self.by_id).finish()
    }
}

/// Refuses a gradient whose shape or dtype is not that of its tensor.
pub(super) fn check_like<B: Backend>(
    op: &'static str,
    (shape, dtype): (&Shape, DType),
    grad: &Tensor<B>,
) -> Result<()> {
    if shape != grad.shape() {
        let (lhs, rhs) = (*shape, *grad.shape());
        return Err(Error::ShapeMismatch { op, lhs, rhs });
    }
    if dtype != grad.dtype() {
        let (lhs, rhs) = (dtype, grad.dtype());
        return Err(Error::DTypeMismatch { op, lhs, rhs });
    }
    Ok(())
}

#[compiled_once]
impl<B: Backend> Gradients<B> {
    pub(super) fn new(by_id: HashMap<NodeId, Tensor<B>>) -> Self {
        Gradients { by_id }
    }

    /// The gradient of `tensor`; `None` when the output does not depend on it.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (w, other) = (Tensor::ones(&cpu, &[], DType::F32)?.requires_grad(), Tensor::ones(&cpu, &[], DType::F32)?);
    /// let grads = w.mul(&other)?.backward()?;
    /// assert!(grads.get(&w).is_some() && grads.get(&other).is_none());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn get(&self, tensor: &Tensor<B>) -> Option<&Tensor<B>> {
        self.by_id.get(&tensor.id()?)
    }

    /// The gradient of the tensor with this [`Tensor::id`].
    ///
    /// See the example of [`Tensor::id`].
    pub fn by_id(&self, id: NodeId) -> Option<&Tensor<B>> {
        self.by_id.get(&id)
    }

    /// Removes and returns the gradient of `tensor`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::ones(&cpu, &[], DType::F32)?.requires_grad();
    /// let mut grads = w.mul_scalar(3.0)?.backward()?;
    /// assert_eq!(grads.remove(&w).unwrap().item()?, 3.0);
    /// assert!(grads.is_empty());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn remove(&mut self, tensor: &Tensor<B>) -> Option<Tensor<B>> {
        self.by_id.remove(&tensor.id()?)
    }

    /// Removes the gradients of `tensors` and returns them: the parameters that another optimizer is to update.
    ///
    /// ```
    /// use kiln_nn::optim::{AdamW, Muon, Optimizer};
    /// # use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
    /// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
    /// let mut muon = Muon::new(0.02).skip_missing_gradients();
    /// let mut adamw = AdamW::new(3e-4).skip_missing_gradients();
    /// let mut grads = model.forward(&x)?.square()?.mean(&[], false)?.backward()?;
    /// let vectors = grads.take(model.parameters().into_iter().filter(|p| p.rank() < 2));
    /// muon.step(&mut model, &grads)?;
    /// adamw.step(&mut model, &vectors)?;
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn take(&mut self, tensors: impl IntoIterator<Item = impl AsRef<Tensor<B>>>) -> Gradients<B> {
        let ids = tensors.into_iter().filter_map(|t| t.as_ref().id());
        Gradients::new(ids.filter_map(|id| Some((id, self.by_id.remove(&id)?))).collect())
    }

    /// Sets `grad` as the gradient of `tensor` and returns the one that it replaces.
    ///
    /// ```
    /// # use kiln_nn::{DType, Gradients, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::ones(&cpu, &[2], DType::F32)?.requires_grad();
    /// let mut grads = Gradients::default();
    /// grads.insert(&w, w.full_like(0.5)?)?;
    /// assert_eq!(grads.get(&w).unwrap().to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A tensor that is not tracked; a gradient of another shape or dtype than the tensor's.
    pub fn insert(&mut self, tensor: &Tensor<B>, grad: Tensor<B>) -> Result<Option<Tensor<B>>> {
        const OP: &str = "insert";
        let Some(id) = tensor.id() else {
            let expected = "one that requires a gradient";
            return Err(Error::invalid(OP, "tensor", "untracked", expected));
        };
        check_like(OP, (tensor.shape(), tensor.dtype()), &grad)?;
        Ok(self.by_id.insert(id, grad))
    }

    /// Every gradient with the id of its tensor, in no particular order.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::ones(&cpu, &[2], DType::F32)?.requires_grad();
    /// let grads = w.sum(&[], false)?.backward()?;
    /// assert!(grads.iter().all(|(id, grad)| Some(id) == w.id() && grad.size() == 2));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Tensor<B>)> {
        self.by_id.iter().map(|(&id, g)| (id, g))
    }

    /// Replaces the gradients of `ids` by the results of `change`, which keeps shape and dtype.
    pub(crate) fn change(
        &mut self,
        ids: impl IntoIterator<Item = NodeId>,
        mut change: impl FnMut(&Tensor<B>) -> Result<Tensor<B>>,
    ) -> Result<()> {
        for id in ids {
            if let Some(grad) = self.by_id.get_mut(&id) {
                *grad = change(grad)?;
            }
        }
        Ok(())
    }

    /// The gradients of `ids` that are of this dtype, in their order.
    pub(crate) fn of_dtype(&mut self, ids: &BTreeSet<NodeId>, dtype: DType) -> Vec<(NodeId, &mut Tensor<B>)> {
        let all = self.by_id.iter_mut().map(|(&id, grad)| (id, grad));
        let mut list: Vec<_> = all.filter(|(id, g)| g.dtype() == dtype && ids.contains(id)).collect();
        list.sort_by_key(|(id, _)| *id);
        list
    }

    /// Number of gradients.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let [v, w] = [2.0, 3.0].map(|value| Tensor::full(&cpu, &[], DType::F32, value).map(|t| t.requires_grad()));
    /// assert_eq!(v?.mul(&w?)?.backward()?.len(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// True if there are no gradients.
    ///
    /// ```
    /// # use kiln_cpu::Cpu;
    /// # use kiln_nn::Gradients;
    /// assert!(Gradients::<Cpu>::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Adds another set of gradients of the same parameters: gradient accumulation over micro-batches.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::ones(&cpu, &[], DType::F32)?.requires_grad();
    /// let mut grads = w.mul_scalar(3.0)?.backward()?;
    /// grads.accumulate(w.mul_scalar(2.0)?.backward()?)?;
    /// assert_eq!(grads.get(&w).unwrap().item()?, 5.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Two gradients of one tensor whose shapes or dtypes differ, as when the tensor's dtype was changed between them: nothing
    /// has changed then. [`Error::OutOfMemory`].
    pub fn accumulate(&mut self, other: Gradients<B>) -> Result<()> {
        for (id, grad) in &other.by_id {
            if let Some(sum) = self.by_id.get(id) {
                check_like("accumulate", (sum.shape(), sum.dtype()), grad)?;
            }
        }
        for (id, grad) in other.by_id {
            match self.by_id.get_mut(&id) {
                Some(sum) => add_into(sum, &grad)?,
                None => drop(self.by_id.insert(id, grad)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_cpu::Cpu;

    /// Gradients of one tensor with different shapes or dtypes are refused, and those present stay unchanged.
    #[test]
    fn gradients_that_do_not_fit_do_not_accumulate() -> Result<()> {
        let cpu = Cpu::poisoned();
        let (w, other) = (
            Tensor::<Cpu>::ones(&cpu, &[3], DType::F32)?,
            Tensor::ones(&cpu, &[1], DType::F32)?,
        );
        let (w, other) = (w.requires_grad(), other.requires_grad());
        let [id, fits] = [&w, &other].map(|t| t.id().expect("it is tracked"));
        let mut sum = Gradients::new(HashMap::from([(id, w.detach()), (fits, other.detach())]));
        for (shape, dtype) in [([1], DType::F32), ([3], DType::F16)] {
            let grad = Tensor::ones(&cpu, &shape, dtype)?;
            let more = Gradients::new(HashMap::from([(id, grad), (fits, other.detach())]));
            let refused = sum.accumulate(more).unwrap_err();
            assert!(
                matches!(
                    refused,
                    Error::ShapeMismatch { op: "accumulate", .. } | Error::DTypeMismatch { op: "accumulate", .. }
                ),
                "{refused}"
            );
            assert_eq!(sum.by_id(id).expect("it is there").to_f64()?, [1.0; 3]);
            assert_eq!(sum.by_id(fits).expect("it is there").to_f64()?, [1.0]);
        }
        Ok(())
    }
}
