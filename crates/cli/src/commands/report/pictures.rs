//! Pictures by a model that makes images: new ones, and its reconstructions of images that are held back.

use crate::config::Settings;
use crate::data;
use crate::error::Result;
use crate::html::{Tag, tag};
use crate::picture::Picture;
use crate::weights::{self, Saved};
use kiln_core::Backend;
use kiln_nn::no_grad;
use std::path::Path;

/// New images in a report, and walks from one to another, of a row each.
const SAMPLES: usize = 64;
const WALKS: usize = 4;
/// Images with their reconstructions.
const PAIRS: usize = 20;
/// Images in a row.
const COLUMNS: usize = 16;

pub(super) struct Pictures {
    /// Pictures of new images, and of images held back beside what the model makes of them, as URLs.
    samples: Option<String>,
    /// A picture of walks from one new image to another.
    walks: Option<String>,
    reconstructions: Option<String>,
    /// The name of the file with the weights.
    weights: String,
}

impl Pictures {
    /// Draws by the best weights of the run in `folder`.
    pub(super) fn measure<B: Backend>(folder: &Path, settings: &Settings, backend: &B) -> Result<Self> {
        let model = settings.model;
        let Saved { path, net, facts, .. } = weights::best_of(folder, model, backend)?;
        let grid = |images| Picture::grid(&Picture::of_images(&images)?, COLUMNS)?.url();
        let samples = no_grad(|| net.draw(backend, SAMPLES, 0))
            .transpose()?
            .map(grid)
            .transpose()?;
        let walks = no_grad(|| net.walk_between(backend, WALKS, COLUMNS, 0)).transpose()?;
        let walks = walks.map(grid).transpose()?;
        let (held_back, _) = data::load_test(model, &settings.data, settings.seed, &facts, &path)?;
        let images = data::images(backend, model, &*held_back, PAIRS)?;
        let reconstructions = match no_grad(|| net.reconstruct(&images)) {
            Some(made) => Some(Picture::pairs(&images, &made?, COLUMNS)?.url()?),
            None => None,
        };
        let name = path.file_name().unwrap_or_default();
        Ok(Pictures {
            samples,
            walks,
            reconstructions,
            weights: name.to_string_lossy().into_owned(),
        })
    }

    /// The parts of the page.
    pub(super) fn sections(&self) -> Vec<Tag> {
        let section = |id: &str, title: &str, about: &str, url: &String| {
            let image = tag("img").class("grid").attr("src", url).attr("alt", title);
            tag("section")
                .attr("id", id)
                .with(tag("h2").text(title))
                .with(tag("p").text(format!("{about} {}.", self.weights)))
                .with(tag("div").class("scroll").with(image))
        };
        let new = "New images by the weights of";
        let kept = "Images that were held back, each beside what the network makes of it by the weights of";
        let samples = self.samples.iter().map(|url| section("samples", "Samples", new, url));
        let way = "Images on the way from one latent vector to another, a row for each, by the weights of";
        let walks = self.walks.iter().map(|url| section("walks", "Walks", way, url));
        let pairs = self.reconstructions.iter();
        let pairs = pairs.map(|url| section("reconstructions", "Reconstructions", kept, url));
        samples.chain(walks).chain(pairs).collect()
    }
}
