//! The lines of a depthwise convolution's result, cut into segments whose columns have the same taps.

use super::kernels::Tap;
use crate::conv::geometry::{Geometry, start};
use kiln_core::ops::volume;

/// Columns of a line of the result, evenly apart, which read the same taps of the line of the weight.
pub(super) struct Segment {
    /// The first column of the result.
    pub(super) first: usize,
    /// How many there are.
    pub(super) columns: usize,
    /// The taps along the line, each with the column that it reads for the first column of the result.
    taps: Vec<(usize, usize)>,
}

/// The lines along the last dimension of the result of a forward pass, or of the gradient of its input.
pub(super) struct Lines<'a> {
    g: &'a Geometry,
    /// True for the lines of the input, which read those of the output.
    of_input: bool,
    segments: Vec<Segment>,
    /// How many there are, of all images.
    pub(super) count: usize,
    /// Columns of one.
    pub(super) columns: usize,
    pub(super) channels: usize,
    /// Taps of a window.
    pub(super) most_taps: usize,
    /// Columns from one of a segment to the next.
    pub(super) step: usize,
    /// Elements between what the two read.
    pub(super) read_step: usize,
}

impl<'a> Lines<'a> {
    /// Those of the output, each column of which reads its window.
    pub(super) fn of_output(g: &'a Geometry) -> Self {
        let taps = |column: usize| {
            let first = g.first(2, column);
            let at = move |k: usize| (k, (first + (k * g.dilation[2]) as isize) as usize);
            g.inside(2, first).map(at).collect()
        };
        Lines::new(g, false, g.output, 1, g.stride[2], taps)
    }

    /// Those of the input, each column of which reads the windows that read it.
    pub(super) fn of_input(g: &'a Geometry) -> Self {
        let step = &g.tap_steps()[2];
        let taps = |column: usize| g.readers(2, column, step).collect();
        Lines::new(g, true, g.input, g.stride[2], 1, taps)
    }

    fn new(
        g: &'a Geometry,
        of_input: bool,
        size: [usize; 3],
        step: usize,
        read: usize,
        taps: impl Fn(usize) -> Vec<(usize, usize)>,
    ) -> Self {
        let mut segments: Vec<Segment> = Vec::new();
        for residue in 0..step.min(size[2]) {
            let begin = segments.len();
            for column in (residue..size[2]).step_by(step) {
                let taps = taps(column);
                match segments[begin..].last_mut() {
                    Some(last) if last.taps.iter().map(|t| t.0).eq(taps.iter().map(|t| t.0)) => last.columns += 1,
                    _ => segments.push(Segment {
                        first: column,
                        columns: 1,
                        taps,
                    }),
                }
            }
        }
        Lines {
            g,
            of_input,
            segments,
            count: g.batch * size[0] * size[1],
            columns: size[2],
            channels: g.channels,
            most_taps: volume(g.kernel),
            step,
            read_step: read * g.channels,
        }
    }

    /// Calls `f(segment, taps)` for each segment of line `number`, with where its first column reads; `taps` is memory for that.
    pub(super) fn each(&self, number: usize, taps: &mut Vec<Tap>, mut f: impl FnMut(&Segment, &[Tap])) {
        let g = self.g;
        let (size, read) = if self.of_input {
            (g.input, g.output)
        } else {
            (g.output, g.input)
        };
        let (image, plane, line) = (number / size[1] / size[0], number / size[1] % size[0], number % size[1]);
        for segment in &self.segments {
            taps.clear();
            self.along(0, plane, |i, d| {
                self.along(1, line, |j, h| {
                    let tap = (i * g.kernel[1] + j) * g.kernel[2];
                    taps.extend(segment.taps.iter().map(|&(k, w)| Tap {
                        image: start(read, image, [d, h, w], g.channels),
                        weight: (tap + k) * g.channels,
                    }));
                });
            });
            f(segment, taps);
        }
    }

    /// Calls `f(tap, index that it reads)` for the taps along dimension `i` of what is at `at` there.
    fn along(&self, i: usize, at: usize, mut f: impl FnMut(usize, usize)) {
        let g = self.g;
        if self.of_input {
            for (tap, read) in g.readers(i, at, &g.tap_steps()[i]) {
                f(tap, read);
            }
        } else {
            let first = g.first(i, at);
            for tap in g.inside(i, first) {
                f(tap, (first + (tap * g.dilation[i]) as isize) as usize);
            }
        }
    }
}
