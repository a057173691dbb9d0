//! Tables of numbers in the table of datasets: rows as samples, with one column to predict from the others.

use super::card::{DatasetCard, FileOptions, Request};
use super::facts::{DEVIATION, Fact, Facts, MEAN};
use super::kinds::{MadeUp, SampleKind};
use super::opened::{Opened, Shared};
use crate::csv::{self, Csv, CsvOptions, LabelKind};
use crate::{Arrays, DataError, Dataset, Labels, Result, Sample, Subset, streams};
use kiln_core::Shape;
use kiln_core::philox::Key;
use std::path::Path;
use std::sync::Arc;

/// Rows `[F]` of numbers with a target each. Columns have a mean of 0 and a standard deviation of 1 over the rows to train on; facts
/// have the means and deviations.
pub static ROWS: SampleKind = SampleKind {
    name: "rows",
    noun: "row",
    describe: |_| "rows of a table".to_string(),
    batch: 64,
    samples: |made| Ok(Arc::new(rows(made, 0, made.count)?)),
    synthetic: |made| {
        let (train, test) = (rows(made, 0, made.count)?, rows(made, 1, made.held_back())?);
        let names = (0..width(made)).map(|i| format!("x{i}")).collect();
        let target = |i| {
            if made.outputs == 1 {
                "y".to_string()
            } else {
                format!("y{i}")
            }
        };
        let targets = (0..made.outputs).map(target).collect();
        Scale::of(&train, names, targets)?.opened(&train, &test)
    },
};

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a table",
    description: "a CSV or TSV file of numbers with a header; --target names the column to predict, a tenth of the rows is held back",
    files: "the table",
    ships: None,
    obtain: "take a CSV file of numbers with a header",
    example: "FILE.csv",
    samples: &ROWS,
    shape: None,
    classes: &[],
    has_classes: false,
    has_target: true,
    facts: &[Facts::FEATURES, Facts::TARGETS],
    recognises: |path| {
        let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        path.is_file() && extension.is_some_and(|e| e == "csv" || e == "tsv")
    },
    open,
    held_back: |request| Ok(open(request)?.test),
    file: Some(file),
};

/// The options for a file: its columns are separated by tabs if its name ends so, else by commas.
fn options(path: &Path, target: &str) -> CsvOptions {
    let mut options = CsvOptions::new(target, LabelKind::Number);
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("tsv")) {
        options.delimiter = b'\t';
    }
    options
}

fn open(request: &Request<'_>) -> Result<Opened> {
    let path = request
        .path
        .ok_or_else(|| DataError::invalid("csv", "path", "none", "a file"))?;
    let trained = request
        .facts
        .and_then(|facts| facts.names(Facts::TARGETS))
        .and_then(<[_]>::first);
    let Some(target) = request.target.or(trained.map(String::as_str)) else {
        return Err(DataError::invalid(
            "csv",
            "target",
            "none",
            "the name of the column to predict",
        ));
    };
    let mut options = options(path, target);
    options.bad = request.bad;
    let table = Arc::new(Csv::open(path, &options)?);
    let scale = match request.facts {
        Some(facts) => Some(Scale::known(facts, table.feature_names())?),
        None => None,
    };
    let names = table.feature_names().to_vec();
    let held_back = table.len().div_ceil(10);
    // The rows that are held back do not depend on the run's seed, so that runs can be compared.
    let split = Subset::split(table.clone(), held_back, 0)?;
    let scale = match scale {
        Some(scale) => scale,
        None => Scale::of(&split.train, names, vec![target.to_string()])?,
    };
    let mut opened = scale.opened(&split.train, &split.test)?;
    opened.train = Arc::new(Kept {
        rows: opened.train,
        table,
    });
    Ok(opened)
}

/// The rows of a file without their targets.
fn file(path: &Path, options_of_file: &FileOptions<'_>) -> Result<Vec<Sample>> {
    let names = options_of_file.facts.names(Facts::FEATURES).unwrap_or_default();
    let scale = Scale::known(options_of_file.facts, names)?;
    let values = csv::columns(path, names, &options(path, ""))?;
    let shape = Shape::new(&[names.len()])?;
    let row = |values: &[f32]| {
        let mut sample = Sample::default();
        sample.fill(shape, values.iter().copied())?;
        scale.features.apply(&mut sample.input);
        Ok(sample)
    };
    values.chunks(names.len().max(1)).map(row).collect()
}

/// Rows of a file, which knows its bad records.
struct Kept {
    rows: Shared,
    table: Arc<Csv>,
}

impl Dataset for Kept {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.rows.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        self.rows.read(index, sample)
    }
    fn shape(&self) -> Option<Shape> {
        self.rows.shape()
    }
    fn skipped(&self) -> Option<&crate::Skipped> {
        self.table.skipped()
    }
    fn source(&self) -> Option<&Path> {
        self.table.source()
    }
}

/// The names, means and standard deviations of columns.
#[derive(Clone, Debug, Default)]
struct Columns {
    names: Vec<String>,
    mean: Vec<f64>,
    deviation: Vec<f64>,
}

/// Sums of columns, of which means and deviations are made.
struct Sums {
    count: f64,
    mean: Vec<f64>,
    squares: Vec<f64>,
}

impl Sums {
    fn new(width: usize) -> Self {
        Sums {
            count: 0.0,
            mean: vec![0.0; width],
            squares: vec![0.0; width],
        }
    }

