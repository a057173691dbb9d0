//! Features of regions, sampled between positions.

use crate::ops::acc_dtype;
use crate::{Backend, Error, Indices, Result, Tensor};

const OP: &str = "roi_align";

/// The most samples along an axis of a bin.
const MOST_SAMPLES: f64 = 65536.0;

/// The options of [`roi_align`].
///
/// See the example of [`roi_align`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoiAlignOptions {
    /// The number of bins of a region, `(height, width)`.
    pub output: (usize, usize),
    /// The positions of features for each pixel of the boxes' coordinates: 1/16 for features of stride 16.
    pub spatial_scale: f64,
    /// Samples along each axis of a bin; 0 takes as many as there are positions in a bin, rounded up.
    pub sampling_ratio: usize,
    /// Counts positions by the middles of pixels, half a position less, as Detectron2 does; without it regions are at least one position
    /// large, as in the paper's code and torchvision's detectors.
    pub aligned: bool,
}

/// The means of bilinear samples in bins of regions (He et al. 2017, Mask R-CNN; `torchvision.ops.roi_align`): of features `[N, H, W, C]`
/// and a list of boxes for each image, `[K, height, width, C]` for all K boxes, image by image. Samples more than one position outside of
/// the features are 0. Differentiable with respect to the features.
///
/// ```
/// use kiln_nn::{DType, Tensor};
/// use kiln_nn::detection::{RoiAlignOptions, roi_align};
/// # let cpu = kiln_cpu::Cpu::new();
/// let features = Tensor::arange(&cpu, 0.0, 16.0, 1.0, DType::F32)?.reshape(&[1, 4, 4, 1])?;
/// let options = RoiAlignOptions { output: (1, 1), spatial_scale: 0.5, sampling_ratio: 2, aligned: true };
/// // From (0, 0) to (4, 4) of the features: their mean.
/// let y = roi_align(&features, &[vec![[1.0, 1.0, 7.0, 7.0]]], &options)?;
/// assert_eq!(y.to_vec::<f32>()?, [7.5]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Features of another rank, another number of lists than of images, a box that is not finite or whose corners are in the wrong order, a scale
/// that is not positive, a box so large that a bin has more than 65536 samples along an axis, more than 2³¹ positions, memory.
pub fn roi_align<B: Backend>(
    features: &Tensor<B>,
    rois: &[Vec<[f32; 4]>],
    options: &RoiAlignOptions,
) -> Result<Tensor<B>> {
    let &[n, height, width, channels] = features.shape().dims() else {
        return Err(Error::Rank {
            op: OP,
            expected: "4",
            rank: features.rank(),
        });
    };
    if rois.len() != n {
        let expected = format!("{n}, one for each image");
        return Err(Error::invalid(OP, "rois", format!("{} lists", rois.len()), expected));
    }
    if !(options.spatial_scale > 0.0 && options.spatial_scale.is_finite()) {
        return Err(Error::invalid(
            OP,
            "spatial_scale",
            options.spatial_scale,
            "a positive number",
        ));
    }
    let positions = n.saturating_mul(height).saturating_mul(width);
    let (rows, columns) = options.output;
    let count = rois.iter().map(Vec::len).sum::<usize>();
    let bins = count.saturating_mul(rows).saturating_mul(columns);
    for (argument, size) in [("features", positions), ("output", bins)] {
        if i32::try_from(size).is_err() {
            return Err(Error::invalid(
                OP,
                argument,
                format!("{size} positions"),
                "at most 2³¹ − 1",
            ));
        }
    }
    let mut taps = Taps::default();
    for (image, rois) in rois.iter().enumerate() {
        for roi in rois {
            let along = |axis: usize, size, count| bins_along(roi, axis, size, count, options);
            let (down, across) = (along(1, height, rows)?, along(0, width, columns)?);
            taps.region(image * height, width, &down, &across);
        }
    }
    let wide = acc_dtype(features.dtype());
    let table = features.to_dtype(wide)?.reshape(&[positions, channels])?;
    let sum = taps.sum(&table, bins)?;
    sum.to_dtype(features.dtype())?
        .reshape(&[count, rows, columns, channels])
}

/// The positions along an axis that a bin reads, each with its weight; a position occurs once.
type Bin = Vec<(usize, f64)>;

