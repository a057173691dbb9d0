//! Boxes on the host: the targets and the answers of detectors.

use crate::{Backend, DType, Error, Result, Tensor};

/// The boxes of one image, with a class each: the targets of a detector.
///
/// ```
/// use kiln_nn::detection::Boxes;
/// let boxes = Boxes { xyxy: vec![[10.0, 20.0, 50.0, 80.0]], classes: vec![2] };
/// assert!(boxes.check(3).is_ok());
/// assert!(boxes.check(2).is_err()); // there is no class 2 among two
/// let inverted = Boxes { xyxy: vec![[50.0, 20.0, 10.0, 80.0]], classes: vec![0] };
/// assert!(inverted.check(3).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boxes {
    /// The corners `[x1, y1, x2, y2]` in pixels of the image that the network is given.
    pub xyxy: Vec<[f32; 4]>,
    /// The class of each box, from 0; background is no class.
    pub classes: Vec<i32>,
}

impl Boxes {
    /// Number of boxes.
    ///
    /// ```
    /// assert_eq!(kiln_nn::detection::Boxes::default().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.xyxy.len()
    }

    /// True without boxes: an image of background.
    ///
    /// ```
    /// assert!(kiln_nn::detection::Boxes::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.xyxy.is_empty()
    }

    /// Refuses what no detector of `classes` classes can learn from.
    ///
    /// See the example of [`Boxes`].
    ///
    /// # Errors
    /// Another number of classes than of boxes, a corner that is not finite, a box without width or height, a class outside of
    /// `0..classes`. The error names the box.
    pub fn check(&self, classes: usize) -> Result<()> {
        const OP: &str = "boxes";
        if self.classes.len() != self.xyxy.len() {
            let expected = format!("{}, as many as boxes", self.xyxy.len());
            return Err(Error::invalid(
                OP,
                "classes",
                format!("{} classes", self.classes.len()),
                expected,
            ));
        }
        for (i, (b, &class)) in self.xyxy.iter().zip(&self.classes).enumerate() {
            if !(b.iter().all(|v| v.is_finite()) && b[0] < b[2] && b[1] < b[3]) {
                let expected = "finite corners with x1 < x2 and y1 < y2";
                return Err(Error::invalid(OP, "xyxy", format!("{b:?} at {i}"), expected));
            }
            if usize::try_from(class).map_or(true, |class| class >= classes) {
                let expected = format!("a class from 0 up to {}", classes.saturating_sub(1));
                return Err(Error::invalid(OP, "classes", format!("{class} at {i}"), expected));
            }
        }
        Ok(())
    }
}

/// The objects that a detector has found in one image, the most certain first.
///
/// ```
/// use kiln_nn::detection::Detections;
/// let found = Detections { boxes: vec![[10.0, 20.0, 50.0, 80.0]], classes: vec![2], scores: vec![0.9] };
/// assert_eq!(found.len(), 1);
/// assert!(!found.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detections {
    /// The corners `[x1, y1, x2, y2]` in pixels of the image that the network was given.
    pub boxes: Vec<[f32; 4]>,
    /// The class of each box, from 0.
    pub classes: Vec<i32>,
    /// How likely each box is one of its class, from 0 to 1, in descending order.
    pub scores: Vec<f32>,
}

impl Detections {
    /// Number of boxes.
    ///
    /// See the example of [`Detections`].
    pub fn len(&self) -> usize {
        self.boxes.len()
    }

    /// True if nothing was found.
    ///
    /// See the example of [`Detections`].
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }
}

/// The boxes of a tensor `[N, 4]` on the host, as f32.
///
/// ```
/// # use kiln_nn::DType;
/// use kiln_nn::detection::{read_boxes, upload_boxes};
/// # let cpu = kiln_cpu::Cpu::new();
/// let boxes = [[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 8.0, 8.0]];
/// assert_eq!(read_boxes(&upload_boxes(&cpu, &boxes, DType::F32)?)?, boxes);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Another shape; [`Error::NotCapturable`] inside of a captured step, memory.
pub fn read_boxes<B: Backend>(boxes: &Tensor<B>) -> Result<Vec<[f32; 4]>> {
    super::format::check("read_boxes", boxes, Some(2))?;
    let values = boxes.detach().to_dtype(DType::F32)?.to_vec::<f32>()?;
    Ok(values.as_chunks::<4>().0.to_vec())
}

/// The tensor `[N, 4]` of boxes of the host.
///
/// See the example of [`read_boxes`].
///
/// # Errors
/// A dtype that the backend does not have, memory.
pub fn upload_boxes<B: Backend>(backend: &B, boxes: &[[f32; 4]], dtype: DType) -> Result<Tensor<B>> {
    Tensor::from_slice(backend, boxes.as_flattened(), &[boxes.len(), 4])?.to_dtype(dtype)
}

/// Moves the corners of boxes of the host into an image of `(height, width)`.
///
/// ```
/// let mut boxes = [[-3.0, 2.0, 30.0, 4.0]];
/// kiln_nn::detection::clip_boxes(&mut boxes, (16, 20));
/// assert_eq!(boxes, [[0.0, 2.0, 20.0, 4.0]]);
/// ```
pub fn clip_boxes(boxes: &mut [[f32; 4]], (height, width): (usize, usize)) {
    let (height, width) = (height as f32, width as f32);
    for [x1, y1, x2, y2] in boxes {
        *x1 = x1.clamp(0.0, width);
        *y1 = y1.clamp(0.0, height);
        *x2 = x2.clamp(0.0, width);
        *y2 = y2.clamp(0.0, height);
    }
}

/// The positions of the boxes whose width and height are at least `size` (`torchvision.ops.remove_small_boxes`).
///
/// ```
/// let boxes = [[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 5.0, 0.5]];
/// assert_eq!(kiln_nn::detection::box_sizes_at_least(&boxes, 1.0), [0]);
/// ```
pub fn box_sizes_at_least(boxes: &[[f32; 4]], size: f32) -> Vec<usize> {
    let large = |b: &[f32; 4]| b[2] - b[0] >= size && b[3] - b[1] >= size;
    (0..boxes.len()).filter(|&i| large(&boxes[i])).collect()
}

/// The area of a box of the host.
pub(super) fn area(b: &[f32; 4]) -> f32 {
    (b[2] - b[0]) * (b[3] - b[1])
}

/// Intersection over union of two boxes of the host with their areas.
pub(super) fn overlap(a: &[f32; 4], area_a: f32, b: &[f32; 4], area_b: f32) -> f32 {
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let both = width * height;
    both / (area_a + area_b - both)
}

/// Intersection over union of boxes of the host, row-major: element `i·b.len() + j` is that of `a[i]` and `b[j]`, as [`box_iou`] has it
/// for tensors.
///
/// ```
/// let (a, b) = ([[0.0, 0.0, 2.0, 2.0]], [[0.0, 0.0, 1.0, 2.0], [5.0, 5.0, 6.0, 6.0]]);
/// assert_eq!(kiln_nn::detection::overlaps(&a, &b), [0.5, 0.0]);
/// ```
///
/// [`box_iou`]: super::box_iou
pub fn overlaps(a: &[[f32; 4]], b: &[[f32; 4]]) -> Vec<f32> {
    let areas: Vec<f32> = b.iter().map(area).collect();
    let mut found = Vec::with_capacity(a.len() * b.len());
    for a in a {
        let area_a = area(a);
        found.extend(b.iter().zip(&areas).map(|(b, &area_b)| overlap(a, area_a, b, area_b)));
    }
    found
}
