//! `kiln predict`: classification of image files.

use crate::args::{Invert, PredictArgs};
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::finite;
use crate::output::{self, line, percent, report};
use crate::weights::Saved;
use crate::{data, weights};
use kiln_core::{Backend, Shape};
use kiln_data::{Compose, Decoded, Draw, ImageLimits, Sample, Transform, decode_image, resize_bilinear};
use kiln_files::shown_path;
use kiln_models::{DataKind, InputKind, Model, Net};
use kiln_nn::{Tensor, no_grad};
use serde_json::json;
use std::path::Path;

struct Predict<'a>(&'a PredictArgs);

impl Task for Predict<'_> {
    /// The exit code.
    type Output = u8;

    fn run<B: Backend>(self, backend: &B) -> Result<u8> {
        let args = self.0;
        let Saved { path, model, net, .. } = weights::load(&args.weights, backend)?;
        let InputKind::Images(shape) = model.input() else {
            return Err(Error::usage(format!(
                "{}: {model} reads text and classifies no images",
                shown_path(&path)
            ))
            .help("`kiln generate RUN_FOLDER` goes on with a text"));
        };
        let names = data::names_of_recipe(model);
        let transform = model.transform(false)?;
        let mut exit = 0;
        // If an image cannot be read, the others are still classified.
        for path in &args.images {
            let shares = input(path, (model, shape), args.invert, &transform)
                .and_then(|(pixels, shape)| Ok(Tensor::from_slice(backend, &pixels, &shape)?))
                .and_then(|image| classify(&net, &image, path));
            match shares {
                Ok(shares) => {
                    let mut classes: Vec<(&str, f64)> = names.iter().map(String::as_str).zip(shares).collect();
                    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
                    classes.truncate(usize::from(args.top));
                    show(path, model, &classes, args.json);
                }
                Err(error) => {
                    // If standard error cannot be written, there is no place to report that.
                    let _ = report(&error);
                    exit = error.code;
                }
            }
        }
        Ok(exit)
    }
}

/// The probability of every class.
fn classify<B: Backend>(net: &Net<B>, image: &Tensor<B>, path: &Path) -> Result<Vec<f64>> {
    let logits = || net.classify(image).unwrap_or_else(|| Ok(image.clone()));
    let shares = no_grad(|| logits()?.softmax(-1)?.to_f64())?;
    if shares.iter().all(|share| share.is_finite()) {
        return Ok(shares);
    }
    let what = format!("{}: the probabilities", shown_path(path));
    Err(finite::overflow(logits, &what)?)
}

/// The pixels of an image file as the model's input, and their shape `[1, H, W, C]`.
fn input(
    path: &Path,
    (model, [h, w, c]): (Model, [usize; 3]),
    invert: Invert,
    transform: &Compose,
) -> Result<(Vec<f32>, [usize; 4])> {
    let image = match model.recipe().data {
        DataKind::Mnist => digit(path, invert)?,
        DataKind::Cifar10 | DataKind::Text => resize_bilinear(&decode(path, c)?, h, w)?,
    };
    let mut sample = Sample::default();
    sample.fill(Shape::new(&[h, w, c])?, image.pixels.iter().map(|&p| f32::from(p)))?;
    transform.apply(&mut sample, &Draw::new(0, 0, 0))?;
    Ok((sample.input, [1, h, w, c]))
}

/// Prints one image's classes, the most probable first.
fn show(path: &Path, model: Model, classes: &[(&str, f64)], json: bool) {
    if json {
        let each: Vec<_> = classes
            .iter()
            .map(|(name, share)| json!({"class": name, "probability": share}))
            .collect();
        let text = json!({
            "image": path.display().to_string(),
            "model": model.name(),
            "class": classes.first().map(|(name, _)| name),
            "probability": classes.first().map(|(_, share)| share),
            "top": each,
        });
        output::json(&text);
    } else {
        let each: Vec<String> = classes.iter().map(|(n, s)| format!("{n} {}", percent(*s))).collect();
        line(&format!("{}: {}", shown_path(path), each.join(", ")));
    }
}

fn decode(path: &Path, channels: usize) -> Result<Decoded> {
    Ok(decode_image(path, channels, &ImageLimits::default())?)
}

/// The image in a file, converted to the form of MNIST's: grey, light ink on dark ground, 28×28.
fn digit(path: &Path, invert: Invert) -> Result<Decoded> {
    let mut image = decode(path, 1)?;
    let invert = match invert {
        Invert::Yes => true,
        Invert::No => false,
        Invert::Auto => light_border(&image),
    };
    if invert {
        image.pixels.iter_mut().for_each(|p| *p = 255 - *p);
    }
    if (image.height, image.width) == (28, 28) {
        return Ok(image);
    }
    centred(&image)
}

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
    const SIDE: usize = 28;
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

pub(crate) fn run(args: PredictArgs) -> Result<u8> {
    with_device(&args.device.options(), Predict(&args))
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
