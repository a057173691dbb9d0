//! Images and text that a network makes after each epoch: samples, walks, reconstructions, text, the worst classified images. All of them
//! are for TensorBoard; pictures by a network that makes images are also files of the run's folder.

use crate::commands::generate;
use crate::config::Settings;
use crate::data::{self, Data};
use crate::drawing;
use crate::error::{Error, Result};
use crate::output::percent;
use crate::picture::Picture;
use crate::weights;
use crate::worst::{Judged, Worst};
use kiln_core::Backend;
use kiln_data::{Dataset, Shared};
use kiln_files::{shown, shown_path, write_atomic};
use kiln_models::{Model, Net, OutputKind, Sampler};
use kiln_nn::weights::WeightsFile;
use kiln_nn::{Module, no_grad};
use kiln_tensorboard::View;
use kiln_train::{Callback, EpochRecord, Flow, RunFolder};
use std::path::{Path, PathBuf};

/// New images, and images with their reconstructions.
const SAMPLES: usize = 64;
const PAIRS: usize = 32;
/// Images in a row; a walk is a row.
const COLUMNS: usize = 8;
const WALKS: usize = 4;

/// The folder of pictures in that of the run.
const PICTURES: &str = "pictures";

/// The worst classified images that are shown, of so many of those held back: a part of them, so that an epoch is hardly longer.
const WORST: usize = 16;
const JUDGED: usize = 1000;

/// The share that an object has to be likely to be shown.
const MIN_SCORE: f64 = 0.25;

/// The tokens of a text, and the temperature at which they are drawn.
const TOKENS: usize = 100;
const TEMPERATURE: f64 = 0.8;

/// The network of a run a second time, which takes the weights after each epoch.
pub(super) struct Views<B: Backend> {
    backend: B,
    net: Net<B>,
    model: Model,
    /// The folder of the run.
    folder: PathBuf,
    held_back: Shared,
    /// The size of a batch, and the threads that read.
    batch: usize,
    workers: usize,
}

impl<B: Backend> Views<B> {
    /// Those of a run in this folder. The data is that on the host.
    pub(super) fn new(backend: &B, settings: &Settings, data: &Data, folder: &Path) -> Result<Self> {
        let model = settings.model;
        Ok(Views {
            backend: backend.clone(),
            net: weights::begin(settings, data.sizes(), settings.lora.is_some(), backend)?,
            model,
            folder: folder.to_path_buf(),
            held_back: data.test.clone(),
            batch: settings.valid_batch,
            workers: settings.workers,
        })
    }

    /// Makes them by the weights after an epoch, of several those that are averaged, and writes its pictures. What cannot be made does not
    /// end the run: the reason is shown in its place.
    pub(super) fn make(&mut self, epoch: u64) -> Vec<View> {
        self.try_make(epoch).unwrap_or_else(|error| {
            vec![View::Text {
                tag: "views".to_string(),
                text: format!("nothing to look at: {}", shown(&error.message).sentence()),
            }]
        })
    }

    fn try_make(&mut self, epoch: u64) -> Result<Vec<View>> {
        let failed = |e: kiln_nn::weights::WeightsError| Error::failure(e.to_string());
        let files = [RunFolder::AVERAGED, RunFolder::LAST].map(|name| self.folder.join(name));
        let weights = if files[0].exists() { &files[0] } else { &files[1] };
        let mut file = WeightsFile::open(weights).map_err(failed)?;
        weights::fill(&mut file, &mut self.net, &self.backend).map_err(failed)?;
        self.net.eval();
        match self.model.card().output {
            OutputKind::Images => self.pictures(epoch),
            OutputKind::Classes(_) => self.worst(),
            OutputKind::Characters(_) | OutputKind::Tokens(_) | OutputKind::Vocabulary(_) => self.text(),
            OutputKind::Boxes(_) => self.boxes(),
            OutputKind::Letters(_)
            | OutputKind::Translation(_)
            | OutputKind::Numbers(_)
            | OutputKind::Tags(_)
            | OutputKind::Spans => Ok(Vec::new()),
        }
    }

    fn pictures(&self, epoch: u64) -> Result<Vec<View>> {
        let mut pictures = Vec::new();
        let grid = |images| Picture::grid(&Picture::of_images(&images)?, COLUMNS);
        if let Some(images) = no_grad(|| self.net.draw(&self.backend, SAMPLES, 0)) {
            pictures.push(("samples", grid(images?)?));
        }
        if let Some(images) = no_grad(|| self.net.walk_between(&self.backend, WALKS, COLUMNS, 0)) {
            pictures.push(("walks", grid(images?)?));
        }
        let images = data::images(&self.backend, self.model, &*self.held_back, PAIRS)?;
        if let Some(made) = no_grad(|| self.net.reconstruct(&images)) {
            let pairs = Picture::pairs(&images, &made?, 2 * COLUMNS)?;
            pictures.push(("reconstructions", pairs));
        }
        let folder = self.folder.join(PICTURES);
        std::fs::create_dir_all(&folder).map_err(|e| Error::failure(format!("{}: {e}", shown_path(&folder))))?;
        for (name, picture) in &pictures {
            write_atomic(folder.join(format!("{name}-{epoch:04}.png")), &picture.png()?)?;
        }
        Ok(pictures
            .into_iter()
            .map(|(name, picture)| image(name, picture))
            .collect())
    }

    /// The first images that are held back, with the objects that are found in them.
    fn boxes(&self) -> Result<Vec<View>> {
        let images = data::images(&self.backend, self.model, &*self.held_back, PAIRS)?;
        let Some(found) = no_grad(|| self.net.detect(&images)) else {
            return Ok(Vec::new());
        };
        let names = data::class_names(self.model, &*self.held_back);
        let mut pictures = Vec::new();
        for (index, found) in found?.into_iter().enumerate() {
            let mut picture = Picture::of_sample(&self.held_back.get(index)?)?;
            drawing::draw(&mut picture, &drawing::labelled(&found, &names, MIN_SCORE));
            pictures.push(picture);
        }
        Ok(vec![image("boxes", Picture::grid(&pictures, COLUMNS)?)])
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
        let input = self.model.input();
        if input.image().is_none() && input.clip().is_none() {
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

/// Writes the pictures after each epoch.
impl<B: Backend> Callback for Views<B> {
    fn on_epoch_end(&mut self, record: &EpochRecord) -> kiln_train::Result<Flow> {
        self.make(record.epoch);
        Ok(Flow::Continue)
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
