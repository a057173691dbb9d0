//! PNG and JPEG decoding. The limits are checked before memory is allocated.

use super::input::{most_from_deflate, open_regular};
use crate::error::{panic_message, reserve};
use crate::{DataError, Place, Result};
use std::io::{Cursor, Read};
use std::panic::catch_unwind;
use std::path::Path;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// The limits on an image file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// The largest number of pixels of one image; 64 Mi (8192²) by default.
    pub max_pixels: u64,
    /// The largest size of one file in bytes; 256 MiB by default.
    pub max_file_bytes: u64,
}

impl Default for ImageLimits {
    fn default() -> Self {
        ImageLimits {
            max_pixels: 1 << 26,
            max_file_bytes: 1 << 28,
        }
    }
}

/// An image in memory: `[height, width, channels]` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The number of rows.
    pub height: usize,
    /// The number of columns.
    pub width: usize,
    /// 1 (grey), 3 (red, green, blue), or 4 (with alpha behind, 255 where the image is opaque).
    pub channels: usize,
    /// The values 0 to 255, row-major with channels last.
    pub pixels: Vec<u8>,
}

impl Decoded {
    /// The image, red, green, blue and alpha, on a ground of one colour: an image of three channels. Others are returned as they are.
    ///
    /// ```
    /// use kiln_data::Decoded;
    /// let image = Decoded { height: 1, width: 2, channels: 4, pixels: vec![10, 20, 30, 255, 0, 0, 0, 51] };
    /// assert_eq!(image.on_ground([255; 3]).pixels, [10, 20, 30, 204, 204, 204]);
    /// ```
    pub fn on_ground(mut self, colour: [u8; 3]) -> Self {
        if self.channels != 4 {
            return self;
        }
        let count = self.pixels.len() / 4;
        // Shrinks in place: pixel i is read at 4·i ≥ 3·i.
        for i in 0..count {
            let alpha = u32::from(self.pixels[4 * i + 3]);
            for (c, ground) in colour.into_iter().enumerate() {
                let sum = u32::from(self.pixels[4 * i + c]) * alpha + u32::from(ground) * (255 - alpha);
                self.pixels[3 * i + c] = ((sum + 127) / 255) as u8;
            }
        }
        self.pixels.truncate(3 * count);
        self.channels = 3;
        self
    }

    /// An image of three channels as one of so many, 1 (grey) or 3.
    pub(crate) fn with_channels(self, channels: usize) -> Result<Self> {
        check_channels(channels, &[1, 3])?;
        Ok(Decoded {
            pixels: convert(self.pixels, self.channels, channels)?,
            channels,
            ..self
        })
    }

    /// The part of `height` rows from `top` on and `width` columns from `left` on, which lies in the image.
    pub(crate) fn part(&self, (top, left): (usize, usize), (height, width): (usize, usize)) -> Result<Self> {
        let (mut pixels, c) = (Vec::new(), self.channels);
        reserve(&mut pixels, height * width * c, "a part of an image")?;
        for row in top..top + height {
            let first = (row * self.width + left) * c;
            pixels.extend_from_slice(&self.pixels[first..first + width * c]);
        }
        Ok(Decoded {
            height,
            width,
            channels: c,
            pixels,
        })
    }
}

fn check_channels(channels: usize, allowed: &[usize]) -> Result<()> {
    match allowed.contains(&channels) {
        true => Ok(()),
        false => Err(DataError::invalid(
            "image",
            "channels",
            channels,
            "1, 3 or, of files, 4",
        )),
    }
}

/// Reads a PNG or JPEG file, recognised by its first bytes, as `channels` = 1 (grey), 3 (RGB) or 4 (RGB and alpha) bytes per pixel.
///
/// Palettes and low bit depths are expanded, 16-bit samples keep their upper byte, an alpha channel is dropped unless it is asked for, and
/// colour becomes grey by ITU-R 601 luma. Orientation tags and colour profiles are ignored.
///
/// # Errors
/// [`DataError::Magic`] for other formats, [`DataError::TooLarge`] for more pixels or bytes than `limits` allows and
/// [`DataError::Truncated`] for pixels that the file cannot hold (both before allocating), [`DataError::Decode`],
/// [`DataError::InvalidArgument`] for other channels, [`DataError::OutOfMemory`], [`DataError::Io`].
pub fn decode_image(path: impl AsRef<Path>, channels: usize, limits: &ImageLimits) -> Result<Decoded> {
    let path = path.as_ref();
    check_channels(channels, &[1, 3, 4])?;
    let (height, width, found, pixels) = decode(path, limits)?;
    Ok(Decoded {
        height,
        width,
        channels,
        pixels: convert(pixels, found, channels)?,
    })
}

/// The shape of the image in a file, with one channel if it is grey and three if it has colours.
pub(crate) fn image_shape(path: &Path, limits: &ImageLimits) -> Result<[usize; 3]> {
    let (height, width, found, _) = decode(path, limits)?;
    Ok([height, width, if found < 3 { 1 } else { 3 }])
}

