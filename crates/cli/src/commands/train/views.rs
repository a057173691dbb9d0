//! Images and text that a network makes after each epoch, for TensorBoard: samples, reconstructions, text, the worst classified images.

use crate::commands::generate;
use crate::config::Settings;
use crate::data::{self, Data};
use crate::error::{Error, Result};
use crate::output::percent;
use crate::picture::Picture;
use crate::weights;
use crate::worst::{Judged, Worst};
use kiln_core::Backend;
use kiln_data::{Dataset, Shared};
use kiln_files::shown;
use kiln_models::{Model, Net, OutputKind, Sampler};
use kiln_nn::weights::WeightsFile;
use kiln_nn::{Module, no_grad};
use kiln_tensorboard::View;
use std::path::{Path, PathBuf};

/// New images, and images with their reconstructions.
const SAMPLES: usize = 64;
const PAIRS: usize = 32;
/// Images in a row.
const COLUMNS: usize = 8;

/// The worst classified images that are shown, of so many of those held back: a part of them, so that an epoch is hardly longer.
const WORST: usize = 16;
const JUDGED: usize = 1000;

/// The tokens of a text, and the temperature at which they are drawn.
const TOKENS: usize = 100;
const TEMPERATURE: f64 = 0.8;

/// The network of a run a second time, which takes the weights after each epoch.
pub(super) struct Views<B: Backend> {
    backend: B,
    net: Net<B>,
    model: Model,
    /// The weights after the last epoch.
    weights: PathBuf,
    held_back: Shared,
    /// The size of a batch, and the threads that read.
    batch: usize,
    workers: usize,
}

impl<B: Backend> Views<B> {
    /// Those of a run whose folder saves the weights in `weights`. The data is that on the host.
    pub(super) fn new(backend: &B, settings: &Settings, data: &Data, weights: &Path) -> Result<Self> {
        let model = settings.model;
        Ok(Views {
            backend: backend.clone(),
            net: weights::begin(settings, data.sizes(), settings.lora.is_some(), backend)?,
            model,
            weights: weights.to_path_buf(),
            held_back: data.test.clone(),
            batch: settings.valid_batch,
            workers: settings.workers,
        })
    }

    /// Makes them by the weights after the last epoch. What cannot be made does not end the run: the reason is shown in its place.
    pub(super) fn make(&mut self) -> Vec<View> {
        self.try_make().unwrap_or_else(|error| {
            vec![View::Text {
                tag: "views".to_string(),
                text: format!("nothing to look at: {}", shown(&error.message).sentence()),
            }]
        })
    }

    fn try_make(&mut self) -> Result<Vec<View>> {
        let failed = |e: kiln_nn::weights::WeightsError| Error::failure(e.to_string());
        let mut file = WeightsFile::open(&self.weights).map_err(failed)?;
        weights::fill(&mut file, &mut self.net, &self.backend).map_err(failed)?;
        self.net.eval();
        match self.model.card().output {
            OutputKind::Images => self.pictures(),
            OutputKind::Classes(_) => self.worst(),
            OutputKind::Characters(_) | OutputKind::Tokens(_) | OutputKind::Vocabulary(_) => self.text(),
            OutputKind::Letters(_) | OutputKind::Translation(_) | OutputKind::Numbers(_) | OutputKind::Tags(_) => {
                Ok(Vec::new())
            }
        }
    }

    fn pictures(&self) -> Result<Vec<View>> {
        let mut views = Vec::new();
        if let Some(images) = no_grad(|| self.net.draw(&self.backend, SAMPLES, 0)) {
            let grid = Picture::grid(&Picture::of_images(&images?)?, COLUMNS)?;
            views.push(image("samples", grid));
        }
        let images = data::images(&self.backend, self.model, &*self.held_back, PAIRS)?;
        if let Some(made) = no_grad(|| self.net.reconstruct(&images)) {
            let pairs = Picture::pairs(&images, &made?, 2 * COLUMNS)?;
            views.push(image("reconstructions", pairs));
        }
        Ok(views)
    }

    fn worst(&self) -> Result<Vec<View>> {
        let judged = data::first(self.held_back.clone(), JUDGED)?;
        let batches = data::in_order(self.model, judged.clone(), self.batch, self.workers)?;
        let names = data::class_names(self.model, &*judged);
        let Judged { labels, worst, .. } = Judged::by(&self.net, &self.backend, batches, names.len(), WORST)?;
        if worst.is_empty() {
            return Ok(vec![View::Text {
                tag: "worst".to_string(),
                text: format!("None of {} samples was taken for another class.", labels.len()),
            }]);
        }
        let text = View::Text {
            tag: "worst".to_string(),
            text: table(&worst, &names, labels.len()),
        };
        if self.model.input().image().is_none() {
            return Ok(vec![text]);
        }
        let pictures = worst.iter().map(|w| Picture::of_sample(&judged.get(w.index)?));
        let grid = Picture::grid(&pictures.collect::<Result<Vec<_>>>()?, COLUMNS)?;
        Ok(vec![image("worst", grid), text])
    }

    fn text(&self) -> Result<Vec<View>> {
        let (Some(gpt), Some(tokens)) = (self.net.language_model(), self.held_back.tokens()) else {
            return Ok(Vec::new());
        };
        let sampler = Sampler::new(0).temperature(TEMPERATURE)?;
        let (start, mut text) = (generate::prompt(None, tokens)?, String::new());
        generate::go_on(gpt, tokens, sampler, &start, TOKENS, &mut |piece| text.push_str(piece))?;
        // Markdown shows indented text as it is.
        let text = text.lines().map(|line| format!("    {line}\n")).collect();
        Ok(vec![View::Text {
            tag: "samples".to_string(),
            text,
        }])
    }
}

fn image(tag: &str, picture: Picture) -> View {
    View::Image {
        tag: tag.to_string(),
        shape: [picture.height, picture.width, picture.channels],
        pixels: picture.pixels,
    }
}

/// The samples in words, as a table of Markdown in the order of the images.
fn table(worst: &[Worst], names: &[String], judged: usize) -> String {
    let name = |class: usize| names.get(class).map_or("?", String::as_str).replace('|', "\\|");
    let mut text = format!(
        "Of the first {judged} samples held back; images are in this order, row by row:\n\n\
         | sample | class | taken for | at a probability of | and its class at | loss |\n|---|---|---|---|---|---|\n"
    );
    for w in worst {
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {:.2} |\n",
            w.index,
            name(w.label),
            name(w.predicted),
            percent(w.of_predicted),
            percent(w.of_label),
            w.loss,
        ));
    }
    text
}
