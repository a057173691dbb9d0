//! The objects in images, by a network that finds them: as lines, as JSON, and drawn into pictures.

use super::asked::Asked;
use crate::data;
use crate::drawing::{self, Labelled};
use crate::error::{Error, Result};
use crate::output::{self, counted, line, passed_over, percent};
use crate::picture::Picture;
use kiln_core::Backend;
use kiln_data::{ImageLimits, Letterbox, decode_image};
use kiln_files::{shown_path, write_atomic};
use kiln_nn::detection::Detections;
use serde_json::json;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Finds the objects of every image and writes a picture of each with its boxes. A file that cannot be read is passed over, and the exit
/// code says so.
pub(super) fn all<B: Backend>(backend: &B, asked: &Asked<'_, B>) -> Result<u8> {
    let args = asked.args;
    let folder = args.out.as_deref().filter(|out| out.is_dir());
    if args.out.is_some() && folder.is_none() && asked.files.len() > 1 {
        let message = format!("--out names one picture, and there are {}", asked.files.len());
        return Err(
            Error::usage(message).help("name a folder that exists; or leave it out, and they lie beside the weights")
        );
    }
    let pictures = match (&args.out, folder) {
        (Some(file), None) => vec![file.clone()],
        (_, folder) => pictures_in(folder.unwrap_or(&beside(&asked.saved.path)), &asked.files),
    };
    let names = data::names_of(asked.saved);
    let mut exit = 0;
    for (path, file) in asked.files.iter().zip(&pictures) {
        match objects(backend, asked, path) {
            Ok(found) => {
                let boxes = drawing::labelled(&found, &names, args.min_score.get());
                write_atomic(file, &picture(path, &boxes)?.png()?)?;
                show(asked, path, &found, &names, file);
            }
            Err(error) => exit = passed_over(&error),
        }
    }
    Ok(exit)
}

/// The folder of the weights.
fn beside(weights: &Path) -> PathBuf {
    weights.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The pictures of boxes in a folder, with the names of the images; of several images of one name all but the first have a number.
fn pictures_in(folder: &Path, images: &[PathBuf]) -> Vec<PathBuf> {
    let mut taken = HashSet::new();
    let mut name = |image: &PathBuf| {
        let stem = image.file_stem().unwrap_or_default().to_string_lossy();
        let numbered = (2..).map(|number| format!("boxes-{stem}-{number}.png"));
        let mut names = std::iter::once(format!("boxes-{stem}.png")).chain(numbered);
        let free = names.find(|name| taken.insert(name.clone())).unwrap_or_default();
        folder.join(free)
    };
    images.iter().map(&mut name).collect()
}

/// The objects in the image of a file, the most certain first, in its own pixels.
fn objects<B: Backend>(backend: &B, asked: &Asked<'_, B>, path: &Path) -> Result<Detections> {
    let raw = asked.samples(path)?;
    let letterbox = raw.first().and_then(|sample| Letterbox::of_targets(&sample.targets));
    let letterbox = letterbox.ok_or_else(|| Error::failure(format!("{}: no image", shown_path(path))))?;
    let mut found = match asked.saved.net.detect(&asked.inputs(path, backend)?) {
        Some(found) => found?.into_iter().next().unwrap_or_default(),
        None => Detections::default(),
    };
    found
        .boxes
        .iter_mut()
        .for_each(|bounds| *bounds = letterbox.unfitted(*bounds));
    Ok(found)
}

/// The image of a file with boxes.
fn picture(path: &Path, boxes: &[Labelled]) -> Result<Picture> {
    let mut picture = Picture::from(decode_image(path, 3, &ImageLimits::default())?);
    drawing::draw(&mut picture, boxes);
    Ok(picture)
}

fn show<B: Backend>(asked: &Asked<'_, B>, path: &Path, found: &Detections, names: &[String], file: &Path) {
    let all = found.boxes.iter().zip(&found.classes).zip(&found.scores);
    let certain = all.filter(|(_, score)| f64::from(**score) >= asked.args.min_score.get());
    let objects: Vec<_> = certain
        .map(|((bounds, class), score)| (drawing::named(*class, names).1, f64::from(*score), bounds))
        .collect();
    if asked.args.json {
        let objects: Vec<_> = objects
            .iter()
            .map(|(name, score, bounds)| json!({"class": name, "score": score, "box": bounds}))
            .collect();
        output::json(&json!({
            "image": path.display().to_string(),
            "model": asked.saved.model.name(),
            "objects": objects,
            "file": file.display().to_string(),
        }));
        return;
    }
    for (name, score, [x1, y1, x2, y2]) in &objects {
        let score = percent(*score);
        let shown = shown_path(path);
        line(&format!(
            "{shown}: {name} {score} from ({x1:.1}, {y1:.1}) to ({x2:.1}, {y2:.1})"
        ));
    }
    let count = counted(objects.len() as u64, "object");
    line(&format!(
        "saved: {}, {} with {count}",
        shown_path(file),
        shown_path(path)
    ));
}
