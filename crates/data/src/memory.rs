//! Datasets that are held in memory.

use crate::dataset::check_index;
use crate::error::reserve;
use crate::{BadRecords, DataError, Dataset, Place, Result, Sample, Skipped};
use kiln_core::Shape;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Images of one size as bytes, each with a class; the datasets of MNIST and CIFAR.
#[derive(Debug, Clone)]
pub struct ByteImages {
    source: PathBuf,
    shape: Shape,
    pixels: Vec<u8>,
    labels: Vec<u8>,
    class_names: Vec<String>,
    /// How often an image of each class is drawn; empty if each image is drawn once.
    weights: Vec<f64>,
    skipped: Arc<Skipped>,
}

impl ByteImages {
    /// Creates a dataset of images `[labels.len(), shape…]`, row-major in `pixels`, with a class each.
    ///
    /// # Errors
    /// [`DataError::Shape`] unless there are `labels.len() · shape.size()` pixels, [`DataError::Label`] for a label that
    /// has no class name.
    pub fn new(shape: Shape, pixels: Vec<u8>, labels: Vec<u8>, class_names: Vec<String>) -> Result<Self> {
        Self::from_file(
            Path::new("memory"),
            shape,
            pixels,
            labels,
            class_names,
            BadRecords::Refuse,
        )
    }

    pub(crate) fn from_file(
        source: &Path,
        shape: Shape,
        mut pixels: Vec<u8>,
        mut labels: Vec<u8>,
        class_names: Vec<String>,
        policy: BadRecords,
    ) -> Result<Self> {
        let size = shape.size();
        if labels.len().checked_mul(size) != Some(pixels.len()) {
            let found = format!("{} bytes", pixels.len());
            return Err(DataError::shape("images", found, format!("{} × {shape}", labels.len())));
        }
        let classes = class_names.len();
        let mut skipped = Skipped::default();
        let mut kept = 0;
        for i in 0..labels.len() {
            if usize::from(labels[i]) >= classes {
                skipped.note(
                    policy,
                    DataError::Label {
                        path: source.to_path_buf(),
                        place: Place::Record(i as u64),
                        label: i64::from(labels[i]),
                        classes,
                    },
                )?;
                continue;
            }
            if kept < i {
                labels[kept] = labels[i];
                pixels.copy_within(i * size..(i + 1) * size, kept * size);
            }
            kept += 1;
        }
        labels.truncate(kept);
        pixels.truncate(kept * size);
        Ok(ByteImages {
            source: source.to_path_buf(),
            shape,
            pixels,
            labels,
            class_names,
            weights: Vec::new(),
            skipped: Arc::new(skipped),
        })
    }

    /// The same images, of which in training those of each class are drawn as often as those of any other, however many there are
    /// ([`Dataset::weight`]).
    ///
    /// ```
    /// use kiln_core::Shape;
    /// use kiln_data::{ByteImages, Dataset};
    /// let names = vec!["many".to_string(), "few".to_string()];
    /// let images = ByteImages::new(Shape::new(&[1, 1, 1])?, vec![0; 4], vec![0, 0, 0, 1], names)?.balanced();
    /// assert_eq!((images.weight(0), images.weight(3)), (Some(1.0 / 3.0), Some(1.0)));
    /// # Ok::<(), kiln_data::DataError>(())
    /// ```
    pub fn balanced(mut self) -> Self {
        let mut counts = vec![0.0; self.class_names.len()];
        self.labels.iter().for_each(|&label| counts[usize::from(label)] += 1.0);
        self.weights = counts.into_iter().map(|count: f64| 1.0 / count.max(1.0)).collect();
        self
    }

    /// The label of each image.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The bytes of all images, `[len, shape…]` row-major.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    pub(crate) fn with_skipped(mut self, skipped: Skipped) -> Self {
        self.skipped = Arc::new(skipped);
        self
    }
}

impl Dataset for ByteImages {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.labels.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let size = self.shape.size();
        let pixels = &self.pixels[index * size..(index + 1) * size];
        sample.fill(self.shape, pixels.iter().map(|&b| f32::from(b)))?;
        sample.label = i32::from(self.labels[index]);
        sample.targets.clear();
        Ok(())
    }
    fn shape(&self) -> Option<Shape> {
        Some(self.shape)
    }
    fn weight(&self, index: usize) -> Option<f64> {
        self.weights.get(usize::from(*self.labels.get(index)?)).copied()
    }
    fn classes(&self) -> Option<usize> {
        Some(self.class_names.len())
    }
    fn class_names(&self) -> &[String] {
        &self.class_names
    }
    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }
    fn source(&self) -> Option<&Path> {
        Some(&self.source)
    }
}

/// The labels of [`Arrays`].
#[derive(Debug, Clone, PartialEq)]
pub enum Labels {
    /// The class of each sample, and the number of classes.
    Classes(Vec<i32>, usize),
    /// Regression targets `[samples, width]`, and the width.
    Targets(Vec<f32>, usize),
}

/// Float inputs of one shape, with classes or regression targets; PyTorch's `TensorDataset`.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrays {
    shape: Shape,
    count: usize,
    inputs: Vec<f32>,
    labels: Labels,
}

impl Arrays {
    /// Creates a dataset of inputs `[count, shape…]`, row-major, with a label each.
    ///
    /// # Errors
    /// [`DataError::Shape`] when inputs and labels do not have the same number of samples, [`DataError::Label`] for a
    /// class out of range, [`DataError::InvalidArgument`] for targets of width 0.
    pub fn new(shape: Shape, inputs: Vec<f32>, labels: Labels) -> Result<Self> {
        let count = match &labels {
            Labels::Classes(values, classes) => {
                for (i, &label) in values.iter().enumerate() {
                    if usize::try_from(label).map_or(true, |l| l >= *classes) {
                        return Err(DataError::Label {
                            path: PathBuf::from("memory"),
                            place: Place::Record(i as u64),
                            label: i64::from(label),
                            classes: *classes,
                        });
                    }
                }
                values.len()
            }
            Labels::Targets(_, 0) => return Err(DataError::invalid("arrays", "width", 0, "at least 1")),
            Labels::Targets(values, width) => {
                if values.len() % width != 0 {
                    let found = format!("{} targets", values.len());
                    return Err(DataError::shape("arrays", found, format!("a multiple of {width}")));
                }
                values.len() / width
            }
        };
        if count.checked_mul(shape.size()) != Some(inputs.len()) {
            let found = format!("{} values", inputs.len());
            return Err(DataError::shape("arrays", found, format!("{count} × {shape}")));
        }
        Ok(Arrays {
            shape,
            count,
            inputs,
            labels,
        })
    }
}

impl Dataset for Arrays {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.count
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let size = self.shape.size();
        let input = &self.inputs[index * size..(index + 1) * size];
        sample.fill(self.shape, input.iter().copied())?;
        sample.targets.clear();
        match &self.labels {
            Labels::Classes(values, _) => sample.label = values[index],
            Labels::Targets(values, width) => {
                sample.label = 0;
                reserve(&mut sample.targets, *width, "targets")?;
                sample
                    .targets
                    .extend_from_slice(&values[index * width..(index + 1) * width]);
            }
        }
        Ok(())
    }
    fn shape(&self) -> Option<Shape> {
        Some(self.shape)
    }
    fn classes(&self) -> Option<usize> {
        match self.labels {
            Labels::Classes(_, classes) => Some(classes),
            Labels::Targets(..) => None,
        }
    }
}
