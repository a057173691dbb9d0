//! Windows of images as rows, and rows as windows.

use super::choices;
use crate::array::unravel;
use crate::{Array, Case, Rounding, check_with, shapes};
use kiln_core::ops::Window;
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Windows {
    x: Array,
    window: Window,
    /// The shape of the images, `[N, size…, C]`.
    image: Vec<usize>,
    padding: Vec<usize>,
    fold: bool,
}

impl Windows {
    /// The rank of the images, and of a row and a column of rows the position in the image, outside of it perhaps, and the channel.
    fn place(&self, row: usize, column: usize) -> (Option<Vec<usize>>, usize) {
        let (w, rank) = (&self.window, self.window.rank);
        let channels = self.image[rank + 1];
        let first = 3 - rank;
        let windows: Vec<usize> = (0..rank).map(|i| self.count(i)).collect();
        let (at, tap) = (unravel(row, &windows), unravel(column / channels, &w.kernel[first..]));
        let position = (0..rank).map(|i| {
            let inside = at[i] * w.stride[first + i] + tap[i] * w.dilation[first + i];
            inside.checked_sub(self.padding[i]).filter(|&p| p < self.image[i + 1])
        });
        (position.collect(), column % channels)
    }

    /// Windows along spatial dimension `i`.
    fn count(&self, i: usize) -> usize {
        let (w, d) = (&self.window, 3 - self.window.rank + i);
        (self.image[i + 1] + 2 * self.padding[i] - (w.kernel[d] - 1) * w.dilation[d] - 1) / w.stride[d] + 1
    }

    fn rows(&self) -> Vec<usize> {
        let rank = self.window.rank;
        let taps: usize = self.window.kernel.iter().product();
        vec![
            self.image[0],
            (0..rank).map(|i| self.count(i)).product(),
            taps * self.image[rank + 1],
        ]
    }
}

impl Case for Windows {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match self.fold {
            true => x[0].fold(&self.window, &self.image[1..=self.window.rank]),
            false => x[0].unfold(&self.window),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let whole = |n: usize, place: &[usize], channel: usize| [&[n], place, &[channel]].concat();
        if !self.fold {
            return Array::from_fn(&self.rows(), |at| match self.place(at[1], at[2]) {
                (Some(place), channel) => x[0].at(&whole(at[0], &place, channel)),
                _ => 0.0,
            });
        }
        let mut sums = Array::zeros(&self.image);
        for i in 0..x[0].size() {
            let at = unravel(i, &x[0].shape);
            if let (Some(place), channel) = self.place(at[1], at[2]) {
                *sums.at_mut(&whole(at[0], &place, channel)) += x[0].data[i];
            }
        }
        sums
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        if !self.fold {
            return Rounding::exact(want);
        }
        // A pixel is in a window of each tap at most, and each sum is rounded.
        let taps: usize = self.window.kernel.iter().product();
        let magnitudes = self.oracle(&[x[0].map(f64::abs)]);
        Rounding::terms(taps as f64, magnitudes)
    }
}

/// Both, for sequences, images and volumes, with strides, padding and dilation.
pub fn windows<B: Backend>(backend: &B) {
    let cases = (1usize..4, choices(), any::<bool>()).prop_flat_map(|(rank, mut c, fold)| {
        let (mut window, mut padding) = (Window::new([1, 1, 1]), vec![0; rank]);
        window.rank = rank;
        let mut image = vec![1 + c.next(2)];
        let mut spatial = [0; 3];
        for (i, padding) in padding.iter_mut().enumerate() {
            let d = 3 - rank + i;
            window.kernel[d] = 1 + c.next(3);
            window.stride[d] = 1 + c.next(2);
            window.dilation[d] = 1 + c.next(2);
            *padding = c.next(2);
            spatial[d] = *padding;
            // At least one window.
            image.push(
                ((window.kernel[d] - 1) * window.dilation[d] + 1)
                    .saturating_sub(2 * *padding)
                    .max(1)
                    + c.next(3),
            );
        }
        image.push(1 + c.next(3));
        let window = window.padding(spatial);
        let case = Windows {
            x: Array::zeros(&[]),
            window,
            image,
            padding,
            fold,
        };
        let shape = if fold { case.rows() } else { case.image.clone() };
        shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Windows { x, ..case.clone() })
    });
    check_with(24, backend, cases);
}
