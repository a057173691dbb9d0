//! A dataset of images whose bytes lie on a device.

use super::windows::Home;
use crate::dataset::check_index;
use crate::error::reserve;
use crate::{ByteImage, Collate, DataError, Dataset, Loader, LoaderOptions, Result, Sample, Stack};
use kiln_core::{Backend, Shape};
use kiln_nn::Indices;
use ndarray::{Array1, Array2};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of elements that a batch of images has at most while they are read.
const ROOM: usize = 1 << 20;

/// Images of one size that stay on a device as bytes, where batches are cropped, mirrored and normalised
/// ([`Indices::crop_images`]).
///
/// They are a dataset as the one that they were read from, and a [`Loader`] gives the same batches, bit for bit, in every epoch and at
/// every position: a run may go on with the one where it stopped with the other. For each batch the host only draws the random
/// numbers ([`Transform::on_bytes`](crate::Transform::on_bytes)); a few bytes for a sample go to the device. Workers are of little use,
/// what the host does takes microseconds.
///
/// An image file is decoded once, when it is read for the device. Samples have their label but no input in host memory, so that only
/// batches which are [stacked](Stack) are made of them, and only for that device.
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_data::{Compose, Crop, DeviceImages, Flip, Loader, LoaderOptions, Normalise, ToFloat, mnist};
/// use std::sync::Arc;
///
/// let transform = || -> kiln_data::Result<Compose> {
///     Ok(Compose::new().then(Crop::new(28, 28, 2)).then(Flip::new(0.5)?).then(ToFloat).then(Normalise::new(&[0.13], &[0.31])?))
/// };
/// let (cpu, digits) = (Cpu::new(), Arc::new(mnist::embedded()?.test));
/// let options = LoaderOptions { batch_size: 64, shuffle: true, ..Default::default() };
/// let on_device = DeviceImages::new(&cpu, digits.clone())?;
/// let on_device = Loader::new(Arc::new(on_device), options)?.with_transform(transform()?);
/// let on_host = Loader::new(digits, options)?.with_transform(transform()?);
///
/// let (a, b) = (on_device.epoch(3)?.next().unwrap()?, on_host.epoch(3)?.next().unwrap()?);
/// let (a, b) = (a.to_device(&cpu)?, b.to_device(&cpu)?);
/// assert_eq!(a.inputs.to_vec::<f32>()?, b.inputs.to_vec::<f32>()?);
/// # Ok::<(), kiln_data::DataError>(())
/// ```
pub struct DeviceImages<B: Backend> {
    bytes: Indices<B>,
    home: Home,
    shape: Shape,
    /// The bytes as floats, and 0 outside of the image: `[1, 257, C]`.
    values: (Shape, Vec<f32>),
    classes: Option<usize>,
    class_names: Vec<String>,
    source: Option<PathBuf>,
    labels: Vec<i32>,
    /// How often each image is drawn; `None` if each is drawn once.
    weights: Option<Vec<f64>>,
    /// Regression targets of each image, and how many it has.
    targets: Vec<f32>,
    width: usize,
}

impl<B: Backend> DeviceImages<B> {
    /// Reads all images of `dataset` to the device of `backend`, on as many threads as this machine runs at once.
    ///
    /// # Errors
    /// As [`DeviceImages::read`].
    pub fn new(backend: &B, dataset: Arc<dyn Dataset<Sample = Sample>>) -> Result<Self> {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        let read = Self::read(backend, dataset, workers.min(Loader::MAX_WORKERS), &mut |_| true)?;
        Ok(read.unwrap_or_else(|| unreachable!("nobody stopped it")))
    }

