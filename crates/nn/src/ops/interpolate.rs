//! Images of another size.

mod cubic;
mod grid;

pub use grid::{GridMode, GridOptions, GridPadding};

use super::reduce::acc_dtype;
use crate::{Backend, DType, Error, Indices, Result, Tensor};
use cubic::cubic;

const OP: &str = "interpolate";

/// How values between the positions of an image are made (`mode` of `torch.nn.functional.interpolate`).
///
/// Positions are the middles of pixels. With `align_corners` those of the corner pixels stay where they are instead.
///
/// ```
/// # use kiln_nn::Tensor;
/// # use kiln_nn::ops::Interpolation;
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[0f32, 4.0], &[1, 2, 1])?;
/// let y = x.interpolate(&[3], Interpolation::Linear { align_corners: true })?;
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 2.0, 4.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The pixel at the position rounded down, as PyTorch's `nearest`.
    Nearest,
    /// The pixel whose middle is nearest, as PyTorch's `nearest-exact` and other libraries' `nearest`.
    NearestExact,
    /// Between two pixels of each axis: `linear`, `bilinear` and `trilinear` by the number of axes.
    Linear {
        /// Keeps the middles of the corner pixels.
        align_corners: bool,
    },
    /// The cubic through four pixels of each axis, with a = −0.75 (Keys 1981): `bicubic` for images.
    Cubic {
        /// Keeps the middles of the corner pixels.
        align_corners: bool,
    },
    /// The mean of the pixels that a new pixel covers, as [`Tensor::adaptive_avg_pool`].
    Area,
}

/// New sizes along one axis: `count` positions of which the i-th is at `i·numerator/denominator` of the old ones.
#[derive(Clone, Copy)]
struct Ratio {
    count: usize,
    numerator: f64,
    denominator: f64,
}

/// One of the pixels that make a new one: which, and its share. Both have one entry for each position.
struct Tap<B: Backend> {
    index: Tensor<B>,
    share: Option<Tensor<B>>,
}

impl Ratio {
    /// `i + offset` positions in old pixels. Divided last, so that whole numbers come out whole.
    fn positions<B: Backend>(self, backend: &B, offset: f64) -> Result<Tensor<B>> {
        let dtype = if backend.supports_dtype(DType::F64) {
            DType::F64
        } else {
            DType::F32
        };
        // Counted on the device, so that a captured step uploads nothing.
        let i = Tensor::ones(backend, &[self.count], dtype)?
            .cumsum(0)?
            .add_scalar(offset - 1.0)?;
        i.mul_scalar(self.numerator)?.div_scalar(self.denominator)
    }

    /// The positions of middles, or with `align_corners` those that keep the corners, of an axis of `n` pixels.
    fn middles<B: Backend>(self, backend: &B, n: usize, align_corners: bool) -> Result<Tensor<B>> {
        if !align_corners {
            return self.positions(backend, 0.5)?.sub_scalar(0.5);
        }
        let (numerator, denominator) = match self.count {
            1 => (0.0, 1.0),
            count => ((n - 1) as f64, (count - 1) as f64),
        };
        let aligned = Ratio {
            numerator,
            denominator,
            ..self
        };
        aligned.positions(backend, 0.0)
    }
}

