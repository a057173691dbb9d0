//! Sheets of pictures in the table of datasets: one PNG file with a picture in each cell of a grid, and a table of their classes.

use super::card::{DatasetCard, FileOptions, Request};
use super::facts::{Fact, Facts};
use super::images::{self, IMAGES};
use super::opened::{Opened, Shared};
use super::tsv::value;
use crate::csv::{self, CsvOptions, LabelKind, TextLine};
use crate::{
    ByteImages, DataError, Decoded, ImageLimits, Place, Result, Sample, Skipped, decode_image, resize_bilinear,
};
use kiln_core::Shape;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a sheet of pictures",
    description: "a folder of one PNG with a picture in each cell, and labels.csv: column, row, label (or category), and if you like split \
                  (train, or anything else for what is held back; without it every tenth line is); classes are drawn equally often",
    files: "the pictures of",
    ships: None,
    obtain: "put a PNG and a labels.csv with the columns column, row, label and split into a folder",
    example: "emoji",
    samples: &IMAGES,
    shape: None,
    classes: &[],
    has_classes: true,
    has_target: false,
    facts: &[Facts::CLASSES],
    recognises: is_sheet,
    open: |request| {
        let both = on_ground(request)?;
        Ok(Opened {
            train: Arc::new(both.train.balanced()),
            test: Arc::new(both.test),
            facts: Facts::default().with(Facts::CLASSES, Fact::Names(both.names)),
        })
    },
    held_back: |request| Ok(Arc::new(on_ground(request)?.test) as Shared),
    file: Some(picture),
};

/// The name of the table.
const TABLE: &str = "labels.csv";

/// The colour behind the transparent parts of pictures.
const GROUND: [u8; 3] = [255; 3];

/// The picture in a file on a white ground, scaled to the network's input.
fn picture(path: &Path, options: &FileOptions<'_>) -> Result<Vec<Sample>> {
    let [h, w, c] = images::dimensions(options.shape)?;
    let image = decode_image(path, 4, &ImageLimits::default())?.on_ground(GROUND);
    Ok(vec![images::sample(&resize_bilinear(&image.with_channels(c)?, h, w)?)?])
}

/// True if a folder has a table of the pictures of a sheet.
pub(super) fn is_sheet(path: &Path) -> bool {
    path.join(TABLE).is_file()
}

/// The pictures to train on and those that are held back.
pub(super) struct Both {
    names: Vec<String>,
    pub(super) train: ByteImages,
    pub(super) test: ByteImages,
}

/// The pictures on a white ground, scaled to the network's input.
fn on_ground(request: &Request<'_>) -> Result<Both> {
    read(request, |picture| {
        let [h, w, c] = images::wanted(request, || Ok([picture.height, picture.width, 3]))?;
        resize_bilinear(&picture.on_ground(GROUND).with_channels(c)?, h, w)
    })
}

/// The pictures as they are: red, green, blue and opacity.
pub(super) fn with_opacity(request: &Request<'_>) -> Result<Both> {
    read(request, Ok)
}

/// A line of the table.
struct Cell {
    line: u64,
    column: usize,
    row: usize,
    label: String,
    held_back: bool,
}

/// Reads sheet and table. A class that only one of the parts has could not be both learned and measured: its pictures are left out.
fn read(request: &Request<'_>, shown: impl Fn(Decoded) -> Result<Decoded>) -> Result<Both> {
    let root = request
        .path
        .ok_or_else(|| DataError::invalid("sprite sheet", "path", "none", "a folder"))?;
    let (table, mut skipped) = (root.join(TABLE), Skipped::default());
    let mut cells = cells(&table, request, &mut skipped)?;
    let mut parts: BTreeMap<String, [bool; 2]> = BTreeMap::new();
    for cell in &cells {
        parts.entry(cell.label.clone()).or_default()[usize::from(cell.held_back)] = true;
    }
    cells.retain(|cell| parts[&cell.label] == [true; 2]);
    let names: Vec<String> = parts
        .into_iter()
        .filter(|(_, parts)| *parts == [true; 2])
        .map(|(name, _)| name)
        .collect();
    if names.is_empty() {
        return Err(DataError::Empty {
            path: table,
            expected: "pictures of a class to train on and others that are held back",
        });
    }
    if names.len() > 256 {
        let expected = "at most 256".to_string();
        return Err(value(&table, (1, None), "number of classes", names.len(), expected));
    }
    images::check_classes(&names, &table, request.facts)?;
    let sheet = Sheet::open(root, &table, &cells)?;
    let part = |held_back: bool| -> Result<ByteImages> {
        let (mut pixels, mut labels, mut shape) = (Vec::new(), Vec::new(), [0; 3]);
        for cell in cells.iter().filter(|cell| cell.held_back == held_back) {
            let picture = shown(sheet.picture(cell)?)?;
            shape = [picture.height, picture.width, picture.channels];
            pixels.extend(picture.pixels);
            // One of at most 256.
            labels.push(names.partition_point(|name| *name < cell.label) as u8);
        }
        ByteImages::from_file(root, Shape::new(&shape)?, pixels, labels, names.clone(), request.bad)
    };
    Ok(Both {
        train: part(false)?.with_skipped(skipped),
        test: part(true)?,
        names,
    })
}

