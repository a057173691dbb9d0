//! The gradient of a convolution's weight, run by run: the stretches of the images that meet an element of the window.

use crate::conv::Geometry;
use crate::gemm::Segment;
use std::ops::Range;

/// The runs that one output position reads.
///
/// A run is a line of the window where the input's channels are one group's, nothing is dilated and no line is cut by the
/// border; otherwise it is one element of the window.
pub(crate) struct SegmentRuns {
    /// Elements of a run.
    pub(crate) len: usize,
    /// Runs of a window in each dimension, and elements of the kernel's last that a run has.
    count: [usize; 3],
    width: usize,
}

impl SegmentRuns {
    pub(crate) fn new(g: &Geometry) -> Self {
        let uncut = g.padding[2] == 0 && g.span(2) <= g.input[2];
        let line = g.groups == 1 && g.dilation[2] == 1 && uncut;
        let width = if line { g.kernel[2] } else { 1 };
        SegmentRuns {
            len: width * g.group_in(),
            count: [g.kernel[0], g.kernel[1], g.kernel[2] / width],
            width,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.iter().product()
    }

    /// Steps of the first element of run `run` from the window's first, in each dimension.
    fn at(&self, g: &Geometry, run: usize) -> [usize; 3] {
        let (line, w) = (run / self.count[2], run % self.count[2]);
        let (d, h) = (line / self.count[1], line % self.count[1]);
        [d * g.dilation[0], h * g.dilation[1], w * self.width * g.dilation[2]]
    }

    /// The stretches of k over which run `run` meets the output positions `rows`: a steps through the input by
    /// `stride·channels`, b through the output by `outputs`. Stretches over the border are left out.
    pub(crate) fn segments(&self, g: &Geometry, run: usize, rows: Range<usize>, out: &mut Vec<Segment>) {
        out.clear();
        let (run, line) = (self.at(g, run), g.output[2]);
        let inside = |i: usize, o: usize| {
            let at = g.first(i, o) + run[i] as isize;
            (at >= 0 && at < g.input[i] as isize).then_some(at as usize)
        };
        // Positions of a line whose element of the window lies in the input.
        let (before, shift) = (g.padding[2], run[2]);
        let low = before.saturating_sub(shift).div_ceil(g.stride[2]);
        let high = (g.input[2] + before)
            .saturating_sub(shift + self.width - 1)
            .div_ceil(g.stride[2])
            .min(line);
        let mut row = rows.start;
        while row < rows.end {
            let from = row % line;
            let count = (line - from).min(rows.end - row);
            let (image, d, h) = (
                row / line / g.output[1] / g.output[0],
                row / line / g.output[1] % g.output[0],
                row / line % g.output[1],
            );
            let (start, end) = (from.max(low), (from + count).min(high));
            if let (Some(id), Some(ih)) = (inside(0, d), inside(1, h))
                && start < end
            {
                let w = start * g.stride[2] + shift - before;
                let segment = Segment {
                    a: (((image * g.input[0] + id) * g.input[1] + ih) * g.input[2] + w) * g.channels,
                    b: (row - from + start) * g.outputs,
                    len: end - start,
                };
                // Lines that follow one another in both memories are one stretch.
                match out.last_mut() {
                    Some(last)
                        if last.a + last.len * g.stride[2] * g.channels == segment.a
                            && last.b + last.len * g.outputs == segment.b =>
                    {
                        last.len += segment.len;
                    }
                    _ => out.push(segment),
                }
            }
            row += count;
        }
    }
}
