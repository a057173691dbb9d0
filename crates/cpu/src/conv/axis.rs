//! One dimension of a convolution seen as windows: positions and taps that both go in even steps, and the taps of each
//! position that lie inside of the source.

use crate::conv::Geometry;
use crate::conv::geometry::TapStep;
use std::ops::Range;

/// Positions whose windows read a source, in one dimension. Position `j` has index `first + j·step` among all positions; its
/// window starts at element `start + j·apart` of the source, which may lie outside. Tap `t` is the kernel's `tap + t·tap_step`
/// and lies `offset + t·tap_apart` elements after the window's start.
#[derive(Clone)]
pub(crate) struct Axis {
    pub(crate) count: usize,
    first: usize,
    step: usize,
    start: isize,
    apart: isize,
    pub(crate) taps: usize,
    tap: usize,
    tap_step: usize,
    offset: isize,
    tap_apart: isize,
    /// Elements of the source in this dimension.
    pub(crate) source: usize,
    /// Stretches of positions that have the same taps inside: the first position of each, and the taps. There are never more
    /// stretches than positions, nor than twice the taps and one.
    runs: Vec<(usize, Range<usize>)>,
}

impl Axis {
    /// The axis of the output's positions over the input, in dimension `i`; a tap is `width` elements of the window.
    pub(crate) fn forward(g: &Geometry, i: usize, width: usize) -> Self {
        let axis = Axis {
            count: g.output[i],
            first: 0,
            step: 1,
            start: -(g.padding[i] as isize),
            apart: g.stride[i] as isize,
            taps: g.kernel[i].div_ceil(width),
            tap: 0,
            tap_step: width,
            offset: 0,
            tap_apart: (width * g.dilation[i]) as isize,
            source: g.input[i],
            runs: Vec::new(),
        };
        axis.divided(width)
    }

    /// The axes of the input's positions over the output, in dimension `i`. Positions with the same remainder by the stride
    /// meet the same taps, an even step apart; there is an axis for each remainder where some tap of some position lies inside
    /// of the output.
    pub(crate) fn backward(g: &Geometry, i: usize) -> Vec<Self> {
        let (stride, dilation, padding) = (g.stride[i], g.dilation[i], g.padding[i]);
        let TapStep {
            step: tap_step, common, ..
        } = TapStep::new(stride, dilation);
        let axis = |tap: usize| {
            let remainder = tap * dilation % stride;
            // The first position with this remainder from the first window's start.
            let first = (remainder + stride - padding % stride) % stride;
            let count = g.input[i].saturating_sub(first).div_ceil(stride);
            let axis = Axis {
                count,
                first,
                step: stride,
                start: ((first + padding) / stride) as isize,
                apart: 1,
                taps: (g.kernel[i] - tap).div_ceil(tap_step),
                tap,
                tap_step,
                offset: -((tap * dilation / stride) as isize),
                tap_apart: -((dilation / common) as isize),
                source: g.output[i],
                runs: Vec::new(),
            };
            (count > 0).then(|| axis.divided(1))
        };
        let met = |axis: &Axis| axis.runs.iter().any(|(_, taps)| !taps.is_empty());
        (0..tap_step.min(g.kernel[i])).filter_map(axis).filter(met).collect()
    }

    /// The most axes that [`Axis::backward`] can give.
    pub(crate) fn remainders(g: &Geometry, i: usize) -> usize {
        let TapStep { step, .. } = TapStep::new(g.stride[i], g.dilation[i]);
        step.min(g.kernel[i]).min(g.input[i])
    }

    /// This axis with its runs filled in, for taps that are `width` elements wide.
    fn divided(mut self, width: usize) -> Self {
        for j in 0..self.count {
            let inside = self.inside(j, width);
            if self.runs.last().is_none_or(|(_, taps)| *taps != inside) {
                self.runs.push((j, inside));
            }
        }
        self
    }

    /// The taps of position `j` that lie inside of the source with all of their `width` elements.
    fn inside(&self, j: usize, width: usize) -> Range<usize> {
        let at = self.start + j as isize * self.apart + self.offset;
        let last = self.source as isize - width as isize - at;
        // The number of elements by which the first tap lies before the first allowed element, or after the last.
        let (short, over) = if self.tap_apart > 0 { (-at, last) } else { (-last, at) };
        if over < 0 {
            return 0..0;
        }
        let apart = self.tap_apart.unsigned_abs();
        let from = short.max(0).unsigned_abs().div_ceil(apart);
        let end = (over.unsigned_abs() / apart + 1).min(self.taps);
        if from < end { from..end } else { 0..0 }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The taps inside of the positions of run `i`.
    pub(crate) fn taps_of(&self, i: usize) -> Range<usize> {
        self.runs[i].1.clone()
    }

    /// True if these are all `size` positions of the dimension, in order.
    pub(crate) fn all(&self, size: usize) -> bool {
        self.step == 1 && self.first == 0 && self.count == size
    }

    /// The positions whose index lies in `range`.
    pub(crate) fn within(&self, range: Range<usize>) -> Range<usize> {
        let at = |index: usize| index.saturating_sub(self.first).div_ceil(self.step).min(self.count);
        at(range.start)..at(range.end)
    }

    pub(crate) fn index(&self, j: usize) -> usize {
        self.first + j * self.step
    }

    pub(crate) fn start(&self, j: usize) -> isize {
        self.start + j as isize * self.apart
    }

    /// The run of position `j`.
    pub(crate) fn run(&self, j: usize) -> usize {
        self.runs.partition_point(|(from, _)| *from <= j) - 1
    }

    /// The first position after run `i`.
    pub(crate) fn end(&self, i: usize) -> usize {
        self.runs.get(i + 1).map_or(self.count, |(from, _)| *from)
    }

    /// The index of tap `t` in the kernel.
    pub(crate) fn tap(&self, t: usize) -> usize {
        self.tap + t * self.tap_step
    }

    /// The distance of tap `t` from the window's start.
    pub(crate) fn offset(&self, t: usize) -> isize {
        self.offset + t as isize * self.tap_apart
    }
}
