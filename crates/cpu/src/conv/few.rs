//! Convolutions with few channels on one side, whose columns would leave most of a vector empty: other products with the
//! same sums, whose columns are the elements of a window.

use super::Geometry;
use super::dense;
use super::planar;
use super::runs::Runs;
use crate::Cpu;
use crate::gemm::{
    ALONE, BLOCK_WORK, Epilogue, Left, Panels, Segment, Source, Target, by_columns, by_matrix, matrix, sum_parts,
};
use crate::parallel::try_chunks_mut;
use crate::scalar::{Scalar, vectorized};
use kiln_core::Result;
use kiln_core::ops::Activation;
use ndarray::s;
use std::ops::Range;

/// Output positions, side by side in a line, that are computed as one position with as many times the outputs: the window
/// is wider by what lies between them, and the vectors are fuller.
pub(super) fn together<A: Scalar>(g: &Geometry) -> usize {
    if g.groups > 1 || g.dilation[2] > 1 || g.outputs >= A::kernels().lanes {
        return 1;
    }
    let fits = (2..=8).filter(|n| g.output[2].is_multiple_of(*n));
    match fits.min_by_key(|&n| cost::<A>(g, n)) {
        Some(n) if cost::<A>(g, n) * 10 < cost::<A>(g, 1) * 9 => n,
        _ => 1,
    }
}

/// Vectors of multiply-adds for each position and element of the window when `n` positions are one, in thousandths.
pub(super) fn cost<A: Scalar>(g: &Geometry, n: usize) -> usize {
    let vectors = (n * g.outputs).div_ceil(A::kernels().lanes);
    vectors * (g.kernel[2] + (n - 1) * g.stride[2]) * 1000 / (n * g.kernel[2])
}

/// [`dense::forward`], but with several positions as one, or plane by plane, where outputs are few.
pub(crate) fn forward<A: Scalar>(
    cpu: &Cpu,
    g: &Geometry,
    x: &[A],
    w: &[A],
    bias: Option<&[A]>,
    f: Activation,
    y: &mut [A],
) -> Result<()> {
    if planar::suits::<A>(g) {
        return planar::forward(cpu, g, x, w, bias, f, y);
    }
    let n = together::<A>(g);
    if n == 1 {
        return dense::forward(cpu, g, x, w, bias, f, y);
    }
    let mut wide = *g;
    wide.outputs = n * g.outputs;
    wide.kernel[2] = g.kernel[2] + (n - 1) * g.stride[2];
    wide.stride[2] = n * g.stride[2];
    wide.output[2] = g.output[2] / n;
    let mut spread = cpu.scratch(A::DTYPE, wide.outputs * wide.depth())?;
    let spread = spread.as_mut_slice::<A>();
    spread.fill(A::default());
    let (line, wide_line) = (g.kernel[2] * g.channels, wide.kernel[2] * g.channels);
    let lines = g.outputs * g.kernel[0] * g.kernel[1];
    for (i, to) in spread.chunks_exact_mut(lines * wide_line).enumerate() {
        let shift = i * g.stride[2] * g.channels;
        for (to, from) in to.chunks_exact_mut(wide_line).zip(w.chunks_exact(line)) {
            to[shift..shift + line].copy_from_slice(from);
        }
    }
    let bias = bias.map(|bias| bias.repeat(n));
    dense::forward(cpu, &wide, x, spread, bias.as_deref(), f, y)
}

/// Elements of gathered gradients at a time.
const GATHERED: usize = 1 << 16;

/// The gradient with respect to the input, where its channels are few: the gradients of all elements of a window at once,
/// `g·w`, added to where the windows lie.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<()> {
    let kernels = A::kernels();
    let line = p.kernel[2] * p.channels;
    if p.groups > 1 || p.dilation[2] > 1 || 2 * p.channels > kernels.lanes || line < kernels.lanes || p.rows() == 0 {
        return dense::data_grad(cpu, p, g, w, dx);
    }
    let (depth, outputs) = (p.depth(), p.outputs);
    let source = Source {
        data: w,
        taps: &[0],
        steps: outputs,
        columns: depth,
        k_step: depth,
        n_step: 1,
    };
    let panels = Panels::packed(cpu, kernels, source)?;
    let image = p.in_positions() * p.channels;
    // Lines of the output at a time.
    let lines = p.output[0] * p.output[1];
    let band = (GATHERED / (depth * p.output[2])).clamp(1, lines);
    let images = (BLOCK_WORK / (lines * p.output[2] * depth * outputs).max(1)).max(1);
    try_chunks_mut(dx, images * image, p.work() > ALONE, |at, dx| {
        let mut gathered = cpu.scratch(A::DTYPE, band * p.output[2] * depth)?;
        let gathered = gathered.as_mut_slice::<A>();
        dx.fill(A::default());
        for (i, dx) in dx.chunks_exact_mut(image).enumerate() {
            let g = &g[(at / image + i) * p.out_positions() * outputs..];
            for from in (0..lines).step_by(band) {
                let band = from..(from + band).min(lines);
                let rows = band.len() * p.output[2];
                let g = &g[from * p.output[2] * outputs..];
                let gathered = &mut gathered[..rows * depth];
                let to = Target::new(matrix(gathered, rows, depth));
                by_matrix(kernels, (g, outputs), &panels, 0, to, Epilogue::NONE, false);
                add_windows(p, band, gathered, dx);
            }
        }
        Ok(())
    })
}

