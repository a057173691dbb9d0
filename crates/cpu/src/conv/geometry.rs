//! The sizes of a convolution as indices, and walks over its positions.

use kiln_core::ops::{ConvParams, PoolParams, WindowParams, volume};
use std::ops::Range;

/// [`ConvParams`] in `usize`, with values that the kernels derive from them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) batch: usize,
    pub(crate) groups: usize,
    /// Channels of the input, all groups.
    pub(crate) channels: usize,
    /// Channels of the output, all groups.
    pub(crate) outputs: usize,
    pub(crate) input: [usize; 3],
    pub(crate) kernel: [usize; 3],
    pub(crate) output: [usize; 3],
    pub(crate) stride: [usize; 3],
    pub(crate) padding: [usize; 3],
    pub(crate) dilation: [usize; 3],
}

impl Geometry {
    pub(crate) fn new(p: &ConvParams) -> Self {
        Geometry::of(&p.window, p.batch, p.groups, [p.in_channels, p.out_channels])
    }

    /// Windows of a pooling: every channel by itself.
    pub(crate) fn pooling(p: &PoolParams) -> Self {
        Geometry::of(&p.window, p.batch, p.channels, [p.channels; 2])
    }

    fn of(p: &WindowParams, batch: u32, groups: u32, [channels, outputs]: [u32; 2]) -> Self {
        let sizes = |v: [u32; 3]| v.map(|v| v as usize);
        Geometry {
            batch: batch as usize,
            groups: groups as usize,
            channels: channels as usize,
            outputs: outputs as usize,
            input: sizes(p.input),
            kernel: sizes(p.kernel),
            output: sizes(p.output),
            stride: sizes(p.stride),
            padding: sizes(p.padding),
            dilation: sizes(p.dilation),
        }
    }

    /// Taps of one window.
    pub(crate) fn taps(&self) -> usize {
        volume(self.kernel)
    }

    /// Input channels of one group.
    pub(crate) fn group_in(&self) -> usize {
        self.channels / self.groups
    }

    /// Output channels of one group.
    pub(crate) fn group_out(&self) -> usize {
        self.outputs / self.groups
    }

    /// Input positions of one image.
    pub(crate) fn in_positions(&self) -> usize {
        volume(self.input)
    }

    /// Output positions of one image.
    pub(crate) fn out_positions(&self) -> usize {
        volume(self.output)
    }

    /// Elements that one output channel sees: the length of a gathered row.
    pub(crate) fn depth(&self) -> usize {
        self.taps() * self.group_in()
    }

    /// Rows of the product: output positions of all images.
    pub(crate) fn rows(&self) -> usize {
        self.batch.saturating_mul(self.out_positions())
    }

    /// True if no window reads anything: there are no elements of the input, or no windows.
    pub(crate) fn empty(&self) -> bool {
        self.batch == 0 || self.in_positions() == 0 || self.out_positions() == 0
    }

    /// Multiply-adds of the whole convolution.
    pub(crate) fn work(&self) -> usize {
        self.rows().saturating_mul(self.depth()).saturating_mul(self.outputs)
    }

    /// Pairs of an output position and an element of its window that lies inside of the input, over all images.
    pub(crate) fn inside_taps(&self) -> usize {
        let pairs = |i: usize| (0..self.output[i]).map(move |o| self.inside(i, self.first(i, o)).len());
        (0..3).map(|i| pairs(i).sum()).fold(self.batch, usize::saturating_mul)
    }

    /// Elements that a window spans in dimension `i`.
    pub(crate) fn extent(&self, i: usize) -> usize {
        (self.kernel[i] - 1) * self.dilation[i] + 1
    }

    /// Elements that all windows together span in dimension `i`, from the first one's start.
    pub(crate) fn span(&self, i: usize) -> usize {
        (self.output[i].saturating_sub(1)) * self.stride[i] + self.extent(i)
    }

    /// True if an image with its padding written out has not many more positions than the image and the output have together.
    pub(crate) fn compact(&self) -> bool {
        let few = self.in_positions().saturating_add(self.out_positions()).max(1024);
        volume([0, 1, 2].map(|i| self.span(i))) / 4 <= few
    }

    /// True if each channel is convolved by itself.
    pub(crate) fn depthwise(&self) -> bool {
        self.groups > 1 && self.groups == self.channels && self.groups == self.outputs
    }

    /// The first input index of window `o` of dimension `i`; may lie before the input.
    #[inline(always)]
    pub(crate) fn first(&self, i: usize, o: usize) -> isize {
        (o * self.stride[i]) as isize - self.padding[i] as isize
    }

    /// The input index of tap `k` of the window that starts at `first`, when it is inside the input.
    #[inline(always)]
    pub(crate) fn tap(&self, i: usize, first: isize, k: usize) -> Option<usize> {
        let at = first + (k * self.dilation[i]) as isize;
        (at >= 0 && (at as usize) < self.input[i]).then_some(at as usize)
    }

    /// The taps inside the input of the window that starts at `first`: a kernel may be far larger than its input.
    #[inline(always)]
    pub(crate) fn inside(&self, i: usize, first: isize) -> Range<usize> {
        let before = first.min(0).unsigned_abs();
        let left = (self.input[i] as isize - first).max(0) as usize;
        before.div_ceil(self.dilation[i])..left.div_ceil(self.dilation[i]).min(self.kernel[i])
    }

