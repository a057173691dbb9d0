//! The features of regions.

use crate::{Array, Case, Rounding, check_with, shapes};
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;
use kiln_nn::detection::{RoiAlignOptions, roi_align};
use proptest::prelude::*;

/// The features of regions of one size.
#[derive(Clone, Debug)]
struct Regions {
    x: Array,
    rois: Vec<Vec<[f32; 4]>>,
    options: RoiAlignOptions,
}

impl Regions {
    /// The value between four positions, as torchvision's kernel has it.
    fn bilinear(x: &Array, image: usize, channel: usize, mut at: [f64; 2]) -> f64 {
        let size = [x.shape[1], x.shape[2]];
        let (mut low, mut high) = ([0; 2], [0; 2]);
        for i in 0..2 {
            if at[i] < -1.0 || at[i] > size[i] as f64 {
                return 0.0;
            }
            at[i] = at[i].max(0.0);
            low[i] = at[i] as usize;
            if low[i] >= size[i] - 1 {
                low[i] = size[i] - 1;
                high[i] = low[i];
                at[i] = low[i] as f64;
            } else {
                high[i] = low[i] + 1;
            }
        }
        let part = [0, 1].map(|i| at[i] - low[i] as f64);
        let of = |y: usize, x_at: usize| x.at(&[image, y, x_at, channel]);
        (1.0 - part[0]) * ((1.0 - part[1]) * of(low[0], low[1]) + part[1] * of(low[0], high[1]))
            + part[0] * ((1.0 - part[1]) * of(high[0], low[1]) + part[1] * of(high[0], high[1]))
    }
}

impl Case for Regions {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        roi_align(&x[0], &self.rois, &self.options)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let o = &self.options;
        let rois: Vec<(usize, [f32; 4])> = self
            .rois
            .iter()
            .enumerate()
            .flat_map(|(i, of)| of.iter().map(move |roi| (i, *roi)))
            .collect();
        let output = [o.output.0, o.output.1];
        Array::from_fn(&[rois.len(), output[0], output[1], x[0].shape[3]], |at| {
            let (image, roi) = rois[at[0]];
            let offset = if o.aligned { 0.5 } else { 0.0 };
            // Along y, then along x.
            let along = |i: usize| {
                let start = f64::from(roi[1 - i]) * o.spatial_scale - offset;
                let end = f64::from(roi[3 - i]) * o.spatial_scale - offset;
                let length = if o.aligned { end - start } else { (end - start).max(1.0) };
                let bin = length / output[i] as f64;
                let count = if o.sampling_ratio > 0 {
                    o.sampling_ratio
                } else {
                    bin.ceil() as usize
                };
                (0..count)
                    .map(|s| start + at[1 + i] as f64 * bin + (s as f64 + 0.5) * bin / count as f64)
                    .collect::<Vec<f64>>()
            };
            let (down, across) = (along(0), along(1));
            let samples = down.iter().flat_map(|&y| across.iter().map(move |&x| [y, x]));
            let sum: f64 = samples.map(|p| Self::bilinear(&x[0], image, at[3], p)).sum();
            sum / (down.len() * across.len()).max(1) as f64
        })
    }

    /// Shares of at most 16 samples, which are read in as many turns.
    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        let most = x[0].data.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        Rounding::terms(96.0, want.map(|_| most))
    }
}

/// Regions inside and outside of features of several images, in both conventions, with given and adapted numbers of samples.
pub fn regions<B: Backend>(backend: &B) {
    let shape = (1usize..3, 1usize..5, 1usize..5, 1usize..3);
    let options = (
        1usize..3,
        1usize..4,
        prop::sample::select(vec![0.5, 1.0]),
        0usize..3,
        any::<bool>(),
    );
    let cases = (shape, options).prop_flat_map(
        |((n, h, w, c), (rows, columns, spatial_scale, sampling_ratio, aligned))| {
            let corner = || (-30i32..100).prop_map(|v| v as f32 / 13.0);
            let side = || (0i32..80).prop_map(|v| v as f32 / 13.0);
            let roi = (corner(), corner(), side(), side()).prop_map(|(x, y, w, h)| [x, y, x + w, y + h]);
            let rois = prop::collection::vec(prop::collection::vec(roi, 0..3), n);
            let options = RoiAlignOptions {
                output: (rows, columns),
                spatial_scale,
                sampling_ratio,
                aligned,
            };
            (shapes::values(&[n, h, w, c], -2.0, 2.0), rois).prop_map(move |(x, rois)| Regions { x, rois, options })
        },
    );
    check_with(24, backend, cases);
}
