//! MNIST and datasets of its format in the table of datasets, and image files as images of its form.

use super::card::{DatasetCard, FileOptions};
use super::images::{self, IMAGES};
use super::opened::Opened;
use crate::{Decoded, ImageLimits, Result, Sample, decode_image, mnist, resize_bilinear};
use std::path::Path;
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "MNIST",
    description: "grey images in MNIST's four IDX files, gzipped or not; without a path the 10,000 digits inside kiln",
    files: "MNIST files of",
    ships: Some("the MNIST digits inside kiln"),
    obtain: "put MNIST's four files into a folder",
    example: "fashion-mnist",
    samples: &IMAGES,
    shape: Some(&[28, 28, 1]),
    classes: &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
    has_classes: true,
    has_target: false,
    facts: &[],
    recognises: |path| {
        let names = ["train-images", "t10k-images"];
        let found = |folder: &Path| {
            let entries = folder.read_dir().into_iter().flatten().flatten();
            let mut files = entries.map(|entry| entry.file_name());
            files.any(|file| names.iter().any(|name| file.to_string_lossy().starts_with(name)))
        };
        found(path) || found(&path.join("MNIST").join("raw"))
    },
    open: |request| {
        Ok(Opened::of(match request.path {
            Some(path) => mnist::folder(path, request.bad)?,
            None => mnist::embedded()?,
        }))
    },
    held_back: |request| {
        Ok(Arc::new(match request.path {
            Some(path) => mnist::test_folder(path, request.bad)?,
            None => mnist::embedded()?.test,
        }))
    },
    file: Some(digit),
};

/// The image in a file, converted to the form of MNIST's: grey, light ink on dark ground, 28×28.
fn digit(path: &Path, options: &FileOptions<'_>) -> Result<Vec<Sample>> {
    let mut image = decode_image(path, 1, &ImageLimits::default())?;
    if options.invert.unwrap_or_else(|| light_border(&image)) {
        image.pixels.iter_mut().for_each(|p| *p = 255 - *p);
    }
    if (image.height, image.width) != (SIDE, SIDE) {
        image = centred(&image)?;
    }
    Ok(vec![images::sample(&image)?])
}

/// The side of MNIST's images.
const SIDE: usize = 28;

/// True if the outermost pixels are lighter than mid-grey on average.
fn light_border(image: &Decoded) -> bool {
    let (h, w) = (image.height, image.width);
    let (mut sum, mut count) = (0u64, 0u64);
    for (i, &p) in image.pixels.iter().enumerate() {
        let (y, x) = (i / w.max(1), i % w.max(1));
        if y == 0 || x == 0 || y + 1 == h || x + 1 == w {
            sum += u64::from(p);
            count += 1;
        }
    }
    sum > 127 * count
}

/// The image scaled and placed as MNIST's were (LeCun et al. 1998): the ink fits 20×20, and its centre of mass is in the
/// middle of 28×28. Pixels at least a quarter as bright as the brightest one are ink.
fn centred(image: &Decoded) -> Result<Decoded> {
    const INK: usize = 20;
    let (h, w) = (image.height, image.width);
    let threshold = image.pixels.iter().max().copied().unwrap_or(0) / 4;
    let ink = |y: usize, x: usize| image.pixels[y * w + x] > threshold;
    let rows: Vec<usize> = (0..h).filter(|&y| (0..w).any(|x| ink(y, x))).collect();
    let columns: Vec<usize> = (0..w).filter(|&x| (0..h).any(|y| ink(y, x))).collect();
    let mut out = Decoded {
        height: SIDE,
        width: SIDE,
        channels: 1,
        pixels: vec![0; SIDE * SIDE],
    };
    let (Some(&top), Some(&bottom), Some(&left), Some(&right)) =
        (rows.first(), rows.last(), columns.first(), columns.last())
    else {
        return Ok(out);
    };
    let (height, width) = (bottom - top + 1, right - left + 1);
    let cut = Decoded {
        height,
        width,
        channels: 1,
        pixels: (top..=bottom)
            .flat_map(|y| image.pixels[y * w + left..=y * w + right].iter().copied())
            .collect(),
    };
    let scaled = |side: usize| (side * INK).div_ceil(height.max(width)).clamp(1, INK);
    let small = resize_bilinear(&cut, scaled(height), scaled(width))?;
    let (mut mass, mut my, mut mx) = (0.0, 0.0, 0.0);
    for (i, &p) in small.pixels.iter().enumerate() {
        mass += f64::from(p);
        my += f64::from(p) * ((i / small.width) as f64 + 0.5);
        mx += f64::from(p) * ((i % small.width) as f64 + 0.5);
    }
    let place = |moment: f64, size: usize| {
        let offset = SIDE as f64 / 2.0 - moment / f64::max(mass, 1.0);
        (offset.round().max(0.0) as usize).min(SIDE - size)
    };
    let (y0, x0) = (place(my, small.height), place(mx, small.width));
    for (y, row) in small.pixels.chunks(small.width).enumerate() {
        let at = (y0 + y) * SIDE + x0;
        out.pixels[at..at + small.width].copy_from_slice(row);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(height: usize, width: usize, pixel: impl Fn(usize, usize) -> u8) -> Decoded {
        Decoded {
            height,
            width,
            channels: 1,
            pixels: (0..height * width).map(|i| pixel(i / width, i % width)).collect(),
        }
    }

    #[test]
    fn paper_is_told_from_a_dark_ground() {
        let stroke = |y: usize, x: usize| (3..7).contains(&y) && (3..7).contains(&x);
        assert!(light_border(&image(10, 10, |y, x| if stroke(y, x) { 0 } else { 250 })));
        assert!(!light_border(&image(10, 10, |y, x| if stroke(y, x) { 250 } else { 0 })));
    }

    #[test]
    fn ink_ends_up_in_the_middle_whatever_the_size() {
        for (h, w) in [(100, 60), (60, 100), (40, 40), (200, 9), (1, 1), (5, 300)] {
            let out = centred(&image(h, w, |y, x| if y >= h / 2 && x >= w / 2 { 255 } else { 0 })).unwrap();
            let total: f64 = out.pixels.iter().map(|&p| f64::from(p)).sum();
            let rows: f64 = out
                .pixels
                .iter()
                .enumerate()
                .map(|(i, &p)| f64::from(p) * (i / 28) as f64)
                .sum();
            assert!(total > 0.0);
            assert!((rows / total - 13.5).abs() < 1.0, "{h}×{w}: {}", rows / total);
        }
    }

    #[test]
    fn an_empty_image_stays_empty() {
        let out = centred(&image(30, 30, |_, _| 0)).unwrap();
        assert_eq!(out.pixels, vec![0; 784]);
    }
}
