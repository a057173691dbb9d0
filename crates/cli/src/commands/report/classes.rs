//! The classes of a model of images: the confusion matrix on the data held back, and the samples that were classified worst.

use crate::config::Settings;
use crate::data;
use crate::error::Result;
use crate::html::{Tag, tag};
use crate::output::{counted, percent};
use crate::picture::Picture;
use crate::weights::{self, Saved};
use crate::worst::{Judged, Worst};
use kiln_core::Backend;
use kiln_data::{Dataset, Shared};
use kiln_train::Confusion;
use std::path::Path;

/// The number of samples that are shown.
const WORST: usize = 24;

pub(super) struct Classes {
    names: Vec<String>,
    confusion: Confusion,
    /// The data, and the name of the file with the weights.
    description: String,
    weights: String,
    /// The worst samples, with their images.
    worst: Vec<(Worst, String)>,
}

impl Classes {
    /// Measures the best weights of the run in `folder` on the data that it held back.
    pub(super) fn measure<B: Backend>(folder: &Path, settings: &Settings, backend: &B) -> Result<Self> {
        let model = settings.model;
        let Saved { path, net, facts, .. } = weights::best_of(folder, model, backend)?;
        let (samples, description): (Shared, _) = match settings.overfit_batches {
            Some(batches) => {
                let all = data::load(model, &settings.data, settings.seed)?;
                let samples = all.overfitted(batches.saturating_mul(settings.batch))?.test;
                (samples, "the batches that were learned by heart".to_string())
            }
            None => data::load_test(model, &settings.data, settings.seed, &facts, &path)?,
        };
        let batches = data::in_order(model, samples.clone(), settings.valid_batch, settings.workers)?;
        let names = data::class_names(model, &*samples);
        let Judged {
            labels,
            predicted,
            worst,
        } = Judged::by(&net, backend, batches, names.len(), WORST)?;
        let shown = worst.into_iter().map(|w| {
            let png = Picture::of_sample(&samples.get(w.index)?)?.url()?;
            Ok((w, png))
        });
        let name = path.file_name().unwrap_or_default();
        Ok(Classes {
            confusion: Confusion::of(names.len(), &labels, &predicted)?,
            names,
            worst: shown.collect::<Result<_>>()?,
            weights: name.to_string_lossy().into_owned(),
            description,
        })
    }

    fn name(&self, class: usize) -> &str {
        self.names.get(class).map_or("?", String::as_str)
    }

    /// The parts of the page.
    pub(super) fn sections(&self) -> [Tag; 2] {
        [self.matrix(), self.samples()]
    }

    fn matrix(&self) -> Tag {
        let all: u64 = self.confusion.rows().flatten().sum();
        let right: u64 = self.confusion.rows().enumerate().map(|(i, row)| row[i]).sum();
        let about = format!(
            "{} on {}: {} of {} right ({}). A row is a class, a column what it was taken for; shades are shares of the row.",
            self.weights,
            self.description,
            right,
            counted(all, "sample"),
            percent(right as f64 / all.max(1) as f64),
        );
        let head = self.names.iter().map(|name| tag("th").attr("scope", "col").text(name));
        let head = tag("tr").with(tag("th")).each(head).with(tag("th").text("recall"));
        let recall = self.confusion.recall();
        let rows = self.confusion.rows().enumerate().map(|(label, row)| {
            let sum = row.iter().sum::<u64>().max(1) as f64;
            let cells = row.iter().enumerate().map(|(predicted, &n)| {
                let class = if label == predicted { "hit" } else { "miss" };
                let told = format!("{} taken for {}: {n}", self.name(label), self.name(predicted));
                tag("td")
                    .class(class)
                    .attr("style", format!("--share:{:.3}", n as f64 / sum))
                    .attr("title", told)
                    .text(if n == 0 { "·".to_string() } else { n.to_string() })
            });
            let recall = match recall[label].is_nan() {
                true => "-".to_string(),
                false => percent(recall[label]),
            };
            tag("tr")
                .with(tag("th").attr("scope", "row").text(self.name(label)))
                .each(cells)
                .with(tag("td").text(recall))
        });
        let table = tag("table")
            .class("matrix")
            .with(tag("thead").with(head))
            .with(tag("tbody").each(rows));
        tag("section")
            .attr("id", "confusion")
            .with(tag("h2").text("Confusion matrix"))
            .with(tag("p").text(about))
            .with(tag("div").class("scroll").with(table))
    }

    fn samples(&self) -> Tag {
        let section = tag("section")
            .attr("id", "worst")
            .with(tag("h2").text("Worst classified samples"));
        if self.worst.is_empty() {
            return section.with(tag("p").text("No sample was taken for another class."));
        }
        let figures = self.worst.iter().map(|(w, png)| {
            let (label, predicted) = (self.name(w.label), self.name(w.predicted));
            let told = format!("sample {}: {label} taken for {predicted}", w.index);
            let chances = [
                format!("{predicted}: {}", percent(w.of_predicted)),
                format!("{label}: {}", percent(w.of_label)),
                format!("loss {:.2}", w.loss),
            ];
            tag("figure")
                .class("sample")
                .with(tag("img").attr("src", png).attr("alt", told))
                .with(
                    tag("figcaption")
                        .with(tag("strong").text(format!("{label} → {predicted}")))
                        .each(chances.map(|text| tag("span").text(text))),
                )
        });
        section
            .with(tag("p").text(
                "Those with the largest loss: the class, what it was taken for, and how sure the net was of each.",
            ))
            .with(tag("div").class("samples").each(figures))
    }
}
