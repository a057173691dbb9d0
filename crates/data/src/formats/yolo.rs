//! Folders of objects as YOLO has them: a `.yaml` file that names classes and folders, and a text file of boxes for each image.

use super::input::Input;
use super::object::{Object, bounds_in};
use super::objects::{Picture, Pictures};
use crate::{BadRecords, DataError, Place, Result, TextFile};
use std::path::{Path, PathBuf};
use yaml_rust2::{Yaml, YamlLoader};

/// The largest size of a `.yaml` file: 1 MiB.
const MAX_BYTES: u64 = 1 << 20;

/// The contents of a dataset's `.yaml` file.
#[derive(Debug)]
pub(crate) struct Listing {
    path: PathBuf,
    document: Yaml,
    /// The names of the classes, by number.
    pub(crate) classes: Vec<String>,
}

impl Listing {
    /// Reads a `.yaml` file.
    ///
    /// # Errors
    /// YAML that is none, with its line; no `names`, or numbers of classes with gaps between.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let bytes = Input::open(path, MAX_BYTES)?.rest("a list of classes")?;
        let broken = |line: u64, reason: String| DataError::Decode {
            path: path.to_path_buf(),
            place: Place::Line { line, column: None },
            format: "YAML",
            reason,
        };
        let text = String::from_utf8(bytes).map_err(|error| broken(1, error.to_string()))?;
        let documents = YamlLoader::load_from_str(&text)
            .map_err(|error| broken(error.marker().line() as u64, error.info().to_string()))?;
        let document = documents.into_iter().next().unwrap_or(Yaml::Null);
        let classes = classes(&document["names"]).map_err(|found| DataError::Value {
            path: path.to_path_buf(),
            place: Place::File,
            what: "names",
            found,
            expected: "a list of names, or a name for each of the numbers 0, 1, 2, …".into(),
        })?;
        Ok(Listing {
            path: path.to_path_buf(),
            document,
            classes,
        })
    }

    /// The images of a part, `train`, `val` or `test`: files of a folder, of several, or of a list of files; sorted. `None` if the file says
    /// nothing about the part.
    ///
    /// # Errors
    /// A folder or a list that cannot be read.
    pub(crate) fn images(&self, part: &str) -> Result<Option<Vec<PathBuf>>> {
        let beside = self.path.parent().unwrap_or(Path::new(""));
        let root = match self.document["path"].as_str() {
            Some(path) => beside.join(path),
            None => beside.to_path_buf(),
        };
        let named: Vec<&str> = match &self.document[part] {
            Yaml::String(name) => vec![name],
            Yaml::Array(names) => names.iter().filter_map(Yaml::as_str).collect(),
            _ => return Ok(None),
        };
        let mut images = Vec::new();
        for name in named {
            // Where the root is one that only the author's machine has, the folders lie beside the file.
            let path = [root.join(name), beside.join(name)]
                .into_iter()
                .find(|path| path.exists());
            let path = path.unwrap_or_else(|| root.join(name));
            match path.extension().is_some_and(|extension| extension == "txt") {
                true => {
                    let file = TextFile::open(&path)?;
                    let folder = path.parent().unwrap_or(Path::new(""));
                    let lines = file.text().lines().map(str::trim).filter(|line| !line.is_empty());
                    images.extend(lines.map(|line| folder.join(line)));
                }
                false => images.extend(images_in(&path)?),
            }
        }
        images.sort();
        Ok(Some(images))
    }
}

/// Names by number, of a list or of a mapping; else what was found.
fn classes(names: &Yaml) -> Result<Vec<String>, String> {
    let text = |name: &Yaml| match name {
        Yaml::String(name) => Ok(name.clone()),
        Yaml::Integer(number) => Ok(number.to_string()),
        other => Err(format!("{other:?}")),
    };
    match names {
        Yaml::Array(names) if !names.is_empty() => names.iter().map(text).collect(),
        Yaml::Hash(names) if !names.is_empty() => {
            let name = |number: usize| names.get(&Yaml::Integer(number as i64));
            let missing = |number: usize| format!("no name for {number}");
            (0..names.len())
                .map(|number| name(number).ok_or_else(|| missing(number)).and_then(text))
                .collect()
        }
        Yaml::BadValue | Yaml::Null => Err("nothing".to_string()),
        _ => Err("something else".to_string()),
    }
}

/// The images directly in a folder.
fn images_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for entry in folder.read_dir().map_err(DataError::io(folder, "list"))? {
        let path = entry.map_err(DataError::io(folder, "list"))?.path();
        let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        if matches!(extension.as_deref(), Some("png" | "jpg" | "jpeg")) {
            images.push(path);
        }
    }
    Ok(images)
}

