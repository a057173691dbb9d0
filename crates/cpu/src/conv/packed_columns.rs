//! Convolutions with few channels on one side, whose columns would leave most of a vector empty: other products with the
//! same sums, whose columns are several output positions, or the elements of a window.

use crate::Cpu;
use crate::conv::direct;
use crate::conv::segments::SegmentRuns;
use crate::conv::{Geometry, Operands};
use crate::epilogue::Epilogue;
use crate::gemm::{AOperand, BLOCK_WORK, CTile, SERIAL_THRESHOLD, Segment, gemm_tn_segmented, matrix, sum_parts};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use kiln_core::Result;
use ndarray::s;

/// True if [`forward`] can take `n` positions as one.
pub(crate) fn is_supported(g: &Geometry, n: usize) -> bool {
    g.groups == 1 && g.dilation[2] == 1 && g.output[2].is_multiple_of(n)
}

/// Elements of a line of the window that [`weight_grad`] has side by side.
pub(crate) fn window_line(g: &Geometry) -> usize {
    SegmentRuns::new(g).len
}

/// [`direct::forward`] with `n` neighbouring output positions of a line taken as one position with `n` times the outputs: its
/// window is wider by the distance between the first and the last of them, and its vectors are fuller.
pub(crate) fn forward<A: Scalar>(cpu: &Cpu, g: &Geometry, n: usize, o: Operands<'_, A>, y: &mut [A]) -> Result<()> {
    let Operands { x, w, epilogue: e } = o;
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
    let bias = e.bias.map(|bias| bias.repeat(n));
    let epilogue = Epilogue {
        bias: bias.as_deref(),
        ..e
    };
    let o = Operands { x, w: spread, epilogue };
    direct::forward(cpu, &wide, o, y)
}

/// Positions of one part, which all elements of a window pass over before the next part: they stay in a first-level cache.
const STRETCH: usize = 512;

/// The gradient with respect to the weight as `gᵀ·x`, whose columns are the elements of a line of the window; without groups.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<()> {
    let taps = SegmentRuns::new(p);
    let (rows, depth) = (p.rows(), p.depth());
    let parts = if p.work() > SERIAL_THRESHOLD {
        p.work() / BLOCK_WORK
    } else {
        1
    };
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
                    AOperand {
                        data: g,
                        step: p.outputs,
                    },
                    AOperand {
                        data: x,
                        step: p.stride[2] * p.channels,
                    },
                );
                let mut dw = matrix(dw, p.outputs, depth);
                let to = CTile::new(dw.slice_mut(s![.., run * taps.len..(run + 1) * taps.len]));
                gemm_tn_segmented(A::kernels(), &segments, g, x, to, at > start);
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
