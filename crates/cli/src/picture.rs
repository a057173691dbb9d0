//! Images as PNG files: samples, and grids of what a network makes.

use crate::error::{Error, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_core::Backend;
use kiln_data::{Decoded, Sample};
use kiln_nn::Tensor;

/// Pixels between the images of a grid.
const GAP: usize = 2;
/// The shade of these pixels.
const SHADE: u8 = 96;
/// Frames of a clip in a picture of it.
const FRAMES: usize = 8;

/// An image of bytes, row-major `[height, width, channels]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    pub(crate) pixels: Vec<u8>,
}

impl Picture {
    /// The picture of a raw sample, whose pixels are from 0 to 255: an image, or frames of a clip side by side.
    pub(crate) fn of_sample(sample: &Sample) -> Result<Self> {
        let (frames, height, width, channels) = match *sample.shape.dims() {
            [height, width, channels] => (None, height, width, channels),
            [frames, height, width, channels] if frames > 0 => (Some(frames), height, width, channels),
            _ => return Err(no_image(format!("its shape is {:?}", sample.shape))),
        };
        let picture = |pixels: &[f32]| Picture {
            height,
            width,
            channels,
            pixels: pixels.iter().map(|v| v.round() as u8).collect(),
        };
        let Some(frames) = frames else {
            return Ok(picture(&sample.input));
        };
        let size = height * width * channels;
        let frame = |number: usize| picture(&sample.input[number * frames / FRAMES * size..][..size]);
        Picture::grid(&(0..FRAMES).map(frame).collect::<Vec<_>>(), FRAMES)
    }

    /// The pictures of images `[N, H, W, C]` with values from 0 to 1.
    pub(crate) fn of_images<B: Backend>(images: &Tensor<B>) -> Result<Vec<Self>> {
        let [_, height, width, channels] = *images.shape().dims() else {
            return Err(no_image(format!("its shape is {:?}", images.shape())));
        };
        let bytes: Vec<u8> = images.to_f64()?.iter().map(|v| (255.0 * v).round() as u8).collect();
        let picture = |pixels: &[u8]| Picture {
            height,
            width,
            channels,
            pixels: pixels.to_vec(),
        };
        Ok(bytes.chunks((height * width * channels).max(1)).map(picture).collect())
    }

    /// Pictures of one shape side by side, so many in a row.
    pub(crate) fn grid(pictures: &[Picture], columns: usize) -> Result<Self> {
        let Some(first) = pictures.first() else {
            return Err(no_image("there is none".to_string()));
        };
        let (columns, rows) = (
            columns.clamp(1, pictures.len()),
            pictures.len().div_ceil(columns.max(1)),
        );
        let (height, width) = (rows * (first.height + GAP) + GAP, columns * (first.width + GAP) + GAP);
        let mut grid = Picture {
            height,
            width,
            channels: first.channels,
            pixels: vec![SHADE; height * width * first.channels],
        };
        for (i, picture) in pictures.iter().enumerate() {
            if (picture.height, picture.width, picture.channels) != (first.height, first.width, first.channels) {
                return Err(no_image("it has another shape than the first".to_string()));
            }
            let (top, left) = (
                GAP + i / columns * (first.height + GAP),
                GAP + i % columns * (first.width + GAP),
            );
            grid.paste(picture, (left, top));
        }
        Ok(grid)
    }

    /// Copies a picture of as many channels to a place inside this one.
    pub(crate) fn paste(&mut self, picture: &Picture, (left, top): (usize, usize)) {
        let row = picture.width * picture.channels;
        for (y, line) in picture.pixels.chunks(row.max(1)).enumerate() {
            let at = ((top + y) * self.width + left) * self.channels;
            self.pixels[at..at + row].copy_from_slice(line);
        }
    }

    /// Pictures of images `[N, H, W, C]`, each beside its counterpart in `made`, so many in a row.
    pub(crate) fn pairs<B: Backend>(images: &Tensor<B>, made: &Tensor<B>, columns: usize) -> Result<Self> {
        let pairs = Picture::of_images(images)?.into_iter().zip(Picture::of_images(made)?);
        let all: Vec<Picture> = pairs.flat_map(|(image, made)| [image, made]).collect();
        Picture::grid(&all, columns.next_multiple_of(2))
    }

    /// The picture as a PNG file.
    pub(crate) fn png(&self) -> Result<Vec<u8>> {
        let side = |n: usize| u32::try_from(n).map_err(|_| no_image(format!("a side of {n}")));
        let color = match self.channels {
            1 => png::ColorType::Grayscale,
            3 => png::ColorType::Rgb,
            channels => return Err(no_image(format!("{channels} channels"))),
        };
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, side(self.width)?, side(self.height)?);
        encoder.set_color(color);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder
            .write_header()
            .and_then(|mut png| png.write_image_data(&self.pixels));
        written.map_err(|e| no_image(e.to_string()))?;
        Ok(file)
    }

    /// The picture as a URL that holds its PNG file.
    pub(crate) fn url(&self) -> Result<String> {
        Ok(format!("data:image/png;base64,{}", STANDARD.encode(self.png()?)))
    }
}

impl From<Decoded> for Picture {
    fn from(image: Decoded) -> Self {
        Picture {
            height: image.height,
            width: image.width,
            channels: image.channels,
            pixels: image.pixels,
        }
    }
}

fn no_image(why: String) -> Error {
    Error::failure(format!("a sample is no image: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clip_is_shown_as_a_strip_of_its_frames() {
        let clip = |frames: usize| {
            let mut sample = Sample::default();
            let shape = kiln_core::Shape::new(&[frames, 1, 1, 1]).unwrap();
            sample.fill(shape, (0..frames).map(|frame| frame as f32)).unwrap();
            let strip = Picture::of_sample(&sample).unwrap();
            assert_eq!((strip.height, strip.width), (1 + 2 * GAP, FRAMES * (1 + GAP) + GAP));
            let row = &strip.pixels[GAP * strip.width..(GAP + 1) * strip.width];
            row[GAP..].iter().step_by(1 + GAP).copied().collect::<Vec<u8>>()
        };
        assert_eq!(clip(16), [0, 2, 4, 6, 8, 10, 12, 14]);
        assert_eq!(clip(3), [0, 0, 0, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_grid_holds_every_picture_at_its_place() {
        let picture = |shade: u8| Picture {
            height: 2,
            width: 3,
            channels: 1,
            pixels: vec![shade; 6],
        };
        let pictures: Vec<Picture> = (0..5).map(picture).collect();
        let grid = Picture::grid(&pictures, 3).unwrap();
        assert_eq!((grid.height, grid.width), (2 * 4 + 2, 3 * 5 + 2));
        for shade in 0..5u8 {
            assert_eq!(grid.pixels.iter().filter(|&&p| p == shade).count(), 6, "{shade}");
        }
        let at = |y: usize, x: usize| grid.pixels[y * grid.width + x];
        assert_eq!(
            (at(0, 0), at(2, 2), at(2, 7), at(6, 2), at(6, 12)),
            (SHADE, 0, 1, 3, SHADE)
        );
        assert!(grid.url().unwrap().starts_with("data:image/png;base64,"));
        assert!(Picture::grid(&[], 3).is_err());
        let other = Picture {
            width: 6,
            height: 1,
            ..picture(9)
        };
        assert!(Picture::grid(&[picture(1), other], 2).is_err());
    }
}
