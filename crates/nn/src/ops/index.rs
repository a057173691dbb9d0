//! Ops that move elements, by shapes, slices and index tensors; their gradients move elements back.
//!
//! Two backend ops do most of it: reading a strided view and writing to one. Each is the gradient of the other.

mod bag;
mod basic;
mod gather;
mod join;
mod masked;
mod pixels;
mod shape;
mod slice;
mod triangle;
mod windows;

pub use bag::{BagMode, BagOptions};
pub use basic::{AxisIndex, Ellipsis, IntoAxisIndex, IntoIndex, NewAxis, Step};
pub(in crate::ops) use gather::{asked, covered, under};
pub use join::Pad;
pub use shape::IntoDims;
pub(crate) use shape::resolve;
pub(crate) use triangle::above;

use crate::autograd::{Part, Rule, RuleContext};
use crate::{Backend, Result, Shape, Tensor};
use kiln_core::ops::ViewParams;
use std::ops::Range;
use std::sync::Arc;

/// A strided view of a tensor in which no element occurs twice.
#[derive(Clone)]
struct View {
    p: ViewParams,
    whole: Shape,
    shape: Shape,
    /// An axis of the whole tensor and a range of its entries that contains the view.
    within: (usize, Range<usize>),
}

impl<B: Backend> Part<B> for View {
    fn whole(&self) -> Shape {
        self.whole
    }

    fn within(&self) -> Option<(usize, Range<usize>)> {
        Some(self.within.clone())
    }

    fn add(&self, grad: &Tensor<B>, whole: &mut B::Buffer, zero: bool) -> Result<()> {
        let backend = grad.backend();
        if zero {
            return backend.view_write(&self.p, grad.buffer(), whole);
        }
        let mut sum = grad.alloc_like(self.shape)?;
        backend.view_read(&self.p, whole, &mut sum)?;
        backend.accumulate(grad.buffer(), &mut sum)?;
        backend.view_write(&self.p, &sum, whole)
    }

    fn of(&self, whole: &Tensor<B>) -> Result<Tensor<B>> {
        read_view("view_read", whole, self.clone())
    }
}

struct Read(Arc<View>);

impl<B: Backend> Rule<B> for Read {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.clone())])
    }

    fn part(&self, _: usize) -> Option<Arc<dyn Part<B>>> {
        Some(self.0.clone())
    }
}

struct Write(View);

impl<B: Backend> Rule<B> for Write {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(self.0.of(cx.grad)?)])
    }
}

/// The elements of a view of `x` as a new tensor.
fn read_view<B: Backend>(op: &'static str, x: &Tensor<B>, view: View) -> Result<Tensor<B>> {
    let mut y = x.alloc_like(view.shape)?;
    x.backend().view_read(&view.p, x.buffer(), &mut y)?;
    Ok(Tensor::from_buffer(x.backend(), y, view.shape).record(op, &[x], || Read(Arc::new(view))))
}