    /// The taps with which some window can read input `at` of dimension `i`.
    #[inline(always)]
    pub(crate) fn reading(&self, i: usize, at: usize) -> Range<usize> {
        let reach = at + self.padding[i];
        let last = self.output[i].saturating_sub(1) * self.stride[i];
        let from = reach.saturating_sub(last).div_ceil(self.dilation[i]);
        from..(reach / self.dilation[i] + 1).min(self.kernel[i])
    }

    /// The steps between the taps that read one input, in each dimension.
    pub(crate) fn tap_steps(&self) -> [TapStep; 3] {
        [0, 1, 2].map(|i| TapStep::new(self.stride[i], self.dilation[i]))
    }

    /// The taps with which outputs read input `at` of dimension `i`, each with the output; `step` is that of
    /// [`tap_steps`](Geometry::tap_steps).
    #[inline(always)]
    pub(crate) fn readers(&self, i: usize, at: usize, step: &TapStep) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (stride, dilation, reach) = (self.stride[i], self.dilation[i], at + self.padding[i]);
        let taps = self.reading(i, at);
        let first = step.first(reach, taps.start).unwrap_or(taps.end);
        (first..taps.end)
            .step_by(step.step)
            .map(move |k| (k, (reach - k * dilation) / stride))
    }

    /// The output whose tap `k` reads input `at` of dimension `i`, when there is one.
    #[inline(always)]
    pub(crate) fn reader(&self, i: usize, at: usize, k: usize) -> Option<usize> {
        let t = (at + self.padding[i]).checked_sub(k * self.dilation[i])?;
        (t % self.stride[i] == 0 && t / self.stride[i] < self.output[i]).then(|| t / self.stride[i])
    }
}

/// The taps that read one input: their distance from the window's start leaves the same remainder by the stride as the
/// input's distance from the first window's start. They are an even step apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapStep {
    pub(crate) step: usize,
    /// The greatest common divisor of stride and dilation.
    pub(crate) common: usize,
    /// The inverse of `dilation / common` modulo `step`.
    inverse: usize,
}

impl TapStep {
    pub(crate) fn new(stride: usize, dilation: usize) -> Self {
        // Euclid's algorithm: in each row (r, t), r is dilation·t modulo stride.
        let (mut last, mut row) = ((stride as i64, 0i64), ((dilation % stride) as i64, 1i64));
        while row.0 != 0 {
            let times = last.0 / row.0;
            (last, row) = (row, (last.0 - times * row.0, last.1 - times * row.1));
        }
        let common = last.0 as usize;
        let step = stride / common;
        TapStep {
            step,
            common,
            inverse: last.1.rem_euclid(step as i64) as usize,
        }
    }

    /// The first tap, from `from` on, that reads an input which lies `reach` after the first window's start.
    #[inline(always)]
    pub(crate) fn first(&self, reach: usize, from: usize) -> Option<usize> {
        if self.step == 1 && self.common == 1 {
            return Some(from);
        }
        let met = reach.is_multiple_of(self.common);
        let first = reach / self.common % self.step * self.inverse % self.step;
        met.then(|| from + (first + self.step - from % self.step) % self.step)
    }
}

/// Calls `f(number, [image, d, h, w])` for the positions `range` of images of size `size`, counted over all images.
#[inline(always)]
pub(crate) fn positions(size: [usize; 3], range: Range<usize>, mut f: impl FnMut(usize, [usize; 4])) {
    if range.is_empty() {
        return;
    }
    let at = range.start;
    let mut p = [
        at / (size[0] * size[1] * size[2]),
        at / (size[1] * size[2]) % size[0],
        at / size[2] % size[1],
        at % size[2],
    ];
    for i in range {
        f(i, p);
        p[3] += 1;
        for d in (1..4).rev() {
            if p[d] < size[d - 1] {
                break;
            }
            p[d] = 0;
            p[d - 1] += 1;
        }
    }
}

/// Calls `f(tap, [d, h, w])` for the taps in `within` where `at` has an index in all three dimensions.
#[inline(always)]
pub(crate) fn taps_within(
    g: &Geometry,
    within: [Range<usize>; 3],
    at: impl Fn(usize, usize) -> Option<usize>,
    mut f: impl FnMut(usize, [usize; 3]),
) {
    let [planes, lines, columns] = within;
    for i in planes {
        let Some(d) = at(0, i) else { continue };
        for j in lines.clone() {
            let Some(h) = at(1, j) else { continue };
            let line = (i * g.kernel[1] + j) * g.kernel[2];
            for k in columns.clone() {
                if let Some(w) = at(2, k) {
                    f(line + k, [d, h, w]);
                }
            }
        }
    }
}

/// Where the channels of position `[d, h, w]` of image `image` start, in images of size `size`.
#[inline(always)]
pub(crate) fn start(size: [usize; 3], image: usize, [d, h, w]: [usize; 3], channels: usize) -> usize {
    (((image * size[0] + d) * size[1] + h) * size[2] + w) * channels
}
