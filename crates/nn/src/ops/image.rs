//! Batches of images out of images that are kept as bytes.

use crate::autograd::{Rule, RuleContext, no_grad};
use crate::tensor::same_dtype;
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::ops::{CropImagesParams, Op};

const OP: &str = "crop_images";
const VALUES: usize = CropImagesParams::VALUES;

/// The gradient of the values: each adds up the gradients of its elements.
struct CropRule<B: Backend> {
    p: CropImagesParams,
    images: Indices<B>,
    windows: Indices<B>,
}

impl<B: Backend> Rule<B> for CropRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let shape = [self.p.channels as usize, VALUES];
        let places = places(&self.p, &self.images, &self.windows)?;
        let zeros = Tensor::zeros(cx.grad.backend(), &[shape[0] * VALUES], cx.grad.dtype())?;
        let sums = zeros.index_add(0, &places, &cx.grad.reshape(&[-1])?)?;
        Ok(vec![Some(sums.reshape(&shape)?)])
    }
}

/// The place in `values`, seen as one list, of each element of the result.
fn places<B: Backend>(p: &CropImagesParams, images: &Indices<B>, windows: &Indices<B>) -> Result<Indices<B>> {
    let backend = images.backend();
    let [h, w, c] = [p.height, p.width, p.channels].map(|d| d as usize);
    let [n, rows, columns] = [p.batch, p.rows, p.columns].map(|d| d as usize);
    // Each fits i32: an image and a window have at most 2³¹ − 1 bytes.
    let below = |end: usize| Indices::arange(backend, 0, end as i32);
    let field = |i: usize| windows.narrow(1, i, 1);
    let picked = images.elements().index_select(0, &field(0)?.reshape(&[-1])?);
    let picked = picked.map_err(of_windows)?.into_indices().reshape(&[n, h * w * c])?;
    // An offset near the limits of i32 may wrap around; what comes of that lies outside of an image as well.
    let row = field(1)?.add(below(rows)?)?.reshape(&[n, rows, 1])?;
    let (straight, mirrored) = (below(columns)?, below(columns)?.flip(&[0])?);
    let column = Indices::where_(&field(3)?.ne(0)?, &mirrored, &straight)?;
    let column = column.add(field(2)?)?.reshape(&[n, 1, columns])?;
    let inside = |at: &Indices<B>, end: usize| at.ge(0)?.logical_and(&at.lt(end as i32)?);
    let inside = inside(&row, h)?
        .logical_and(&inside(&column, w)?)?
        .reshape(&[n, rows, columns, 1])?;
    let clamped = |at: &Indices<B>, end: usize| at.clamp(0, end as i32 - 1);
    let pixel = clamped(&row, h)?.mul(w as i32)?.add(clamped(&column, w)?)?;
    let channel = below(c)?;
    let byte = pixel.reshape(&[n, rows, columns, 1])?.mul(c as i32)?.add(&channel)?;
    let byte = picked.gather(1, &byte.reshape(&[n, rows * columns * c])?)?.to_i32()?;
    let outside = Indices::full(backend, &[], VALUES as i32 - 1)?;
    let value = Indices::where_(&inside, &byte.reshape(&[n, rows, columns, c])?, &outside)?;
    value.add(channel.mul(VALUES as i32)?)?.reshape(&[-1])
}

/// The error of an index, with its position among the windows.
fn of_windows(e: Error) -> Error {
    match e {
        Error::IndexOutOfRange {
            index, position, size, ..
        } => Error::IndexOutOfRange {
            op: OP,
            index,
            position: 4 * position,
            size,
        },
        other => other,
    }
}

