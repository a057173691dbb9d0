//! Dense and grouped convolutions as products that read the images where they lie.
//!
//! The window of an output position is a list of runs of contiguous input elements ([`Windows`]), and the micro-kernels
//! follow pointers to them: no matrix of gathered windows is made, for any of the three products. Columns of the products
//! are channels, so that every vector is a stretch of memory.

use crate::Cpu;
use crate::conv::pad_line::pad_lines;
use crate::conv::segments::SegmentRuns;
use crate::conv::windows::{Listed, Windows};
use crate::conv::{Geometry, Operands};
use crate::gemm::{
    AOperand, BLOCK_WORK, BOperand, CTile, Epilogue, KBlock, Panels, Pointers, SERIAL_THRESHOLD, blocks, gemm_indirect,
    gemm_tn_segmented, matrix, sum_parts,
};
use crate::parallel::{chunks_mut, try_chunks_mut};
use crate::scalar::Scalar;
use kiln_core::Result;
use kiln_core::host::room;
use ndarray::s;
use std::ops::Range;

/// Rows and columns of the blocks of a product that tasks compute; rows come in multiples of `unit`.
fn block_size(rows: usize, columns: usize, depth: usize, panel: usize, unit: usize) -> [usize; 2] {
    let work = rows.saturating_mul(columns).saturating_mul(depth);
    if work <= SERIAL_THRESHOLD {
        return [rows.max(1), columns];
    }
    let columns = columns.div_ceil(columns.div_ceil(256)).next_multiple_of(panel);
    let parts = rows.div_ceil((BLOCK_WORK / (columns * depth)).clamp(48, 384));
    [rows.div_ceil(parts).next_multiple_of(unit), columns]
}

