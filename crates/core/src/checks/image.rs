//! Checks of ops on images of bytes.

use super::Operands;
use crate::ops::CropImagesParams;
use crate::{DType, Result, Runtime};

/// Checks [`ImageOps::crop_images`](crate::ops::ImageOps::crop_images).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn crop_images<R: Runtime>(
    on: &R,
    p: &CropImagesParams,
    x: &R::Buffer,
    windows: &R::Buffer,
    values: &R::Buffer,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "crop_images");
    let dtype = of.float(y)?;
    of.holds("x", x, DType::U8, of.size(&[p.images, p.height, p.width, p.channels])?)?;
    of.holds("windows", windows, DType::I32, of.size(&[p.batch, 4])?)?;
    for (argument, side) in [("images", [p.height, p.width]), ("size", [p.rows, p.columns])] {
        let bytes = of.size(&[side[0], side[1], p.channels])?;
        of.require(
            bytes <= i32::MAX as usize,
            argument,
            bytes,
            "at most 2147483647 bytes each",
        )?;
    }
    let table = CropImagesParams::VALUES as u64;
    of.holds("values", values, dtype, of.size(&[p.channels, table])?)?;
    of.holds("y", y, dtype, of.size(&[p.batch, p.rows, p.columns, p.channels])?)
}
