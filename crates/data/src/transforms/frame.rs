//! Transforms from images of any size to images of one size.

use super::{Draw, Transform};
use crate::formats::Scaling;
use crate::{ByteImage, DataError, Result, Sample};
use kiln_core::Shape;

/// Pixels of the shorter side that a crop of 7 is the middle of: torchvision's crops of 224 of 256.
const SHORTER: (usize, usize) = (8, 7);

/// Replaces a sample's input by a scaled part of it, whose values are rounded to whole numbers from 0 to 255.
fn replace(sample: &mut Sample, scaling: &Scaling, (height, width): (usize, usize)) -> Result<()> {
    let [_, w, c] = sample.image("resize")?;
    let mut failed = Ok(());
    sample.rewrite(Shape::new(&[height, width, c])?, |image, out| {
        let mut to = out.iter_mut();
        failed = scaling.apply(image, w, c, |byte| {
            if let Some(to) = to.next() {
                *to = f32::from(byte);
            }
        });
    })?;
    failed
}

/// The size of images, none of whose sides may be 0.
fn checked(what: &'static str, height: usize, width: usize) -> Result<(usize, usize)> {
    match height == 0 || width == 0 {
        true => Err(DataError::invalid(
            what,
            "size",
            format!("{height}×{width}"),
            "at least 1×1",
        )),
        false => Ok((height, width)),
    }
}

/// The sides of an image of which there is at least a pixel.
fn sides(sample: &Sample, what: &'static str) -> Result<(usize, usize)> {
    match sample.image(what)? {
        [0, ..] | [_, 0, _] | [.., 0] => Err(DataError::shape(what, sample.shape, "an image of at least a pixel")),
        [h, w, _] => Ok((h, w)),
    }
}

/// Scales a random part of an image of raw pixels to one size (torchvision's `RandomResizedCrop` with its defaults; Szegedy et al., "Going Deeper
/// with Convolutions", 2014): 8 to 100 % of the area, drawn uniformly, of a width to height of 3/4 to 4/3, drawn uniformly by its logarithm.
/// After ten parts that do not fit it is the largest one in the middle with such a ratio.
///
/// ```
/// use kiln_core::Shape;
/// use kiln_data::{Draw, RandomResizedCrop, Sample, Transform};
/// let mut sample = Sample::default();
/// sample.fill(Shape::new(&[30, 50, 3])?, (0..4500).map(|i| (i % 256) as f32))?;
/// RandomResizedCrop::new(8, 8)?.apply(&mut sample, &Draw::new(0, 0, 0))?;
/// assert_eq!(sample.shape.dims(), [8, 8, 3]);
/// # Ok::<(), kiln_data::DataError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomResizedCrop {
    size: (usize, usize),
    area: (f32, f32),
    aspect: (f32, f32),
}

impl RandomResizedCrop {
    const TRIES: u32 = 10;

    /// Parts scaled to `height` × `width`.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a size of 0.
    pub fn new(height: usize, width: usize) -> Result<Self> {
        Ok(RandomResizedCrop {
            size: checked("random resized crop", height, width)?,
            area: (0.08, 1.0),
            aspect: (3.0 / 4.0, 4.0 / 3.0),
        })
    }

    /// The corner and the size of the part of an image of this size.
    fn part(&self, (h, w): (usize, usize), draw: &Draw) -> [(usize, usize); 2] {
        let (low, high) = self.aspect;
        for attempt in 0..Self::TRIES {
            let n = 4 * attempt;
            let area = (self.area.0 + (self.area.1 - self.area.0) * draw.uniform(n)) * (h * w) as f32;
            let aspect = low * power(high / low, draw.uniform(n + 1));
            let side = |area: f32| area.sqrt().round_ties_even() as usize;
            let (ph, pw) = (side(area / aspect), side(area * aspect));
            if (1..=h).contains(&ph) && (1..=w).contains(&pw) {
                let place = |n: u32, places: usize| draw.below(n, u32::try_from(places).unwrap_or(u32::MAX)) as usize;
                return [(place(n + 2, h - ph + 1), place(n + 3, w - pw + 1)), (ph, pw)];
            }
        }
        let ratio = w as f32 / h as f32;
        let (ph, pw) = match ratio {
            r if r < low => ((w as f32 / low).round_ties_even() as usize, w),
            r if r > high => (h, (h as f32 * high).round_ties_even() as usize),
            _ => (h, w),
        };
        let (ph, pw) = (ph.clamp(1, h), pw.clamp(1, w));
        [((h - ph) / 2, (w - pw) / 2), (ph, pw)]
    }
}