/// Adds the windows of the lines `band` of the output to the image they lie in.
fn add_windows<A: Scalar>(p: &Geometry, band: Range<usize>, windows: &[A], image: &mut [A]) {
    let (channels, width) = (p.channels, p.input[2] * p.channels);
    let line = p.kernel[2] * channels;
    let (step, before) = (p.stride[2] * channels, p.padding[2] * channels);
    vectorized(
        #[inline(always)]
        || {
            let of_line = p.output[2] * p.depth();
            // Windows that overlap are added far apart: a sum that was just stored in part would be waited for.
            let apart = p.kernel[2].div_ceil(p.stride[2]).min(p.output[2]);
            for first in 0..apart {
                for (o, windows) in band.clone().zip(windows.chunks_exact(of_line)) {
                    let start = [0, 1].map(|i| p.first(i, [o / p.output[1], o % p.output[1]][i]));
                    for d in 0..p.kernel[0] {
                        for h in 0..p.kernel[1] {
                            let (Some(id), Some(ih)) = (p.tap(0, start[0], d), p.tap(1, start[1], h)) else {
                                continue;
                            };
                            let to = &mut image[(id * p.input[1] + ih) * width..][..width];
                            let tap = (d * p.kernel[1] + h) * line;
                            for o in (first..p.output[2]).step_by(apart) {
                                let window = &windows[o * p.depth() + tap..][..line];
                                // It starts `skip` elements before the image's line, or `at` after.
                                let (at, skip) = ((o * step).saturating_sub(before), before.saturating_sub(o * step));
                                if skip < line && at < width {
                                    add(&mut to[at..], &window[skip..]);
                                }
                            }
                        }
                    }
                }
            }
        },
    );
}

/// `to[i] += from[i]` while both last, in vectors of falling widths: lines of windows are short.
#[inline(always)]
fn add<A: Scalar>(to: &mut [A], from: &[A]) {
    let n = to.len().min(from.len());
    let (to, from) = (&mut to[..n], &from[..n]);
    let mut at = 0;
    while at + 16 <= n {
        add_some::<A, 16>(to, from, &mut at);
    }
    if n & 8 != 0 {
        add_some::<A, 8>(to, from, &mut at);
    }
    if n & 4 != 0 {
        add_some::<A, 4>(to, from, &mut at);
    }
    if n & 2 != 0 {
        add_some::<A, 2>(to, from, &mut at);
    }
    if n & 1 != 0 {
        add_some::<A, 1>(to, from, &mut at);
    }
}

#[inline(always)]
fn add_some<A: Scalar, const N: usize>(to: &mut [A], from: &[A], at: &mut usize) {
    let (to, from) = (&mut to[*at..*at + N], &from[*at..*at + N]);
    let mut sums = [A::default(); N];
    for i in 0..N {
        sums[i] = to[i] + from[i];
    }
    to.copy_from_slice(&sums);
    *at += N;
}

/// Positions of a part that all elements of a window see before the next do: they stay in a first-level cache.
const STRETCH: usize = 512;

/// The gradient with respect to the weight, where outputs are few and a line of the window has more elements: `gᵀ·x`,
/// without a transposition.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<()> {
    let lanes = A::kernels().lanes;
    let taps = Runs::new(p);
    let (usual, turned) = (
        taps.len * p.outputs.div_ceil(lanes),
        p.outputs * taps.len.div_ceil(lanes),
    );
    if p.groups > 1 || turned * 10 > usual * 9 {
        return dense::weight_grad(cpu, p, g, x, dw);
    }
    let (rows, depth) = (p.rows(), p.depth());
    let parts = if p.work() > ALONE { p.work() / BLOCK_WORK } else { 1 };
    let parts = parts.min(32).min(rows.max(1));
    let part = rows.div_ceil(parts);
    let mut sums = cpu.scratch(A::DTYPE, if parts > 1 { parts * dw.len() } else { 0 })?;
    let sum = |i: usize, dw: &mut [A]| {
        let (start, end) = ((i * part).min(rows), ((i + 1) * part).min(rows));
        if start == end {
            dw.fill(A::default());
        }
        let mut segments = Vec::new();
        for at in (start..end).step_by(STRETCH) {
            for run in 0..taps.count() {
                taps.segments(p, run, at..(at + STRETCH).min(end), &mut segments);
                for segment in &mut segments {
                    *segment = Segment {
                        a: segment.b,
                        b: segment.a,
                        len: segment.len,
                    };
                }
                let (g, x) = (
                    Left {
                        data: g,
                        step: p.outputs,
                    },
                    Left {
                        data: x,
                        step: p.stride[2] * p.channels,
                    },
                );
                let mut dw = matrix(dw, p.outputs, depth);
                let to = Target::new(dw.slice_mut(s![.., run * taps.len..(run + 1) * taps.len]));
                by_columns(A::kernels(), &segments, g, x, to, at > start);
            }
        }
    };
    if parts == 1 {
        sum(0, dw);
        return Ok(());
    }
    let size = dw.len();
    let sums = sums.as_mut_slice::<A>();
    try_chunks_mut(sums, size, true, |at, dw| {
        sum(at / size, dw);
        Ok(())
    })?;
    sum_parts(sums, dw);
    Ok(())
}
