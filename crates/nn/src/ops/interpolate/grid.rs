//! Images sampled at the positions of a grid (Jaderberg et al., "Spatial Transformer Networks", 2015).

use super::cubic::cubic;
use crate::ops::acc_dtype;
use crate::tensor::same_dtype;
use crate::{Backend, Error, Indices, Result, Tensor};

const OP: &str = "grid_sample";

/// How [`Tensor::grid_sample`] takes a value between pixels.
///
/// See the example of [`GridOptions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridMode {
    /// Between the pixels around it, linear along each axis (`bilinear`, for volumes too).
    #[default]
    Linear,
    /// The nearest pixel; the grid gets no gradient.
    Nearest,
    /// The cubic through four pixels along each axis, with a = −0.75 (`bicubic`, for volumes too). It is the pixels that lie outside
    /// which are padded, not the positions.
    Cubic,
}

/// The pixels that [`Tensor::grid_sample`] finds outside of an image.
///
/// See the example of [`GridOptions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridPadding {
    /// Zeros.
    #[default]
    Zeros,
    /// Those of the edge.
    Border,
    /// The image reflected at its edges, as often as it takes.
    Reflection,
}

/// The options of [`Tensor::grid_sample`]; the defaults are PyTorch's.
///
/// ```
/// # use kiln_nn::Tensor;
/// # use kiln_nn::ops::{GridMode, GridOptions, GridPadding};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[1, 2, 2, 1])?;
/// let corner = Tensor::from_slice(&cpu, &[9f32, 9.0], &[1, 1, 1, 2])?; // far to the lower right
/// let options = GridOptions { mode: GridMode::Nearest, padding: GridPadding::Border, align_corners: true };
/// assert_eq!(x.grid_sample(&corner, options)?.to_vec::<f32>()?, [4.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GridOptions {
    /// How values between pixels are made.
    pub mode: GridMode,
    /// The pixels outside of the image.
    pub padding: GridPadding,
    /// −1 and 1 are the middles of the corner pixels, not their outer edges.
    pub align_corners: bool,
}

/// The coordinates of points along one axis in pixels, and the axis's size.
struct Axis<B: Backend> {
    at: Tensor<B>,
    size: usize,
    options: GridOptions,
}

/// One of the pixels around each point: its place among all pixels, its share of the value, and a mask of those inside the image.
struct Corner<B: Backend> {
    place: Indices<B>,
    share: Option<Tensor<B>>,
    inside: Indices<B>,
}

impl<B: Backend> Axis<B> {
    /// Coordinates from −1 to 1 in pixels.
    fn new(grid: &Tensor<B>, size: usize, options: GridOptions) -> Result<Self> {
        let n = size as f64;
        let at = match options.align_corners {
            true => grid.affine((n - 1.0) / 2.0, (n - 1.0) / 2.0)?,
            false => grid.affine(n / 2.0, (n - 1.0) / 2.0)?,
        };
        let mut axis = Axis { at, size, options };
        if options.mode != GridMode::Cubic {
            axis.at = axis.padded(&axis.at)?;
        }
        Ok(axis)
    }

    /// Coordinates moved into the image, unless it is surrounded by zeros.
    fn padded(&self, at: &Tensor<B>) -> Result<Tensor<B>> {
        let most = self.size as f64 - 1.0;
        match self.options.padding {
            GridPadding::Zeros => Ok(at.clone()),
            GridPadding::Border => clipped(at, most),
            GridPadding::Reflection => {
                let low = if self.options.align_corners { 0.0 } else { -0.5 };
                clipped(&reflected(at, low, most - 2.0 * low)?, most)
            }
        }
    }

    /// One of the pixels around each point, from the lowest on, as whole coordinates; with its share where it has one.
    fn pixel(&self, number: usize) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        let fixed = self.at.detach();
        let lower = match self.options.mode {
            GridMode::Nearest => return Ok((fixed.round()?, None)),
            GridMode::Linear | GridMode::Cubic => fixed.floor()?,
        };
        let share = self.at.sub(&lower)?;
        Ok(match (self.options.mode, number) {
            (GridMode::Cubic, number) => {
                let distance = match number {
                    0 | 1 => share.add_scalar(1.0 - number as f64)?,
                    _ => share.rsub_scalar(number as f64 - 1.0)?,
                };
                let at = lower.add_scalar(number as f64 - 1.0)?;
                (self.padded(&at)?, Some(cubic(&distance, number == 1 || number == 2)?))
            }
            (_, 0) => (lower, Some(share.rsub_scalar(1.0)?)),
            _ => (lower.add_scalar(1.0)?, Some(share)),
        })
    }
}

/// Coordinates moved into 0..=`most`; no gradient comes from the edges on.
fn clipped<B: Backend>(at: &Tensor<B>, most: f64) -> Result<Tensor<B>> {
    let inside = at.gt_scalar(0.0)?.bitwise_and(at.lt_scalar(most)?)?;
    Tensor::where_(&inside, at, &at.detach().clamp(0.0, most)?)
}

