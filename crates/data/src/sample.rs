//! A sample: an input in host memory, or an image of bytes on a device as transforms change it without touching its pixels.

use crate::error::reserve;
use crate::resident::Home;
use crate::{DataError, Result};
use kiln_core::Shape;

/// One sample: an input of any shape with its label.
///
/// Images are channels-last `[H, W, C]`, clips `[T, H, W, C]`; datasets return raw pixels 0 to 255 as floats and leave scaling to transforms.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// The input's elements, row-major.
    pub input: Vec<f32>,
    /// The input's shape, without a batch dimension.
    pub shape: Shape,
    /// The class; 0 where the dataset has none.
    pub label: i32,
    /// Regression targets; empty for classification.
    pub targets: Vec<f32>,
    scratch: Vec<f32>,
    /// The image on a device that stands for the input, which is empty then.
    resident: Option<Box<Resident>>,
}

/// An image that lies on a device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resident {
    pub(crate) index: i32,
    pub(crate) image: ByteImage,
    pub(crate) home: Home,
}

impl Sample {
    /// Replaces the input by `values`, keeping the memory.
    ///
    /// # Errors
    /// [`DataError::Shape`] unless there are exactly `shape.size()` values, [`DataError::OutOfMemory`].
    pub fn fill(&mut self, shape: Shape, values: impl ExactSizeIterator<Item = f32>) -> Result<()> {
        if values.len() != shape.size() {
            let found = format!("{} values", values.len());
            return Err(DataError::shape("sample", found, shape));
        }
        self.input.clear();
        reserve(&mut self.input, values.len(), "a sample")?;
        self.input.extend(values);
        self.shape = shape;
        self.resident = None;
        Ok(())
    }

    /// Replaces the input by image `index` of those at `home`, of `size` = (height, width), whose bytes have the `values`
    /// `[1, 257, C]`.
    pub(crate) fn place(
        &mut self,
        home: &Home,
        index: i32,
        size: (usize, usize),
        values: (Shape, &[f32]),
    ) -> Result<()> {
        let mut held = match self.resident.take() {
            Some(old) => old.image.values,
            None => Sample::default(),
        };
        held.fill(values.0, values.1.iter().copied())?;
        self.fill(Shape::new(&[0])?, [].into_iter())?;
        self.resident = Some(Box::new(Resident {
            index,
            image: ByteImage::new(size, held),
            home: home.clone(),
        }));
        Ok(())
    }

    /// The image on a device, of a sample of [`DeviceImages`](crate::DeviceImages).
    pub(crate) fn resident(&self) -> Option<&Resident> {
        self.resident.as_deref()
    }

    /// As [`resident`](Sample::resident), to be transformed.
    pub(crate) fn image_on_device(&mut self) -> Option<&mut ByteImage> {
        self.resident.as_deref_mut().map(|resident| &mut resident.image)
    }

    /// Replaces the input by one of another shape: `write(old, new)` fills `new`, a zeroed buffer of `shape.size()` elements.
    /// The two buffers are swapped, so that a transform allocates nothing once they have grown.
    ///
    /// # Errors
    /// [`DataError::OutOfMemory`].
    pub fn rewrite(&mut self, shape: Shape, write: impl FnOnce(&[f32], &mut [f32])) -> Result<()> {
        self.scratch.clear();
        reserve(&mut self.scratch, shape.size(), "a sample")?;
        self.scratch.resize(shape.size(), 0.0);
        write(&self.input, &mut self.scratch);
        std::mem::swap(&mut self.input, &mut self.scratch);
        self.shape = shape;
        Ok(())
    }

    /// The dimensions `[H, W, C]` of an image; `what` names the caller in the error.
    ///
    /// # Errors
    /// [`DataError::Shape`] when the shape is not `[H, W, C]` or differs from the number of elements.
    pub fn image(&self, what: &'static str) -> Result<[usize; 3]> {
        match self.shape.dims() {
            &[h, w, c] if self.input.len() == self.shape.size() => Ok([h, w, c]),
            _ => Err(DataError::shape(what, self.shape, "an image [H, W, C]")),
        }
    }

    /// The dimensions `[T, H, W, C]` of a clip, or of an image as a clip of one frame; `what` names the caller in the error.
    ///
    /// # Errors
    /// [`DataError::Shape`] when the shape is neither `[T, H, W, C]` nor `[H, W, C]`, or differs from the number of elements.
    pub fn frames(&self, what: &'static str) -> Result<[usize; 4]> {
        match *self.shape.dims() {
            [t, h, w, c] if self.input.len() == self.shape.size() => Ok([t, h, w, c]),
            [h, w, c] if self.input.len() == self.shape.size() => Ok([1, h, w, c]),
            _ => {
                let expected = "an image [H, W, C] or a clip [T, H, W, C]";
                Err(DataError::shape(what, self.shape, expected))
            }
        }
    }
}

/// An image of bytes on a device, seen through a window and with a value for each byte. The device makes a sample of the image with it as
/// the transforms would on the host: [`Transform::on_bytes`](crate::Transform::on_bytes).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ByteImage {
    size: (usize, usize),
    /// The row and the column of the image at the window's top left corner, which may lie outside of the image.
    corner: (i64, i64),
    mirrored: bool,
    cropped: bool,
    values: Sample,
}

impl ByteImage {
    /// The number of values of a channel: one for each byte, and last that of what lies outside of the image.
    pub const VALUES: usize = 257;

    /// A whole image of `size` = (height, width) with the values `[1, 257, C]`.
    fn new(size: (usize, usize), values: Sample) -> Self {
        ByteImage {
            size,
            values,
            ..ByteImage::default()
        }
    }

    /// The height and width of the window; at first those of the image.
    pub fn size(&self) -> (usize, usize) {
        self.size
    }

    /// The values as an image `[1, 257, C]`, which transforms that change pixels one by one are applied to. They have to be the
    /// same for all samples of a batch.
    pub fn values(&mut self) -> &mut Sample {
        &mut self.values
    }

    /// The values.
    pub(crate) fn read_values(&self) -> &Sample {
        &self.values
    }

    /// The row and the column of the image at the window's top left corner.
    pub(crate) fn corner(&self) -> (i64, i64) {
        self.corner
    }

    /// True if the window is read from right to left.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.mirrored
    }

    /// Exchanges left and right.
    pub fn mirror(&mut self) {
        self.mirrored = !self.mirrored;
    }

    /// Cuts out a window of `size` that begins at `row` and `column` of the present one. A row or column outside of the image
    /// shows the value of [`pad`](ByteImage::pad).
    pub fn crop(&mut self, (row, column): (i64, i64), size: (usize, usize)) {
        // From the left of the image, a window that is read from right to left begins where the new one ends.
        let column = match self.mirrored {
            true => self.size.1 as i64 - column - size.1 as i64,
            false => column,
        };
        self.corner = (self.corner.0 + row, self.corner.1 + column);
        self.size = size;
        self.cropped = true;
    }

    /// Sets the value of what lies outside of the image; false where a crop before has cut off parts of the image, which then
    /// lie outside as well.
    pub fn pad(&mut self, value: f32) -> bool {
        let channels = self.values.shape.last().copied().unwrap_or(0);
        let outside = self.values.input.iter_mut().rev().take(channels);
        outside.for_each(|x| *x = value);
        !self.cropped
    }
}
