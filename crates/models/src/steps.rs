//! Training steps on one batch, in named parts: what profiles and benches measure.

use crate::task::{Batches, Purpose};
use crate::{Card, Net, Update};
use kiln_core::Backend;
use kiln_data::{AnyBatch, AnyBatchOn, ArraysOf, Batch, Loaded, LoaderOptions};
use kiln_nn::module::StateDict;
use kiln_nn::{EntryMut, Tensor, WalkMut, no_grad};
use kiln_train::Result;

/// Runs a named part of a step, such as `optimizer`. Parts of one phase of several run inside of the part of its name.
pub type Part<'a> = &'a dyn Fn(&str, &mut dyn FnMut() -> Result<()>) -> Result<()>;

/// A network and a batch of samples in the host's memory.
pub struct Steps<B: Backend> {
    net: Net<B>,
    backend: B,
    host: Loaded<AnyBatch>,
    /// Arrays that take the place of the batch in the host's memory.
    taken: Option<StateDict<B>>,
}

/// Runs `body` while the parameters that `trains` leaves alone are frozen.
fn frozen<B: Backend, R>(net: &mut Net<B>, trains: fn(&str) -> bool, body: impl FnOnce(&mut Net<B>) -> R) -> R {
    let mut names = Vec::new();
    net.walk_mut(&mut WalkMut::new(&mut |name, entry| {
        if let EntryMut::Param(p) = entry
            && p.is_trainable()
            && !trains(name)
        {
            p.set_trainable(false);
            names.push(name.to_string());
        }
    }));
    let result = body(net);
    net.walk_mut(&mut WalkMut::new(&mut |name, entry| {
        if let EntryMut::Param(p) = entry
            && names.iter().any(|frozen| frozen == name)
        {
            p.set_trainable(true);
        }
    }));
    result
}

/// The error of a `part` that does not run what it is given.
fn not_run() -> kiln_train::TrainError {
    kiln_core::Error::invalid("steps", "part", "a function that did not run the part", "one that does").into()
}

impl<B: Backend> Steps<B> {
    /// The steps of a network on one batch of `count` made-up samples.
    pub(crate) fn of(net: Net<B>, card: &Card, backend: &B, count: usize) -> Result<Self> {
        let classes = card.output.size().unwrap_or(1);
        let batches = Batches {
            dataset: card.input.samples(count, classes, 0)?,
            options: LoaderOptions {
                batch_size: count,
                ..Default::default()
            },
            transform: card.recipe.transform(card.input, None)?,
        };
        let first = net.task().any_loader(batches, Purpose::Training)?.epoch(0)?.next();
        let Some(host) = first else {
            return Err(kiln_core::Error::invalid("steps", "count", count, "at least 1").into());
        };
        Ok(Steps {
            net,
            backend: backend.clone(),
            host: host?,
            taken: None,
        })
    }

    /// The network.
    pub fn net(&mut self) -> &mut Net<B> {
        &mut self.net
    }

    /// Takes another batch in the place of the one before: arrays on the device by the names of the fields of the task's batch, such as
    /// `images` and `noise`. What it lacks is an error of the next step.
    pub fn take(&mut self, arrays: StateDict<B>) {
        self.taken = Some(arrays);
    }

    fn upload(&self, part: Part<'_>) -> Result<AnyBatchOn<B>> {
        let mut on = None;
        part("input", &mut || {
            on = Some(match &self.taken {
                Some(arrays) => AnyBatch::from_arrays(&mut ArraysOf::new(arrays))?,
                None => self.host.to_device(&self.backend)?,
            });
            Ok(())
        })?;
        on.ok_or_else(not_run)
    }

    /// Makes one update of every phase on the batch, with `updates` in the order of the phases; returns their losses. The parts are
    /// `input`, and for every phase `model`, `backward` and `optimizer`.
    ///
    /// # Errors
    /// Those of the layers and the optimizers.
    pub fn train(&mut self, updates: &mut [Update<B>], part: Part<'_>) -> Result<Vec<Tensor<B>>> {
        let batch = self.upload(part)?;
        let net = &mut self.net;
        let mut losses = Vec::new();
        for ((phase, name), update) in net.phases().into_iter().enumerate().zip(updates) {
            let mut whole = || {
                let trains = net.task().trains(phase);
                frozen(net, trains, |net| {
                    let (mut loss, mut grads) = (None, None);
                    part("model", &mut || {
                        loss = Some(net.task().step(phase, &batch)?.loss);
                        Ok(())
                    })?;
                    let loss: Tensor<B> = loss.ok_or_else(not_run)?;
                    part("backward", &mut || {
                        grads = Some(loss.backward()?);
                        Ok(())
                    })?;
                    let grads = grads.ok_or_else(not_run)?;
                    part("optimizer", &mut || Ok(update.optimizer.step(net, &grads)?))?;
                    losses.push(loss.detach());
                    Ok(())
                })
            };
            match name {
                "" => whole()?,
                name => part(name, &mut whole)?,
            }
        }
        Ok(losses)
    }

    /// Runs the forward pass of the batch, without recording it: the parts `input` and `model`.
    ///
    /// # Errors
    /// Those of the layers.
    pub fn infer(&mut self, part: Part<'_>) -> Result<()> {
        let batch = self.upload(part)?;
        no_grad(|| part("model", &mut || Ok(self.net.task().forward(&batch).map(drop)?)))
    }
}

impl<B: Backend> std::fmt::Debug for Steps<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps")
            .field("net", &self.net)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}
