//! Random transforms of images with objects.

use super::{Draw, Transform};
use crate::{Dataset, Object, Result, Sample, Shared};

/// Mirrors left and right with probability ½, image and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlipObjects;

impl Transform for FlipObjects {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let [_, w, c] = sample.image("flip")?;
        if w * c == 0 || draw.uniform(0) >= 0.5 {
            return Ok(());
        }
        super::augment::mirror(&mut sample.input, w, c);
        let objects: Vec<Object> = Object::of_targets(&sample.targets).collect();
        let mirrored = objects.into_iter().map(|object| {
            let [x1, y1, x2, y2] = object.bounds;
            Object {
                bounds: [w as f32 - x2, y1, w as f32 - x1, y2],
                ..object
            }
        });
        Object::write_targets(mirrored, &mut sample.targets);
        Ok(())
    }
}

/// Changes the strength of each channel and of all together by up to these shares: colours as under another light.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Light {
    /// The share by which all channels change together.
    pub brightness: f32,
    /// The share by which each channel changes alone.
    pub tint: f32,
}

impl Transform for Light {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let [_, _, c] = sample.image("light")?;
        let change = |n: u32, share: f32| 1.0 + share * (2.0 * draw.uniform(n) - 1.0);
        let all = change(0, self.brightness);
        for channel in 0..c {
            let factor = all * change(1 + channel as u32, self.tint);
            let pixels = sample.input.iter_mut().skip(channel).step_by(c.max(1));
            pixels.for_each(|x| *x = (*x * factor).min(255.0));
        }
        Ok(())
    }
}

/// Four images in one, of which a window is seen at a random scale (Bochkovskiy et al., "YOLOv4", 2020, as in YOLOv5): the sample and three
/// others lie around a random point, and objects that are mostly outside are left out.
pub struct Mosaic {
    dataset: Shared,
    probability: f32,
    /// The window is seen from 1 − `scale` to 1 + `scale` times its size.
    scale: f32,
}

impl std::fmt::Debug for Mosaic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mosaic")
            .field("probability", &self.probability)
            .finish()
    }
}

impl Mosaic {
    /// Mosaics with this probability, of images of one size.
    pub fn new(dataset: Shared, probability: f32) -> Self {
        Mosaic {
            dataset,
            probability,
            scale: 0.5,
        }
    }
}

/// The value where no image is.
const AROUND: f32 = 114.0;

impl Transform for Mosaic {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let [h, w, c] = sample.image("mosaic")?;
        if self.dataset.is_empty() || h * w * c == 0 || draw.uniform(0) >= self.probability {
            return Ok(());
        }
        let bound = u32::try_from(self.dataset.len()).unwrap_or(u32::MAX);
        let mut images = vec![sample.clone()];
        for n in 0..3 {
            let other = self.dataset.get(draw.below(1 + n, bound) as usize)?;
            match other.shape == sample.shape {
                true => images.push(other),
                false => images.push(sample.clone()),
            }
        }
        let (hf, wf) = (h as f32, w as f32);
        // The point where the four meet, on a ground of twice the size, and the place of its window.
        let meet = [wf * (0.5 + draw.uniform(4)), hf * (0.5 + draw.uniform(5))];
        let zoom = 1.0 - self.scale + 2.0 * self.scale * draw.uniform(6);
        let shift = |n: u32, side: f32| side * 0.2 * (draw.uniform(n) - 0.5);
        // Column x of the window shows column (x − w/2 − shift) / zoom + w of the ground.
        let (dx, dy) = (wf / 2.0 + shift(7, wf), hf / 2.0 + shift(8, hf));
        // The left upper corner of each image on the ground.
        let corners = [
            [meet[0] - wf, meet[1] - hf],
            [meet[0], meet[1] - hf],
            [meet[0] - wf, meet[1]],
            [meet[0], meet[1]],
        ];
        sample.rewrite(sample.shape, |_, out| {
            for (place, pixel) in out.chunks_exact_mut(c).enumerate() {
                let (y, x) = ((place / w) as f32 + 0.5, (place % w) as f32 + 0.5);
                let (gx, gy) = ((x - dx) / zoom + wf, (y - dy) / zoom + hf);
                let part = usize::from(gx >= meet[0]) + 2 * usize::from(gy >= meet[1]);
                let (sx, sy) = (gx - corners[part][0], gy - corners[part][1]);
                let inside = sx >= 0.0 && sy >= 0.0 && sx < wf && sy < hf;
                match inside {
                    true => {
                        let at = (sy as usize * w + sx as usize) * c;
                        pixel.copy_from_slice(&images[part].input[at..at + c]);
                    }
                    false => pixel.fill(AROUND),
                }
            }
        })?;
        let mut objects = Vec::new();
        for (part, (image, [left, top])) in images.iter().zip(corners).enumerate() {
            // What lies beyond the point where the images meet is covered by the next one.
            let (right, low) = (part % 2 == 1, part / 2 == 1);
            for object in Object::of_targets(&image.targets) {
                let clip = |x: f32, meet: f32, above: bool| if above { x.max(meet) } else { x.min(meet) };
                let x = |x: f32| (clip(x + left, meet[0], right) - wf) * zoom + dx;
                let y = |y: f32| (clip(y + top, meet[1], low) - hf) * zoom + dy;
                let whole = |edge: usize| (object.bounds[edge + 2] - object.bounds[edge]) * zoom;
                let kept = object.mapped(x, y, (h, w)).filter(|kept| {
                    let side = |edge: usize| kept.bounds[edge + 2] - kept.bounds[edge];
                    side(0) >= 2.0 && side(1) >= 2.0 && side(0) * side(1) >= 0.1 * whole(0) * whole(1)
                });
                objects.extend(kept);
            }
        }
        Object::write_targets(objects.into_iter(), &mut sample.targets);
        Ok(())
    }
}