    /// As [`DeviceImages::new`], on `workers` threads. Calls `go_on` with the number of images that have been read, from time to
    /// time; `None` if it returned false.
    ///
    /// # Errors
    /// The errors of the dataset; [`DataError::Shape`] for images that differ in size; [`DataError::InvalidArgument`] for a pixel
    /// that is no whole number from 0 to 255, or more than 2³¹ − 1 images; [`DataError::Tensor`] when the device has too
    /// little memory.
    pub fn read(
        backend: &B,
        dataset: Arc<dyn Dataset<Sample = Sample>>,
        workers: usize,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Self>> {
        let n = dataset.len();
        if i32::try_from(n).is_err() {
            return Err(DataError::invalid("device images", "images", n, "at most 2147483647"));
        }
        let shape = match dataset.shape() {
            Some(shape) => shape,
            None if n == 0 => Shape::new(&[1, 1, 1])?,
            None => dataset.get(0).map_err(|e| e.of_sample(0))?.shape,
        };
        let &[h, w, c] = shape.dims() else {
            return Err(DataError::shape("device images", shape, "images [H, W, C]"));
        };
        let mut bytes = Indices::full(backend, &[n, h, w, c], 0u8)?;
        let (mut labels, mut targets, mut width) = (Vec::new(), Vec::new(), 0);
        reserve(&mut labels, n, "labels")?;
        let (classes, class_names) = (dataset.classes(), dataset.class_names().to_vec());
        let source = dataset.source().map(Path::to_path_buf);
        let weights = (0..n).map(|index| dataset.weight(index)).collect();
        let options = LoaderOptions {
            batch_size: (ROOM / shape.size().max(1)).max(1),
            workers,
            ..LoaderOptions::default()
        };
        let stack = Bytes {
            stack: Stack::of(&*dataset),
            shape,
        };
        for batch in Loader::with_collate(dataset, stack, options)?.epoch(0)? {
            let batch = batch?;
            let (pixels, of_batch, with_targets) = &*batch;
            bytes.write_part(labels.len() * shape.size(), pixels.as_slice().unwrap_or_default())?;
            let found = with_targets.as_ref().map_or(0, |t| t.ncols());
            if found != width && !labels.is_empty() {
                let expected = format!("{width} targets as the first image");
                return Err(DataError::shape("device images", format!("{found} targets"), expected));
            }
            width = found;
            labels.extend(of_batch);
            if let Some(with_targets) = with_targets {
                reserve(&mut targets, with_targets.len(), "targets")?;
                targets.extend(with_targets);
            }
            if !go_on(labels.len()) {
                return Ok(None);
            }
        }
        let values = (0..ByteImage::VALUES * c).map(|i| match i / c {
            256 => 0.0,
            byte => byte as f32,
        });
        Ok(Some(DeviceImages {
            // Made of the finished bytes: a tensor that is shared moves when it is written.
            home: Home::new(&bytes),
            bytes,
            shape,
            values: (Shape::new(&[1, ByteImage::VALUES, c])?, values.collect()),
            classes,
            class_names,
            source,
            labels,
            weights,
            targets,
            width,
        }))
    }

    /// The images, u8 `[N, H, W, C]`.
    pub fn bytes(&self) -> &Indices<B> {
        &self.bytes
    }
}

impl<B: Backend> std::fmt::Debug for DeviceImages<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceImages")
            .field("shape", self.bytes.shape())
            .field("device", &self.bytes.backend().name())
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Dataset for DeviceImages<B> {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.labels.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let size = (self.shape[0], self.shape[1]);
        // There are at most 2³¹ − 1 images.
        sample.place(&self.home, index as i32, size, (self.values.0, &self.values.1))?;
        sample.label = self.labels[index];
        sample.targets.clear();
        reserve(&mut sample.targets, self.width, "targets")?;
        let targets = &self.targets[index * self.width..(index + 1) * self.width];
        sample.targets.extend_from_slice(targets);
        Ok(())
    }
    fn shape(&self) -> Option<Shape> {
        Some(self.shape)
    }
    fn weight(&self, index: usize) -> Option<f64> {
        self.weights.as_ref()?.get(index).copied()
    }
    fn classes(&self) -> Option<usize> {
        self.classes
    }
    fn class_names(&self) -> &[String] {
        &self.class_names
    }
    fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }
}

/// Stacks images as bytes.
struct Bytes {
    stack: Stack,
    shape: Shape,
}

impl Collate<Sample> for Bytes {
    type Batch = (Array1<u8>, Array1<i32>, Option<Array2<f32>>);

    fn collate(&self, samples: &[Sample], indices: &[usize], _: Option<Self::Batch>) -> Result<Self::Batch> {
        let mut bytes = Vec::new();
        reserve(
            &mut bytes,
            samples.len().saturating_mul(self.shape.size()),
            "a batch of images",
        )?;
        for (sample, &index) in samples.iter().zip(indices) {
            if sample.shape != self.shape {
                let refused = DataError::shape("device images", sample.shape, format!("{} as every image", self.shape));
                return Err(refused.of_sample(index));
            }
            for &x in &sample.input {
                let byte = x as u8;
                if f32::from(byte).to_bits() != x.to_bits() {
                    let expected = "a whole number from 0 to 255; load other images on the host";
                    return Err(DataError::invalid("device images", "pixel", x, expected).of_sample(index));
                }
                bytes.push(byte);
            }
        }
        let labelled = self.stack.collate(samples, indices, None)?;
        Ok((bytes.into(), labelled.labels, labelled.targets))
    }
}
