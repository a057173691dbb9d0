//! The gradient of the input, window by window: the gradients of all elements of some windows at once, `g·w`, added to
//! where the windows lie. It takes as many multiply-adds as the forward pass, however large the strides are.

use crate::Cpu;
use crate::conv::Geometry;
use crate::gemm::{BLOCK_WORK, BOperand, CTile, Epilogue, Panels, SERIAL_THRESHOLD, gemm_nn, matrix};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::simd::isa::vectorized;
use kiln_core::Result;
use std::ops::Range;

/// Elements of the gradients of windows at a time, about: those of one window at least.
const GATHERED: usize = 1 << 16;

/// `dx`, for the gradient `g` of the output.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<()> {
    let kernels = A::kernels();
    let (per_out, depth, outputs) = (p.group_out(), p.depth(), p.outputs);
    let mut panels = Vec::with_capacity(p.groups);
    for w in w.chunks_exact(per_out * depth) {
        let source = BOperand {
            data: w,
            taps: &[0],
            steps: per_out,
            columns: depth,
            k_step: depth,
            n_step: 1,
        };
        panels.push(Panels::packed(cpu, kernels, source)?);
    }
    let image = p.in_positions() * p.channels;
    // Whole lines of the output at a time, or a part of one.
    let (lines, columns) = (p.output[0] * p.output[1], p.output[2]);
    let at_once = (GATHERED / depth).clamp(1, columns);
    let band = (GATHERED / (depth * columns)).clamp(1, lines);
    let work = depth.saturating_mul(outputs).saturating_mul(lines * columns);
    let images = (BLOCK_WORK / work).max(1);
    try_chunks_mut(dx, images * image, p.work() > SERIAL_THRESHOLD, |at, dx| {
        let mut gathered = cpu.scratch(A::DTYPE, band * at_once * depth)?;
        let gathered = gathered.as_mut_slice::<A>();
        dx.fill(A::default());
        for (i, dx) in dx.chunks_exact_mut(image).enumerate() {
            let g = &g[(at / image + i) * lines * columns * outputs..][..lines * columns * outputs];
            for (group, panels) in panels.iter().enumerate() {
                for line in (0..lines).step_by(band) {
                    for column in (0..columns).step_by(at_once) {
                        let some = Chunk {
                            lines: line..(line + band).min(lines),
                            columns: column..(column + at_once).min(columns),
                            group,
                        };
                        let rows = some.lines.len() * some.columns.len();
                        let from = &g[(line * columns + column) * outputs + group * per_out..];
                        let gathered = &mut gathered[..rows * depth];
                        let to = CTile::new(matrix(gathered, rows, depth));
                        gemm_nn(kernels, (from, outputs), panels, 0, to, Epilogue::NONE, false);
                        add_windows(p, &some, gathered, dx);
                    }
                }
            }
        }
        Ok(())
    })
}

/// Some of the windows of an image: all of a line's where there are several lines.
struct Chunk {
    lines: Range<usize>,
    columns: Range<usize>,
    group: usize,
}

/// Adds windows to the image they lie in.
fn add_windows<A: Scalar>(p: &Geometry, some: &Chunk, windows: &[A], image: &mut [A]) {
    // A line of the window is one run where a group has all channels and nothing is dilated.
    let whole = p.groups == 1 && p.dilation[2] == 1;
    let (run, per_line) = if whole {
        (p.kernel[2] * p.channels, 1)
    } else {
        (p.group_in(), p.kernel[2])
    };
    let width = p.input[2] * p.channels;
    let (step, before) = (p.stride[2] * p.channels, p.padding[2] * p.channels);
    let (apart, first) = (p.dilation[2] * p.channels, some.group * p.group_in());
    let of_line = some.columns.len() * p.depth();
    vectorized(
        #[inline(always)]
        || {
            // Windows that overlap are added far apart in time: a load of a sum that was just stored in part would wait for it.
            let overlapping = p.kernel[2].div_ceil(p.stride[2]).min(some.columns.len());
            for shift in 0..overlapping {
                for (o, windows) in some.lines.clone().zip(windows.chunks_exact(of_line)) {
                    let start = [0, 1].map(|i| p.first(i, [o / p.output[1], o % p.output[1]][i]));
                    for d in p.inside(0, start[0]) {
                        for h in p.inside(1, start[1]) {
                            let [id, ih] = [(0, d), (1, h)]
                                .map(|(i, k)| start[i].saturating_add_unsigned(k * p.dilation[i]).unsigned_abs());
                            let to = &mut image[(id * p.input[1] + ih) * width..][..width];
                            let tap = (d * p.kernel[1] + h) * per_line * run;
                            for o in (shift..some.columns.len()).step_by(overlapping) {
                                let window = &windows[o * p.depth() + tap..][..per_line * run];
                                let at = (some.columns.start + o) * step + first;
                                for (t, window) in window.chunks_exact(run).enumerate() {
                                    // It starts `skip` elements before the image's line, or `at` after.
                                    let at = at + t * apart;
                                    let (at, skip) = (at.saturating_sub(before), before.saturating_sub(at));
                                    if skip < run && at < width {
                                        add(&mut to[at..], &window[skip..]);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        },
    );
}

/// `to[i] += from[i]` up to the shorter one's end, in vectors of falling widths: lines of windows are short.
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
