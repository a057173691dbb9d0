//! Where the windows of a convolution lie: for every row of a product, the runs of memory that it sums over.
//!
//! A row is a position: of the output in the forward pass, of the input in the gradient of the data. Its window has *taps*,
//! runs of contiguous elements of the source. Positions whose window is cut by the border in the same way form a *class*;
//! rows that are computed in the order of their classes share the taps that are not there, and leave them out together.
//!
//! Nothing here is as large as the image or as the product of positions and taps: each dimension is by itself ([`Axis`]), and
//! the combination of all three is made for one block of rows at a time.

use crate::conv::Geometry;
use crate::conv::axis::Axis;
use crate::gemm::{KBlock, Pointers, RowMap, Taps};
use std::ops::Range;

/// The windows of the positions of one image.
pub(crate) struct Windows {
    axes: [Axis; 3],
    /// Sizes of the image: rows are counted over all of its positions, those of the axes among them.
    size: [usize; 3],
    /// Elements between neighbours of the source in each dimension, and of an image of it.
    apart: [isize; 3],
    source: usize,
    /// Elements of a tap.
    pub(crate) len: usize,
}

/// Rows of a product, class after class.
pub(crate) struct Rows {
    /// Their numbers, counted from the first of the range they were asked for; none where they are all of it, in order.
    numbers: Option<Vec<usize>>,
    /// The first element of each window.
    starts: Vec<isize>,
    /// The class of each; none where there is one class.
    classes: Vec<usize>,
}

impl Rows {
    pub(crate) fn places(&self) -> RowMap<'_> {
        match &self.numbers {
            Some(numbers) => RowMap::Listed(numbers),
            None => RowMap::First(self.starts.len()),
        }
    }
}

/// The taps of a unit that lie inside for a class, kept from the last time that they were listed.
#[derive(Default)]
pub(crate) struct Listed {
    of: Option<(usize, Range<usize>)>,
    taps: Taps,
}

/// A part of a window that lies in one piece: its place in the window, its distance from the window's start, and its length.
struct Piece {
    to: usize,
    from: isize,
    len: usize,
}

impl Piece {
    /// Copies this part of the windows that start at `starts`, to rows `step` apart.
    fn copy<T: Copy>(&self, data: &[T], starts: &[isize], to: &mut [T], step: usize) {
        macro_rules! by_length {
            ($($len:literal)*) => {
                match self.len {
                    $($len => self.copy_some::<T, $len>(data, starts, to, step),)*
                    _ => self.copy_some::<T, 0>(data, starts, to, step),
                }
            };
        }
        by_length!(1 2 3 4 5 6 7 8 9 16 24 25 32 48 64 96 128 192);
    }

    /// [`copy`](Piece::copy) for `N` elements, which compiles to a few moves instead of a call, or any number where that is zero.
    fn copy_some<T: Copy, const N: usize>(&self, data: &[T], starts: &[isize], to: &mut [T], step: usize) {
        let len = if N > 0 { N } else { self.len };
        for (&start, to) in starts.iter().zip(to.chunks_mut(step)) {
            let from = start.wrapping_add(self.from) as usize;
            to[self.to..self.to + len].copy_from_slice(&data[from..from + len]);
        }
    }
}

impl Windows {
    /// The windows of the output's positions on the input. A tap is a line of the window where the channels of a line lie
    /// side by side and the border cuts no line, else one element of the window.
    pub(crate) fn forward(g: &Geometry) -> Self {
        let uncut = g.padding[2] == 0 && g.span(2) <= g.input[2];
        let line = g.groups == 1 && g.dilation[2] == 1 && uncut;
        let width = if line { g.kernel[2] } else { 1 };
        let axes = [0, 1, 2].map(|i| Axis::forward(g, i, if i == 2 { width } else { 1 }));
        Windows::new(axes, g.output, g.channels, width * g.group_in())
    }

