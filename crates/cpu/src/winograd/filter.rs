//! The transformed weights, the right operands of the products, made a panel of columns at a time.

use crate::gemm::{Panels, transpose};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::winograd::layout::{CHANNELS, apart};
use crate::winograd::transform::{Channels, Transforms};
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use std::ops::Range;

/// The largest number of steps of a panel that are transposed and transformed at once.
const STEPS: usize = 64;

/// The use of the weights `[outputs, 3, 3, channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The forward pass, from channels to outputs.
    Forward,
    /// The data gradient, from outputs to channels, with the windows rotated by 180°.
    Backward,
    /// The data gradient, from outputs to channels, as the transpose of the forward pass.
    Transposed,
}

/// The weights of a convolution, `[outputs, 3, 3, channels]`.
#[derive(Clone, Copy)]
pub(crate) struct Filter<'w, A> {
    w: &'w [A],
    channels: usize,
    direction: Direction,
}

impl<'w, A: Scalar> Filter<'w, A> {
    pub(crate) fn new(w: &'w [A], channels: usize, direction: Direction) -> Self {
        Filter { w, channels, direction }
    }

    /// The steps of k and the columns of the products.
    pub(crate) fn shape(&self) -> [usize; 2] {
        let outputs = self.w.len() / (9 * self.channels);
        match self.direction {
            Direction::Forward => [self.channels, outputs],
            Direction::Backward | Direction::Transposed => [outputs, self.channels],
        }
    }

    /// Transforms the steps `steps` of `columns`, which are those of a panel, to a matrix at each point, `of_point` elements
    /// apart: rows of columns, padded to whole vectors.
    pub(crate) fn transform<const POINTS: usize, const RESULTS: usize>(
        &self,
        transforms: &Transforms<A, POINTS, RESULTS>,
        steps: Range<usize>,
        columns: Range<usize>,
        to: &mut [A],
        of_point: usize,
    ) {
        let n = columns.len();
        let width = n.next_multiple_of(A::kernels().lanes);
        let zeros = vec![A::default(); n];
        let mut c = Channels::new(n, &zeros, &mut []);
        if self.direction != Direction::Forward {
            for (i, k) in steps.enumerate() {
                let place = |tap: usize| (k * 9 + tap) * self.channels + columns.start;
                let places = match self.direction {
                    Direction::Backward => std::array::from_fn(|tap| place(8 - tap)),
                    _ => std::array::from_fn(place),
                };
                transforms
                    .weight
                    .spread(&mut c, self.w, &places, to, i * width, of_point);
            }
            return;
        }
        // Columns are outputs, whose weights are not adjacent.
        let mut turned = vec![A::default(); 9 * STEPS * n];
        for (i, from) in steps.clone().step_by(STEPS).enumerate() {
            let count = STEPS.min(steps.end - from);
            for (tap, to) in turned.chunks_exact_mut(STEPS * n).enumerate() {
                let w = &self.w[(columns.start * 9 + tap) * self.channels + from..];
                transpose(w, 9 * self.channels, count, n, to, n);
            }
            for k in 0..count {
                let places = std::array::from_fn(|tap| (tap * STEPS + k) * n);
                let first = (i * STEPS + k) * width;
                transforms.weight.spread(&mut c, &turned, &places, to, first, of_point);
            }
        }
    }
}

/// Transformed weights in panels: `[panels, points, steps, width]`.
pub(crate) struct Weights {
    data: CpuBuffer,
    /// The steps of k and the columns of the products.
    pub(crate) shape: [usize; 2],
    /// The distance from one point to the next, and from one panel to the next.
    apart: [usize; 2],
}

impl Weights {
    pub(crate) fn new<A: Scalar, const POINTS: usize, const RESULTS: usize>(
        cpu: &Cpu,
        transforms: &Transforms<A, POINTS, RESULTS>,
        filter: Filter<'_, A>,
    ) -> Result<Self> {
        let (shape, panel) = (filter.shape(), A::kernels().panel());
        let of_point = apart(shape[0], panel);
        let of_panel = POINTS * of_point;
        let mut data = cpu.scratch(A::DTYPE, shape[1].div_ceil(panel) * of_panel)?;
        try_chunks_mut(data.as_mut_slice::<A>(), of_panel, true, |at, to| {
            let from = at / of_panel * panel;
            let columns = from..(from + panel).min(shape[1]);
            filter.transform(transforms, 0..shape[0], columns, to, of_point);
            Ok(())
        })?;
        Ok(Weights {
            data,
            shape,
            apart: [of_point, of_panel],
        })
    }

    pub(crate) fn panels<A: Scalar>(&self, point: usize) -> Panels<'_, A> {
        let data = &self.data.as_slice::<A>()[point * self.apart[0]..];
        Panels::lent(A::kernels(), data, self.apart[1], self.shape, CHANNELS)
    }
}
