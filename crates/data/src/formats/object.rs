//! An object in an image: a class and a box.

/// An object in an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Object {
    /// The number of its class.
    pub class: u32,
    /// The left, upper, right and lower edge of its box, in pixels from the image's left upper corner.
    pub bounds: [f32; 4],
    /// True for what need not be found, and counts neither for nor against when it is: a group (`iscrowd` of COCO), or an object that is
    /// hard to see (`difficult` of Pascal VOC).
    pub crowd: bool,
}

impl Object {
    /// Numbers of an object among the targets of a sample.
    pub const NUMBERS: usize = 6;

    /// The objects of a sample's targets: class, edges, and 1 for a crowd.
    pub fn of_targets(targets: &[f32]) -> impl ExactSizeIterator<Item = Object> + '_ {
        targets.chunks_exact(Object::NUMBERS).map(|numbers| Object {
            class: numbers[0] as u32,
            bounds: [numbers[1], numbers[2], numbers[3], numbers[4]],
            crowd: numbers[5] != 0.0,
        })
    }

    /// Replaces a sample's targets by objects.
    pub fn write_targets(objects: impl Iterator<Item = Object>, targets: &mut Vec<f32>) {
        targets.clear();
        for Object { class, bounds, crowd } in objects {
            let [x1, y1, x2, y2] = bounds;
            targets.extend([class as f32, x1, y1, x2, y2, f32::from(u8::from(crowd))]);
        }
    }

    /// The box moved and scaled, and cut at the edges of an image; `None` if less than a tenth of its area or less than a pixel of a side
    /// is left.
    pub(crate) fn mapped(
        self,
        x: impl Fn(f32) -> f32,
        y: impl Fn(f32) -> f32,
        (height, width): (usize, usize),
    ) -> Option<Object> {
        let [x1, y1, x2, y2] = self.bounds;
        let [x1, y1, x2, y2] = [x(x1), y(y1), x(x2), y(y2)];
        let area = (x2 - x1) * (y2 - y1);
        let (w, h) = (width as f32, height as f32);
        let [x1, y1, x2, y2] = [x1.clamp(0.0, w), y1.clamp(0.0, h), x2.clamp(0.0, w), y2.clamp(0.0, h)];
        let whole = x2 - x1 >= 1.0 && y2 - y1 >= 1.0 && (x2 - x1) * (y2 - y1) >= 0.1 * area;
        whole.then_some(Object {
            bounds: [x1, y1, x2, y2],
            ..self
        })
    }
}

/// The edges of a box that a file says, cut at the edges of its image; else the reason why it is none.
pub(super) fn bounds_in(bounds: [f64; 4], (height, width): (f64, f64)) -> Result<[f32; 4], &'static str> {
    let [x1, y1, x2, y2] = bounds;
    if !bounds.iter().all(|edge| edge.is_finite()) {
        return Err("finite numbers");
    }
    if x2 <= x1 || y2 <= y1 {
        return Err("a box of some width and height");
    }
    if x1 >= width || y1 >= height || x2 <= 0.0 || y2 <= 0.0 {
        return Err("a box in the image");
    }
    // Annotation tools round outwards: a pixel more is none of the file's faults.
    if x1 < -1.0 || y1 < -1.0 || x2 > width + 1.0 || y2 > height + 1.0 {
        return Err("a box that does not reach beyond the image");
    }
    Ok([x1.max(0.0), y1.max(0.0), x2.min(width), y2.min(height)].map(|edge| edge as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_back_from_targets() {
        let objects = [
            Object {
                class: 3,
                bounds: [1.0, 2.5, 3.0, 4.0],
                crowd: false,
            },
            Object {
                class: 0,
                bounds: [0.0, 0.0, 9.0, 9.0],
                crowd: true,
            },
        ];
        let mut targets = vec![7.0];
        Object::write_targets(objects.into_iter(), &mut targets);
        assert_eq!(targets.len(), 2 * Object::NUMBERS);
        assert!(Object::of_targets(&targets).eq(objects));
    }

    #[test]
    fn boxes_outside_or_empty_are_refused_and_a_pixel_too_many_is_cut() {
        let size = (10.0, 20.0);
        assert_eq!(bounds_in([-0.5, 0.0, 20.5, 10.0], size), Ok([0.0, 0.0, 20.0, 10.0]));
        for bounds in [
            [5.0, 1.0, 5.0, 4.0],
            [5.0, 4.0, 6.0, 3.0],
            [21.0, 1.0, 22.0, 2.0],
            [-3.0, 1.0, 4.0, 2.0],
            [f64::NAN, 0.0, 1.0, 1.0],
            [0.0, 0.0, f64::INFINITY, 1.0],
        ] {
            assert!(bounds_in(bounds, size).is_err(), "{bounds:?}");
        }
    }

    #[test]
    fn what_is_cut_away_is_no_object() {
        let object = Object {
            class: 0,
            bounds: [0.0, 0.0, 10.0, 10.0],
            crowd: false,
        };
        let moved = |by: f32| object.mapped(|x| x + by, |y| y, (32, 32));
        assert_eq!(moved(-5.0).unwrap().bounds, [0.0, 0.0, 5.0, 10.0]);
        assert_eq!(moved(-9.5), None);
        assert_eq!(moved(40.0), None);
    }
}