    /// For each remainder of input positions by the stride, the windows of those positions on the output: the taps are the
    /// elements of the kernel with which outputs read them. Positions that no output reads have no windows.
    pub(crate) fn backward(g: &Geometry) -> Vec<Self> {
        let mut out = Vec::new();
        let [planes, lines, columns] = [0, 1, 2].map(|i| Axis::backward(g, i));
        for d in &planes {
            for h in &lines {
                for w in &columns {
                    let axes = [d, h, w].map(Axis::clone);
                    out.push(Windows::new(axes, g.input, g.outputs, g.group_out()));
                }
            }
        }
        out
    }

    /// The most that [`Windows::backward`] can give.
    pub(crate) fn remainders(g: &Geometry) -> usize {
        (0..3).map(|i| Axis::remainders(g, i)).fold(1, usize::saturating_mul)
    }

    /// `size` holds the positions, `channels` lie between neighbours of the source; a tap has `len` elements.
    fn new(axes: [Axis; 3], size: [usize; 3], channels: usize, len: usize) -> Self {
        let line = axes[2].source * channels;
        let plane = axes[1].source * line;
        Windows {
            source: axes[0].source * plane,
            apart: [plane, line, channels].map(|n| n as isize),
            axes,
            size,
            len,
        }
    }

    /// Taps of a window.
    pub(crate) fn taps(&self) -> usize {
        self.axes.iter().map(|a| a.taps).product()
    }

    /// Calls `f` with the index in the kernel of every tap.
    pub(crate) fn each_tap(&self, mut f: impl FnMut([usize; 3])) {
        let [d, h, w] = &self.axes;
        for i in 0..d.taps {
            for j in 0..h.taps {
                for k in 0..w.taps {
                    f([d.tap(i), h.tap(j), w.tap(k)]);
                }
            }
        }
    }

    /// Positions of an image that have windows.
    pub(crate) fn positions(&self) -> usize {
        self.axes.iter().map(|a| a.count).product()
    }

    /// True if the border cuts some windows.
    pub(crate) fn cut(&self) -> bool {
        self.classes() > 1
    }

    fn classes(&self) -> usize {
        self.axes.iter().map(Axis::runs).product()
    }

    /// Offset of an element. For windows that begin far outside it wraps, and wraps back when a tap inside is added to it.
    fn element(&self, at: [isize; 3]) -> isize {
        (0..3).fold(0, |sum: isize, i| sum.wrapping_add(at[i].wrapping_mul(self.apart[i])))
    }

    /// Calls `f(row, start, class)` for the positions whose numbers lie in `range`, counted over all images; rows are counted
    /// from the first of the range.
    fn each(&self, range: Range<usize>, mut f: impl FnMut(usize, isize, usize)) {
        let [d, h, w] = &self.axes;
        let (line, plane) = (self.size[2], self.size[1] * self.size[2]);
        let per_image = self.size[0] * plane;
        let mut at = range.start;
        while at < range.end {
            let (image, from) = (at / per_image, at % per_image);
            let to = per_image.min(from + range.end - at);
            let first = (image * self.source) as isize;
            for i in d.within(from / plane..to.div_ceil(plane)) {
                let before = d.index(i) * plane;
                let (from_line, to_line) = (from.saturating_sub(before) / line, (to - before).div_ceil(line));
                for j in h.within(from_line..to_line) {
                    let before = before + h.index(j) * line;
                    let row = image * per_image + before;
                    let start = self.element([d.start(i), h.start(j), 0]).wrapping_add(first);
                    let class = (d.run(i) * h.runs() + h.run(j)) * w.runs();
                    let mut columns = w.within(from.saturating_sub(before)..to.saturating_sub(before));
                    while !columns.is_empty() {
                        let run = w.run(columns.start);
                        let end = w.end(run).min(columns.end);
                        for k in columns.start..end {
                            let start = start.wrapping_add(w.start(k).wrapping_mul(self.apart[2]));
                            f(row + w.index(k) - range.start, start, class + run);
                        }
                        columns.start = end;
                    }
                }
            }
            at += to - from;
        }
    }