/// The pixels of an axis of `n` that make the new ones.
fn taps<B: Backend>(backend: &B, n: usize, ratio: Ratio, mode: Interpolation) -> Result<Vec<Tap<B>>> {
    let whole = |index: Tensor<B>| Ok(vec![Tap { index, share: None }]);
    match mode {
        Interpolation::NearestExact => whole(ratio.positions(backend, 0.5)?.floor()?),
        Interpolation::Linear { align_corners } => {
            let at = ratio.middles(backend, n, align_corners)?.clamp_min(0.0)?;
            let index = at.floor()?;
            let share = at.sub(&index)?;
            let next = index.add_scalar(1.0)?;
            let left = share.rsub_scalar(1.0)?;
            Ok([(index, left), (next, share)]
                .map(|(index, share)| Tap {
                    index,
                    share: Some(share),
                })
                .into())
        }
        Interpolation::Cubic { align_corners } => {
            let at = ratio.middles(backend, n, align_corners)?;
            let first = at.floor()?;
            let after = at.sub(&first)?;
            // Distances of the four pixels from the position.
            let distances = [
                after.add_scalar(1.0)?,
                after.clone(),
                after.rsub_scalar(1.0)?,
                after.rsub_scalar(2.0)?,
            ];
            let taps = distances.iter().enumerate().map(|(k, distance)| {
                let index = first.add_scalar(k as f64 - 1.0)?;
                let share = Some(cubic(distance, k == 1 || k == 2)?);
                Ok(Tap { index, share })
            });
            taps.collect()
        }
        _ => whole(ratio.positions(backend, 0.0)?.floor()?),
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// An image of another size (`torch.nn.functional.interpolate` with `size`, channels-last): `[N, (D, H,) W, C]` to
    /// `[N, size…, C]`.
    ///
    /// ```
    /// use kiln_nn::{Tensor, ops::Interpolation};
    /// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[0f32, 4.0], &[1, 2, 1])?;
    /// let y = x.interpolate(&[4], Interpolation::Linear { align_corners: false })?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rank that is not 3, 4 or 5, another number of sizes than the image has dimensions, a size of 0, an image without
    /// pixels.
    pub fn interpolate(&self, size: &[usize], mode: Interpolation) -> Result<Tensor<B>> {
        self.check_image(size.len())?;
        if mode == Interpolation::Area {
            return self.adaptive_avg_pool(size);
        }
        let ratios = size.iter().zip(&self.shape()[1..]).map(|(&count, &n)| Ratio {
            count,
            numerator: n as f64,
            denominator: count as f64,
        });
        self.resized(&ratios.collect::<Vec<_>>(), mode)
    }

    /// An image `factors` times as large, rounded down (`torch.nn.functional.interpolate` with `scale_factor`, channels-last):
    /// `[N, (D, H,) W, C]` to `[N, ⌊size·factor⌋…, C]`. Positions are computed from the factors, not from the rounded sizes.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # use kiln_nn::ops::Interpolation;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[0f32, 4.0], &[1, 2, 1])?;
    /// let y = x.interpolate_by(&[2.0], Interpolation::Nearest)?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 4.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::interpolate`]; a factor that is not finite or not above 0.
    pub fn interpolate_by(&self, factors: &[f64], mode: Interpolation) -> Result<Tensor<B>> {
        self.check_image(factors.len())?;
        if let Some(f) = factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
            return Err(Error::invalid(OP, "factors", f, "finite numbers above 0"));
        }
        let ratios = factors.iter().zip(&self.shape()[1..]).map(|(&factor, &n)| Ratio {
            // A number that saturates is refused for its size.
            count: (n as f64 * factor).floor() as usize,
            numerator: 1.0,
            denominator: factor,
        });
        let ratios: Vec<Ratio> = ratios.collect();
        if mode == Interpolation::Area {
            return self.adaptive_avg_pool(&ratios.iter().map(|r| r.count).collect::<Vec<_>>());
        }
        self.resized(&ratios, mode)
    }

    fn check_image(&self, axes: usize) -> Result<()> {
        if !(3..=5).contains(&self.rank()) {
            return Err(Error::Rank {
                op: OP,
                expected: "3, 4 or 5",
                rank: self.rank(),
            });
        }
        if axes != self.rank() - 2 {
            return Err(Error::invalid(
                OP,
                "size",
                format!("{axes} numbers"),
                format!("{}", self.rank() - 2),
            ));
        }
        Ok(())
    }

    /// One axis after the other.
    fn resized(&self, ratios: &[Ratio], mode: Interpolation) -> Result<Tensor<B>> {
        let image = &self.shape()[1..self.rank() - 1];
        if ratios.iter().any(|r| r.count == 0) || image.contains(&0) {
            let found = format!("{image:?} to {:?}", ratios.iter().map(|r| r.count).collect::<Vec<_>>());
            return Err(Error::invalid(OP, "size", found, "sizes of at least 1"));
        }
        let mut y = self.to_dtype(acc_dtype(self.dtype()))?;
        for (axis, &ratio) in (1..).zip(ratios) {
            y = y.resized_along(axis, ratio, mode)?;
        }
        y.to_dtype(self.dtype())
    }

    fn resized_along(&self, axis: usize, ratio: Ratio, mode: Interpolation) -> Result<Tensor<B>> {
        let n = self.shape()[axis];
        let mut sum: Option<Tensor<B>> = None;
        for Tap { index, share } in taps(self.backend(), n, ratio, mode)? {
            // Pixels beyond the edge are those of the edge.
            let index: Indices<B> = index.clamp(0.0, (n - 1) as f64)?.to_indices()?;
            let mut y = self.index_select(axis as isize, &index)?;
            if let Some(share) = share {
                let mut dims = vec![1; self.rank() - axis];
                dims[0] = ratio.count;
                y = y.mul(&share.to_dtype(self.dtype())?.reshape(&dims)?)?;
            }
            sum = Some(match sum {
                Some(sum) => sum.add(&y)?,
                None => y,
            });
        }
        sum.map_or_else(|| Ok(self.clone()), Ok)
    }
}
