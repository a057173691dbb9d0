//! The frames of clips.

use super::{Draw, Transform};
use crate::{DataError, Result, Sample};
use kiln_core::Shape;

/// Takes so many frames of a clip `[F, H, W, C]`, at equal distances that are as large as the clip allows: every `F / count`-th frame,
/// rounded down. They lie in the middle of the clip or, with jitter, begin at a random frame that leaves enough behind it.
///
/// ```
/// use kiln_core::Shape;
/// use kiln_data::{Draw, Frames, Sample, Transform};
/// let mut clip = Sample::default();
/// clip.fill(Shape::new(&[9, 1, 1, 1])?, (0..9).map(|frame| frame as f32))?;
/// Frames::new(4)?.apply(&mut clip, &Draw::new(0, 0, 0))?;
/// assert_eq!(clip.input, [1.0, 3.0, 5.0, 7.0]);
/// # Ok::<(), kiln_data::DataError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frames {
    count: usize,
    jitter: bool,
}

impl Frames {
    /// Takes so many frames, from the middle.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for no frames.
    pub fn new(count: usize) -> Result<Self> {
        match count {
            0 => Err(DataError::invalid("frames", "count", 0, "at least 1")),
            _ => Ok(Frames { count, jitter: false }),
        }
    }

    /// With the first frame at random, or in the middle of what is possible.
    pub fn jitter(mut self, jitter: bool) -> Self {
        self.jitter = jitter;
        self
    }
}

impl Transform for Frames {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let [frames, h, w, c] = sample.frames("frames")?;
        if sample.shape.rank() != 4 || frames < self.count {
            let expected = format!("a clip [T, H, W, C] of {} frames or more", self.count);
            return Err(DataError::shape("frames", sample.shape, expected));
        }
        let step = frames / self.count;
        let places = frames - step * (self.count - 1);
        let first = match (self.jitter, u32::try_from(places)) {
            (true, Ok(places)) => draw.below(0, places) as usize,
            _ => (places - 1) / 2,
        };
        if frames == self.count {
            return Ok(());
        }
        let frame = h * w * c;
        sample.rewrite(Shape::new(&[self.count, h, w, c])?, |from, to| {
            for (number, to) in to.chunks_exact_mut(frame.max(1)).enumerate() {
                to.copy_from_slice(&from[(first + number * step) * frame..][..frame]);
            }
        })
    }
}
