//! Images fitted into a size without being distorted.

use super::image::Decoded;
use super::object::Object;
use super::resize::resize_bilinear;
use crate::{Result, Sample};
use kiln_core::Shape;

/// The value around an image, as in YOLO.
const AROUND: u8 = 114;

/// An image that is scaled to fit a size and centred in it, with grey (114) around, as YOLO's letterbox.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Letterbox {
    from: (usize, usize),
    to: (usize, usize),
    /// Height and width of the scaled image.
    inner: (usize, usize),
    /// The row and the column of its left upper corner.
    corner: (usize, usize),
}

impl Letterbox {
    /// Fits images of one height and width into another, both at least 1×1.
    pub fn new(from: (usize, usize), to: (usize, usize)) -> Self {
        let ratio = (to.0 as f64 / from.0.max(1) as f64).min(to.1 as f64 / from.1.max(1) as f64);
        let scaled = |side: usize, most: usize| ((side as f64 * ratio).round() as usize).clamp(1, most.max(1));
        let inner = (scaled(from.0, to.0), scaled(from.1, to.1));
        Letterbox {
            from,
            to,
            inner,
            corner: ((to.0.saturating_sub(inner.0)) / 2, (to.1.saturating_sub(inner.1)) / 2),
        }
    }

    /// Writes the fitted image into a sample.
    ///
    /// # Errors
    /// Out of memory.
    pub fn fill(&self, image: &Decoded, sample: &mut Sample) -> Result<()> {
        let scaled = resize_bilinear(image, self.inner.0, self.inner.1)?;
        let channels = image.channels;
        let shape = Shape::new(&[self.to.0, self.to.1, channels])?;
        sample.fill(shape, std::iter::repeat_n(f32::from(AROUND), shape.size()))?;
        let rows = scaled.pixels.chunks_exact(self.inner.1 * channels);
        for (row, pixels) in rows.enumerate() {
            let at = ((self.corner.0 + row) * self.to.1 + self.corner.1) * channels;
            let row = &mut sample.input[at..at + pixels.len()];
            row.iter_mut().zip(pixels).for_each(|(x, &pixel)| *x = f32::from(pixel));
        }
        Ok(())
    }

    /// The scale of columns and of rows.
    fn scales(&self) -> [f32; 2] {
        let scale = |inner: usize, from: usize| inner as f32 / from.max(1) as f32;
        [scale(self.inner.1, self.from.1), scale(self.inner.0, self.from.0)]
    }

    /// An object of the image in the fitted one; `None` if it is too small to be seen there.
    pub fn object(&self, object: Object) -> Option<Object> {
        let [across, down] = self.scales();
        let (top, left) = (self.corner.0 as f32, self.corner.1 as f32);
        object.mapped(|x| x * across + left, |y| y * down + top, self.to)
    }

    /// The numbers from which [`unfitted`](Letterbox::unfitted) finds boxes of the image itself: sizes of the image, and of the fitted one.
    pub(crate) fn numbers(&self) -> [f32; 4] {
        let (from, to) = (self.from, self.to);
        [from.0 as f32, from.1 as f32, to.0 as f32, to.1 as f32]
    }

    /// The letterbox of an image that a trained network is asked about, from the targets of its sample; `None` for other targets.
    pub fn of_targets(targets: &[f32]) -> Option<Self> {
        match *targets {
            [a, b, c, d] => Some(Letterbox::new((a as usize, b as usize), (c as usize, d as usize))),
            _ => None,
        }
    }

    /// The edges in the image of a box in the fitted one, cut at the edges of the image.
    pub fn unfitted(&self, bounds: [f32; 4]) -> [f32; 4] {
        let [across, down] = self.scales();
        let (top, left) = (self.corner.0 as f32, self.corner.1 as f32);
        let [x1, y1, x2, y2] = bounds;
        let x = |x: f32| ((x - left) / across).clamp(0.0, self.from.1 as f32);
        let y = |y: f32| ((y - top) / down).clamp(0.0, self.from.0 as f32);
        [x(x1), y(y1), x(x2), y(y2)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wide_image_has_grey_above_and_below() {
        let image = Decoded {
            height: 2,
            width: 4,
            channels: 1,
            pixels: vec![255; 8],
        };
        let mut sample = Sample::default();
        Letterbox::new((2, 4), (8, 8)).fill(&image, &mut sample).unwrap();
        let rows: Vec<f32> = sample.input.chunks(8).map(|row| row[3]).collect();
        assert_eq!(rows, [114.0, 114.0, 255.0, 255.0, 255.0, 255.0, 114.0, 114.0]);
    }

    proptest! {
        #[test]
        fn boxes_come_back(h in 1usize..300, w in 1usize..300, to in 8usize..200, at in prop::array::uniform4(0.0f32..1.0)) {
            let fitted = Letterbox::new((h, w), (to, to + 3));
            let (x1, x2) = (at[0].min(at[1]) * w as f32, at[0].max(at[1]) * w as f32);
            let (y1, y2) = (at[2].min(at[3]) * h as f32, at[2].max(at[3]) * h as f32);
            let object = Object { class: 0, bounds: [x1, y1, x2, y2], crowd: false };
            prop_assert_eq!(Letterbox::of_targets(&fitted.numbers()), Some(fitted));
            if let Some(found) = fitted.object(object) {
                let back = fitted.unfitted(found.bounds);
                for (a, b) in back.iter().zip(object.bounds) {
                    prop_assert!((a - b).abs() < 1e-3 * (h + w) as f32, "{back:?} {object:?}");
                }
            }
        }
    }
}
