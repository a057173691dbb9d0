//! The Fréchet distance of made images by a classifier's view of them.

use crate::args::WeightsArgs;
use crate::data;
use crate::error::{Error, Result};
use crate::weights::{self, Saved};
use kiln_core::Backend;
use kiln_data::Shared;
use kiln_files::shown_path;
use kiln_models::{Model, Net, OutputKind};
use kiln_nn::{Module, Tensor, no_grad};
use kiln_train::{FeatureStatistics, FrechetDistance, Metric, Output, Reduction};
use std::path::Path;

/// The name of the metric.
pub(crate) const FID: &str = "fid";

/// The distance of made images, which a measurement hands out as `made`, from the images held back. The features are the logits of a
/// trained classifier.
pub(crate) struct ByClassifier<B: Backend> {
    net: Net<B>,
    model: Model,
    distance: FrechetDistance,
}

impl<B: Backend> ByClassifier<B> {
    /// By the classifier of the run at a path.
    pub(crate) fn new(path: &Path, held_back: &Shared, batch: usize, backend: &B) -> Result<Self> {
        let of = WeightsArgs {
            weights: path.to_path_buf(),
            model: None,
        };
        let Saved { mut net, model, .. } = weights::load(&of, backend)?;
        let OutputKind::Classes(_) = model.card().output else {
            return Err(
                Error::usage(format!("{}: {model} tells no classes apart", shown_path(path)))
                    .help("name the run of a classifier of such images, such as mnist-cnn"),
            );
        };
        if let (Some(shape), Some(own)) = (held_back.shape(), model.input().image())
            && shape.dims() != own
        {
            return Err(Error::usage(format!(
                "{model} takes {own:?}, and the images are {shape:?}"
            )));
        }
        net.eval();
        let mut real: Option<FeatureStatistics> = None;
        let batches = data::in_order(model, held_back.clone(), batch, 0)?;
        net.each_batch(backend, batches, &mut |batch| {
            let features = batch.forward()?;
            let statistics = real.get_or_insert_with(|| FeatureStatistics::new(features.shape()[1]));
            statistics.add(&features.to_f64()?)?;
            Ok(true)
        })?;
        let distance = FrechetDistance::new(real.unwrap_or_else(|| FeatureStatistics::new(1))).named(FID);
        Ok(ByClassifier { net, model, distance })
    }

    /// Images with values from 0 to 1 as the classifier takes them.
    fn normalised(&self, images: &Tensor<B>) -> kiln_core::Result<Tensor<B>> {
        let Some((mean, deviation)) = self.model.recipe().normalise else {
            return Ok(images.clone());
        };
        let of = |values: &[f32]| Tensor::from_slice(images.backend(), values, &[values.len()]);
        images.sub(&of(mean)?)?.div(&of(deviation)?)
    }
}

impl<B: Backend> Metric<B> for ByClassifier<B> {
    fn name(&self) -> String {
        FID.to_string()
    }

    fn reads(&self) -> &[&'static str] {
        &["made"]
    }

    fn measure(&self, output: &Output<B>) -> kiln_core::Result<Tensor<B>> {
        no_grad(|| {
            let images = self.normalised(output.floats("made")?)?;
            let features = match self.net.classify(&images) {
                Some(logits) => logits?,
                None => images.flatten(1, -1)?,
            };
            let measured = Output::new(output.loss.detach()).with("features", features);
            self.distance.measure(&measured)
        })
    }

    fn reduction(&self) -> Reduction {
        Reduction::Gather
    }

    fn observe(&mut self, term: &[f64], shape: &[usize]) {
        Metric::<B>::observe(&mut self.distance, term, shape);
    }

    fn value(&mut self, sum: &[f64], samples: u64) -> f64 {
        Metric::<B>::value(&mut self.distance, sum, samples)
    }

    fn failure(&mut self) -> Option<kiln_core::Error> {
        Metric::<B>::failure(&mut self.distance)
    }
}
