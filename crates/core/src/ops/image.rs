//! Batches of images out of images that are kept as bytes.

use super::{Op, dim32};
use crate::{Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of cutting windows out of images of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CropImagesParams {
    /// Number of images.
    pub images: u64,
    /// Height of an image.
    pub height: u64,
    /// Width of an image.
    pub width: u64,
    /// Channels of an image, at least 1.
    pub channels: u64,
    /// Number of windows.
    pub batch: u64,
    /// Height of a window.
    pub rows: u64,
    /// Width of a window.
    pub columns: u64,
}
const _: () = assert!(size_of::<CropImagesParams>() == 56);

impl CropImagesParams {
    /// The values of a channel in the result: one for each byte, and the last for what lies outside of the image.
    pub const VALUES: usize = 257;

    /// Parameters for windows of `size` = (rows, columns) out of `images` `[N, H, W, C]`, with `windows` `[n, 4]` and
    /// `values` `[C, 257]`, and the shape of the result, `[n, rows, columns, C]`.
    ///
    /// # Errors
    /// [`Error::Rank`] for images or windows of another rank, [`Error::ShapeMismatch`] for other dimensions of `windows` or
    /// `values`, [`Error::InvalidArgument`] for images or windows without a pixel or of more than 2³¹ − 1 bytes.
    pub fn new(
        op: &'static str,
        images: &Shape,
        windows: &Shape,
        values: &Shape,
        size: (usize, usize),
    ) -> Result<(Self, Shape)> {
        let &[n, h, w, c] = images.dims() else {
            return Err(Error::Rank {
                op,
                expected: "4 for images [N, H, W, C]",
                rank: images.rank(),
            });
        };
        let &[batch, fields] = windows.dims() else {
            return Err(Error::Rank {
                op,
                expected: "2 for windows [n, 4]",
                rank: windows.rank(),
            });
        };
        for (argument, [a, b, c]) in [("images", [h, w, c]), ("size", [size.0, size.1, c])] {
            let bytes = a.checked_mul(b).and_then(|pixels| pixels.checked_mul(c));
            match bytes {
                Some(0) => {
                    return Err(Error::invalid(
                        op,
                        argument,
                        format!("{a}×{b}×{c}"),
                        "at least one pixel",
                    ));
                }
                bytes => dim32(op, argument, bytes.unwrap_or(usize::MAX))?,
            };
        }
        let mismatch = |lhs: &Shape, dims: [usize; 2]| {
            let rhs = Shape::new(&dims)?;
            Err(Error::ShapeMismatch { op, lhs: *lhs, rhs })
        };
        if fields != 4 {
            return mismatch(windows, [batch, 4]);
        }
        if values.dims() != [c, Self::VALUES] {
            return mismatch(values, [c, Self::VALUES]);
        }
        let p = CropImagesParams {
            images: n as u64,
            height: h as u64,
            width: w as u64,
            channels: c as u64,
            batch: batch as u64,
            rows: size.0 as u64,
            columns: size.1 as u64,
        };
        Ok((p, Shape::new(&[batch, size.0, size.1, c])?))
    }
}

/// Ops of a backend on images of bytes.
pub trait ImageOps: Runtime {
    /// Windows of images `x` `[images, height, width, channels]`, which are bytes: window `i` of `windows` `[batch, 4]`, i32, is
    /// an image's index, the row and the column of its top left corner, which may lie outside of the image, and whether left and
    /// right are exchanged, unless it is 0. Channel `c` of a pixel `b` becomes `values[c, b]`, and `values[c, 256]` outside of the image:
    ///
    /// ```text
    /// y[i, r, k, c] = values[c, x[index, top + r, left + k, c]]            k from the right where mirrored
    /// ```
    ///
    /// `values` `[channels, 257]` and `y` `[batch, rows, columns, channels]` have one dtype. An index of an image that there is
    /// not is an [`Error::IndexOutOfRange`].
    fn crop_images(
        &self,
        p: &CropImagesParams,
        x: &Self::Buffer,
        windows: &Self::Buffer,
        values: &Self::Buffer,
        y: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, windows, values, y);
        self.unsupported(Op::CropImages)
    }
}
