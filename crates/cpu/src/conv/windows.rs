//! Where the windows of a convolution lie: for every row of a product, the runs of memory that it sums over.
//!
//! A row is a position: of the output in the forward pass, of the input in the gradient of the data. Its window has *taps*,
//! runs of contiguous elements of the source. Positions whose window is cut by the border in the same way form a *class*;
//! rows that are computed in the order of their classes share the taps that are not there, and leave them out together.

use super::Geometry;
use crate::gemm::{Places, Pointers, Taps, Unit};
use std::ops::Range;

/// One dimension of the walk: where the windows of its positions start, and how far its taps are from there.
struct Axis {
    /// For every position: its index among all positions, and the start of its window, which may lie outside.
    positions: Vec<(usize, isize)>,
    /// For every tap its index in the kernel and its distance from the window's start.
    taps: Vec<(usize, isize)>,
    /// Elements of the source in this dimension.
    source: usize,
    /// Elements that a tap spans.
    width: usize,
}

impl Axis {
    /// Whether tap `t` of the window that starts at `start` lies inside.
    fn inside(&self, start: isize, t: usize) -> bool {
        let at = start + self.taps[t].1;
        at >= 0 && at + self.width as isize <= self.source as isize
    }

    /// The class of every position, and for every class which taps are inside.
    fn classes(&self) -> (Vec<usize>, Vec<Vec<bool>>) {
        let mut classes: Vec<Vec<bool>> = Vec::new();
        let of = |&(_, start): &(usize, isize)| {
            let inside: Vec<bool> = (0..self.taps.len()).map(|t| self.inside(start, t)).collect();
            let known = classes.iter().position(|c| *c == inside);
            known.unwrap_or_else(|| {
                classes.push(inside);
                classes.len() - 1
            })
        };
        (self.positions.iter().map(of).collect(), classes)
    }
}

/// The windows of all positions of one image, and what they share.
pub(super) struct Windows {
    /// Positions of an image that rows are counted over, these among them.
    per_image: usize,
    /// Elements of an image of the source.
    source: usize,
    /// For every position, rising: its number, the first element of its window, its class.
    places: Vec<Place>,
    classes: Vec<Class>,
    /// Distance of every tap from the first element of its window.
    offsets: Vec<isize>,
    /// The indices in the kernel of every tap.
    pub(super) taps: Vec<[usize; 3]>,
    /// Elements of a tap.
    pub(super) len: usize,
}

/// What positions that the border cuts in the same way have in common.
struct Class {
    /// For every tap, whether it is inside.
    inside: Vec<bool>,
    /// Those that are, with their distance from the first element of the window.
    taps: Taps,
}

#[derive(Clone, Copy)]
struct Place {
    number: usize,
    start: isize,
    class: usize,
}

/// Rows of a product, class after class.
pub(super) struct Rows {
    /// Their numbers, counted from the first of the range they were asked for; none where they are all of it, in order.
    numbers: Option<Vec<usize>>,
    /// The first element of each window.
    starts: Vec<isize>,
    /// The class of each; none where there is one class.
    classes: Vec<usize>,
}

impl Rows {
    pub(super) fn places(&self) -> Places<'_> {
        match &self.numbers {
            Some(numbers) => Places::Listed(numbers),
            None => Places::First(self.starts.len()),
        }
    }
}

impl Windows {
    /// The windows of the output's positions on the input. A tap is a line of the window where the channels of a line lie
    /// side by side and the border cuts no line, else one element of the window.
    pub(super) fn forward(g: &Geometry) -> Self {
        let uncut = g.padding[2] == 0 && g.span(2) <= g.input[2];
        let line = g.groups == 1 && g.dilation[2] == 1 && uncut;
        let axis = |i: usize| {
            let width = if line && i == 2 { g.kernel[2] } else { 1 };
            Axis {
                positions: (0..g.output[i]).map(|o| (o, g.first(i, o))).collect(),
                taps: (0..g.kernel[i])
                    .step_by(width)
                    .map(|k| (k, (k * g.dilation[i]) as isize))
                    .collect(),
                source: g.input[i],
                width,
            }
        };
        Windows::new([0, 1, 2].map(axis), g.output, g.channels, g.group_in())
    }

    /// For each remainder of input positions by the stride, the windows of those positions on the output: the taps are the
    /// elements of the kernel with which outputs read them.
    pub(super) fn backward(g: &Geometry) -> Vec<Self> {
        let mut out = Vec::new();
        for d in 0..g.stride[0] {
            for h in 0..g.stride[1] {
                for w in 0..g.stride[2] {
                    let remainder = [d, h, w];
                    let axis = |i: usize| {
                        let (stride, dilation) = (g.stride[i], g.dilation[i]);
                        let reads = (remainder[i] + g.padding[i]) % stride;
                        let shift = |k: usize| -((k * dilation / stride) as isize);
                        Axis {
                            positions: (remainder[i]..g.input[i])
                                .step_by(stride)
                                .map(|at| (at, ((at + g.padding[i]) / stride) as isize))
                                .collect(),
                            taps: (0..g.kernel[i])
                                .filter(|k| k * dilation % stride == reads)
                                .map(|k| (k, shift(k)))
                                .collect(),
                            source: g.output[i],
                            width: 1,
                        }
                    };
                    out.push(Windows::new([0, 1, 2].map(axis), g.input, g.outputs, g.group_out()));
                }
            }
        }
        out
    }