    /// Welford's update, which loses no digits to a large mean.
    fn add(&mut self, row: &[f32]) {
        self.count += 1.0;
        for (i, &value) in row.iter().enumerate().take(self.mean.len()) {
            let apart = f64::from(value) - self.mean[i];
            self.mean[i] += apart / self.count;
            self.squares[i] += apart * (f64::from(value) - self.mean[i]);
        }
    }

    /// A column that is always the same is divided by 1.
    fn columns(self, names: Vec<String>) -> Columns {
        let deviation = |&squares: &f64| match (squares / self.count.max(1.0)).sqrt() {
            deviation if deviation > 0.0 => deviation,
            _ => 1.0,
        };
        Columns {
            names,
            deviation: self.squares.iter().map(deviation).collect(),
            mean: self.mean,
        }
    }
}

impl Columns {
    fn apply(&self, row: &mut [f32]) {
        for (value, (mean, deviation)) in row.iter_mut().zip(self.mean.iter().zip(&self.deviation)) {
            *value = ((f64::from(*value) - mean) / deviation) as f32;
        }
    }

    fn facts(&self, facts: Facts, name: &str) -> Facts {
        facts
            .with(name, Fact::Names(self.names.clone()))
            .with(format!("{name}_{MEAN}"), Fact::Numbers(self.mean.clone()))
            .with(format!("{name}_{DEVIATION}"), Fact::Numbers(self.deviation.clone()))
    }

    fn known(facts: &Facts, name: &str) -> Option<Self> {
        let numbers = |part: &str| facts.numbers(&format!("{name}_{part}")).map(<[f64]>::to_vec);
        let columns = Columns {
            names: facts.names(name)?.to_vec(),
            mean: numbers(MEAN)?,
            deviation: numbers(DEVIATION)?,
        };
        let count = columns.names.len();
        (columns.mean.len() == count && columns.deviation.len() == count).then_some(columns)
    }
}

/// The scale of all columns of a table.
struct Scale {
    features: Columns,
    targets: Columns,
}

impl Scale {
    /// The scale of the rows to train on.
    fn of(rows: &impl Dataset<Sample = Sample>, names: Vec<String>, targets: Vec<String>) -> Result<Self> {
        let (mut features, mut wanted) = (Sums::new(names.len()), Sums::new(targets.len()));
        let mut sample = Sample::default();
        for index in 0..rows.len() {
            rows.read(index, &mut sample)?;
            features.add(&sample.input);
            wanted.add(&sample.targets);
        }
        Ok(Scale {
            features: features.columns(names),
            targets: wanted.columns(targets),
        })
    }

    /// The scale of the data that a network was trained on, for a table with these features.
    fn known(facts: &Facts, names: &[String]) -> Result<Self> {
        let scale = Columns::known(facts, Facts::FEATURES).zip(Columns::known(facts, Facts::TARGETS));
        let Some((features, targets)) = scale else {
            return Err(DataError::invalid(
                "csv",
                "facts",
                "none",
                "the columns that the network was trained on",
            ));
        };
        match features.names == names {
            true => Ok(Scale { features, targets }),
            false => Err(DataError::Layout {
                found: format!("the columns {}", names.join(", ")),
                expected: format!("those that the network was trained on: {}", features.names.join(", ")),
            }),
        }
    }

    /// The rows at this scale, in memory.
    fn apply(&self, rows: &impl Dataset<Sample = Sample>) -> Result<Shared> {
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        let mut sample = Sample::default();
        for index in 0..rows.len() {
            rows.read(index, &mut sample)?;
            self.features.apply(&mut sample.input);
            self.targets.apply(&mut sample.targets);
            crate::error::reserve(&mut inputs, sample.input.len(), "the rows of a table")?;
            inputs.extend_from_slice(&sample.input);
            targets.extend_from_slice(&sample.targets);
        }
        let shape = Shape::new(&[self.features.names.len()])?;
        let labels = Labels::Targets(targets, self.targets.names.len());
        Ok(Arc::new(Arrays::new(shape, inputs, labels)?))
    }

    fn opened(&self, train: &impl Dataset<Sample = Sample>, test: &impl Dataset<Sample = Sample>) -> Result<Opened> {
        let facts = self.features.facts(Facts::default(), Facts::FEATURES);
        Ok(Opened {
            train: self.apply(train)?,
            test: self.apply(test)?,
            facts: self.targets.facts(facts, Facts::TARGETS),
        })
    }
}

/// The numbers of a made-up row: those of the network, or eight.
fn width(made: &MadeUp<'_>) -> usize {
    made.shape.first().copied().unwrap_or(8)
}

/// Rows of a part that are made up: normal numbers, and targets that are smooth functions of them with a little noise.
fn rows(made: &MadeUp<'_>, part: u32, count: usize) -> Result<Arrays> {
    let (width, outputs) = (width(made), made.outputs);
    let key = Key::new(made.seed, streams::ROWS, part);
    let each = width as u64 + outputs as u64;
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    crate::error::reserve(&mut inputs, count.saturating_mul(width), "the rows of a table")?;
    for row in 0..count as u64 {
        let begin = inputs.len();
        inputs.extend((0..width as u64).map(|i| key.normal(row * each + i)));
        let row_values = &inputs[begin..];
        for output in 0..outputs {
            let at = |i: usize| row_values.get((output + i) % width.max(1)).copied().unwrap_or_default();
            let noise = key.normal(row * each + width as u64 + output as u64);
            targets.push((2.0 * at(0)).sin() + at(1) * at(2) + 0.5 * at(3) + 0.1 * noise);
        }
    }
    Arrays::new(Shape::new(&[width])?, inputs, Labels::Targets(targets, outputs.max(1)))
}
