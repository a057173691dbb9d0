//! The frames of a GIF file, as they are seen when it plays.

use super::frames::Kept;
use super::image::{Decoded, ImageLimits, broken, check_pixels};
use crate::Result;
use crate::error::{panic_message, reserve};
use gif::{ColorOutput, DecodeOptions, DisposalMethod, Frame, MemoryLimit};
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The first bytes of a GIF file of either version.
pub(super) const MAGIC: &[u8] = b"GIF8";

/// Reads all frames of a file of these bytes.
pub(super) fn read(path: &Path, bytes: &[u8], limits: &ImageLimits, kept: &mut Kept<'_>) -> Result<()> {
    let decode = || decode(path, bytes, limits, kept);
    // The decoder is third-party code on untrusted bytes.
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| Err(broken(path, 0, "GIF", panic_message(&*panic))))
}

fn decode(path: &Path, bytes: &[u8], limits: &ImageLimits, kept: &mut Kept<'_>) -> Result<()> {
    let wrong = |error: gif::DecodingError| broken(path, 0, "GIF", error);
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    options.check_frame_consistency(true);
    let most = NonZeroU64::new(limits.max_pixels.saturating_mul(4)).unwrap_or(NonZeroU64::MIN);
    options.set_memory_limit(MemoryLimit::Bytes(most));
    let mut decoder = options.read_info(bytes).map_err(wrong)?;
    let (height, width) = (usize::from(decoder.height()), usize::from(decoder.width()));
    check_pixels(path, 6, width as u64, height as u64, limits)?;
    let mut canvas = Canvas::new(height, width)?;
    while let Some(frame) = decoder.read_next_frame().map_err(wrong)? {
        let before = match frame.dispose {
            DisposalMethod::Previous => Some(canvas.copy()?),
            _ => None,
        };
        canvas.draw(frame);
        kept.push(|| canvas.copy())?;
        match before {
            Some(before) => canvas.0 = before,
            None if frame.dispose == DisposalMethod::Background => canvas.clear(frame),
            None => {}
        }
    }
    Ok(())
}

/// The image that the frames are drawn into: red, green, blue and opacity.
struct Canvas(Decoded);

impl Canvas {
    fn new(height: usize, width: usize) -> Result<Self> {
        let mut pixels = Vec::new();
        reserve(&mut pixels, 4 * height * width, "GIF pixels")?;
        pixels.resize(4 * height * width, 0);
        Ok(Canvas(Decoded {
            height,
            width,
            channels: 4,
            pixels,
        }))
    }

    fn copy(&self) -> Result<Decoded> {
        let mut pixels = Vec::new();
        reserve(&mut pixels, self.0.pixels.len(), "GIF pixels")?;
        pixels.extend_from_slice(&self.0.pixels);
        Ok(Decoded { pixels, ..self.0 })
    }

    /// The part of each row that a frame lies in, with the frame's row.
    fn rows(&mut self, frame: &Frame<'_>) -> impl Iterator<Item = (usize, &mut [u8])> {
        let (left, top) = (usize::from(frame.left), usize::from(frame.top));
        let (width, height) = (usize::from(frame.width), usize::from(frame.height));
        let line = (4 * self.0.width).max(1);
        let inside = left.min(self.0.width)..(left + width).min(self.0.width);
        let rows = self.0.pixels.chunks_exact_mut(line).skip(top).take(height);
        rows.map(move |row| &mut row[4 * inside.start..4 * inside.end])
            .enumerate()
    }

    fn draw(&mut self, frame: &Frame<'_>) {
        let width = usize::from(frame.width);
        for (y, row) in self.rows(frame) {
            let pixels = frame.buffer.chunks_exact(4).skip(y * width);
            for (to, from) in row.chunks_exact_mut(4).zip(pixels) {
                if from[3] != 0 {
                    to.copy_from_slice(from);
                }
            }
        }
    }

    /// Makes the part that a frame lies in transparent.
    fn clear(&mut self, frame: &Frame<'_>) {
        self.rows(frame).for_each(|(_, row)| row.fill(0));
    }
}
