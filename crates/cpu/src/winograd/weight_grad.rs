//! The gradient of the weight: products of transformed tiles of the image and of the output's gradient, summed over all tiles.

use crate::Cpu;
use crate::gemm::{AOperand, CTile, Segment, gemm_tn_segmented, matrix, sum_parts};
use crate::parallel::{THREADS, try_chunks_mut};
use crate::scalar::Scalar;
use crate::winograd::layout::{CHANNELS as STRETCH, apart};
use crate::winograd::tiles::Tiles;
use crate::winograd::transform::{Channels, Transforms};
use kiln_core::Result;
use std::sync::atomic::{AtomicBool, Ordering};

/// The approximate number of elements of all partial gradients together.
const PARTS: usize = 1 << 21;
/// The smallest number of tiles in a part, if there are as many.
const TILES: usize = 32;
/// The smallest number of channels of the image in a task, if there are as many.
const CHANNELS: usize = 64;

/// Computes `dw` from the gradient `g` of the results of `tiles` of `x`.
pub(crate) fn weight_grad<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    g: &[A],
    x: &[A],
    [channels, outputs]: [usize; 2],
    dw: &mut [A],
) -> Result<bool> {
    // Splitting the channels costs only repeated transforms of the gradient; splitting the tiles costs memory.
    let chunk = if channels >= 2 * CHANNELS { CHANNELS } else { channels };
    let of_chunk = |count: usize| POINTS * apart(count, outputs);
    let rest = channels % chunk;
    let size = channels / chunk * of_chunk(chunk) + if rest > 0 { of_chunk(rest) } else { 0 };
    let parts = 8usize
        .div_ceil(channels.div_ceil(chunk))
        .min((PARTS / size).max(1))
        .min((tiles.all() / TILES).clamp(1, tiles.rows()));
    let part = tiles.rows().div_ceil(parts);
    // The layout is, for every part, the gradients [points, outputs, chunk] of each chunk of channels.
    let mut sums = cpu.scratch(A::DTYPE, parts * size)?;
    let mut tasks = Vec::new();
    for (i, of_part) in sums.as_mut_slice::<A>().chunks_exact_mut(size).enumerate() {
        for (j, sum) in of_part.chunks_mut(of_chunk(chunk)).enumerate() {
            let rows = [i, i + 1].map(|i| (i * part).min(tiles.rows()));
            tasks.push((rows[0]..rows[1], j * chunk, sum));
        }
    }
    let zeros = vec![A::default(); chunk.max(outputs)];
    try_chunks_mut(&mut tasks, 1, true, |_, task| {
        let (rows, first, sum) = &mut task[0];
        let count = chunk.min(channels - *first);
        let mut from = rows.start;
        if rows.start == rows.end {
            sum.fill(A::default());
        }
        let mut sink = vec![A::default(); chunk.max(outputs)];
        while from < rows.end {
            let block = from..(from + tiles.per_block()).min(rows.end);
            let n = block.len() * tiles.count[1];
            let (image_step, grad_step) = (apart(n, count), apart(n, outputs));
            let mut images = cpu.scratch(A::DTYPE, POINTS * image_step)?;
            let images = images.as_mut_slice::<A>();
            let mut grads = cpu.scratch(A::DTYPE, POINTS * grad_step)?;
            let grads = grads.as_mut_slice::<A>();
            let mut c = Channels::new(count, &zeros, &mut sink);
            tiles.under(block.clone(), channels, |t, from| {
                transforms
                    .image
                    .spread(&mut c, &x[*first..], from, images, t * count, image_step);
            });
            c.len = outputs;
            let g = &g[tiles.before(block.start, outputs)..];
            tiles.over(block.clone(), outputs, |t, from| {
                transforms
                    .result_grad
                    .spread(&mut c, g, from, grads, t * outputs, grad_step);
            });
            for (i, sum) in sum.chunks_exact_mut(apart(count, outputs)).enumerate() {
                let grads = (&grads[i * grad_step..][..n * outputs], outputs);
                let images = (&images[i * image_step..][..n * count], count);
                add_products(grads, images, n, &mut sum[..outputs * count], from > rows.start);
            }
            from = block.end;
        }
        Ok(())
    })?;
    let mut total = cpu.scratch(A::DTYPE, if parts > 1 { size } else { 0 })?;
    let sums = if parts > 1 {
        sum_parts(sums.as_slice(), total.as_mut_slice::<A>());
        total.as_slice::<A>()
    } else {
        sums.as_slice::<A>()
    };
    let finite = AtomicBool::new(true);
    let outputs_at_once = THREADS.div_ceil(POINTS * channels);
    try_chunks_mut(dw, outputs_at_once * 9 * channels, true, |at, dw| {
        let first = at / (9 * channels);
        let mut sink = vec![A::default(); chunk];
        for (i, from) in (0..channels).step_by(chunk).enumerate() {
            let count = chunk.min(channels - from);
            let mut c = Channels::new(count, &[], &mut sink);
            for output in 0..dw.len() / (9 * channels) {
                let start = i * of_chunk(chunk) + (first + output) * count;
                let to = std::array::from_fn(|tap| (output * 9 + tap) * channels + from);
                transforms
                    .weight_grad
                    .gather(&mut c, sums, start, apart(count, outputs), dw, &to);
            }
            finite.fetch_and(c.finite(), Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(finite.into_inner())
}

/// Computes `sum (+)= aᵀ·b` over `n` rows of `a` and `b`, a few rows at a time. Each operand is given with its number of
/// columns; with `add` the product is added to `sum`.
pub(crate) fn add_products<A: Scalar>(
    (a, rows): (&[A], usize),
    (b, columns): (&[A], usize),
    n: usize,
    sum: &mut [A],
    add: bool,
) {
    for from in (0..n).step_by(STRETCH) {
        let some = Segment {
            a: from * rows,
            b: from * columns,
            len: STRETCH.min(n - from),
        };
        let [a, b] = [(a, rows), (b, columns)].map(|(data, step)| AOperand { data, step });
        let to = CTile::new(matrix(sum, rows, columns));
        gemm_tn_segmented(A::kernels(), &[some], a, b, to, add || from > 0);
    }
}