/// The lines of the table, of which bad ones are errors, or left out and noted.
fn cells(table: &Path, request: &Request<'_>, skipped: &mut Skipped) -> Result<Vec<Cell>> {
    let options = CsvOptions {
        bad: request.bad,
        ..CsvOptions::new("label", LabelKind::Name)
    };
    let (header, lines) = csv::texts(table, &options, skipped)?;
    let place = |names: &[&str]| {
        let mut places = names.iter().map(|name| header.iter().position(|column| column == name));
        places.find_map(|place| place)
    };
    let needed = |names: &[&str], expected| {
        place(names).ok_or_else(|| DataError::Missing {
            path: table.to_path_buf(),
            expected,
            advice: "the first line of the table names its columns, separated by commas",
        })
    };
    let column = needed(&["column"], "a column `column`")?;
    let row = needed(&["row"], "a column `row`")?;
    let label = needed(&["label", "category"], "a column `label` or `category`")?;
    let split = place(&["split"]);
    let mut cells = Vec::new();
    for line in lines {
        let number = |at: usize| {
            line.fields[at].parse().map_err(|_| {
                let expected = "a number of a cell, counted from 0".to_string();
                value(
                    table,
                    (line.line, Some(header[at].as_str())),
                    "cell",
                    quoted(&line, at),
                    expected,
                )
            })
        };
        let cell = || -> Result<Cell> {
            if line.fields[label].is_empty() {
                let place = (line.line, Some(&header[label][..]));
                return Err(value(
                    table,
                    place,
                    "label",
                    quoted(&line, label),
                    "the name of a class".to_string(),
                ));
            }
            Ok(Cell {
                line: line.line,
                column: number(column)?,
                row: number(row)?,
                label: line.fields[label].clone(),
                held_back: match split {
                    Some(split) => line.fields[split] != "train",
                    None => cells.len() % 10 == 9,
                },
            })
        };
        match cell() {
            Ok(cell) => cells.push(cell),
            Err(error) => skipped.note(request.bad, error)?,
        }
    }
    Ok(cells)
}

fn quoted(line: &TextLine, at: usize) -> String {
    format!("{:?}", line.fields[at].chars().take(40).collect::<String>())
}

/// The sheet: square cells side by side, with a picture in the middle of each.
struct Sheet {
    image: Decoded,
    /// The side of a cell in pixels, and that of its picture.
    cell: usize,
    picture: usize,
}

impl Sheet {
    /// The only PNG file of the folder. It has as many columns of cells as the table names; a number at the end of its name, as in
    /// `sheet-32.png`, is the side of a picture, which has a border in its cell then.
    fn open(root: &Path, table: &Path, cells: &[Cell]) -> Result<Self> {
        let path = png_of(root)?;
        let image = decode_image(&path, 4, &ImageLimits::default())?;
        let wrong = |what, found: String, expected: String| DataError::Value {
            path: path.clone(),
            place: Place::File,
            what,
            found,
            expected: expected.into(),
        };
        let columns = cells
            .iter()
            .map(|cell| cell.column)
            .max()
            .unwrap_or(0)
            .saturating_add(1);
        if image.width % columns != 0 {
            let expected = format!("a multiple of the {columns} columns of the table");
            return Err(wrong("width", image.width.to_string(), expected));
        }
        let cell = image.width / columns;
        let rows = image.height / cell;
        if let Some(below) = cells.iter().find(|cell| cell.row >= rows) {
            let expected = format!("below {rows}, as the sheet has cells of {cell} pixels");
            return Err(value(table, (below.line, Some("row")), "cell", below.row, expected));
        }
        let picture = match number_of(&path) {
            Some(picture) if picture > cell || (cell - picture) % 2 != 0 => {
                let expected =
                    format!("at most {cell}, the side of a cell, and a border that is the same on all sides");
                return Err(wrong("side of a picture", picture.to_string(), expected));
            }
            Some(picture) => picture,
            None => cell,
        };
        Ok(Sheet { image, cell, picture })
    }

    /// The picture of a cell.
    fn picture(&self, cell: &Cell) -> Result<Decoded> {
        let border = (self.cell - self.picture) / 2;
        let corner = (cell.row * self.cell + border, cell.column * self.cell + border);
        self.image.part(corner, (self.picture, self.picture))
    }
}

/// The number at the end of a file's name before the extension, if it is above 0.
fn number_of(path: &Path) -> Option<usize> {
    let stem = path.file_stem()?.to_str()?;
    let digits = stem.len() - stem.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    stem[stem.len() - digits..].parse().ok().filter(|&side| side > 0)
}

/// The only PNG file of a folder.
fn png_of(root: &Path) -> Result<PathBuf> {
    let entries = root.read_dir().map_err(DataError::io(root, "list"))?.flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("png")))
        .collect();
    match (found.pop(), found.len()) {
        (Some(path), 0) => Ok(path),
        (Some(_), others) => Err(DataError::Value {
            path: root.to_path_buf(),
            place: Place::File,
            what: "number of PNG files",
            found: (others + 1).to_string(),
            expected: "1, the sheet".into(),
        }),
        (None, _) => Err(DataError::Missing {
            path: root.join("sheet.png"),
            expected: "a PNG file, the sheet",
            advice: "put it into the folder of labels.csv",
        }),
    }
}
