//! The boxes that detectors start from.

use crate::{Error, Result};

/// Boxes of several sizes and shapes around every position of feature maps (`AnchorGenerator` of torchvision's detectors).
///
/// A level of features has a list of sizes and one of aspect ratios, height by width; each ratio has each size, with the area of the size's
/// square. As in torchvision, the corners of the boxes around a position are rounded to whole pixels, halves to even.
///
/// ```
/// use kiln_nn::detection::AnchorGenerator;
/// let anchors = AnchorGenerator::new(vec![vec![32.0]], vec![0.5, 1.0, 2.0])?;
/// assert_eq!(anchors.per_position(0), 3);
/// let all = anchors.generate(&[(2, 2)], (32, 32))?;
/// assert_eq!(all[0][..2], [[-23.0, -11.0, 23.0, 11.0], [-16.0, -16.0, 16.0, 16.0]]);
/// assert_eq!(all[0][3], [-7.0, -11.0, 39.0, 11.0]); // the next position, 16 pixels to the right
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AnchorGenerator {
    /// The boxes around the origin for each level.
    cells: Vec<Vec<[f32; 4]>>,
}

impl AnchorGenerator {
    /// Anchors with a list of sizes in pixels for each level, and one list of ratios for all.
    ///
    /// See the example of [`AnchorGenerator`].
    ///
    /// # Errors
    /// A size or a ratio that is not a positive number, no sizes for a level, no ratios.
    pub fn new(sizes: Vec<Vec<f32>>, ratios: Vec<f32>) -> Result<Self> {
        const OP: &str = "anchors";
        let positive = |v: &f32| *v > 0.0 && v.is_finite();
        for (argument, list) in sizes.iter().map(|s| ("sizes", s)).chain([("ratios", &ratios)]) {
            if list.is_empty() || !list.iter().all(positive) {
                return Err(Error::invalid(
                    OP,
                    argument,
                    format!("{list:?}"),
                    "positive numbers, at least one",
                ));
            }
        }
        let cell = |sizes: &Vec<f32>| {
            let each = ratios.iter().flat_map(|ratio| {
                let high = ratio.sqrt();
                let wide = 1.0 / high;
                sizes.iter().map(move |size| (wide * size, high * size))
            });
            each.map(|(w, h)| [-w, -h, w, h].map(|v| (v / 2.0).round_ties_even()))
                .collect()
        };
        Ok(AnchorGenerator {
            cells: sizes.iter().map(cell).collect(),
        })
    }

    /// Number of levels.
    ///
    /// ```
    /// # use kiln_nn::detection::AnchorGenerator;
    /// let anchors = AnchorGenerator::new(vec![vec![32.0], vec![64.0, 90.0]], vec![1.0])?;
    /// assert_eq!((anchors.levels(), anchors.per_position(1)), (2, 2));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn levels(&self) -> usize {
        self.cells.len()
    }

    /// Number of anchors around each position of a level; 0 for a level that there is not.
    ///
    /// See the example of [`AnchorGenerator`].
    pub fn per_position(&self, level: usize) -> usize {
        self.cells.get(level).map_or(0, Vec::len)
    }

    /// The anchors of each level in an image of `(height, width)`, given the `(height, width)` of the features of each level: position by
    /// position, row-major, and in each the ratios with their sizes. Positions are `image / features` pixels apart, rounded down.
    ///
    /// See the example of [`AnchorGenerator`].
    ///
    /// # Errors
    /// Another number of features than of levels, features without a position, memory.
    pub fn generate(&self, features: &[(usize, usize)], image: (usize, usize)) -> Result<Vec<Vec<[f32; 4]>>> {
        const OP: &str = "anchors";
        if features.len() != self.cells.len() || features.iter().any(|&(h, w)| h == 0 || w == 0) {
            let expected = format!("{} sizes of at least 1", self.cells.len());
            return Err(Error::invalid(OP, "features", format!("{features:?}"), expected));
        }
        let level = |(cell, &(height, width)): (&Vec<[f32; 4]>, &(usize, usize))| {
            let (down, right) = (image.0 / height, image.1 / width);
            let mut all = kiln_core::host::room(height.saturating_mul(width).saturating_mul(cell.len()))?;
            for y in 0..height {
                for x in 0..width {
                    let (x, y) = ((x * right) as f32, (y * down) as f32);
                    all.extend(cell.iter().map(|b| [b[0] + x, b[1] + y, b[2] + x, b[3] + y]));
                }
            }
            Ok(all)
        };
        self.cells.iter().zip(features).map(level).collect()
    }
}
