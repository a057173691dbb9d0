//! The batches of one update, and what became of them.

use crate::buffers::Buffers;
use crate::metrics::Mark;
use kiln_core::Backend;
use kiln_nn::{Gradients, Tensor};

/// The gradients and counts of the batches accumulated so far for one update.
pub(crate) struct Group<B: Backend> {
    pub(crate) begun: bool,
    pub(crate) grads: Option<Gradients<B>>,
    pub(crate) batches: usize,
    pub(crate) samples: usize,
    /// The losses of its batches.
    pub(crate) losses: Vec<Tensor<B>>,
    /// The state before the first of its batches, in case the step is skipped or abandoned.
    pub(crate) before: Option<Before<B>>,
}

impl<B: Backend> Group<B> {
    pub(crate) fn empty() -> Self {
        Group {
            begun: false,
            grads: None,
            batches: 0,
            samples: 0,
            losses: Vec::new(),
            before: None,
        }
    }
}

/// The result of a batch or a step.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Came {
    /// Its gradients were accumulated, or the model was updated, unless the device has decided that it is not.
    In,
    /// An update was skipped.
    Skipped,
    /// It was interrupted, and its step is abandoned.
    GivenUp,
}

/// The state of a run before a step.
pub(crate) struct Before<B: Backend> {
    /// The model's buffers, if it has any.
    pub(crate) buffers: Option<Buffers<B>>,
    /// The numbers of losses that were pending, and of those not reported.
    pub(crate) losses: (usize, usize),
    /// The metrics, if the step takes several batches.
    pub(crate) metrics: Vec<Mark<B>>,
}
