//! The frames of a Y4M file (YUV4MPEG2, as mjpegtools describe it): a line of fields, then for each frame a line and its planes.

use super::frames::Kept;
use super::image::{Decoded, ImageLimits, broken, check_pixels};
use super::input::Input;
use crate::error::reserve;
use crate::{DataError, Place, Result};
use std::path::Path;

/// The first bytes of a Y4M file.
pub(super) const MAGIC: &[u8] = b"YUV4MPEG2";
/// The first bytes of a frame.
const FRAME: &[u8] = b"FRAME";
/// The longest line of fields.
const LINE: usize = 1024;

/// The fields of the first line that its frames are read by.
struct Header {
    height: usize,
    width: usize,
    /// Columns and rows of pixels that share a value of chroma; `None` without chroma.
    chroma: Option<(usize, usize)>,
    /// True if luma goes from 0 to 255, false if from 16 to 235.
    full: bool,
}

/// Reads all frames of a file behind its first bytes.
pub(super) fn read(path: &Path, mut input: Input<'_>, limits: &ImageLimits, kept: &mut Kept<'_>) -> Result<()> {
    let header = Header::parse(path, &line(path, &mut input)?)?;
    check_pixels(path, 0, header.width as u64, header.height as u64, limits)?;
    let sizes = header.planes();
    loop {
        let mark = input.some(FRAME.len())?;
        if mark.is_empty() {
            return Ok(());
        }
        if mark != FRAME {
            let found = mark.escape_ascii();
            return Err(broken(
                path,
                0,
                "Y4M",
                format!("`{found}` where a frame begins, expected `FRAME`"),
            ));
        }
        line(path, &mut input)?;
        let planes = input.take(sizes.iter().sum::<usize>() as u64, "frame")?;
        kept.push(|| header.image(&planes))?;
    }
}

/// The rest of a line, without its end.
fn line(path: &Path, input: &mut Input<'_>) -> Result<String> {
    let mut text = Vec::new();
    while text.len() < LINE {
        match input.array::<1>()? {
            [b'\n'] => return Ok(String::from_utf8_lossy(&text).into_owned()),
            [byte] => text.push(byte),
        }
    }
    Err(broken(
        path,
        0,
        "Y4M",
        format!("a line of fields of more than {LINE} bytes"),
    ))
}

impl Header {
    fn parse(path: &Path, fields: &str) -> Result<Self> {
        let wrong = |what: &'static str, found: &str, expected: &str| DataError::Value {
            path: path.to_path_buf(),
            place: Place::Line { line: 1, column: None },
            what,
            found: found.to_string(),
            expected: expected.into(),
        };
        let side = |what: &'static str, text: &str| match text.parse::<usize>() {
            Ok(side) if (1..=1 << 16).contains(&side) => Ok(side),
            _ => Err(wrong(what, text, "a number from 1 to 65536")),
        };
        let (mut height, mut width, mut full) = (None, None, false);
        // What the format says where the field is missing.
        let mut chroma = Some((2, 2));
        for field in fields.split(' ').filter(|field| !field.is_empty()) {
            let Some((name, value)) = field.split_at_checked(1) else {
                return Err(wrong("field", field, "a letter and a value"));
            };
            match name {
                "H" => height = Some(side("height", value)?),
                "W" => width = Some(side("width", value)?),
                "C" => {
                    chroma = match value {
                        "420" | "420jpeg" | "420mpeg2" | "420paldv" => Some((2, 2)),
                        "422" => Some((2, 1)),
                        "444" => Some((1, 1)),
                        "mono" => None,
                        _ => {
                            let expected = "420, 420jpeg, 420mpeg2, 420paldv, 422, 444 or mono, of 8 bits";
                            return Err(wrong("chroma", value, expected));
                        }
                    }
                }
                "X" => full |= value == "COLORRANGE=FULL",
                _ => {}
            }
        }
        let (Some(height), Some(width)) = (height, width) else {
            return Err(wrong("size", fields, "fields W and H"));
        };
        Ok(Header {
            height,
            width,
            chroma,
            full,
        })
    }

    /// The bytes of the planes of luma and of both chromas.
    fn planes(&self) -> [usize; 3] {
        let chroma = match self.chroma {
            Some((across, down)) => self.width.div_ceil(across) * self.height.div_ceil(down),
            None => 0,
        };
        [self.width * self.height, chroma, chroma]
    }

    /// The image of a frame: grey without chroma, else red, green and blue.
    fn image(&self, planes: &[u8]) -> Result<Decoded> {
        let [luma, chroma, _] = self.planes();
        let (luma, chromas) = planes.split_at(luma);
        let mut pixels = Vec::new();
        let channels = if self.chroma.is_some() { 3 } else { 1 };
        reserve(&mut pixels, channels * luma.len(), "Y4M pixels")?;
        for (at, &y) in luma.iter().enumerate() {
            match self.chroma {
                Some((across, down)) => {
                    let (row, column) = (at / self.width / down, at % self.width / across);
                    let at = row * self.width.div_ceil(across) + column;
                    pixels.extend(self.colour(y, chromas[at], chromas[chroma + at]));
                }
                None => pixels.push(byte(self.brightness(y))),
            }
        }
        Ok(Decoded {
            height: self.height,
            width: self.width,
            channels,
            pixels,
        })
    }

    /// Luma from 0 to 255.
    fn brightness(&self, y: u8) -> f32 {
        match self.full {
            true => f32::from(y),
            false => (f32::from(y) - 16.0) * (255.0 / 219.0),
        }
    }

    /// Red, green and blue by ITU-R BT.601.
    fn colour(&self, y: u8, u: u8, v: u8) -> [u8; 3] {
        let scale = if self.full { 1.0 } else { 255.0 / 224.0 };
        let (y, u, v) = (
            self.brightness(y),
            (f32::from(u) - 128.0) * scale,
            (f32::from(v) - 128.0) * scale,
        );
        [y + 1.402 * v, y - 0.344_136 * u - 0.714_136 * v, y + 1.772 * u].map(byte)
    }
}

fn byte(value: f32) -> u8 {
    value.round().clamp(0.0, 255.0) as u8
}
