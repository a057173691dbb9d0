//! The task of networks that predict numbers.

use crate::task::{self, Views};
use crate::{Form, Shown};
use kiln_core::{Backend, Error, Result};
use kiln_data::{Labelled, LabelledOn};
use kiln_nn::{Layer, Reduction, trace};
use kiln_train::{Mae, Output, R2};

/// The measured values that are shown. Targets have a standard deviation of 1 in training, and losses are in its units.
pub(crate) const VALUES: &[Shown] = &[
    Shown::labelled("loss", "mse", Form::Number),
    Shown::new("mae", Form::Number),
    Shown::labelled("r2", "R²", Form::Number),
];

/// The best weights have the smallest loss.
pub(crate) const MONITOR: (&str, bool) = ("loss", false);

/// A network from inputs `[N, …]` to numbers `[N, targets]`.
pub(crate) type Task<B> = task::Task<B, Box<dyn Layer<B>>, Labelled>;

/// The mean squared error; metrics read predictions and targets.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn step<B: Backend>(net: &Box<dyn Layer<B>>, batch: &LabelledOn<B>) -> Result<Output<B>> {
    let Some(targets) = &batch.targets else {
        return Err(Error::invalid("loss", "targets", "none", "numbers [N, targets]"));
    };
    let predictions = net.forward(&batch.inputs)?;
    let loss = trace::part(predictions.backend(), "loss", || {
        predictions.mse_loss(targets, Reduction::Mean)
    })?;
    Ok(Output::new(loss).with_predictions(predictions, targets))
}

/// The network with its task.
pub(crate) fn task<B: Backend>(net: impl Layer<B> + 'static) -> Task<B> {
    let views: Views<B, Box<dyn Layer<B>>> = Views {
        regress: Some(|net, inputs| net.forward(inputs)),
        ..Views::default()
    };
    Task::of_layer(
        net,
        step::<B>,
        |_| Ok(vec![Box::new(Mae::new()), Box::new(R2::new())]),
        views,
    )
}
