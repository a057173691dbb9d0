//! The sum of the gradients that reach one tensor: the only place where gradients are accumulated.

use super::mode::no_grad;
use crate::tensor::{Part, Rule, RuleContext};
use crate::{Backend, DType, Result, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The elements of a sum that a gradient was added to.
#[derive(Default)]
enum Covered {
    #[default]
    Nothing,
    /// Disjoint ranges of an axis, by their start: start to end.
    Ranges(usize, BTreeMap<usize, usize>),
    /// Unknown: possibly every element.
    Anything,
}

impl Covered {
    /// Marks a part as covered. True if it is known that nothing was added to it before.
    fn take(&mut self, within: Option<(usize, Range<usize>)>) -> bool {
        if let (Covered::Nothing, Some((axis, _))) = (&*self, &within) {
            *self = Covered::Ranges(*axis, BTreeMap::new());
        }
        match (&mut *self, within) {
            (Covered::Ranges(along, ranges), Some((axis, range)))
                if *along == axis
                    && ranges
                        .range(..range.end)
                        .next_back()
                        .is_none_or(|(_, &end)| end <= range.start) =>
            {
                ranges.insert(range.start, range.end);
                true
            }
            _ => {
                *self = Covered::Anything;
                false
            }
        }
    }
}

/// The gradient of a tensor during the backward pass: the sum of the terms that have reached it so far.
///
/// Without `create_graph` every term is added at once and dropped. With it the sum must be differentiable: gradients of
/// parts are kept and added by one op in [`terms_apart`](Sum::terms_apart).
pub(super) struct Sum<B: Backend> {
    /// In f32, for half precision, once a part has been added that may name an element more than once.
    total: Option<Tensor<B>>,
    /// A second term that is not in `total`, for a rule that adds the two itself.
    apart: Option<Tensor<B>>,
    covered: Covered,
    /// The dtype of the gradients, to which the sum is rounded at the end.
    dtype: Option<DType>,
    parts: Vec<(Arc<dyn Part<B>>, Tensor<B>)>,
    terms: usize,
}

impl<B: Backend> Default for Sum<B> {
    fn default() -> Self {
        Sum {
            total: None,
            apart: None,
            covered: Covered::default(),
            dtype: None,
            parts: Vec::new(),
            terms: 0,
        }
    }
}

impl<B: Backend> Sum<B> {
    /// Adds a gradient of the whole tensor, in place without `create_graph`. A sum whose memory another tensor shares, as
    /// when a rule returned one gradient for two inputs, moves to a copy first.
    /// If `apart`, a second term may stay apart ([`terms_apart`](Sum::terms_apart)).
    pub(super) fn add(&mut self, grad: Tensor<B>, create_graph: bool, apart: bool) -> Result<()> {
        self.join()?;
        self.terms += 1;
        self.covered = Covered::Anything;
        self.dtype = Some(grad.dtype());
        self.total = Some(match self.total.take() {
            None => grad,
            Some(sum) if create_graph => sum.add(&grad)?,
            Some(sum) if apart && self.terms == 2 && sum.dtype() == grad.dtype() => {
                self.apart = Some(grad);
                sum
            }
            Some(mut sum) => {
                let grad = grad.to_dtype(sum.dtype())?;
                add_into(&mut sum, &grad)?;
                sum
            }
        });
        Ok(())
    }

    /// Adds the term that is apart.
    fn join(&mut self) -> Result<()> {
        match (&mut self.total, self.apart.take()) {
            (Some(sum), Some(grad)) => add_into(sum, &grad),
            _ => Ok(()),
        }
    }

    /// As [`finish`](Sum::finish), without the term that is apart, which is returned too.
    pub(super) fn terms_apart(mut self) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        let apart = self.apart.take();
        Ok((self.finish()?, apart))
    }

    /// Adds a gradient of a part of the tensor.
    pub(super) fn add_part(&mut self, part: Arc<dyn Part<B>>, grad: Tensor<B>, create_graph: bool) -> Result<()> {
        self.join()?;
        self.terms += 1;
        self.dtype = Some(grad.dtype());
        if create_graph {
            self.parts.push((part, grad));
            return Ok(());
        }
        self.put(&*part, &grad)
    }

    fn put(&mut self, part: &dyn Part<B>, grad: &Tensor<B>) -> Result<()> {
        let within = part.within();
        let wide = match (&within, grad.dtype()) {
            (None, DType::F16 | DType::BF16) => DType::F32,
            (_, dtype) => self.total.as_ref().map_or(dtype, Tensor::dtype),
        };
        let grad = grad.to_dtype(wide)?;
        let mut total = match self.total.take() {
            Some(total) => total.to_dtype(wide)?,
            None if within.is_some() && grad.size() == part.whole().size() => {
                let buffer = grad.alloc_like(part.whole())?;
                Tensor::from_buffer(grad.backend(), buffer, part.whole())
            }
            None => Tensor::zeros(grad.backend(), &part.whole(), wide)?,
        };
        if grad.size() > 0 {
            let zero = self.covered.take(within);
            part.add(&grad, total.buffer_mut()?, zero)?;
        }
        self.total = Some(total);
        Ok(())
    }

    /// Takes the sum of the terms so far out, for an op that adds it to the next one; `None` if it is not in the dtype of the gradients.
    pub(super) fn take(&mut self) -> Option<Tensor<B>> {
        let whole =
            self.parts.is_empty() && self.apart.is_none() && self.total.as_ref().map(Tensor::dtype) == self.dtype;
        if whole { self.total.take() } else { None }
    }

    /// The number of gradients that were added.
    pub(super) fn terms(&self) -> usize {
        self.terms
    }

    /// The sum of all terms, in the dtype of the gradients.
    fn finish(mut self) -> Result<Tensor<B>> {
        let parts = std::mem::take(&mut self.parts);
        let base = self.total.clone();
        if !parts.is_empty() {
            no_grad(|| {
                self.total = self.total.take().map(|t| t.detach());
                parts.iter().try_for_each(|(part, grad)| self.put(&**part, grad))
            })?;
        }
        let (Some(mut total), Some(dtype)) = (self.total, self.dtype) else {
            unreachable!("a gradient was added before it is asked for");
        };
        if total.dtype() != dtype {
            total = total.to_dtype(dtype)?;
        }
        if parts.is_empty() {
            return Ok(total);
        }
        let inputs: Vec<&Tensor<B>> = parts.iter().map(|(_, grad)| grad).chain(&base).collect();
        Ok(total.record("add_parts", &inputs, || AddParts {
            parts: parts.iter().map(|(part, _)| part.clone()).collect(),
            based: base.is_some(),
        }))
    }
}

/// Adds `grad` to `sum` in place, unrecorded.
pub(super) fn add_into<B: Backend>(sum: &mut Tensor<B>, grad: &Tensor<B>) -> Result<()> {
    debug_assert_eq!((sum.shape(), sum.dtype()), (grad.shape(), grad.dtype()));
    let backend = grad.backend().clone();
    backend.accumulate(grad.buffer(), sum.buffer_mut()?)
}

/// The rule of a sum of parts: the inputs are the gradients of the parts, and last, if `based`, the tensor they were added to.
struct AddParts<B: Backend> {
    parts: Vec<Arc<dyn Part<B>>>,
    based: bool,
}

impl<B: Backend> Rule<B> for AddParts<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let parts = self.parts.iter().enumerate();
        let mut grads = parts
            .map(|(i, part)| cx.needs(i).then(|| part.of(cx.grad)).transpose())
            .collect::<Result<Vec<_>>>()?;
        if self.based {
            grads.push(Some(cx.grad.clone()));
        }
        Ok(grads)
    }
}