/// `y = f(x ⋆ w + bias)`.
pub(crate) fn forward<A: Scalar>(cpu: &Cpu, g: &Geometry, o: Operands<'_, A>, y: &mut [A]) -> Result<()> {
    let padded = pad_lines(cpu, g, o.x)?;
    let (g, x) = match &padded {
        Some((g, x)) => (g, x.as_slice()),
        None => (g, o.x),
    };
    let kernels = A::kernels();
    let (per_in, per_out, depth) = (g.group_in(), g.group_out(), g.depth());
    let windows = Windows::forward(g);
    let mut starts = room(windows.taps())?;
    starts.extend((0..windows.taps()).map(|t| t * windows.len));
    for group in 0..g.groups {
        let source = BOperand {
            data: &o.w[group * per_out * depth..],
            taps: &starts,
            steps: windows.len,
            columns: per_out,
            k_step: 1,
            n_step: depth,
        };
        let b = Panels::packed(cpu, kernels, source)?;
        let columns = group * per_out..(group + 1) * per_out;
        let e = Epilogue {
            bias: o.epilogue.bias.map(|bias| &bias[columns.clone()]),
            ..o.epilogue
        };
        let mut y = matrix(y, g.rows(), g.outputs);
        let size = block_size(g.rows(), per_out, depth, kernels.panel(), kernels.tile());
        blocks(
            y.slice_mut(s![.., columns]),
            size,
            size[0],
            [0; 2],
            &|[row, column], y| {
                let rows = windows.rows(row..row + y.nrows());
                let mut listed = Listed::default();
                let mut fill = |tile: Range<usize>, unit: &KBlock, to: &mut Pointers<'_, A>| {
                    windows.point(&rows, tile, group * per_in, unit, &mut listed, to);
                };
                gemm_indirect(kernels, x, &mut fill, &b, column, CTile::new(y), rows.places(), e);
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// The most positions, about, of a block of the data gradient that spans several images.
const ROWS: usize = 1 << 16;
/// The most remainders of positions by the stride for which [`data_grad`] pays: it makes a product for each, and with more
/// remainders each product has too few positions.
const REMAINDERS: usize = 32;

/// True if [`data_grad`] makes few products: one for each remainder by the stride of the positions that are read.
pub(crate) fn has_few_remainders(p: &Geometry) -> bool {
    Windows::remainders(p) <= REMAINDERS
}

/// The gradient with respect to the input: every input position gathers from the windows that read it.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<()> {
    let kernels = A::kernels();
    let (per_in, per_out, depth) = (p.group_in(), p.group_out(), p.depth());
    let classes = Windows::backward(p);
    let cut = classes.iter().any(Windows::cut);
    let positions = p.batch * p.in_positions();
    // Positions that no output reads belong to no class.
    if classes.iter().map(Windows::positions).sum::<usize>() < p.in_positions() {
        chunks_mut(dx, 1, 1, |_, dx| dx.fill(A::default()));
        if classes.is_empty() {
            return Ok(());
        }
    }
    for group in 0..p.groups {
        let mut products = Vec::new();
        for windows in &classes {
            let mut starts = room(windows.taps())?;
            windows.each_tap(|[d, h, w]| starts.push(((d * p.kernel[1] + h) * p.kernel[2] + w) * per_in));
            let source = BOperand {
                data: &w[group * per_out * depth..],
                taps: &starts,
                steps: per_out,
                columns: per_in,
                k_step: depth,
                n_step: 1,
            };
            products.push((windows, Panels::packed(cpu, kernels, source)?));
        }
        // Whole lines of the input, so that a block has as many positions of each remainder.
        let unit = if classes.len() == 1 {
            kernels.tile()
        } else {
            (p.input[2] * p.stride[1]).min(positions)
        };
        let [rows, columns] = block_size(
            positions,
            per_in,
            p.taps() * per_out / classes.len(),
            kernels.panel(),
            unit,
        );
        // Blocks of several images, so that positions which the border cuts alike fill tiles.
        let images = (kernels.tile() * p.in_positions())
            .min(positions / 8)
            .min(ROWS)
            .next_multiple_of(unit);
        let size = [rows.max(if cut { images } else { 0 }), columns];
        let mut dx = matrix(dx, positions, p.channels);
        let columns = group * per_in..(group + 1) * per_in;
        blocks(
            dx.slice_mut(s![.., columns]),
            size,
            size[0],
            [0; 2],
            &|[row, column], mut dx| {
                for (windows, b) in &products {
                    let rows = windows.rows(row..row + dx.nrows());
                    let mut listed = Listed::default();
                    let mut fill = |tile: Range<usize>, unit: &KBlock, to: &mut Pointers<'_, A>| {
                        windows.point(&rows, tile, group * per_out, unit, &mut listed, to);
                    };
                    let to = CTile::new(dx.view_mut());
                    gemm_indirect(kernels, g, &mut fill, b, column, to, rows.places(), Epilogue::NONE);
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// Elements of x and g that a stretch of rows may have, together: a good part of a second-level cache.
const STRETCH: usize = 1 << 16;
/// Elements of all partial gradients together.
const PARTS: usize = 1 << 20;

/// The gradient with respect to the weight: `xᵀ · g` over fixed parts of the rows, the parts added in order.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<()> {
    let wide = pad_lines(cpu, p, x)?;
    let (p, x) = match &wide {
        Some((p, x)) => (p, x.as_slice()),
        None => (p, x),
    };
    let (per_in, per_out, depth, rows) = (p.group_in(), p.group_out(), p.depth(), p.rows());
    let taps = SegmentRuns::new(p);
    let size = dw.len();
    let parallel = p.work() > SERIAL_THRESHOLD;
    let tasks = if parallel { (p.work() / BLOCK_WORK).min(32) } else { 1 };
    // Parts of the rows cost memory and a sum, parts of a run read the output's gradient again.
    let parts = tasks.min((PARTS / size.max(1)).max(1)).min(rows.max(1));
    let unit = match tasks.div_ceil(parts * p.groups) {
        1 => depth,
        wanted if wanted <= taps.count() => taps.count().div_ceil(wanted) * taps.len,
        wanted => taps
            .len
            .div_ceil(wanted.div_ceil(taps.count()))
            .next_multiple_of(A::kernels().tile())
            .min(taps.len),
    };
    let part = rows.div_ceil(parts);
    let step = (STRETCH / (per_in * p.stride[2] + per_out)).clamp(64, 1024);
    // For every part and group the transposed gradient, [depth, outputs of the group].
    let mut sums = cpu.scratch(A::DTYPE, parts * size)?;
    let sums = sums.as_mut_slice::<A>();
    let mut chunks: Vec<(usize, usize, usize, &mut [A])> = Vec::new();
    for (i, of_group) in sums.chunks_mut((depth * per_out).max(1)).enumerate() {
        let mut rest = of_group;
        let mut from = 0;
        while !rest.is_empty() {
            // A chunk ends with its run, or spans whole runs.
            let left = if unit < taps.len {
                taps.len - from % taps.len
            } else {
                depth - from
            };
            let count = unit.min(left);
            let (chunk, after) = rest.split_at_mut(count * per_out);
            chunks.push((i / p.groups, i % p.groups, from, chunk));
            rest = after;
            from += count;
        }
    }
    try_chunks_mut(&mut chunks, 1, parallel, |_, chunk| {
        let (number, group, from, dw) = &mut chunk[0];
        let (start, end) = ((*number * part).min(rows), ((*number + 1) * part).min(rows));
        if start == end {
            dw.fill(A::default());
        }
        let mut segments = Vec::new();
        for at in (start..end).step_by(step) {
            let mut done = 0;
            while done * per_out < dw.len() {
                let (run, inside) = ((*from + done) / taps.len, (*from + done) % taps.len);
                let count = (taps.len - inside).min(dw.len() / per_out - done);
                taps.segments(p, run, at..(at + step).min(end), &mut segments);
                let c = matrix(&mut dw[done * per_out..][..count * per_out], count, per_out);
                gemm_tn_segmented(
                    A::kernels(),
                    &segments,
                    AOperand {
                        data: &x[*group * per_in + inside..],
                        step: p.stride[2] * p.channels,
                    },
                    AOperand {
                        data: &g[*group * per_out..],
                        step: p.outputs,
                    },
                    CTile::new(c),
                    at > start,
                );
                done += count;
            }
        }
        Ok(())
    })?;
    let mut total = cpu.scratch(A::DTYPE, if parts > 1 { size } else { 0 })?;
    let total = total.as_mut_slice::<A>();
    let sums = if parts > 1 {
        sum_parts(sums, total);
        total
    } else {
        sums
    };
    // From [depth, outputs] of each group to [outputs, depth].
    chunks_mut(dw, depth, 1, |at, dw| {
        for (i, row) in dw.chunks_exact_mut(depth).enumerate() {
            let output = at / depth + i;
            let from = &sums[output / per_out * per_out * depth + output % per_out..];
            for (to, &from) in row.iter_mut().zip(from.iter().step_by(per_out)) {
                *to = from;
            }
        }
    });
    Ok(())
}