    /// The rows whose numbers lie in `range`, class after class.
    pub(crate) fn rows(&self, range: Range<usize>) -> Rows {
        let all = [0, 1, 2].iter().all(|&i| self.axes[i].all(self.size[i]));
        let (len, classes) = (range.len(), self.classes());
        if classes == 1 {
            let mut starts = Vec::with_capacity(if all { len } else { 0 });
            let mut numbers = Vec::new();
            self.each(range, |row, start, _| {
                starts.push(start);
                if !all {
                    numbers.push(row);
                }
            });
            return Rows {
                numbers: (!all).then_some(numbers),
                starts,
                classes: Vec::new(),
            };
        }
        let mut list = Vec::with_capacity(if all { len } else { 0 });
        self.each(range, |row, start, class| list.push((class, row, start)));
        if classes <= 4 * list.len() {
            list = counted(&list, classes);
        } else {
            list.sort_by_key(|&(class, ..)| class);
        }
        Rows {
            numbers: Some(list.iter().map(|r| r.1).collect()),
            starts: list.iter().map(|r| r.2).collect(),
            classes: list.iter().map(|r| r.0).collect(),
        }
    }

    /// The taps inside of a class, in each dimension.
    fn inside(&self, class: usize) -> [Range<usize>; 3] {
        let [d, h, w] = &self.axes;
        let (lines, k) = (class / w.runs(), class % w.runs());
        [d.taps_of(lines / h.runs()), h.taps_of(lines % h.runs()), w.taps_of(k)]
    }

    /// Calls `f(number in the unit, taps, distance from the window's start)` for the taps that lie both in `of` and in `unit`.
    fn each_inside(&self, of: &[Range<usize>; 3], unit: &Range<usize>, mut f: impl FnMut(usize, [usize; 3], isize)) {
        let [d, h, w] = &self.axes;
        let plane = h.taps * w.taps;
        let meet = |range: &Range<usize>, from: usize, to: usize| range.start.max(from)..range.end.min(to);
        for i in meet(&of[0], unit.start / plane, unit.end.div_ceil(plane)) {
            let before = i * plane;
            let (from, to) = (unit.start.saturating_sub(before), unit.end - before);
            for j in meet(&of[1], from / w.taps, to.div_ceil(w.taps)) {
                let before = before + j * w.taps;
                let (from, to) = (unit.start.saturating_sub(before), unit.end - before);
                let offset = self.element([d.offset(i), h.offset(j), 0]);
                for k in meet(&of[2], from, to) {
                    let offset = offset.wrapping_add(w.offset(k).wrapping_mul(self.apart[2]));
                    f(before + k - unit.start, [i, j, k], offset);
                }
            }
        }
    }

    /// True if a tap lies before the one before it in the source, as in the windows of [`Windows::backward`].
    pub(crate) fn descends(&self) -> bool {
        self.axes.iter().any(|a| a.taps > 1 && a.offset(1) < a.offset(0))
    }

    /// Copies the elements `range` of the windows of rows `lines` of `rows` to rows of `to`, `step` apart; elements that the
    /// border cuts off become zeros. The taps of windows that [descend](Windows::descends) come last to first.
    pub(crate) fn gather<T: Copy>(
        &self,
        (rows, data, zero): (&Rows, &[T], T),
        lines: Range<usize>,
        range: Range<usize>,
        to: &mut [T],
        step: usize,
    ) {
        if range.is_empty() || self.len == 0 {
            return;
        }
        let mut pieces = Vec::new();
        let mut at = lines.start;
        while at < lines.end {
            let class = rows.classes.get(at).copied().unwrap_or(0);
            let same = match rows.classes.get(at..lines.end) {
                Some(classes) => classes.iter().take_while(|&&c| c == class).count(),
                None => lines.len(),
            };
            self.pieces(class, &range, &mut pieces);
            let starts = &rows.starts[at..at + same];
            let to = &mut to[(at - lines.start) * step..];
            if pieces.iter().map(|p| p.len).sum::<usize>() < range.len() {
                for to in to.chunks_mut(step).take(same) {
                    to[..range.len()].fill(zero);
                }
            }
            pieces.iter().for_each(|piece| piece.copy(data, starts, to, step));
            at += same;
        }
    }

