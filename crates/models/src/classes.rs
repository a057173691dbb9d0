//! The task of networks that tell classes of images or of clips apart.

use crate::task::{self, Views};
use crate::{Card, Form, Input, OutputKind, Recipe, Shown};
use kiln_core::{Backend, Result};
use kiln_data::{Labelled, LabelledOn};
use kiln_nn::{Layer, trace};
use kiln_train::{Accuracy, Output};

/// The measured values that are shown; `kiln eval` measures all of them.
pub(crate) const VALUES: &[Shown] = &[
    Shown::new("loss", Form::Number),
    Shown::new("accuracy", Form::Percent),
    Shown::labelled("top3", "top-3", Form::Percent),
    Shown::labelled("balanced_accuracy", "balanced accuracy", Form::Percent),
];

/// The best weights have the largest accuracy.
pub(crate) const MONITOR: (&str, bool) = ("accuracy", true);

/// A network from images `[N, H, W, C]` or clips `[N, T, H, W, C]` to logits `[N, classes]`, trained on labelled ones.
pub(crate) type Task<B> = task::Task<B, Box<dyn Layer<B>>, Labelled>;

/// A row of the table of models for one size of a family of networks, whose `task` builds it.
pub(crate) struct Row<C> {
    pub(crate) card: Card,
    pub(crate) config: C,
}

/// The card of a network that tells so many classes of images of this shape apart.
pub(crate) const fn card(
    description: &'static str,
    shape: &'static [usize; 3],
    classes: usize,
    parameters: usize,
    recipe: Recipe,
) -> Card {
    of_input(description, Input::images(shape), classes, parameters, recipe)
}

/// The card of a network that tells so many classes of clips of this shape apart.
pub(crate) const fn of_clips(
    description: &'static str,
    shape: &'static [usize; 4],
    classes: usize,
    parameters: usize,
    recipe: Recipe,
) -> Card {
    of_input(description, Input::clips(shape), classes, parameters, recipe)
}

const fn of_input(description: &'static str, input: Input, classes: usize, parameters: usize, recipe: Recipe) -> Card {
    Card {
        description,
        input,
        output: OutputKind::Classes(classes),
        values: VALUES,
        monitor: MONITOR,
        parameters,
        recipe,
    }
}

/// The cross-entropy of the logits with the labels; accuracies read both.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn step<B: Backend>(net: &Box<dyn Layer<B>>, batch: &LabelledOn<B>) -> Result<Output<B>> {
    let logits = net.forward(&batch.inputs)?;
    let loss = trace::part(logits.backend(), "loss", || logits.cross_entropy(&batch.labels))?;
    Ok(Output::new(loss).with_scores(logits, &batch.labels))
}

/// The network with its task.
pub(crate) fn task<B: Backend>(net: impl Layer<B> + 'static) -> Task<B> {
    let views: Views<B, Box<dyn Layer<B>>> = Views {
        classify: Some(|net, images| net.forward(images)),
        ..Views::default()
    };
    Task::of_layer(net, step::<B>, |_| Ok(vec![Box::new(Accuracy::new())]), views)
}
