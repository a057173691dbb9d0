//! Lists of objects of COCO: a JSON file of images, categories and boxes.

use super::input::Input;
use super::object::{Object, bounds_in};
use super::objects::{Picture, Pictures};
use crate::{BadRecords, DEFAULT_MAX_BYTES, DataError, Place, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct File {
    images: Vec<Image>,
    #[serde(default)]
    annotations: Vec<Annotation>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct Image {
    id: i64,
    file_name: String,
    width: u32,
    height: u32,
}

#[derive(Deserialize)]
struct Annotation {
    image_id: i64,
    category_id: i64,
    bbox: [f64; 4],
    #[serde(default)]
    iscrowd: u8,
}

#[derive(Deserialize)]
struct Category {
    id: i64,
    name: String,
}

/// Reads a list of objects in COCO's format, of images in the folder `images`. Classes are the categories in the order of their ids, or
/// those of a trained network (`known`), which have to be among them by name.
///
/// # Errors
/// JSON that is none or lacks a field, with its line; an annotation of an image or category that is not listed, a box outside of its image
/// or without an area, by the number of the annotation, unless bad ones are left out; a category that the network does not know.
pub(crate) fn read(path: &Path, images: &Path, known: Option<&[String]>, bad: BadRecords) -> Result<Pictures> {
    let bytes = Input::open(path, DEFAULT_MAX_BYTES)?.rest("a list of objects")?;
    let file: File = serde_json::from_slice(&bytes).map_err(|error| DataError::Decode {
        path: path.to_path_buf(),
        place: Place::Line {
            line: error.line() as u64,
            column: None,
        },
        format: "COCO JSON",
        reason: error.to_string(),
    })?;
    let value = |record: usize, what, found: String, expected: String| DataError::Value {
        path: path.to_path_buf(),
        place: Place::Record(record as u64),
        what,
        found,
        expected: expected.into(),
    };
    let mut categories = file.categories;
    categories.sort_by_key(|category| category.id);
    let names: Vec<String> = match known {
        Some(known) => known.to_vec(),
        None => categories.iter().map(|category| category.name.clone()).collect(),
    };
    let mut classes = BTreeMap::new();
    for (number, category) in categories.iter().enumerate() {
        let Some(class) = names.iter().position(|name| *name == category.name) else {
            let expected = format!(
                "one of the classes that the network was trained on: {}",
                names.join(", ")
            );
            return Err(value(number, "categories.name", category.name.clone(), expected));
        };
        classes.insert(category.id, class as u32);
    }
    let mut pictures = Pictures {
        classes: names,
        ..Pictures::default()
    };
    let mut places = BTreeMap::new();
    for (number, image) in file.images.iter().enumerate() {
        if !is_inside(&image.file_name) {
            let expected = "a file below the folder of the images".to_string();
            return Err(value(number, "images.file_name", image.file_name.clone(), expected));
        }
        if places.insert(image.id, number).is_some() {
            let expected = "an id of its own for each image".to_string();
            return Err(value(number, "images.id", image.id.to_string(), expected));
        }
        pictures.pictures.push(Picture {
            path: images.join(&image.file_name),
            size: Some((image.height as usize, image.width as usize)),
            objects: Vec::new(),
            relative: false,
        });
    }
    for (number, annotation) in file.annotations.iter().enumerate() {
        let object = || {
            let of_image = places.get(&annotation.image_id).ok_or_else(|| {
                let found = annotation.image_id.to_string();
                value(number, "annotations.image_id", found, "the id of an image".to_string())
            })?;
            let class = classes.get(&annotation.category_id).ok_or_else(|| {
                let (found, expected) = (annotation.category_id.to_string(), "the id of a category".to_string());
                value(number, "annotations.category_id", found, expected)
            })?;
            let image = &file.images[*of_image];
            let [x, y, w, h] = annotation.bbox;
            let bounds = bounds_in([x, y, x + w, y + h], (f64::from(image.height), f64::from(image.width)));
            let bounds = bounds.map_err(|expected| {
                let found = format!("{:?} in an image of {}×{}", annotation.bbox, image.height, image.width);
                value(number, "annotations.bbox", found, expected.to_string())
            })?;
            let object = Object {
                class: *class,
                bounds,
                crowd: annotation.iscrowd != 0,
            };
            Ok((*of_image, object))
        };
        match object() {
            Ok((image, object)) => pictures.pictures[image].objects.push(object),
            Err(error) => pictures.skipped.note(bad, error)?,
        }
    }
    Ok(pictures)
}

/// True if a name that a file says leads to nowhere but below the folder that it is joined to.
pub(super) fn is_inside(name: &str) -> bool {
    use std::path::Component;
    let path = Path::new(name);
    !name.is_empty()
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}
