//! Steps that run op by op, which may be interrupted.

use crate::buffers::Buffers;
use crate::grad_norm::{self, StepNorms};
use crate::group::{Before, Came, Group};
use crate::recording::{Key, Scored, key};
use crate::run::Run;
use crate::verdict::Changed;
use crate::{Clip, Output, Result};
use kiln_core::Backend;
use kiln_data::{Batch, DataError, Loaded};
use kiln_nn::autograd::{checkpoint_layers_told, recompute_activations};
use kiln_nn::{Gradients, Module, Tensor, no_grad};
use kiln_nvtx::{range, range_with};
use std::ops::Deref;
use std::time::Instant;

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Makes one step from its batches: an update of each phase whose turn it is, recorded and replayed if `records`.
    pub(crate) fn run_step(&mut self, hosts: &[Loaded<T>], records: bool) -> Result<Came> {
        self.step += 1;
        let _step = range_with(|| format!("step {}", self.step));
        let key = key(hosts.iter().map(Deref::deref));
        let began = Instant::now();
        self.host_before = self.trainer.host_states.hold();
        let mut undo = if records { None } else { self.undo()? };
        let mut first = true;
        for at in 0..self.legs.len() {
            if !self.is_turn(at) {
                continue;
            }
            let interruptible = first || undo.is_some();
            if self.run_phase(at, hosts, records.then_some(&key), interruptible)? == Came::GivenUp {
                if let Some(before) = undo.take() {
                    self.undo_step(before)?;
                }
                self.put_back_host_states();
                return Ok(Came::GivenUp);
            }
            first = false;
        }
        self.step_took = Some(began.elapsed());
        self.updates += 1;
        Ok(Came::In)
    }

    /// True if it is the turn of a phase in the step in progress.
    pub(crate) fn is_turn(&self, at: usize) -> bool {
        self.step.is_multiple_of(self.legs[at].phase.every)
    }

    /// Makes the update of a phase, recorded and replayed if the keys of its batches are given; else it may be interrupted if it is
    /// `interruptible`, and then leaves no trace.
    pub(crate) fn run_phase(
        &mut self,
        at: usize,
        hosts: &[Loaded<T>],
        recorded: Option<&Vec<Key>>,
        interruptible: bool,
    ) -> Result<Came> {
        self.legs[at].attempts += 1;
        let name = &self.legs[at].phase.name;
        let _phase = (!name.is_empty()).then(|| range(name));
        let frozen = self.legs[at].phase.freeze(self.model);
        let came = match recorded {
            Some(key) => self.run_recorded(at, key.clone(), hosts).map(|()| Came::In),
            None => self.run_eager(at, hosts, interruptible),
        };
        crate::phase::unfreeze(self.model, frozen);
        came
    }

    /// Makes the update of a phase op by op.
    fn run_eager(&mut self, at: usize, hosts: &[Loaded<T>], interruptible: bool) -> Result<Came> {
        let mut group = self.begin(at);
        for (i, host) in hosts.iter().enumerate() {
            let last = i + 1 == hosts.len();
            let came = self.add(at, host, &mut group, interruptible)?;
            if came == Came::GivenUp {
                self.give_up(at, &mut group)?;
                return Ok(came);
            }
            if last {
                self.update(at, &mut group)?;
            }
        }
        Ok(Came::In)
    }

    fn begin(&self, at: usize) -> Group<B> {
        let several = self.trainer.options.accumulate > 1;
        let marked = self.running.iter().filter(|_| several);
        Group {
            begun: true,
            before: Some(Before {
                buffers: self.has_buffers.then(|| Buffers::of(self.model)),
                losses: self.legs[at].losses.mark(),
                metrics: marked.map(|r| r.mark()).collect(),
            }),
            ..Group::empty()
        }
    }

    /// Drops a step in progress: the run is as it was before it.
    pub(crate) fn give_up(&mut self, at: usize, group: &mut Group<B>) -> Result<()> {
        let Group { begun, before, .. } = std::mem::replace(group, Group::empty());
        if begun {
            self.step -= 1;
            self.legs[at].attempts -= 1;
            self.put_back_host_states();
        }
        if let Some(Before {
            buffers,
            losses,
            metrics,
        }) = before
        {
            self.rollback(buffers)?;
            self.legs[at].losses.rewind(losses);
            for (running, mark) in self.running.iter_mut().zip(metrics) {
                running.rewind(mark);
            }
        }
        Ok(())
    }

    /// Gives the states of the host the values from before the step in progress.
    pub(crate) fn put_back_host_states(&mut self) {
        let before = std::mem::take(&mut self.host_before);
        self.trainer.host_states.put_back(before);
    }

    /// Runs one batch of a step of one phase as it comes, op by op; the `last` batch of an epoch completes its step.
    pub(crate) fn take(&mut self, at: usize, host: &T, group: &mut Group<B>, last: bool) -> Result<Came> {
        if !group.begun {
            self.step += 1;
            self.legs[at].attempts += 1;
            self.host_before = self.trainer.host_states.hold();
            *group = self.begin(at);
        }
        let _step = range_with(|| format!("step {}", self.step));
        let frozen = self.legs[at].phase.freeze(self.model);
        let mut came = self.add(at, host, group, true);
        if let Ok(Came::In) = came
            && (last || group.batches == self.trainer.options.accumulate)
        {
            came = self.update(at, group).map(|()| Came::In);
            self.updates += u64::from(came.is_ok());
        }
        crate::phase::unfreeze(self.model, frozen);
        came
    }

    /// Adds the gradients of a batch to the group.
    fn add(&mut self, at: usize, host: &T, group: &mut Group<B>, interruptible: bool) -> Result<Came> {
        let batch = self.on_device(host)?;
        let output = match self.accumulate(at, host.len(), &batch, group, interruptible) {
            Err(e) if e.is_interrupted() => return Ok(Came::GivenUp),
            output => self.at(output)?,
        };
        let measured = output.measured();
        let measured = self.at(measured)?;
        self.legs[at].losses.push(measured, host.len(), self.step);
        let scored = self.score(&output);
        let scored = self.at(scored)?;
        self.count_scored(&scored, host.len())?;
        Ok(Came::In)
    }

    /// A batch on the device.
    pub(crate) fn on_device(&self, host: &T) -> Result<T::On<B>> {
        match host.to_device(&self.trainer.backend) {
            Err(DataError::Tensor(error)) => self.at(Err(*error)),
            copied => Ok(copied?),
        }
    }

    /// Runs forward and backward of one batch, which may be interrupted, and adds its gradients to the group.
    fn accumulate(
        &mut self,
        at: usize,
        samples: usize,
        batch: &T::On<B>,
        group: &mut Group<B>,
        interruptible: bool,
    ) -> kiln_core::Result<Output<B>> {
        let mut made = None;
        let mut body = || {
            let output = self.forward(at, batch)?;
            let _backward = range("backward");
            let grads = self.gradients_of(at, &output.loss, samples)?;
            match &mut group.grads {
                Some(sum) => sum.accumulate(grads)?,
                none => *none = Some(grads),
            }
            made = Some(Output {
                loss: output.loss.detach(),
                ..output
            });
            Ok(())
        };
        match interruptible {
            true => self.trainer.backend.interruptible(&self.interrupt, &mut body)?,
            false => body()?,
        }
        group.batches += 1;
        group.samples += samples;
        match made {
            Some(made) => {
                group.losses.push(made.loss.clone());
                Ok(made)
            }
            None => unreachable!("the body has run"),
        }
    }

    /// The closure of a phase on a batch, in the precision of steps.
    pub(crate) fn forward(&self, at: usize, batch: &T::On<B>) -> kiln_core::Result<Output<B>> {
        let _forward = range("forward");
        let options = &self.trainer.options;
        let run = || (self.legs[at].phase.closure)(self.model, batch);
        let closure = || match options.recompute_activations {
            true => recompute_activations(run),
            false => run(),
        };
        options.in_precision(|| match &options.recompute[..] {
            [] => closure(),
            layers => {
                let selected = |name: &str| layers.iter().any(|pattern| pattern.matches(name));
                let (output, left) = checkpoint_layers_told(&*self.model, selected, closure)?;
                self.left.borrow_mut().add(left);
                Ok(output)
            }
        })
    }

    /// Clips the gradients and updates the model, which is not interrupted.
    fn update(&mut self, at: usize, group: &mut Group<B>) -> Result<()> {
        let Group {
            grads,
            samples,
            losses,
            before,
            ..
        } = std::mem::replace(group, Group::empty());
        let Some(grads) = grads else { return Ok(()) };
        let buffers = before.and_then(|b| b.buffers);
        let result = self.optimizer_step(at, grads, samples, &losses, buffers);
        self.at(result)?;
        self.legs[at].recorder.execution.eager += 1;
        Ok(())
    }

    /// Restores the running statistics and counters from before an abandoned step.
    fn rollback(&self, before: Option<Buffers<B>>) -> Result<()> {
        match before {
            Some(before) => self.at(before.restore(self.model)),
            None => Ok(()),
        }
    }

    fn optimizer_step(
        &mut self,
        at: usize,
        grads: Gradients<B>,
        samples: usize,
        losses: &[Tensor<B>],
        before: Option<Buffers<B>>,
    ) -> kiln_core::Result<()> {
        let _optimizer = range("optimizer");
        self.prepare(at)?;
        let Changed {
            applied,
            skipped,
            norms,
        } = self.change(at, grads, samples, losses, before)?;
        let leg = &mut self.legs[at];
        leg.phase.optimizer.count(&applied);
        leg.norms.push(norms);
        skipped.map_or(Ok(()), |skipped| leg.losses.decide(&skipped))
    }

    /// Sets the learning rate of a phase's update by its schedule.
    pub(crate) fn set_rate(&mut self, at: usize) -> kiln_core::Result<()> {
        let leg = &mut self.legs[at];
        match leg.phase.schedule.as_ref().or(self.trainer.schedule.as_ref()) {
            Some(schedule) => {
                schedule.apply(leg.attempts - 1, leg.phase.optimizer)?;
                if self.lr_factor != 1.0 {
                    leg.phase.optimizer.set_lr(leg.phase.optimizer.lr() * self.lr_factor);
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Adds a batch to the training metrics, on the device.
    pub(crate) fn score(&mut self, output: &Output<B>) -> kiln_core::Result<Scored<B>> {
        let mut scored = Scored::new();
        let pairs = self.trainer.metrics.iter().zip(&mut self.running).enumerate();
        no_grad(|| {
            for (i, (metric, running)) in pairs {
                if metric.in_training() && output.has(metric.reads()) {
                    scored.push((i, running.record(&**metric, output)?));
                }
            }
            Ok(scored)
        })
    }

    /// Updates the metrics on the host after a batch of `samples` samples.
    pub(crate) fn count_scored(&mut self, scored: &Scored<B>, samples: usize) -> Result<()> {
        for (i, gathered) in scored {
            let metric = &mut *self.trainer.metrics[*i];
            let counted = self.running[*i].count(metric, gathered.as_ref(), samples);
            self.at(counted)?;
        }
        Ok(())
    }

    /// Scales the loss of a batch by its samples if gradients are accumulated, so that a short batch has the weight that it
    /// would have in one large batch, and by the scale of mixed precision.
    pub(crate) fn scale_loss(&self, at: usize, loss: &Tensor<B>, samples: usize) -> kiln_core::Result<Tensor<B>> {
        let loss = match self.trainer.options.accumulate {
            1 => loss.clone(),
            _ => loss.mul_scalar(samples as f64)?,
        };
        match &self.legs[at].scaler {
            Some(scaler) => scaler.scale(&loss),
            None => Ok(loss),
        }
    }

    /// The gradients of the [scaled](Run::scale_loss) loss of a batch.
    pub(crate) fn gradients_of(&self, at: usize, loss: &Tensor<B>, samples: usize) -> kiln_core::Result<Gradients<B>> {
        let loss = self.scale_loss(at, loss, samples)?;
        match (loss.shape(), loss.dtype()) == (self.one.shape(), self.one.dtype()) {
            true => loss.backward_with(&self.one),
            false => loss.backward(),
        }
    }

    /// Divides the summed gradients of a step by its samples if they were accumulated, and clips them. Returns their norms from before
    /// they are clipped, if they are measured.
    pub(crate) fn finish_gradients(
        &self,
        grads: &mut Gradients<B>,
        samples: usize,
    ) -> kiln_core::Result<Option<StepNorms<B>>> {
        let options = &self.trainer.options;
        if options.accumulate > 1 {
            grads.scale(1.0 / samples as f64)?;
        }
        let norms = grad_norm::measure(options.grad_norm, &*self.model, grads)?;
        match options.clip {
            Some(Clip::Norm(limit)) => drop(grads.clip_norm(self.model.parameters(), limit)?),
            Some(Clip::Value(limit)) => grads.clip_value(self.model.parameters(), limit)?,
            None => {}
        }
        Ok(norms)
    }
}