    /// `size` holds the positions, `channels` lie between neighbours of the source, of which a window reads `per`.
    fn new(axes: [Axis; 3], size: [usize; 3], channels: usize, per: usize) -> Self {
        let [d, h, w] = &axes;
        let source = [0, 1, 2].map(|i| axes[i].source as isize);
        let element = |at: [isize; 3]| ((at[0] * source[1] + at[1]) * source[2] + at[2]) * channels as isize;
        let kinds = [0, 1, 2].map(|i| axes[i].classes());
        let [(kd, cd), (kh, ch), (kw, cw)] = &kinds;
        let mut places = Vec::with_capacity(d.positions.len() * h.positions.len() * w.positions.len());
        for (&(id, sd), kd) in d.positions.iter().zip(kd) {
            for (&(ih, sh), kh) in h.positions.iter().zip(kh) {
                for (&(iw, sw), kw) in w.positions.iter().zip(kw) {
                    places.push(Place {
                        number: (id * size[1] + ih) * size[2] + iw,
                        start: element([sd, sh, sw]),
                        class: (kd * ch.len() + kh) * cw.len() + kw,
                    });
                }
            }
        }
        let (mut offsets, mut taps) = (Vec::new(), Vec::new());
        for &(id, sd) in &d.taps {
            for &(ih, sh) in &h.taps {
                for &(iw, sw) in &w.taps {
                    offsets.push(element([sd, sh, sw]));
                    taps.push([id, ih, iw]);
                }
            }
        }
        let mut classes = Vec::new();
        for cd in cd {
            for ch in ch {
                for cw in cw {
                    let line = |d: bool, h: bool| cw.iter().map(move |&w| d && h && w);
                    let plane = |d: bool| ch.iter().flat_map(move |&h| line(d, h));
                    let inside: Vec<bool> = cd.iter().flat_map(|&d| plane(d)).collect();
                    let taps = offsets.iter().copied().enumerate().filter(|&(t, _)| inside[t]);
                    classes.push(Class {
                        taps: Taps::new(taps.collect()),
                        inside,
                    });
                }
            }
        }
        Windows {
            per_image: size.iter().product(),
            source: element([source[0], 0, 0]) as usize,
            places,
            classes,
            offsets,
            taps,
            len: w.width * per,
        }
    }

    /// Whether the border cuts some windows.
    pub(super) fn cut(&self) -> bool {
        self.classes.len() > 1
    }

    /// The rows whose numbers lie in `range`, class after class.
    pub(super) fn rows(&self, range: Range<usize>) -> Rows {
        let each = |f: &mut dyn FnMut(usize, isize, &[Place])| {
            let mut at = range.start;
            while at < range.end {
                let (image, from) = (at / self.per_image, at % self.per_image);
                let to = self.per_image.min(from + range.end - at);
                let [first, end] = [from, to].map(|number| self.places.partition_point(|p| p.number < number));
                // Wraps where the range starts inside of the first image.
                let before = (image * self.per_image).wrapping_sub(range.start);
                f(before, (image * self.source) as isize, &self.places[first..end]);
                at += to - from;
            }
        };
        let mut starts = Vec::with_capacity(range.len());
        if self.classes.len() == 1 {
            let all = self.places.len() == self.per_image;
            let mut numbers = Vec::with_capacity(if all { 0 } else { range.len() });
            each(&mut |before, image, places| {
                starts.extend(places.iter().map(|p| image + p.start));
                if !all {
                    numbers.extend(places.iter().map(|p| before.wrapping_add(p.number)));
                }
            });
            return Rows {
                numbers: (!all).then_some(numbers),
                starts,
                classes: Vec::new(),
            };
        }
        // A counting sort.
        let mut ends = vec![0; self.classes.len() + 1];
        each(&mut |_, _, places| places.iter().for_each(|p| ends[p.class + 1] += 1));
        for i in 1..ends.len() {
            ends[i] += ends[i - 1];
        }
        let count = ends[self.classes.len()];
        starts.resize(count, 0);
        let (mut numbers, mut classes) = (vec![0; count], vec![0; count]);
        each(&mut |before, image, places| {
            for p in places {
                let to = ends[p.class];
                numbers[to] = before.wrapping_add(p.number);
                starts[to] = image + p.start;
                classes[to] = p.class;
                ends[p.class] += 1;
            }
        });
        Rows {
            numbers: Some(numbers),
            starts,
            classes,
        }
    }

    /// Points the rows of a tile at what they read of the taps of `unit`; `first` is added to every place.
    pub(super) fn point<A>(
        &self,
        rows: &Rows,
        tile: Range<usize>,
        first: usize,
        unit: &Unit,
        to: &mut Pointers<'_, A>,
    ) {
        let first = first + unit.steps.start;
        let starts = &rows.starts[tile.clone()];
        let classes = rows.classes.get(tile).unwrap_or(&[]);
        let class = classes.first().copied().unwrap_or(0);
        if classes.last().copied().unwrap_or(0) == class {
            to.taps(starts, first, &self.classes[class].taps, &unit.taps);
            return;
        }
        for (i, tap) in unit.taps.clone().enumerate() {
            let inside = |row: usize| self.classes[classes[row]].inside[tap];
            if (0..classes.len()).any(inside) {
                let at = |row: usize| inside(row).then(|| (starts[row] + self.offsets[tap] + first as isize) as usize);
                to.tap(i, classes.len(), at);
            }
        }
    }
}