    /// The parts of the elements `range` of a window of this class that lie inside of the source.
    fn pieces(&self, class: usize, range: &Range<usize>, pieces: &mut Vec<Piece>) {
        pieces.clear();
        let taps = range.start / self.len..range.end.div_ceil(self.len);
        let (all, descends) = (self.taps(), self.descends());
        let unit = if descends {
            all - taps.end..all - taps.start
        } else {
            taps
        };
        let mut inside = Vec::new();
        self.each_inside(&self.inside(class), &unit, |number, _, offset| {
            let tap = unit.start + number;
            inside.push((if descends { all - 1 - tap } else { tap }, offset));
        });
        if descends {
            inside.reverse();
        }
        for (tap, offset) in inside {
            let tap = tap * self.len;
            let (from, end) = (tap.max(range.start), (tap + self.len).min(range.end));
            let piece = Piece {
                to: from - range.start,
                from: offset.wrapping_add((from - tap) as isize),
                len: end - from,
            };
            match pieces.last_mut() {
                Some(last) if last.to + last.len == piece.to && last.from + last.len as isize == piece.from => {
                    last.len += piece.len;
                }
                _ => pieces.push(piece),
            }
        }
    }

    /// Points the rows of a tile at the elements that they read for the taps of `unit`; `first` is added to every place.
    pub(crate) fn point<A>(
        &self,
        rows: &Rows,
        tile: Range<usize>,
        first: usize,
        unit: &KBlock,
        listed: &mut Listed,
        to: &mut Pointers<'_, A>,
    ) {
        let first = first + unit.steps.start;
        let starts = &rows.starts[tile.clone()];
        let classes = rows.classes.get(tile).unwrap_or(&[]);
        let class = classes.first().copied().unwrap_or(0);
        if classes.last().copied().unwrap_or(0) == class {
            let of = (class, unit.taps.clone());
            if listed.of.as_ref() != Some(&of) {
                listed.taps.clear();
                self.each_inside(&self.inside(class), &unit.taps, |number, _, offset| {
                    listed.taps.push(number, offset);
                });
                listed.of = Some(of);
            }
            to.taps(starts, first, &listed.taps);
            return;
        }
        let insides: Vec<_> = classes.iter().map(|&class| self.inside(class)).collect();
        let mut met = insides[0].clone();
        for inside in &insides[1..] {
            for (met, range) in met.iter_mut().zip(inside) {
                *met = match (Range::is_empty(met), range.is_empty()) {
                    (true, _) => range.clone(),
                    (_, true) => met.clone(),
                    _ => met.start.min(range.start)..met.end.max(range.end),
                };
            }
        }
        self.each_inside(&met, &unit.taps, |number, tap, offset| {
            let inside = |row: usize| (0..3).all(|i| insides[row][i].contains(&tap[i]));
            if (0..insides.len()).any(inside) {
                let at = |row: usize| inside(row).then(|| (starts[row].wrapping_add(offset) + first as isize) as usize);
                to.tap(number, insides.len(), at);
            }
        });
    }
}

/// `list` in the order of its classes, of which there are `classes`: a counting sort.
fn counted(list: &[(usize, usize, isize)], classes: usize) -> Vec<(usize, usize, isize)> {
    let mut ends = vec![0; classes + 1];
    list.iter().for_each(|r| ends[r.0 + 1] += 1);
    for i in 1..ends.len() {
        ends[i] += ends[i - 1];
    }
    let mut out = vec![(0, 0, 0); list.len()];
    for &row in list {
        out[ends[row.0]] = row;
        ends[row.0] += 1;
    }
    out
}