impl Transform for RandomResizedCrop {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let [corner, size] = self.part(sides(sample, "random resized crop")?, draw);
        replace(sample, &Scaling::of_window(corner, size, self.size)?, self.size)
    }
}

/// `base` to the power of `exponent`, a number of 24 bits in `[0, 1)`, by square roots alone, which are the same everywhere.
fn power(base: f32, exponent: f32) -> f32 {
    let bits = (exponent * 16_777_216.0) as u32;
    let (mut result, mut root) = (1.0, base);
    for bit in (0..24).rev() {
        root = root.sqrt();
        if bits >> bit & 1 == 1 {
            result *= root;
        }
    }
    result
}

/// Scales an image of raw pixels so that it covers eight sevenths of a size, and cuts out the middle (torchvision's `Resize(256)` and
/// `CenterCrop(224)`). An image that has the size stays as it is.
///
/// ```
/// use kiln_core::Shape;
/// use kiln_data::{Draw, ResizeCenterCrop, Sample, Transform};
/// let mut sample = Sample::default();
/// sample.fill(Shape::new(&[30, 50, 3])?, (0..4500).map(|i| (i % 256) as f32))?;
/// ResizeCenterCrop::new(7, 7)?.apply(&mut sample, &Draw::new(0, 0, 0))?; // of 8 × 13 pixels
/// assert_eq!(sample.shape.dims(), [7, 7, 3]);
/// # Ok::<(), kiln_data::DataError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResizeCenterCrop {
    size: (usize, usize),
}

impl ResizeCenterCrop {
    /// Crops of `height` × `width`.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a size of 0 or one that overflows.
    pub fn new(height: usize, width: usize) -> Result<Self> {
        let size = checked("resize and center crop", height, width)?;
        if height.max(width).checked_mul(SHORTER.0).is_none() {
            return Err(DataError::invalid(
                "resize and center crop",
                "size",
                format!("{height}×{width}"),
                "less",
            ));
        }
        Ok(ResizeCenterCrop { size })
    }

    /// The size of the whole image of which the middle is cut out.
    fn whole(&self, (h, w): (usize, usize)) -> (usize, usize) {
        let least = |side: usize| side * SHORTER.0 / SHORTER.1;
        let (lh, lw) = (least(self.size.0), least(self.size.1));
        let scaled = |to: usize, by: usize, of: usize| (to as u128 * by as u128 / of as u128) as usize;
        match lh as u128 * w as u128 >= lw as u128 * h as u128 {
            true => (lh, scaled(lh, w, h)),
            false => (scaled(lw, h, w), lw),
        }
    }
}

impl Transform for ResizeCenterCrop {
    fn apply(&self, sample: &mut Sample, _: &Draw) -> Result<()> {
        let size = sides(sample, "resize and center crop")?;
        if size == self.size {
            return Ok(());
        }
        let whole = self.whole(size);
        // Half of an odd number of pixels is rounded as Python does, to the even one.
        let before = |whole: usize, part: usize| {
            let more = whole - part;
            more / 2 + usize::from(more % 4 == 3)
        };
        let corner = (before(whole.0, self.size.0), before(whole.1, self.size.1));
        let scaling = Scaling::of_window((0, 0), size, whole)?.cropped(corner, self.size);
        replace(sample, &scaling, self.size)
    }

