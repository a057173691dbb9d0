//! Boxes with labels, drawn into pictures.

use crate::picture::Picture;
use font8x8::UnicodeFonts;
use kiln_nn::detection::Detections;

/// Pixels of a letter's side in the font.
pub(crate) const LETTER: usize = 8;

/// A box to draw.
pub(crate) struct Labelled {
    /// The left, upper, right and lower edge in pixels.
    pub(crate) bounds: [f32; 4],
    pub(crate) label: String,
    /// Boxes of one class have one colour.
    pub(crate) class: usize,
}

/// The boxes of what a network has found, as far as it is at least so likely; the most certain ones are drawn last, above the others.
pub(crate) fn labelled(found: &Detections, names: &[String], min_score: f64) -> Vec<Labelled> {
    let all = found.boxes.iter().zip(&found.classes).zip(&found.scores);
    let certain = all.filter(|(_, score)| f64::from(**score) >= min_score);
    let mut boxes: Vec<Labelled> = certain
        .map(|((&bounds, &class), &score)| {
            let (class, name) = named(class, names);
            Labelled {
                bounds,
                label: format!("{name} {:.0}%", 100.0 * score),
                class,
            }
        })
        .collect();
    boxes.reverse();
    boxes
}

/// The number and the name of a class.
pub(crate) fn named(class: i32, names: &[String]) -> (usize, String) {
    let class = usize::try_from(class).unwrap_or_default();
    (class, names.get(class).cloned().unwrap_or_else(|| class.to_string()))
}

/// Red, green and blue of a class: colours that follow each other differ.
pub(crate) fn colour(class: usize) -> [u8; 3] {
    const COLOURS: [[u8; 3]; 10] = [
        [230, 60, 60],
        [60, 180, 75],
        [67, 99, 216],
        [245, 130, 49],
        [145, 30, 180],
        [0, 160, 160],
        [240, 50, 230],
        [128, 128, 0],
        [154, 99, 36],
        [70, 70, 70],
    ];
    COLOURS[class % COLOURS.len()]
}

/// Draws boxes into a picture of three channels, each with its label above, or inside where there is no room above. Lines and letters grow
/// with the picture.
pub(crate) fn draw(picture: &mut Picture, boxes: &[Labelled]) {
    let scale = (picture.height.min(picture.width) / 320).max(1);
    for labelled in boxes {
        let [x1, y1, x2, y2] = labelled.bounds.map(|edge| edge.round().max(0.0) as usize);
        let (x2, y2) = (x2.min(picture.width), y2.min(picture.height));
        let (colour, line) = (colour(labelled.class), scale);
        fill(picture, [x1, y1, x2, y1 + line], colour);
        fill(picture, [x1, y2.saturating_sub(line), x2, y2], colour);
        fill(picture, [x1, y1, x1 + line, y2], colour);
        fill(picture, [x2.saturating_sub(line), y1, x2, y2], colour);
        let height = (LETTER + 2) * scale;
        let top = if y1 >= height { y1 - height } else { y1 };
        let width = (LETTER * labelled.label.chars().count() + 2) * scale;
        // A label at the right edge is moved to where it can be read.
        let left = x1.min(picture.width.saturating_sub(width));
        fill(picture, [left, top, left + width, top + height], colour);
        text(picture, &labelled.label, (left + scale, top + scale), scale);
    }
}

/// Fills a rectangle, as far as it lies in the picture.
pub(crate) fn fill(picture: &mut Picture, [x1, y1, x2, y2]: [usize; 4], colour: [u8; 3]) {
    for y in y1..y2.min(picture.height) {
        for x in x1..x2.min(picture.width) {
            let at = (y * picture.width + x) * picture.channels;
            for (pixel, value) in picture.pixels[at..at + picture.channels].iter_mut().zip(colour) {
                *pixel = value;
            }
        }
    }
}

/// Writes a line of white text, whose letters are `scale` times those of the font.
pub(crate) fn text(picture: &mut Picture, text: &str, (left, top): (usize, usize), scale: usize) {
    for (number, letter) in text.chars().enumerate() {
        let letter = font8x8::BASIC_FONTS
            .get(letter)
            .or_else(|| font8x8::LATIN_FONTS.get(letter));
        let rows = letter.or_else(|| font8x8::BASIC_FONTS.get('?')).unwrap_or_default();
        for (y, row) in rows.into_iter().enumerate() {
            for x in (0..LETTER).filter(|x| row >> x & 1 == 1) {
                let (x, y) = (left + (number * LETTER + x) * scale, top + y * scale);
                fill(picture, [x, y, x + scale, y + scale], [255; 3]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(bounds: [f32; 4], label: &str) -> Picture {
        let mut picture = Picture {
            height: 40,
            width: 60,
            channels: 3,
            pixels: vec![0; 40 * 60 * 3],
        };
        let labelled = Labelled {
            bounds,
            label: label.to_string(),
            class: 1,
        };
        draw(&mut picture, &[labelled]);
        picture
    }

    #[test]
    fn a_box_has_four_sides_and_a_label() {
        let picture = drawn([10.0, 20.0, 50.0, 35.0], "a");
        let at = |y: usize, x: usize| &picture.pixels[(y * 60 + x) * 3..][..3];
        for (y, x) in [(20, 10), (20, 49), (34, 10), (34, 49), (27, 10), (27, 49), (20, 30)] {
            assert_eq!(at(y, x), colour(1), "{y} {x}");
        }
        assert_eq!((at(27, 30), at(36, 30)), (&[0; 3][..], &[0; 3][..]));
        let white = |picture: &Picture| picture.pixels.chunks(3).filter(|pixel| *pixel == [255; 3]).count();
        assert!(white(&picture) > 10);
        assert_eq!(white(&picture), white(&drawn([55.0, 0.0, 60.0, 40.0], "a")));
    }

    #[test]
    fn boxes_and_labels_beyond_the_picture_are_cut() {
        drawn(
            [-5.0, -9.0, 1e9, 1e9],
            "a label that is longer than the picture is wide",
        );
        drawn([70.0, 50.0, 80.0, 60.0], "☃");
    }
}