/// The image in a file with the channels that it has there.
fn decode(path: &Path, limits: &ImageLimits) -> Result<Raw> {
    let (file, size) = open_regular(path)?;
    if size > limits.max_file_bytes {
        return Err(DataError::TooLarge {
            path: path.to_path_buf(),
            place: Place::File,
            what: "file size",
            found: size,
            limit: limits.max_file_bytes,
        });
    }
    let mut bytes = Vec::new();
    reserve(&mut bytes, size as usize, "an image file")?;
    // A file that grows while it is read is read up to the size that was checked.
    file.take(size)
        .read_to_end(&mut bytes)
        .map_err(DataError::io(path, "read"))?;
    let (format, decoder): (_, Decoder) = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        ("PNG", png)
    } else if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
        ("JPEG", jpeg)
    } else {
        return Err(DataError::Magic {
            path: path.to_path_buf(),
            found: bytes[..bytes.len().min(8)].to_vec(),
            expected: "PNG (89 50 4e 47 0d 0a 1a 0a) or JPEG (ff d8 ff)",
        });
    };
    // The decoders are third-party code on untrusted bytes. If one panics in spite of the checks before it, the file is
    // reported as broken.
    catch_unwind(|| decoder(path, &bytes, limits))
        .unwrap_or_else(|panic| Err(broken(path, 0, format, panic_message(&*panic))))
}

/// Checks the dimensions in a header against the limit.
pub(super) fn check_pixels(path: &Path, at: u64, width: u64, height: u64, limits: &ImageLimits) -> Result<()> {
    let pixels = width.saturating_mul(height);
    if pixels > limits.max_pixels {
        return Err(DataError::TooLarge {
            path: path.to_path_buf(),
            place: Place::Byte(at),
            what: "number of pixels",
            found: pixels,
            limit: limits.max_pixels,
        });
    }
    Ok(())
}

/// Checks that the `announced` bytes of a header are no more than `most`, which is all that the file can hold.
fn check_holds(path: &Path, at: u64, announced: u64, most: u64) -> Result<()> {
    if announced > most {
        return Err(DataError::Truncated {
            path: path.to_path_buf(),
            place: Place::Byte(at),
            found: most,
            expected: announced,
        });
    }
    Ok(())
}

pub(super) fn broken(path: &Path, at: u64, format: &'static str, reason: impl std::fmt::Display) -> DataError {
    DataError::Decode {
        path: path.to_path_buf(),
        place: Place::Byte(at),
        format,
        reason: reason.to_string(),
    }
}

/// Height, width, channels and pixels.
type Raw = (usize, usize, usize, Vec<u8>);
type Decoder = fn(&Path, &[u8], &ImageLimits) -> Result<Raw>;

/// Checks that every palette of a PNG is a multiple of three bytes, as the format demands. The decoder does not check
/// that.
fn png_palettes(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut at = 8;
    while let Some(&[a, b, c, d, ref kind @ ..]) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let length = u32::from_be_bytes([a, b, c, d]);
        if kind == b"PLTE" && !length.is_multiple_of(3) {
            let reason = format!("a palette of {length} bytes, expected three for each colour");
            return Err(broken(path, at as u64, "PNG", reason));
        }
        // A chunk is its data and 12 bytes of length, type and checksum.
        at = at.saturating_add(12).saturating_add(length as usize);
    }
    Ok(())
}

fn png(path: &Path, bytes: &[u8], limits: &ImageLimits) -> Result<Raw> {
    // Every PNG starts with the signature, a chunk length and IHDR: width at byte 16, height at byte 20, depth at 24,
    // colour type at 25. They are checked before the decoder allocates anything of that size.
    let truncated = |expected: u64| DataError::Truncated {
        path: path.to_path_buf(),
        place: Place::Byte(8),
        found: bytes.len() as u64 - 8,
        expected,
    };
    let header: [u8; 33] = *bytes.first_chunk().ok_or_else(|| truncated(25))?;
    let word = |at: usize| {
        u64::from(u32::from_be_bytes([
            header[at],
            header[at + 1],
            header[at + 2],
            header[at + 3],
        ]))
    };
    let (width, height) = (word(16), word(20));
    if &header[12..16] == b"IHDR" {
        check_pixels(path, 16, width, height, limits)?;
        let samples = match header[25] {
            2 => 3,
            4 => 2,
            6 => 4,
            _ => 1,
        };
        let stored = (u128::from(width) * u128::from(height) * samples * u128::from(header[24]) / 8) as u64;
        check_holds(path, 16, stored, most_from_deflate(bytes.len() as u64))?;
    }
    png_palettes(path, bytes)?;
    let mut cursor = Cursor::new(bytes);
    let mut decoder = png::Decoder::new_with_limits(
        &mut cursor,
        // The limit is for ancillary chunks (text, profiles) and one row of pixels; the frame is allocated below.
        png::Limits { bytes: 1 << 26 },
    );
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    let decode = || -> Result<Raw, png::DecodingError> {
        let mut reader = decoder.read_info()?;
        let size = reader.output_buffer_size().ok_or(png::DecodingError::LimitsExceeded)?;
        let mut pixels = Vec::new();
        pixels
            .try_reserve_exact(size)
            .map_err(|_| png::DecodingError::LimitsExceeded)?;
        pixels.resize(size, 0);
        let frame = reader.next_frame(&mut pixels)?;
        reader.finish()?;
        pixels.truncate(frame.buffer_size());
        Ok((
            frame.height as usize,
            frame.width as usize,
            frame.color_type.samples(),
            pixels,
        ))
    };
    let result = decode();
    result.map_err(|e| broken(path, cursor.position(), "PNG", e))
}

