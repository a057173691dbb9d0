//! The operations behind a batch norm in residual networks.

use crate::{Backend, Result, Tensor};

/// The operations behind a batch norm: first a residual is added, then a ReLU sets what is negative to zero.
pub(crate) struct Behind<'a, B: Backend> {
    pub(crate) residual: Option<&'a Tensor<B>>,
    pub(crate) relu: bool,
}

impl<B: Backend> Clone for Behind<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Behind<'_, B> {}

impl<B: Backend> Default for Behind<'_, B> {
    fn default() -> Self {
        Behind {
            residual: None,
            relu: false,
        }
    }
}

impl<B: Backend> Behind<'_, B> {
    /// These operations as ops of their own.
    pub(crate) fn of(self, y: Tensor<B>) -> Result<Tensor<B>> {
        let y = match self.residual {
            Some(residual) => y.add(residual)?,
            None => y,
        };
        if self.relu { y.relu() } else { Ok(y) }
    }

    /// True if the op of a norm of `x` takes this; other residuals are broadcast, cast or refused by the addition.
    pub(super) fn fits(self, x: &Tensor<B>) -> bool {
        let same = |r: &Tensor<B>| r.shape() == x.shape() && r.dtype() == x.dtype();
        self.residual.is_none_or(same)
    }
}