/// The file of an image's boxes: in the folder `labels` where the image is in `images`, else beside it.
fn labels_of(image: &Path) -> PathBuf {
    let mut parts: Vec<_> = image.components().map(|part| part.as_os_str().to_os_string()).collect();
    // The file itself may be named `images`.
    let folders = parts.len().saturating_sub(1);
    if let Some(folder) = parts[..folders].iter_mut().rev().find(|part| *part == "images") {
        *folder = "labels".into();
    }
    parts.iter().collect::<PathBuf>().with_extension("txt")
}

/// Reads the boxes of images. Each line has a class, the middle, the width and the height, in shares of the image's sides; an image without
/// a file has no objects.
///
/// # Errors
/// A line of another form, a class that is not named, a box outside of the image or without an area, with file, line and field, unless bad
/// ones are left out.
pub(crate) fn read(images: Vec<PathBuf>, classes: Vec<String>, bad: BadRecords) -> Result<Pictures> {
    let mut pictures = Pictures {
        classes,
        ..Pictures::default()
    };
    for path in images {
        let labels = labels_of(&path);
        let mut objects = Vec::new();
        let file = match labels.exists() {
            true => TextFile::open(&labels).map(Some),
            false => Ok(None),
        };
        let file = match file {
            // As of an image without objects.
            Err(DataError::Empty { .. }) => None,
            file => file?,
        };
        if let Some(file) = file {
            for (number, line) in file
                .text()
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim().is_empty())
            {
                match object(&labels, number as u64 + 1, line, &pictures.classes) {
                    Ok(object) => objects.push(object),
                    Err(error) => pictures.skipped.note(bad, error)?,
                }
            }
        }
        pictures.pictures.push(Picture {
            path,
            size: None,
            objects,
            relative: true,
        });
    }
    Ok(pictures)
}

fn object(path: &Path, line: u64, text: &str, classes: &[String]) -> Result<Object> {
    let value = |column: Option<&str>, what, found: String, expected: String| DataError::Value {
        path: path.to_path_buf(),
        place: Place::Line {
            line,
            column: column.map(str::to_string),
        },
        what,
        found,
        expected: expected.into(),
    };
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [class, fields @ ..] = &fields[..] else {
        return Err(value(
            None,
            "box",
            "nothing".to_string(),
            "a class and a box".to_string(),
        ));
    };
    if fields.len() != 4 {
        let expected = "a class, x and y of the middle, width and height".to_string();
        return Err(value(
            None,
            "number of fields",
            (1 + fields.len()).to_string(),
            expected,
        ));
    }
    let known = class.parse().ok().filter(|&class| (class as usize) < classes.len());
    let class: u32 = known.ok_or_else(|| {
        let expected = format!("a class from 0 to {}", classes.len() - 1);
        value(Some("class"), "class", class.to_string(), expected)
    })?;
    let mut numbers = [0.0f64; 4];
    for ((number, field), column) in numbers.iter_mut().zip(fields).zip(["x", "y", "width", "height"]) {
        *number = field
            .parse()
            .map_err(|_| value(Some(column), "box", field.to_string(), "a number".to_string()))?;
    }
    let [x, y, w, h] = numbers;
    // In shares a pixel more is a matter of rounding.
    let edges = [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0];
    let slack = 1e-2;
    if edges[0] < -slack || edges[1] < -slack || edges[2] > 1.0 + slack || edges[3] > 1.0 + slack {
        let expected = "a box that does not reach beyond the image, in shares of its sides".to_string();
        return Err(value(None, "box", text.trim().to_string(), expected));
    }
    let bounds = bounds_in(edges, (1.0, 1.0))
        .map_err(|expected| value(None, "box", text.trim().to_string(), expected.to_string()))?;
    Ok(Object {
        class,
        bounds,
        crowd: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_lie_in_a_folder_beside_that_of_the_images() {
        let of = |image: &str| labels_of(Path::new(image));
        assert_eq!(of("/d/images/train/a.jpg"), Path::new("/d/labels/train/a.txt"));
        assert_eq!(of("train/images/a.b.png"), Path::new("train/labels/a.b.txt"));
        assert_eq!(of("d/images.png"), Path::new("d/images.txt"));
    }

    #[test]
    fn names_are_a_list_or_numbered() {
        let of = |text: &str| classes(&YamlLoader::load_from_str(text).unwrap()[0]["names"]);
        assert_eq!(of("names: [cat, 7]").unwrap(), ["cat", "7"]);
        assert_eq!(of("names:\n  1: dog\n  0: cat").unwrap(), ["cat", "dog"]);
        for wrong in [
            "names:\n  0: cat\n  2: dog",
            "names: []",
            "names: cat",
            "nc: 3",
            "names: [[a]]",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
