//! Requests to a run in progress: another learning rate, a checkpoint, a stop.

use crate::{Result, StopHandle, TrainError};
use std::sync::{Arc, Mutex, PoisonError};

/// A request that the run has not seen yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Request {
    Stop,
    Save,
    /// The factor of every phase's rate.
    ScaleLr(f64),
    /// The rate of the first phase; those of the others keep their ratio to it.
    SetLr(f64),
}

/// A handle on a run in progress, for another thread: the keys of a live view, a web page, a watchdog. Clones belong to the same
/// run.
///
/// Requests are taken between two steps, in their order, and each is noted in the journal of the run
/// ([`RunFolder::JOURNAL`](crate::RunFolder::JOURNAL), [`Callback::on_journal`](crate::Callback::on_journal)). What a request has
/// changed is part of checkpoints: a run that is resumed goes on with the rate that it was given.
///
/// ```
/// use kiln_cpu::Cpu;
/// # use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
/// # use kiln_nn::{Init, Layer, optim::Sgd, layers::{Flatten, Linear}, Sequential};
/// use kiln_train::{Control, Flow, TrainOptions, Trainer};
/// # use kiln_train::Output;
/// # use std::sync::Arc;
/// # let cpu = Cpu::new();
/// # let data = Loader::new(Arc::new(Synthetic::images(64, &[3, 3, 1], 2, 0)?), LoaderOptions::default())?;
/// # let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
/// #     Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
/// # };
/// # let mut net = Sequential::new().push(Flatten::default()).push(Linear::new(&mut Init::new(&cpu, 0), 9, 2)?);
///
/// let control = Control::new();
/// let asking = control.clone();
/// let mut trainer = Trainer::new(&cpu, TrainOptions { epochs: 3, ..Default::default() })
///     .control(control)
///     .on_epoch_end(move |epoch| {
///         if epoch.epoch == 1 {
///             asking.scale_lr(0.5)?; // from any thread
///         }
///         Ok(Flow::Continue)
///     });
/// let report = trainer.fit(&mut net, &mut Sgd::new(0.1), step, &data, None)?;
/// let rates: Vec<f64> = report.history.epochs().iter().map(|epoch| epoch.lr).collect();
/// assert_eq!(rates, [0.1, 0.05, 0.05]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Control {
    stop: StopHandle,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Control {
    /// Creates a handle without requests.
    pub fn new() -> Self {
        Control::default()
    }

    /// Creates a handle whose [`stop`](Control::stop) is a request on `stop`, which something else may request too.
    pub fn with_stop(stop: StopHandle) -> Self {
        Control {
            stop,
            requests: Arc::default(),
        }
    }

    /// The handle that stops the run.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Asks the run to stop as [`StopHandle::request`] does.
    pub fn stop(&self) {
        self.ask(Request::Stop);
        self.stop.request();
    }

    /// Asks for a checkpoint after the step in progress, beside those of [`Checkpoints`](crate::Checkpoints). Nothing is saved by a
    /// run without a folder or without checkpoints.
    pub fn save(&self) {
        self.ask(Request::Save);
    }

    /// Multiplies the learning rates of all phases. A rate that follows a schedule is that of the schedule times this factor from
    /// then on; factors of several requests are multiplied.
    ///
    /// # Errors
    /// [`TrainError::InvalidArgument`] if the factor is not a finite number above 0.
    pub fn scale_lr(&self, factor: f64) -> Result<()> {
        if !(factor.is_finite() && factor > 0.0) {
            return Err(TrainError::invalid("factor", factor, "a finite number above 0"));
        }
        self.ask(Request::ScaleLr(factor));
        Ok(())
    }

    /// Sets the learning rate of the next update. With several phases this is that of the first, and the others are multiplied by
    /// the same factor. On a schedule the factor stays, as with [`scale_lr`](Control::scale_lr); a rate of 0 of the schedule
    /// stays 0.
    ///
    /// # Errors
    /// [`TrainError::InvalidArgument`] if the rate is not a finite number above 0.
    pub fn set_lr(&self, lr: f64) -> Result<()> {
        if !(lr.is_finite() && lr > 0.0) {
            return Err(TrainError::invalid("lr", lr, "a finite number above 0"));
        }
        self.ask(Request::SetLr(lr));
        Ok(())
    }

    /// True if there are requests that the run has not seen.
    pub(crate) fn is_asked(&self) -> bool {
        !self.requests.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn ask(&self, request: Request) {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
    }

    /// The requests since the last call, in their order.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