fn params<B: Backend>(
    images: &Indices<B>,
    windows: &Indices<B>,
    values: &Tensor<B>,
    size: (usize, usize),
) -> Result<(CropImagesParams, Shape)> {
    images.require(OP, DType::U8)?;
    windows.require(OP, DType::I32)?;
    CropImagesParams::new(OP, images.shape(), windows.shape(), values.shape(), size)
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// Windows of these images, which are bytes `[N, H, W, C]`, with the value of each byte looked up: what a data loader
    /// makes of a batch by cropping, mirroring and normalising, on the device.
    ///
    /// A row of `windows` `[n, 4]`, i32, is the index of an image, the row and the column of the window's top left corner, which
    /// may be negative, and 1 to exchange left and right or else 0. Row `c` of `values` `[C, 257]` has the value of every byte in
    /// channel `c`, and last that of what lies outside of the image. Returns `[n, size.0, size.1, C]` in the dtype of `values`.
    ///
    /// ```
    /// # use kiln_nn::{Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let image = Indices::from_slice(&cpu, &[1u8, 2, 3, 4], &[1, 2, 2, 1])?;
    /// let values: Vec<f32> = (0..257).map(|b| b as f32 / 2.0).collect();
    /// let values = Tensor::from_slice(&cpu, &values, &[1, 257])?;
    /// let windows = Indices::from_slice(&cpu, &[0, 1, 0, 0, 0, 0, -1, 1], &[2, 4])?;
    /// let y = image.crop_images(&windows, (1, 2), &values)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.5, 2.0, 0.5, 128.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Images that are not u8, windows that are not i32, the errors of [`CropImagesParams::new`], an index of an image that
    /// there is not.
    pub fn crop_images(&self, windows: &Indices<B>, size: (usize, usize), values: &Tensor<B>) -> Result<Tensor<B>> {
        let (p, shape) = params(self, windows, values, size)?;
        let y = if values.has_op(Op::CropImages) {
            let mut y = values.alloc_like(shape)?;
            let (images, windows) = (self.buffer(), windows.buffer());
            values
                .backend()
                .crop_images(&p, images, windows, values.buffer(), &mut y)?;
            Tensor::from_buffer(values.backend(), y, shape)
        } else {
            let looked_up = || values.reshape(&[-1])?.index_select(0, &places(&p, self, windows)?);
            no_grad(looked_up)?.reshape(shape.dims())?
        };
        Ok(y.record(OP, &[values], || CropRule {
            p,
            images: self.clone(),
            windows: windows.clone(),
        }))
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Overwrites this batch of images in place with what [`Indices::crop_images`] makes of `images`; the windows have the size
    /// of this batch. New inputs reach a captured step in this way.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let images = Indices::from_slice(&cpu, &[1u8, 2, 3, 4], &[2, 1, 2, 1])?;
    /// let values: Vec<f32> = (0..257).map(|b| b as f32).collect();
    /// let values = Tensor::from_slice(&cpu, &values, &[1, 257])?;
    /// let mut batch = Tensor::zeros(&cpu, &[1, 1, 2, 1], DType::F32)?;
    /// batch.write_images(&images, &Indices::from_slice(&cpu, &[1, 0, 0, 0], &[1, 4])?, &values)?;
    /// assert_eq!(batch.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Indices::crop_images`]; a batch of another shape or dtype than the windows have.
    pub fn write_images(&mut self, images: &Indices<B>, windows: &Indices<B>, values: &Tensor<B>) -> Result<()> {
        let &[_, rows, columns, _] = self.shape().dims() else {
            return Err(Error::Rank {
                op: "write_images",
                expected: "4 for a batch of images [N, H, W, C]",
                rank: self.rank(),
            });
        };
        let (p, shape) = params(images, windows, values, (rows, columns))?;
        if shape != *self.shape() {
            return Err(Error::ShapeMismatch {
                op: "write_images",
                lhs: *self.shape(),
                rhs: shape,
            });
        }
        same_dtype("write_images", self, values)?;
        if !values.has_op(Op::CropImages) {
            return self.assign(&images.crop_images(windows, (rows, columns), &values.detach())?);
        }
        let y = self.buffer_mut()?;
        values
            .backend()
            .crop_images(&p, images.buffer(), windows.buffer(), values.buffer(), y)
    }
}