    fn on_bytes(&self, image: &mut ByteImage, _: &Draw) -> Result<()> {
        match image.size() == self.size {
            true => Ok(()),
            false => {
                let (height, width) = image.size();
                let expected = format!("{}×{}, as devices do not resize", self.size.0, self.size.1);
                Err(DataError::shape(
                    "resize and center crop",
                    format!("{height}×{width}"),
                    expected,
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(h: usize, w: usize) -> Sample {
        let mut sample = Sample::default();
        let pixels = (0..h * w).map(|i| ((i * 31 + i / w * 17) % 256) as f32);
        sample.fill(Shape::new(&[h, w, 1]).unwrap(), pixels).unwrap();
        sample
    }

    #[test]
    fn powers_are_those_of_the_library() {
        for exponent in [0.0, 0.25, 0.5, 0.7, 1.0 - 1.0 / 16_777_216.0] {
            for base in [16.0 / 9.0, 1.0, 0.3] {
                let (found, expected) = (power(base, exponent), base.powf(exponent));
                assert!(
                    (found - expected).abs() <= 4e-6 * expected,
                    "{base}^{exponent}: {found}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn parts_lie_in_the_image_and_have_the_shape(h in 1..40usize, w in 1..40usize, index in 0..1000usize) {
            let crop = RandomResizedCrop::new(4, 6).unwrap();
            let [(top, left), (ph, pw)] = crop.part((h, w), &Draw::new(1, 0, index));
            prop_assert!(ph >= 1 && pw >= 1 && top + ph <= h && left + pw <= w);
            let area = (ph * pw) as f32 / (h * w) as f32;
            // Sides are rounded, and a part of an image of a few pixels is what fits.
            prop_assert!(h.min(w) < 12 || (0.05..=1.0).contains(&area), "{area}");
            let ratio = pw as f32 / ph as f32;
            prop_assert!(h.min(w) < 12 || (0.6..=1.7).contains(&ratio), "{ratio}");
            let mut image = sample(h, w);
            crop.apply(&mut image, &Draw::new(1, 0, index)).unwrap();
            prop_assert_eq!(image.shape.dims(), [4, 6, 1]);
        }

        #[test]
        fn the_middle_is_that_of_the_whole_image(h in 1..40usize, w in 1..40usize) {
            let crop = ResizeCenterCrop::new(7, 7).unwrap();
            let (mut image, whole) = (sample(h, w), crop.whole((h, w)));
            prop_assert_eq!(whole.0.min(whole.1), 8);
            let mut resized = sample(h, w);
            let scaling = Scaling::of_window((0, 0), (h, w), whole).unwrap();
            replace(&mut resized, &scaling, whole).unwrap();
            crop.apply(&mut image, &Draw::new(0, 0, 0)).unwrap();
            if (h, w) == (7, 7) {
                prop_assert_eq!(image, sample(7, 7));
            } else {
                let top = ((whole.0 - 7) as f64 / 2.0).round_ties_even() as usize;
                let left = ((whole.1 - 7) as f64 / 2.0).round_ties_even() as usize;
                for (i, &pixel) in image.input.iter().enumerate() {
                    prop_assert_eq!(pixel, resized.input[(top + i / 7) * whole.1 + left + i % 7]);
                }
            }
        }
    }

    #[test]
    fn what_no_image_can_be_cropped_to_is_refused() {
        assert!(RandomResizedCrop::new(0, 4).is_err() && ResizeCenterCrop::new(4, 0).is_err());
        assert!(ResizeCenterCrop::new(usize::MAX, 4).is_err());
        let mut empty = Sample::default();
        empty.fill(Shape::new(&[0, 4, 3]).unwrap(), [].into_iter()).unwrap();
        let error = RandomResizedCrop::new(4, 4)
            .unwrap()
            .apply(&mut empty, &Draw::new(0, 0, 0));
        assert!(error.unwrap_err().to_string().contains("at least a pixel"));
    }
}