/// The bins of a box along an axis, 0 for x and 1 for y, of features of `size` positions.
fn bins_along(roi: &[f32; 4], axis: usize, size: usize, count: usize, options: &RoiAlignOptions) -> Result<Vec<Bin>> {
    let (low, high) = (f64::from(roi[axis]), f64::from(roi[axis + 2]));
    if !(low.is_finite() && high.is_finite() && low <= high) {
        let expected = "finite corners with x1 <= x2 and y1 <= y2";
        return Err(Error::invalid(OP, "rois", format!("{roi:?}"), expected));
    }
    let offset = if options.aligned { 0.5 } else { 0.0 };
    let start = low * options.spatial_scale - offset;
    let mut length = high * options.spatial_scale - offset - start;
    if !options.aligned {
        length = length.max(1.0);
    }
    let bin = length / count as f64;
    let samples = match options.sampling_ratio {
        0 => bin.ceil(),
        given => given as f64,
    };
    if samples > MOST_SAMPLES {
        return Err(Error::invalid(
            OP,
            "rois",
            format!("{roi:?}"),
            "a box of at most 65536 samples in a bin",
        ));
    }
    let bins = (0..count).map(|i| {
        let mut read = Bin::new();
        for sample in 0..samples as usize {
            let at = start + i as f64 * bin + (sample as f64 + 0.5) * bin / samples;
            for (position, weight) in between(at, size) {
                match read.iter_mut().find(|(known, _)| *known == position) {
                    Some((_, sum)) => *sum += weight / samples,
                    None => read.push((position, weight / samples)),
                }
            }
        }
        read
    });
    Ok(bins.collect())
}

/// The two positions around `at` with their weights, or none if it lies outside.
fn between(at: f64, size: usize) -> impl Iterator<Item = (usize, f64)> {
    let inside = (-1.0..=size as f64).contains(&at) && size > 0;
    let at = at.max(0.0);
    let low = at as usize;
    let found = match inside {
        false => [None, None],
        true if low + 1 >= size => [Some((size - 1, 1.0)), None],
        true => {
            let part = at - low as f64;
            [Some((low, 1.0 - part)), Some((low + 1, part))]
        }
    };
    found.into_iter().flatten().filter(|&(_, weight)| weight > 0.0)
}

/// What is read for all bins: the rows of the table of positions and their weights, bin by bin.
#[derive(Default)]
struct Taps {
    rows: Vec<i32>,
    weights: Vec<f64>,
    /// The end of each bin in the two lists.
    ends: Vec<usize>,
}

impl Taps {
    /// Appends the bins of a region in an image whose first line of positions is `line`.
    fn region(&mut self, line: usize, width: usize, down: &[Bin], across: &[Bin]) {
        for vertical in down {
            for horizontal in across {
                for &(y, wy) in vertical {
                    for &(x, wx) in horizontal {
                        self.rows.push(((line + y) * width + x) as i32);
                        self.weights.push(wy * wx);
                    }
                }
                self.ends.push(self.rows.len());
            }
        }
    }

    /// The sums `[bins, C]` of the rows of `table` `[positions, C]`: the first row of every bin that has one, then the second, and so on, so
    /// that no more than a row of each is in memory.
    fn sum<B: Backend>(&self, table: &Tensor<B>, bins: usize) -> Result<Tensor<B>> {
        let backend = table.backend();
        let starts = || [0].iter().chain(&self.ends);
        let most = starts()
            .zip(&self.ends)
            .map(|(start, end)| end - start)
            .max()
            .unwrap_or(0);
        let mut sum: Option<Tensor<B>> = None;
        for number in 0..most {
            let (mut of, mut rows, mut weights) = (Vec::new(), Vec::new(), Vec::new());
            for (bin, (start, end)) in starts().zip(&self.ends).enumerate() {
                let at = start + number;
                if at < *end {
                    of.push(bin as i32);
                    rows.push(self.rows[at]);
                    weights.push(self.weights[at]);
                }
            }
            let weights = Tensor::from_f64(backend, &weights, &[rows.len(), 1], table.dtype())?;
            let rows = Indices::from_slice(backend, &rows, &[rows.len()])?;
            let read = table.index_select(0, &rows)?.mul(&weights)?;
            sum = Some(match sum {
                None if of.len() == bins => read,
                Some(sum) if of.len() == bins => sum.add(&read)?,
                found => {
                    let of = Indices::from_slice(backend, &of, &[of.len()])?;
                    let sum = match found {
                        Some(sum) => sum,
                        None => Tensor::zeros(backend, &[bins, table.shape()[1]], table.dtype())?,
                    };
                    sum.index_add(0, &of, &read)?
                }
            });
        }
        match sum {
            Some(sum) => Ok(sum),
            // Nothing is read, but the result stays a function of the features.
            None => {
                let none = Indices::from_slice(backend, &[0i32; 0], &[0])?;
                let zeros = Tensor::zeros(backend, &[bins, table.shape()[1]], table.dtype())?;
                zeros.index_add(0, &none, &table.index_select(0, &none)?)
            }
        }
    }
}
