//! The frames of a clip as they are read one after the other: scaled, and thinned where there are many.

use super::image::{Decoded, ImageLimits};
use super::resize::resize_bilinear;
use crate::error::reserve;
use crate::{DataError, Place, Result, Sample};
use kiln_core::Shape;
use std::path::Path;

/// A clip of more frames than this many times those that are asked for is thinned.
const THINNED: usize = 8;
/// The most frames of a file.
const MOST_FRAMES: usize = 1 << 20;
/// The colour behind the transparent parts of frames.
const GROUND: [u8; 3] = [255; 3];

/// The options of [`decode_clip`](crate::decode_clip).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClipOptions {
    /// The frames that a clip has at least.
    pub frames: usize,
    /// The height and width that every frame is scaled to.
    pub size: (usize, usize),
    /// The number of channels: 3 (RGB) or 1 (grey).
    pub channels: usize,
    /// The limits on each image, and on one file.
    pub limits: ImageLimits,
}

/// A clip in memory: `[frames, height, width, channels]` bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clip {
    /// The number of frames.
    pub frames: usize,
    /// The number of rows.
    pub height: usize,
    /// The number of columns.
    pub width: usize,
    /// 1 (grey) or 3 (red, green, blue).
    pub channels: usize,
    /// The values 0 to 255, row-major with channels last.
    pub pixels: Vec<u8>,
}

impl Clip {
    /// Writes the clip as the input of a sample, `[frames, height, width, channels]`.
    pub(crate) fn fill(&self, sample: &mut Sample) -> Result<()> {
        let shape = Shape::new(&[self.frames, self.height, self.width, self.channels])?;
        sample.fill(shape, self.pixels.iter().map(|&pixel| f32::from(pixel)))
    }
}

/// The frames that are kept of those that were read.
pub(super) struct Kept<'a> {
    path: &'a Path,
    options: &'a ClipOptions,
    /// Each so many frames one is kept.
    every: usize,
    seen: usize,
    clip: Clip,
}

impl<'a> Kept<'a> {
    pub(super) fn new(path: &'a Path, options: &'a ClipOptions) -> Result<Self> {
        let ClipOptions {
            frames,
            size: (height, width),
            channels,
            ..
        } = *options;
        if frames == 0 || height == 0 || width == 0 {
            let found = format!("{frames} of {height}×{width}");
            return Err(DataError::invalid("clip", "frames", found, "at least 1 of 1×1"));
        }
        if channels != 1 && channels != 3 {
            return Err(DataError::invalid("clip", "channels", channels, "1 or 3"));
        }
        Shape::new(&[frames.saturating_mul(THINNED), height, width, channels])?;
        Ok(Kept {
            path,
            options,
            every: 1,
            seen: 0,
            clip: Clip {
                frames: 0,
                height,
                width,
                channels,
                pixels: Vec::new(),
            },
        })
    }

    /// The most frames that are kept: an even number.
    fn most(&self) -> usize {
        THINNED * self.options.frames
    }

    /// The options.
    pub(super) fn options(&self) -> &ClipOptions {
        self.options
    }

    /// Says how many frames will come, so that those that would be left out are not made.
    pub(super) fn expect(&mut self, frames: usize) {
        while frames.div_ceil(self.every) > self.most() {
            self.every *= 2;
        }
    }

    /// The next frame, which is made if it is kept.
    pub(super) fn push(&mut self, frame: impl FnOnce() -> Result<Decoded>) -> Result<()> {
        if self.seen.is_multiple_of(self.every) {
            if self.clip.frames == self.most() {
                self.halve();
            }
            let Clip {
                height,
                width,
                channels,
                ..
            } = self.clip;
            let frame = frame()?.on_ground(GROUND).with_channels(channels)?;
            let frame = resize_bilinear(&frame, height, width)?;
            reserve(&mut self.clip.pixels, frame.pixels.len(), "a clip")?;
            self.clip.pixels.extend(frame.pixels);
            self.clip.frames += 1;
        }
        self.seen += 1;
        match self.seen > MOST_FRAMES {
            true => Err(DataError::TooLarge {
                path: self.path.to_path_buf(),
                place: Place::File,
                what: "number of frames",
                found: self.seen as u64,
                limit: MOST_FRAMES as u64,
            }),
            false => Ok(()),
        }
    }

    /// Leaves every second frame out. The number of frames that were kept is even, so the next one is kept.
    fn halve(&mut self) {
        let frame = self.clip.height * self.clip.width * self.clip.channels;
        self.clip.frames /= 2;
        for at in 0..self.clip.frames {
            self.clip
                .pixels
                .copy_within(2 * at * frame..(2 * at + 1) * frame, at * frame);
        }
        self.clip.pixels.truncate(self.clip.frames * frame);
        self.every *= 2;
    }

    /// The clip, if it has as many frames as are asked for.
    pub(super) fn finish(self) -> Result<Clip> {
        match self.clip.frames < self.options.frames {
            true => Err(DataError::Value {
                path: self.path.to_path_buf(),
                place: Place::File,
                what: "number of frames",
                found: self.seen.to_string(),
                expected: format!("{} or more", self.options.frames).into(),
            }),
            false => Ok(self.clip),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_clips_are_thinned_evenly() {
        let options = ClipOptions {
            frames: 2,
            size: (1, 1),
            channels: 1,
            limits: ImageLimits::default(),
        };
        for count in 2..70u8 {
            let mut kept = Kept::new(Path::new("clip"), &options).unwrap();
            for shade in 0..count {
                let frame = || {
                    Ok(Decoded {
                        height: 1,
                        width: 1,
                        channels: 1,
                        pixels: vec![shade],
                    })
                };
                kept.push(frame).unwrap();
            }
            let clip = kept.finish().unwrap();
            let step = usize::from(count).div_ceil(16).next_power_of_two();
            let expected: Vec<u8> = (0..count).step_by(step).collect();
            assert_eq!((clip.frames, &clip.pixels), (expected.len(), &expected), "{count}");
        }
    }
}
