//! Images as PNG files.

use crate::{Result, TensorBoardError};

/// A value of a pixel: an `f32` from 0 to 1, or a byte.
pub trait Pixel: Copy {
    /// The value from 0 to 255.
    fn byte(self) -> u8;
}

impl Pixel for f32 {
    fn byte(self) -> u8 {
        (255.0 * self) as u8
    }
}

impl Pixel for u8 {
    fn byte(self) -> u8 {
        self
    }
}

/// A PNG file of pixels of `[height, width, channels]`.
pub(crate) fn png<T: Pixel>(tag: &str, pixels: &[T], shape: [usize; 3]) -> Result<Vec<u8>> {
    let failed = |expected| TensorBoardError::Image {
        tag: tag.to_string(),
        values: pixels.len(),
        shape,
        expected,
    };
    let [height, width, channels] = shape;
    let color = match channels {
        1 => png::ColorType::Grayscale,
        3 => png::ColorType::Rgb,
        4 => png::ColorType::Rgba,
        _ => return Err(failed("[height, width, channels] with 1, 3 or 4 channels")),
    };
    let size = height.checked_mul(width).and_then(|n| n.checked_mul(channels));
    if size != Some(pixels.len()) {
        return Err(failed("a value for each element of [height, width, channels]"));
    }
    let expected = "at least one pixel, and sides below 2³¹";
    let side = |n: usize| u32::try_from(n).map_err(|_| failed(expected));
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, side(width)?, side(height)?);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let bytes: Vec<u8> = pixels.iter().map(|p| p.byte()).collect();
    let written = encoder.write_header().and_then(|mut png| png.write_image_data(&bytes));
    written.map_err(|_| failed(expected))?;
    Ok(file)
}
