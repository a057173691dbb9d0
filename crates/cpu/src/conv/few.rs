//! Convolutions with few channels on one side, whose columns would leave most of a vector empty: other products with the
//! same sums, whose columns are the elements of a window.

use super::Geometry;
use super::dense;
use super::planar;
use super::runs::Runs;
use super::scatter;
use crate::Cpu;
use crate::gemm::{ALONE, BLOCK_WORK, Left, Segment, Target, by_columns, matrix, sum_parts};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use kiln_core::Result;
use kiln_core::ops::Activation;
use ndarray::s;

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

/// The gradient with respect to the input: window by window where its channels are few, or where positions have so many
/// remainders by the stride that hardly any two meet the same taps.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<()> {
    let lanes = A::kernels().lanes;
    let few = p.groups == 1
        && p.dilation[2] == 1
        && 2 * p.channels <= lanes
        && p.kernel[2].saturating_mul(p.channels) >= lanes;
    if few || !dense::few_remainders(p) {
        return scatter::data_grad(cpu, p, g, w, dx);
    }
    dense::data_grad(cpu, p, g, w, dx)
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
