//! Networks as twins of those that are trained on another backend.

use crate::Net;
use crate::net::step;
use kiln_core::{Backend, Result};
use kiln_data::AnyBatch;
use kiln_train::{Twin, TwinStep};

/// The twin with the losses of a network's task.
pub(crate) fn of<B: Backend>(backend: &B, net: impl Fn(&B) -> Result<Net<B>>) -> kiln_train::Result<Twin> {
    let phases = net(backend)?.phases().into_iter().enumerate();
    let steps = phases.map(|(number, name)| {
        (
            name.to_string(),
            Box::new(step(number)) as TwinStep<B, Net<B>, AnyBatch>,
        )
    });
    Twin::of_phases::<B, Net<B>, AnyBatch>(backend, net, steps.collect())
}
