//! `kiln predict`: what a network makes of image files: their classes, or their reconstructions.

mod digit;

use super::generate::{Drawn, draw};
use crate::args::PredictArgs;
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::finite;
use crate::output::{self, counted, line, percent, report};
use crate::picture::Picture;
use crate::weights::Saved;
use crate::{data, weights};
use digit::{decode, digit};
use kiln_core::{Backend, Shape};
use kiln_data::{Compose, Draw, Sample, Transform, resize_bilinear};
use kiln_files::{shown_path, write_atomic};
use kiln_models::{DataKind, InputKind, Model, Net, OutputKind};
use kiln_nn::{Tensor, no_grad};
use serde_json::json;
use std::path::Path;

struct Predict<'a>(&'a PredictArgs);

impl Task for Predict<'_> {
    /// The exit code.
    type Output = u8;

    fn run<B: Backend>(self, backend: &B) -> Result<u8> {
        let args = self.0;
        let Saved { path, model, net, .. } = weights::load(&args.weights, backend)?;
        let InputKind::Images(shape) = model.input() else {
            return Err(Error::usage(format!(
                "{}: {model} reads text and classifies no images",
                shown_path(&path)
            ))
            .help("`kiln generate RUN_FOLDER` goes on with a text"));
        };
        let asked = Asked {
            args,
            weights: &path,
            model,
            shape,
            transform: model.transform(false)?,
        };
        match (model.card().output, args.images.is_empty()) {
            (OutputKind::Images, true) => {
                let drawn = Drawn {
                    out: args.out.clone(),
                    json: args.json,
                    ..Drawn::default()
                };
                draw(&net, backend, model, &path, &drawn)?;
                Ok(0)
            }
            (OutputKind::Images, false) => reconstruct(&net, backend, &asked),
            (_, true) => Err(Error::usage("<IMAGE> is missing").help("name PNG or JPEG files")),
            (_, false) => classes(&net, backend, &asked),
        }
    }
}

/// The files that are asked about, and the network that is asked.
struct Asked<'a> {
    args: &'a PredictArgs,
    weights: &'a Path,
    model: Model,
    shape: [usize; 3],
    transform: Compose,
}

impl Asked<'_> {
    /// The pixels of an image file as the network's input.
    fn input(&self, path: &Path) -> Result<Vec<f32>> {
        let [h, w, c] = self.shape;
        let image = match self.model.recipe().data {
            DataKind::Mnist => digit(path, self.args.invert)?,
            DataKind::Cifar10 | DataKind::Text => resize_bilinear(&decode(path, c)?, h, w)?,
        };
        let mut sample = Sample::default();
        sample.fill(Shape::new(&[h, w, c])?, image.pixels.iter().map(|&p| f32::from(p)))?;
        self.transform.apply(&mut sample, &Draw::new(0, 0, 0))?;
        Ok(sample.input)
    }

    /// The shape of so many inputs.
    fn batch(&self, count: usize) -> [usize; 4] {
        let [h, w, c] = self.shape;
        [count, h, w, c]
    }
}

/// Reports an error of one of several files; returns the exit code.
fn passed_over(error: &Error) -> u8 {
    // If standard error cannot be written, there is no place to report that.
    let _ = report(error);
    error.code
}

/// Prints the classes of every image.
fn classes<B: Backend>(net: &Net<B>, backend: &B, asked: &Asked<'_>) -> Result<u8> {
    let (args, model) = (asked.args, asked.model);
    let names = data::names_of_recipe(model);
    let mut exit = 0;
    // If an image cannot be read, the others are still classified.
    for path in &args.images {
        let shares = asked
            .input(path)
            .and_then(|pixels| Ok(Tensor::from_slice(backend, &pixels, &asked.batch(1))?))
            .and_then(|image| classify(net, &image, path));
        match shares {
            Ok(shares) => {
                let mut classes: Vec<(&str, f64)> = names.iter().map(String::as_str).zip(shares).collect();
                classes.sort_by(|a, b| b.1.total_cmp(&a.1));
                classes.truncate(usize::from(args.top));
                show(path, model, &classes, args.json);
            }
            Err(error) => exit = passed_over(&error),
        }
    }
    Ok(exit)
}

/// Writes a picture of the images and what the network keeps of them.
fn reconstruct<B: Backend>(net: &Net<B>, backend: &B, asked: &Asked<'_>) -> Result<u8> {
    /// Images in a row of the picture, each with its reconstruction.
    const COLUMNS: usize = 5;
    let (mut exit, mut count, mut values) = (0, 0, Vec::new());
    for path in &asked.args.images {
        match asked.input(path) {
            Ok(pixels) => {
                values.extend(pixels);
                count += 1;
            }
            Err(error) => exit = passed_over(&error),
        }
    }
    if count == 0 {
        return Ok(exit);
    }
    let images = Tensor::from_slice(backend, &values, &asked.batch(count))?;
    let Some(made) = no_grad(|| net.reconstruct(&images)) else {
        return Err(
            Error::usage(format!("{} makes images of nothing, and takes none", asked.model))
                .help("`kiln generate RUN_FOLDER` writes a picture of new ones"),
        );
    };
    let picture = Picture::pairs(&images, &made?, 2 * COLUMNS.min(count))?;
    let beside = || asked.weights.with_file_name("reconstructions.png");
    let file = asked.args.out.clone().unwrap_or_else(beside);
    write_atomic(&file, &picture.png()?)?;
    match asked.args.json {
        true => output::json(&json!({
            "model": asked.model.name(),
            "images": count,
            "file": file.display().to_string(),
        })),
        false => line(&format!(
            "saved: {}, {} beside what {} makes of them",
            shown_path(&file),
            counted(count as u64, "image"),
            asked.model
        )),
    }
    Ok(exit)
}

/// The probability of every class.
fn classify<B: Backend>(net: &Net<B>, image: &Tensor<B>, path: &Path) -> Result<Vec<f64>> {
    let logits = || net.classify(image).unwrap_or_else(|| Ok(image.clone()));
    let shares = no_grad(|| logits()?.softmax(-1)?.to_f64())?;
    if shares.iter().all(|share| share.is_finite()) {
        return Ok(shares);
    }
    let what = format!("{}: the probabilities", shown_path(path));
    Err(finite::overflow(logits, &what)?)
}

/// Prints one image's classes, the most probable first.
fn show(path: &Path, model: Model, classes: &[(&str, f64)], json: bool) {
    if json {
        let each: Vec<_> = classes
            .iter()
            .map(|(name, share)| json!({"class": name, "probability": share}))
            .collect();
        let text = json!({
            "image": path.display().to_string(),
            "model": model.name(),
            "class": classes.first().map(|(name, _)| name),
            "probability": classes.first().map(|(_, share)| share),
            "top": each,
        });
        output::json(&text);
    } else {
        let each: Vec<String> = classes.iter().map(|(n, s)| format!("{n} {}", percent(*s))).collect();
        line(&format!("{}: {}", shown_path(path), each.join(", ")));
    }
}

pub(crate) fn run(args: PredictArgs) -> Result<u8> {
    with_device(&args.device.options(), Predict(&args))
}
