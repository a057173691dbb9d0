//! A network with what it is trained for: its batches, its losses, its metrics, and what it makes to look at.

use crate::language::LanguageModel;
use kiln_core::{Backend, ModuleId, Result};
use kiln_data::{Batch, Compose, Dataset, Draw, Labelled, Loader, LoaderOptions, Sample, Transform, Weighted};
use kiln_nn::detection::Detections;
use kiln_nn::{Layer, Module, Rng, Tensor, Walk, WalkMut, Walkable};
use kiln_train::{Metric, Output};
use std::sync::Arc;

/// The purpose of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Its batches are trained on.
    Training,
    /// Its batches are measured, and give the same values whenever they are.
    Measuring,
}

/// The samples of a pass and how they are batched.
pub struct Batches {
    /// The raw samples.
    pub dataset: Arc<dyn Dataset<Sample = Sample>>,
    /// Size and order of the batches. A task may have an order of its own.
    pub options: LoaderOptions,
    /// The change from a raw sample to an input: [`Model::transform`](crate::Model::transform).
    pub transform: Compose,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches")
            .field("samples", &self.dataset.len())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The closure of a step: the loss of a batch, its parts and what metrics read.
pub(crate) type Step<B, M, T> = fn(&M, &<T as Batch>::On<B>) -> Result<Output<B>>;

/// Makes the loader of samples.
pub(crate) type MakeLoader<T> =
    fn(Arc<dyn Dataset<Sample = Sample>>, LoaderOptions, Purpose) -> kiln_data::Result<Loader<Sample, T>>;

/// Makes the metrics, given the samples that are held back.
pub(crate) type MakeMetrics<B> = fn(&dyn Dataset<Sample = Sample>) -> kiln_train::Result<Vec<Box<dyn Metric<B>>>>;

/// A function of inputs `[N, …]`, such as images `[N, H, W, C]`.
pub(crate) type OfInputs<B, M> = fn(&M, &Tensor<B>) -> Result<Tensor<B>>;

/// Makes so many images `[N, H, W, C]`.
pub(crate) type MakeImages<B, M> = fn(&M, &B, usize, &mut Rng) -> Result<Tensor<B>>;

/// Writes tokens for those of a source, by so many beams.
pub(crate) type Translate<M> = fn(&M, &[i32], usize) -> Result<Vec<i32>>;

/// Finds the objects of images `[N, H, W, C]`.
pub(crate) type Detect<B, M> = fn(&M, &Tensor<B>) -> Result<Vec<Detections>>;

/// An update of a step.
pub(crate) struct Phase<B: Backend, M, T: Batch> {
    /// Its name, which is that in the recipe.
    pub(crate) name: &'static str,
    pub(crate) step: Step<B, M, T>,
    /// True for the dotted names of the parameters that it trains.
    pub(crate) trains: fn(&str) -> bool,
}

/// A network `M` of batches `T` with its task. A network of the table makes one of its file: what is not said here has a default.
pub(crate) struct Task<B: Backend, M, T: Batch> {
    pub(crate) net: M,
    /// A change of samples behind that of the recipe, with draws of its own.
    pub(crate) prepare: Option<Arc<dyn Transform>>,
    /// Makes batches of samples.
    pub(crate) loader: MakeLoader<T>,
    /// The updates of a step, in order; one without a name if there is one.
    pub(crate) phases: Vec<Phase<B, M, T>>,
    /// The measurements of validation on a batch.
    pub(crate) measure: Step<B, M, T>,
    /// The forward pass of a batch, without a loss.
    pub(crate) forward: fn(&M, &T::On<B>) -> Result<Tensor<B>>,
    /// The metrics in training and validation.
    pub(crate) metrics: MakeMetrics<B>,
    pub(crate) views: Views<B, M>,
}

impl<B: Backend> Task<B, Box<dyn Layer<B>>, Labelled> {
    /// A layer that is trained on labelled samples by one update of all its parameters, and measured by the closure of that update.
    pub(crate) fn of_layer(
        net: impl Layer<B> + 'static,
        step: Step<B, Box<dyn Layer<B>>, Labelled>,
        metrics: MakeMetrics<B>,
        views: Views<B, Box<dyn Layer<B>>>,
    ) -> Self {
        Task {
            net: Box::new(net),
            prepare: None,
            loader: labelled,
            phases: vec![Phase {
                name: "",
                step,
                trains: |_| true,
            }],
            measure: step,
            forward: |net, batch| net.forward(&batch.inputs),
            metrics,
            views,
        }
    }
}

/// Batches of labelled samples; those to train on in the proportions that the dataset asks for, if it does.
fn labelled(
    dataset: Arc<dyn Dataset<Sample = Sample>>,
    options: LoaderOptions,
    purpose: Purpose,
) -> kiln_data::Result<Loader> {
    let weights: Option<Vec<f64>> = match purpose == Purpose::Training && options.shuffle {
        true => (0..dataset.len()).map(|index| dataset.weight(index)).collect(),
        false => None,
    };
    let loader = Loader::new(dataset, options)?;
    Ok(match weights.filter(|weights| !weights.is_empty()) {
        Some(weights) => {
            let samples = loader.samples();
            loader.with_sampler(Weighted::new(&weights, samples, options.batch_size)?)
        }
        None => loader,
    })
}

/// The answers of a network to look at.
pub(crate) struct Views<B: Backend, M> {
    /// Logits `[N, classes]` of images `[N, H, W, C]`, or of clips `[N, T, H, W, C]`.
    pub(crate) classify: Option<OfInputs<B, M>>,
    /// The objects of images `[N, H, W, C]`.
    pub(crate) detect: Option<Detect<B, M>>,
    /// Numbers `[N, targets]` of inputs `[N, …]`.
    pub(crate) regress: Option<OfInputs<B, M>>,
    /// Images with values from 0 to 1 for images `[N, H, W, C]`: what the network keeps of them.
    pub(crate) reconstruct: Option<OfInputs<B, M>>,
    /// New images with values from 0 to 1.
    pub(crate) draw: Option<MakeImages<B, M>>,
    /// Elements of latent vectors, and images with values from 0 to 1 of such vectors `[N, latent]`, standard normal numbers: new images
    /// and walks between them.
    pub(crate) decode: Option<(usize, OfInputs<B, M>)>,
    /// Log-probabilities `[T', classes]` of letters, class 0 the blank, for a spectrogram `[T, F]` of any length.
    pub(crate) transcribe: Option<OfInputs<B, M>>,
    /// Tokens for those of a source, by so many beams.
    pub(crate) translate: Option<Translate<M>>,
    /// Logits `[N, T', outputs]` of the tokens of texts `[N, T]`, with `T'` at most `T`.
    pub(crate) tokens: Option<OfInputs<B, M>>,
    /// The network as a model of text.
    pub(crate) write: Option<fn(&M) -> &dyn LanguageModel<B>>,
}

impl<B: Backend, M> Default for Views<B, M> {
    fn default() -> Self {
        Views {
            classify: None,
            detect: None,
            regress: None,
            reconstruct: None,
            draw: None,
            decode: None,
            transcribe: None,
            translate: None,
            tokens: None,
            write: None,
        }
    }
}

impl<B: Backend, M, T: Batch> Task<B, M, T> {
    /// The loader of batches.
    pub(crate) fn loader(&self, batches: Batches, purpose: Purpose) -> kiln_data::Result<Loader<Sample, T>> {
        let Batches {
            dataset,
            options,
            transform,
        } = batches;
        let transform = match self.prepare.clone() {
            Some(prepare) => transform.then(move |sample: &mut Sample, draw: &Draw| prepare.apply(sample, draw)),
            None => transform,
        };
        Ok((self.loader)(dataset, options, purpose)?.with_transform(transform))
    }
}

impl<B: Backend, M: Module<B>, T: Batch> Walkable<B> for Task<B, M, T> {
    fn kind(&self) -> &'static str {
        self.net.kind()
    }
    fn module_id(&self) -> ModuleId {
        self.net.module_id()
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        self.net.walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        self.net.walk_mut(walk);
    }
}