/// True if the segments and scans of a JPEG lead to its end marker (ITU-T T.81, annex B). The decoder makes up for up
/// to a word of missing data, so a file truncated close to its end would pass as whole.
fn jpeg_ends(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(&[0xff, marker]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        match marker {
            0xd9 => return true,
            // Fill bytes, and below markers without a segment.
            0xff => at += 1,
            0x00 | 0x01 | 0xd0..=0xd8 => at += 2,
            _ => {
                let Some(length) = bytes.get(at + 2..).and_then(|rest| rest.first_chunk()) else {
                    return false;
                };
                at += 2 + usize::from(u16::from_be_bytes(*length));
            }
        }
        // A scan's header is followed by its data, up to the next marker; stuffed zeros and restart markers are skipped above.
        let Some(next) = bytes.get(at..).and_then(|rest| rest.iter().position(|&b| b == 0xff)) else {
            return false;
        };
        at += next;
    }
    false
}

fn jpeg(path: &Path, bytes: &[u8], limits: &ImageLimits) -> Result<Raw> {
    if !jpeg_ends(bytes) {
        let end = bytes.len() as u64;
        return Err(broken(path, end, "JPEG", "the file stops before its end mark"));
    }
    let mut cursor = Cursor::new(bytes);
    // The outer result is the decoder's, whose error has no position in the file.
    let decode = |cursor: &mut Cursor<&[u8]>| -> Result<Result<Raw>, DecodeErrors> {
        // The decoder's own bounds on each side are lifted to the format's: `check_pixels` bounds the product.
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(1 << 16)
            .set_max_height(1 << 16);
        let mut decoder = JpegDecoder::new_with_options(cursor, options);
        decoder.decode_headers()?;
        let (width, height) = decoder
            .dimensions()
            .ok_or(DecodeErrors::FormatStatic("no dimensions"))?;
        if let Err(e) = check_jpeg_size(path, bytes, width as u64, height as u64, limits) {
            return Ok(Err(e));
        }
        let (channels, space) = match decoder.input_colorspace() {
            Some(ColorSpace::Luma) => (1, ColorSpace::Luma),
            _ => (3, ColorSpace::RGB),
        };
        decoder.set_options(options.jpeg_set_out_colorspace(space));
        let size = decoder
            .output_buffer_size()
            .ok_or(DecodeErrors::FormatStatic("no size"))?;
        let mut pixels = Vec::new();
        if let Err(e) = reserve(&mut pixels, size, "JPEG pixels") {
            return Ok(Err(e));
        }
        pixels.resize(size, 0);
        decoder.decode_into(&mut pixels)?;
        Ok(Ok((height, width, channels, pixels)))
    };
    let result = decode(&mut cursor);
    result.unwrap_or_else(|e| Err(broken(path, cursor.position(), "JPEG", e)))
}

fn check_jpeg_size(path: &Path, bytes: &[u8], width: u64, height: u64, limits: &ImageLimits) -> Result<()> {
    check_pixels(path, 0, width, height, limits)?;
    // In the first scan every 8×8 block takes at least a bit, and the component with the highest resolution has at least
    // one sample for two pixels: a byte stands for at most 1,024 pixels.
    check_holds(path, 0, width * height, (bytes.len() as u64).saturating_mul(1024))
}

/// Converts `found` channels (1 grey, 2 grey and alpha, 3 colour, 4 colour and alpha) to `wanted` (1, 3 or 4).
fn convert(mut pixels: Vec<u8>, found: usize, wanted: usize) -> Result<Vec<u8>> {
    if found == wanted {
        return Ok(pixels);
    }
    let colour = found >= 3;
    let count = pixels.len() / found;
    if wanted < 4 && (wanted == 1 || colour) {
        // Shrinks in place: element i is read at i·found ≥ i·wanted.
        for i in 0..count {
            let p = i * found;
            if wanted == 3 {
                pixels.copy_within(p..p + 3, i * 3);
            } else if colour {
                pixels[i] = luma(pixels[p], pixels[p + 1], pixels[p + 2]);
            } else {
                pixels[i] = pixels[p];
            }
        }
        pixels.truncate(count * wanted);
        return Ok(pixels);
    }
    let mut out = Vec::new();
    reserve(&mut out, count.saturating_mul(wanted), "image pixels")?;
    for pixel in pixels.chunks_exact(found) {
        let opaque = [255];
        match colour {
            true => out.extend(&pixel[..3]),
            false => out.extend([pixel[0]; 3]),
        }
        if wanted == 4 {
            out.extend(if found == 2 { &pixel[1..] } else { &opaque });
        }
    }
    Ok(out)
}

/// ITU-R BT.601 luma in 16-bit fixed point, as Pillow's `convert("L")` computes it.
fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}
