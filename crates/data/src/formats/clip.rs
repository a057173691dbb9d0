//! Clips: the frames of a folder, a GIF or a Y4M file.

use super::frames::{Clip, ClipOptions, Kept};
use super::gif;
use super::image::decode_image;
use super::image_folder::{is_image, list};
use super::input::Input;
use super::y4m;
use crate::{DataError, Result};
use std::path::Path;

/// Reads the frames of a clip, scaled to one size: the PNG and JPEG files of a folder in the order of their names (numbers by their
/// value), or those of a GIF or Y4M file, recognised by its first bytes. A Y4M file may be compressed by gzip.
///
/// Of a clip with more than eight times the frames that are asked for, every second one is kept, or every fourth, and so on.
/// Frames of a GIF are what is seen when it plays, on white where it is transparent; how long each lasts is ignored. Y4M is read with eight
/// bits and the colours of BT.601.
///
/// # Errors
/// [`DataError::Value`] for a clip of fewer frames than are asked for, or a field of Y4M's header; those of
/// [`decode_image`]; [`DataError::Empty`] for a folder without frames.
pub fn decode_clip(path: impl AsRef<Path>, options: &ClipOptions) -> Result<Clip> {
    let path = path.as_ref();
    let mut kept = Kept::new(path, options)?;
    if path.is_dir() {
        folder(path, &mut kept)?;
    } else {
        let mut input = Input::open(path, options.limits.max_file_bytes)?;
        let magic = input.some(y4m::MAGIC.len())?;
        if magic == y4m::MAGIC {
            y4m::read(path, input, &options.limits, &mut kept)?;
        } else if magic.starts_with(gif::MAGIC) {
            let bytes = Input::open(path, options.limits.max_file_bytes)?.rest("file size")?;
            gif::read(path, &bytes, &options.limits, &mut kept)?;
        } else {
            return Err(DataError::Magic {
                path: path.to_path_buf(),
                found: magic,
                expected: "GIF (47 49 46 38) or Y4M (59 55 56 34 4d 50 45 47 32)",
            });
        }
    }
    kept.finish()
}

/// The frames of a folder; those that are thinned out are not decoded.
fn folder(path: &Path, kept: &mut Kept<'_>) -> Result<()> {
    let mut frames: Vec<_> = list(path)?
        .into_iter()
        .filter(|(name, path)| is_image(name) && !path.is_dir())
        .collect();
    if frames.is_empty() {
        return Err(DataError::Empty {
            path: path.to_path_buf(),
            expected: "at least one .png, .jpg or .jpeg file, a frame of the clip",
        });
    }
    frames.sort_by_cached_key(|(name, _)| by_value(name));
    kept.expect(frames.len());
    let ClipOptions { channels, limits, .. } = *kept.options();
    for (_, frame) in &frames {
        kept.push(|| decode_image(frame, channels, &limits))?;
    }
    Ok(())
}

/// The parts of a name, so that numbers are in the order of their values: `frame2` before `frame10`.
fn by_value(name: &str) -> Vec<(u128, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, behind) = rest.split_at(digits);
        let text = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        // A number too large to count comes last, in the order of its digits, and so does a name that begins with a letter.
        parts.push((
            number.parse().unwrap_or(u128::MAX),
            format!("{number}{}", &behind[..text]),
        ));
        rest = &behind[text..];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let mut names = ["b1.png", "a10.png", "10.png", "a2.png", "2.png", "a.png", "a02b3.png"];
        names.sort_by_cached_key(|name| by_value(name));
        assert_eq!(
            names,
            ["2.png", "10.png", "a02b3.png", "a2.png", "a10.png", "a.png", "b1.png"]
        );
        let large = "9".repeat(60);
        assert!(by_value("1.png") < by_value(&large));
    }
}