/// Coordinates reflected at `low` and `low + span`.
fn reflected<B: Backend>(at: &Tensor<B>, low: f64, span: f64) -> Result<Tensor<B>> {
    if span == 0.0 {
        return at.mul_scalar(0.0);
    }
    let far = at.sub_scalar(low)?.abs()?;
    let rest = far.remainder(&far.detach().full_like(span)?)?;
    let flips = far.detach().div_scalar(span)?.floor()?;
    let odd = flips.remainder(&flips.full_like(2.0)?)?.eq_scalar(1.0)?;
    Tensor::where_(&odd, &rest.rsub_scalar(span + low)?, &rest.add_scalar(low)?)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The image at the positions of a grid (`torch.nn.functional.grid_sample`, channels-last): `[N, (D,) H, W, C]` and
    /// `[N, (D′,) H′, W′, 2 or 3]` to `[N, (D′,) H′, W′, C]`. A position is x, y (and z): −1 is the left, upper (and front) end of
    /// the image, 1 the other. Both get gradients.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # use kiln_nn::ops::GridOptions;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[1, 2, 2, 1])?;
    /// let middle = Tensor::from_slice(&cpu, &[0f32, 0.0], &[1, 1, 1, 2])?;
    /// assert_eq!(x.grid_sample(&middle, GridOptions::default())?.to_vec::<f32>()?, [2.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Ranks other than 4 and 5, a grid of another rank, batch or number of coordinates, dtypes that differ, an image without
    /// pixels or with more than 2³¹ − 1.
    pub fn grid_sample(&self, grid: &Tensor<B>, options: GridOptions) -> Result<Tensor<B>> {
        same_dtype(OP, self, grid)?;
        if !(4..=5).contains(&self.rank()) {
            return Err(Error::Rank {
                op: OP,
                expected: "4 or 5",
                rank: self.rank(),
            });
        }
        let axes = self.rank() - 2;
        let fits = grid.rank() == self.rank() && grid.shape()[0] == self.shape()[0] && grid.shape()[axes + 1] == axes;
        if !fits {
            return Err(Error::ShapeMismatch {
                op: OP,
                lhs: *self.shape(),
                rhs: *grid.shape(),
            });
        }
        let (batch, sizes, channels) = (self.shape()[0], &self.shape()[1..=axes], self.shape()[axes + 1]);
        let pixels: usize = sizes.iter().product();
        if pixels == 0 || i32::try_from(batch * pixels).is_err() {
            return Err(Error::invalid(OP, "input", self.shape(), "1 to 2147483647 pixels"));
        }
        let wide = acc_dtype(self.dtype());
        let (rows, grid_wide) = (
            self.to_dtype(wide)?.reshape(&[batch * pixels, channels])?,
            grid.to_dtype(wide)?,
        );
        let points = grid.size() / axes;
        let along = |i: usize| {
            let at = grid_wide.narrow(-1, axes - 1 - i, 1)?.reshape(&[points])?;
            Axis::new(&at, sizes[i], options)
        };
        let along: Vec<Axis<B>> = (0..axes).map(along).collect::<Result<_>>()?;
        // The first pixel of each point's image.
        let each = (points / batch.max(1)).max(1) as i32;
        let sample = Indices::full(self.backend(), &[points], 1)?
            .cumsum(0)?
            .sub(1)?
            .floor_divide(each)?;
        let first = sample.mul(pixels as i32)?;
        let each: usize = match options.mode {
            GridMode::Linear => 2,
            GridMode::Nearest => 1,
            GridMode::Cubic => 4,
        };
        let corners = (0..axes).fold(1, |product, _| product * each);
        let mut sum: Option<Tensor<B>> = None;
        for number in 0..corners {
            let corner = corner(&along, (number, each), &first)?;
            let mut own = rows.index_select(0, &corner.place)?;
            if let Some(share) = corner.share {
                own = own.mul(&share.unsqueeze(-1)?)?;
            }
            own = own.masked_fill(&corner.inside.logical_not()?.unsqueeze(-1)?, 0.0)?;
            sum = Some(match sum {
                Some(sum) => sum.add(&own)?,
                None => own,
            });
        }
        let to = [&grid.shape()[..=axes], &[channels]].concat();
        match sum {
            Some(sum) => sum.reshape(&to)?.to_dtype(self.dtype()),
            None => Tensor::zeros(self.backend(), &to, self.dtype()),
        }
    }
}

/// One of the pixels around each point, of which there are `each` along every axis.
fn corner<B: Backend>(along: &[Axis<B>], (number, each): (usize, usize), first: &Indices<B>) -> Result<Corner<B>> {
    let mut rest = number;
    let (mut place, mut inside): (Option<Indices<B>>, Option<Indices<B>>) = (None, None);
    let mut share: Option<Tensor<B>> = None;
    for axis in along {
        let (at, own) = axis.pixel(rest % each)?;
        rest /= each;
        let most = (axis.size - 1) as f64;
        let within = at.ge_scalar(0.0)?.bitwise_and(at.le_scalar(most)?)?;
        let at = at.clamp(0.0, most)?.to_indices()?;
        place = Some(match place {
            None => at,
            Some(outer) => outer.mul(axis.size as i32)?.add(at)?,
        });
        inside = Some(match inside {
            None => within,
            Some(outer) => outer.bitwise_and(within)?,
        });
        share = match (share, own) {
            (Some(outer), Some(own)) => Some(outer.mul(&own)?),
            (outer, own) => outer.or(own),
        };
    }
    let none = || Error::invalid(OP, "input", 0, "axes");
    Ok(Corner {
        place: first.add(place.ok_or_else(none)?)?,
        share,
        inside: inside.ok_or_else(none)?,
    })
}
