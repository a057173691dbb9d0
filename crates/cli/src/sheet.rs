//! A sheet of the images or clips that a network was asked about, each above its classes.

use crate::drawing::{LETTER, colour, fill, text};
use crate::error::Result;
use crate::output::percent;
use crate::picture::Picture;
use kiln_data::{Decoded, resize_bilinear};

/// Pixels of a cell: those that a picture is fitted into, and the widest that a sheet gets with more than one column.
const HEIGHT: usize = 128;
const WIDTH: usize = 560;
const SHEET: usize = 1120;
/// Pixels of a line of text.
const LINE: usize = LETTER + 4;
/// The letters of a line that widen a cell; of longer lines as much is written as the cell has room for.
const LETTERS: usize = 32;
/// Red, green and blue behind pictures and texts.
const GROUND: [u8; 3] = [40; 3];

/// An image or a clip as large as it is drawn, and classes by their numbers, names and probabilities.
pub(crate) struct Told {
    picture: Picture,
    classes: Vec<(usize, String, f64)>,
}

impl Told {
    pub(crate) fn new(picture: Picture, classes: Vec<(usize, String, f64)>) -> Result<Self> {
        let picture = fitted(picture)?;
        Ok(Told { picture, classes })
    }

    /// The number, the line of text and the probability of each class.
    fn lines(&self) -> impl Iterator<Item = (usize, String, f64)> {
        let line =
            |(class, name, share): &(usize, String, f64)| (*class, format!("{name} {}", percent(*share)), *share);
        self.classes.iter().map(line)
    }
}

/// The sheet: under each picture a line for each class, behind which a bar in the colour of the class shows its probability.
pub(crate) fn sheet(all: &[Told]) -> Result<Picture> {
    let letters = all
        .iter()
        .flat_map(|told| told.lines().map(|(_, line, _)| line.chars().count()));
    let widest = all.iter().map(|told| told.picture.width).max().unwrap_or(0);
    let width = widest.max((letters.max().unwrap_or(0).min(LETTERS) + 1) * LETTER);
    let top = all.iter().map(|told| told.picture.height).max().unwrap_or(0);
    let lines = all.iter().map(|told| told.classes.len()).max().unwrap_or(0);
    let height = top + lines * LINE;
    let cell = |told: &Told| {
        let mut cell = Picture {
            height,
            width,
            channels: 3,
            pixels: GROUND.repeat(height * width),
        };
        let (left, above) = ((width - told.picture.width) / 2, top - told.picture.height);
        cell.paste(&told.picture, (left, above));
        for (number, (class, line, share)) in told.lines().enumerate() {
            let y = top + number * LINE;
            let bar = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
            fill(&mut cell, [0, y + 1, bar, y + LINE - 1], colour(class));
            text(&mut cell, &line, (LETTER / 2, y + 2), 1);
        }
        cell
    };
    Picture::grid(&all.iter().map(cell).collect::<Vec<_>>(), SHEET / width.max(1))
}

/// A picture as large as it fits into a cell, in three channels: small ones with every pixel as a square, large ones shrunk.
fn fitted(picture: Picture) -> Result<Picture> {
    let times = (HEIGHT / picture.height.max(1)).min(WIDTH / picture.width.max(1));
    if times > 0 {
        let mut large = Picture {
            height: picture.height * times,
            width: picture.width * times,
            channels: 3,
            pixels: Vec::new(),
        };
        for y in 0..large.height {
            for x in 0..large.width {
                let at = (y / times * picture.width + x / times) * picture.channels;
                let pixel = &picture.pixels[at..at + picture.channels];
                let channels = (0..3).map(|channel| pixel[channel.min(picture.channels - 1)]);
                large.pixels.extend(channels);
            }
        }
        return Ok(large);
    }
    let share = (HEIGHT as f64 / picture.height as f64).min(WIDTH as f64 / picture.width as f64);
    let side = |pixels: usize| ((pixels as f64 * share) as usize).max(1);
    let (height, width) = (side(picture.height), side(picture.width));
    let image = Decoded {
        height: picture.height,
        width: picture.width,
        channels: picture.channels,
        pixels: picture.pixels,
    };
    fitted(resize_bilinear(&image, height, width)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(height: usize, width: usize, channels: usize) -> Picture {
        Picture {
            height,
            width,
            channels,
            pixels: vec![200; height * width * channels],
        }
    }

    /// An image of 32×32 with classes of these probabilities.
    fn told(channels: usize, shares: &[f64]) -> Told {
        let named = |(class, &share): (usize, &f64)| (class, format!("class {class}"), share);
        Told::new(grey(32, 32, channels), shares.iter().enumerate().map(named).collect()).unwrap()
    }

    #[test]
    fn pictures_of_any_size_are_fitted_into_cells() {
        for (height, width, expected) in [
            (32, 32, (128, 128)),
            (28, 28, (112, 112)),
            (36, 274, (72, 548)),
            (256, 256, (128, 128)),
            (3000, 10, (128, 1)),
            (10, 3000, (1, 560)),
            (1, 1, (128, 128)),
        ] {
            for channels in [1, 3] {
                let fitted = fitted(grey(height, width, channels)).unwrap();
                assert_eq!(
                    (fitted.height, fitted.width, fitted.channels),
                    (expected.0, expected.1, 3),
                    "{height} {width}"
                );
                assert!(fitted.pixels.iter().all(|&pixel| pixel == 200));
            }
        }
    }

    #[test]
    fn the_bar_of_a_class_is_as_long_as_it_is_probable() {
        let sheet = sheet(&[told(3, &[0.75, 0.25]), told(1, &[1.0])]).unwrap();
        let bars = |class: usize| sheet.pixels.chunks(3).filter(|pixel| *pixel == colour(class)).count();
        let white = sheet.pixels.chunks(3).filter(|pixel| *pixel == [255; 3]).count();
        let whole = 128 * (LINE - 2);
        assert!(
            white > 50 && bars(0) + white > whole * 7 / 4,
            "{} of {whole} and {white}",
            bars(0)
        );
        assert!(
            bars(0) <= whole * 7 / 4 && (1..=whole / 4).contains(&bars(1)),
            "{} {}",
            bars(0),
            bars(1)
        );
    }

    #[test]
    fn long_names_are_cut_and_sheets_have_rows() {
        let mut all: Vec<Told> = (0..20).map(|_| told(3, &[0.5])).collect();
        all[3].classes[0].1 = "a name that is much longer than a cell is wide".to_string();
        let sheet = sheet(&all).unwrap();
        assert!(sheet.width <= SHEET + 32, "{}", sheet.width);
        assert!(sheet.height > 3 * (128 + LINE));
        assert_eq!(sheet.pixels.len(), sheet.height * sheet.width * 3);
    }
}
