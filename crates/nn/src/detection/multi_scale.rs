//! Features of regions from the level that fits their size.

use super::boxes::area;
use super::{RoiAlignOptions, roi_align};
use crate::{Backend, Error, Indices, Result, Tensor};

const OP: &str = "multi_scale_roi_align";

/// [`roi_align`] from several levels of features, of which a box takes one by its size (Lin et al. 2017, Feature Pyramid Networks, equation 1;
/// `torchvision.ops.MultiScaleRoIAlign`): level ⌊`canonical_level` + log₂(√area / `canonical_scale`)⌋, where level k has a stride of 2ᵏ, or the
/// nearest that there is.
///
/// ```
/// use kiln_nn::{DType, Tensor, detection::MultiScaleRoiAlign};
/// # let cpu = kiln_cpu::Cpu::new();
/// let fine = Tensor::zeros(&cpu, &[1, 64, 64, 1], DType::F32)?; // stride 4 of an image of 256 pixels
/// let coarse = Tensor::ones(&cpu, &[1, 32, 32, 1], DType::F32)?; // stride 8
/// let pool = MultiScaleRoiAlign::new((1, 1), 2);
/// assert_eq!(pool.level([0.0, 0.0, 50.0, 50.0], 2, 3), 2);
/// let boxes = vec![[0.0, 0.0, 200.0, 200.0], [0.0, 0.0, 50.0, 50.0]];
/// let y = pool.forward(&[fine, coarse], &[boxes], (256, 256))?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 0.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiScaleRoiAlign {
    /// The number of bins of a region, `(height, width)`.
    pub output: (usize, usize),
    /// Samples along each axis of a bin; 0 takes as many as there are positions in a bin, rounded up.
    pub sampling_ratio: usize,
    /// The side of a square box, in pixels, that takes the canonical level.
    pub canonical_scale: f32,
    /// The level of a box of the canonical scale.
    pub canonical_level: i32,
}

impl MultiScaleRoiAlign {
    /// With torchvision's canonical scale of 224 pixels and level 4.
    ///
    /// See the example of [`MultiScaleRoiAlign`].
    pub fn new(output: (usize, usize), sampling_ratio: usize) -> Self {
        MultiScaleRoiAlign {
            output,
            sampling_ratio,
            canonical_scale: 224.0,
            canonical_level: 4,
        }
    }

    /// The level of a box, at least `finest` and at most `coarsest`.
    ///
    /// See the example of [`MultiScaleRoiAlign`].
    pub fn level(&self, roi: [f32; 4], finest: i32, coarsest: i32) -> i32 {
        let side = area(&roi).sqrt();
        // torchvision's guard against a side that is all but at the border of two levels.
        let level = (self.canonical_level as f32 + (side / self.canonical_scale).log2() + 1e-6).floor();
        (level as i32).clamp(finest, coarsest)
    }

    /// The features `[K, height, width, C]` of all K boxes, image by image, given those of each level, `[N, H, W, C]` from the finest to the
    /// coarsest, a list of boxes for each image, and the `(height, width)` of the images in pixels. The stride of a level is that power of
    /// two which is next to the quotient of the sizes.
    ///
    /// See the example of [`MultiScaleRoiAlign`].
    ///
    /// # Errors
    /// No levels, levels whose strides do not grow, those of [`roi_align`].
    pub fn forward<B: Backend>(
        &self,
        features: &[Tensor<B>],
        rois: &[Vec<[f32; 4]>],
        image: (usize, usize),
    ) -> Result<Tensor<B>> {
        let strides = features
            .iter()
            .map(|x| stride(x, image))
            .collect::<Result<Vec<i32>>>()?;
        let (Some(&finest), Some(&coarsest)) = (strides.first(), strides.last()) else {
            return Err(Error::invalid(OP, "features", "no levels", "at least one"));
        };
        if !strides.iter().zip(finest..).all(|(&stride, wanted)| stride == wanted) {
            let found = format!("strides of 2 to the powers of {strides:?}");
            return Err(Error::invalid(
                OP,
                "features",
                found,
                "strides of which each is twice the one before",
            ));
        }
        let (mut parts, mut order) = (Vec::new(), vec![0; rois.iter().map(Vec::len).sum()]);
        let mut taken = 0;
        for (x, &stride) in features.iter().zip(&strides) {
            let mut number = 0;
            let mut of = Vec::with_capacity(rois.len());
            for rois in rois {
                let mut own = Vec::new();
                for &roi in rois {
                    if self.level(roi, finest, coarsest) == stride {
                        order[number] = taken;
                        taken += 1;
                        own.push(roi);
                    }
                    number += 1;
                }
                of.push(own);
            }
            let options = RoiAlignOptions {
                output: self.output,
                spatial_scale: 2f64.powi(-stride),
                sampling_ratio: self.sampling_ratio,
                aligned: false,
            };
            parts.push(roi_align(x, &of, &options)?);
        }
        if let [only] = &parts[..] {
            return Ok(only.clone());
        }
        let parts: Vec<&Tensor<B>> = parts.iter().collect();
        let all = Tensor::concat(&parts, 0)?;
        all.index_select(0, &Indices::from_slice(all.backend(), &order, &[order.len()])?)
    }
}

/// The logarithm of the stride of features in an image.
fn stride<B: Backend>(x: &Tensor<B>, (height, width): (usize, usize)) -> Result<i32> {
    let &[_, h, w, _] = x.shape().dims() else {
        return Err(Error::Rank {
            op: OP,
            expected: "4",
            rank: x.rank(),
        });
    };
    let power = |size: usize, of: usize| (size.max(1) as f32 / of.max(1) as f32).log2().round() as i32;
    let (down, across) = (power(height, h), power(width, w));
    if h == 0 || w == 0 || down != across {
        let found = format!("{} for an image of {height}×{width}", x.shape());
        return Err(Error::invalid(OP, "features", found, "the same stride along both axes"));
    }
    Ok(down)
}
