//! Lists of objects of Pascal VOC: an XML file for each image.

use super::input::Input;
use super::object::{Object, bounds_in};
use super::objects::{Picture, Pictures};
use crate::{BadRecords, DataError, Place, Result, TextFile};
use roxmltree::{Document, Node};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The largest size of an annotation: 16 MiB.
const MAX_BYTES: u64 = 1 << 24;

/// The annotations of a folder of Pascal VOC that a list in `ImageSets/Main` names, or all, sorted by name.
///
/// # Errors
/// A folder or a list that cannot be read.
pub(crate) fn annotations(root: &Path, list: Option<&str>) -> Result<Vec<PathBuf>> {
    let folder = root.join("Annotations");
    if let Some(list) = list {
        let path = root.join("ImageSets").join("Main").join(format!("{list}.txt"));
        let file = TextFile::open(&path)?;
        let names = file.text().lines().filter_map(|line| line.split_whitespace().next());
        return Ok(names.map(|name| folder.join(format!("{name}.xml"))).collect());
    }
    let mut paths = Vec::new();
    for entry in folder.read_dir().map_err(DataError::io(&folder, "list"))? {
        let path = entry.map_err(DataError::io(&folder, "list"))?.path();
        if path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("xml"))
        {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// An object as its file has it.
struct Named {
    class: String,
    line: u64,
    bounds: [f32; 4],
    difficult: bool,
}

/// Reads the annotations of images in the folder `images`. Classes are the names that occur, sorted, or those of a trained network
/// (`known`). Edges are pixels counted from 1, as the format's paper has them; objects that are `difficult` become crowds.
///
/// # Errors
/// XML that is none or lacks an element, a box outside of its image or without an area, a name that the network does not know, each with
/// its line; boxes and names are left out if bad ones are to be.
pub(crate) fn read(paths: &[PathBuf], images: &Path, known: Option<&[String]>, bad: BadRecords) -> Result<Pictures> {
    let mut pictures = Pictures::default();
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        let bytes = Input::open(path, MAX_BYTES)?.rest("an annotation")?;
        let text = String::from_utf8(bytes).map_err(|error| broken(path, 1, error))?;
        let document = Document::parse(&text).map_err(|error| broken(path, error.pos().row, error))?;
        let mut objects = Vec::new();
        let picture = annotation(path, &document, images, |object| match object {
            Ok(object) => {
                objects.push(object);
                Ok(())
            }
            Err(error) => pictures.skipped.note(bad, error),
        })?;
        all.push((path, picture, objects));
    }
    pictures.classes = match known {
        Some(known) => known.to_vec(),
        None => {
            let names: BTreeSet<&String> = all.iter().flat_map(|(.., objects)| objects).map(|o| &o.class).collect();
            names.into_iter().cloned().collect()
        }
    };
    for (path, mut picture, objects) in all {
        for object in objects {
            match pictures.classes.iter().position(|name| *name == object.class) {
                Some(class) => picture.objects.push(Object {
                    class: class as u32,
                    bounds: object.bounds,
                    crowd: object.difficult,
                }),
                None => {
                    let expected = format!("a class of the network: {}", pictures.classes.join(", "));
                    let error = value(path, object.line, "name", object.class, expected);
                    pictures.skipped.note(bad, error)?;
                }
            }
        }
        pictures.pictures.push(picture);
    }
    Ok(pictures)
}

/// The image of an annotation; `each` is told its objects.
fn annotation(
    path: &Path,
    document: &Document<'_>,
    images: &Path,
    mut each: impl FnMut(Result<Named>) -> Result<()>,
) -> Result<Picture> {
    let root = document.root_element();
    let size = child(path, root, "size")?;
    let (height, width): (u32, u32) = (number(path, size, "height")?, number(path, size, "width")?);
    let name = match child(path, root, "filename") {
        Ok(node) => node.text().unwrap_or_default().trim().to_string(),
        // Some tools leave it out: the image has the annotation's name.
        Err(_) => format!("{}.jpg", path.file_stem().unwrap_or_default().to_string_lossy()),
    };
    if !super::coco::is_inside(&name) {
        let expected = "a file below the folder of the images".to_string();
        return Err(value(path, line_of(root), "filename", name, expected));
    }
    for node in root.children().filter(|node| node.has_tag_name("object")) {
        let object = || {
            let bounds = child(path, node, "bndbox")?;
            let edge = |name| number::<f64>(path, bounds, name);
            let edges = [edge("xmin")? - 1.0, edge("ymin")? - 1.0, edge("xmax")?, edge("ymax")?];
            let inside = bounds_in(edges, (f64::from(height), f64::from(width))).map_err(|expected| {
                let found = format!("{edges:?} in an image of {height}×{width}");
                value(path, line_of(bounds), "bndbox", found, expected.to_string())
            })?;
            let class = child(path, node, "name")?.text().unwrap_or_default().trim().to_string();
            let difficult = child(path, node, "difficult").ok().and_then(|d| d.text());
            Ok(Named {
                class,
                line: line_of(node),
                bounds: inside,
                difficult: difficult.is_some_and(|text| text.trim() == "1"),
            })
        };
        each(object())?;
    }
    Ok(Picture {
        path: images.join(name),
        size: Some((height as usize, width as usize)),
        objects: Vec::new(),
        relative: false,
    })
}

fn line_of(node: Node<'_, '_>) -> u64 {
    u64::from(node.document().text_pos_at(node.range().start).row)
}

fn child<'a, 'i>(path: &Path, node: Node<'a, 'i>, name: &'static str) -> Result<Node<'a, 'i>> {
    let found = node.children().find(|child| child.has_tag_name(name));
    found.ok_or_else(|| {
        let expected = format!("an element <{name}>");
        let found = format!("<{}> without it", node.tag_name().name());
        value(path, line_of(node), "element", found, expected)
    })
}

fn number<T: std::str::FromStr>(path: &Path, node: Node<'_, '_>, name: &'static str) -> Result<T> {
    let node = child(path, node, name)?;
    let text = node.text().unwrap_or_default().trim();
    text.parse()
        .map_err(|_| value(path, line_of(node), name, text.to_string(), "a number".to_string()))
}

fn value(path: &Path, line: u64, what: &'static str, found: String, expected: String) -> DataError {
    DataError::Value {
        path: path.to_path_buf(),
        place: Place::Line { line, column: None },
        what,
        found,
        expected: expected.into(),
    }
}

fn broken(path: &Path, line: u32, reason: impl std::fmt::Display) -> DataError {
    DataError::Decode {
        path: path.to_path_buf(),
        place: Place::Line {
            line: u64::from(line),
            column: None,
        },
        format: "XML",
        reason: reason.to_string(),
    }
}
