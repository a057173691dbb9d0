//! The packing of halves: rows of A and panels of B, as words.

use crate::fork::in_pool;
use crate::gemm::halves::{Half, HalfKernels, Order, Source};
use crate::gemm::transpose::transpose;
use crate::parallel::GRAIN;
use crate::simd::isa::vectorized;
use crate::simd::lanes::to_acc;
use crate::{Cpu, CpuBuffer};
use bytemuck::{cast_slice, cast_slice_mut};
use kiln_core::{DType, Result};
use rayon::prelude::*;
use std::ops::Range;

/// The number of steps of k, and of rows of A, that are rearranged at once: their copies stay in an L1 cache.
const STEPS: usize = 64;
const ROWS: usize = 64;

/// Cuts `k` into equal blocks of at most [`HalfKernels::unit`] steps, of whole rows of tiles but for the last.
fn blocks_of_k(kernels: HalfKernels, k: Range<usize>) -> Vec<Range<usize>> {
    if k.is_empty() {
        return Vec::new();
    }
    let parts = k.len().div_ceil(kernels.unit());
    let part = k.len().div_ceil(parts).next_multiple_of(32);
    k.clone()
        .step_by(part)
        .map(|from| from..(from + part).min(k.end))
        .collect()
}

/// Packs rows of A: the words of row `rows.start + i` are those from `i·step` of `to` on, for the steps `steps` of k and with
/// zeros after them.
pub(crate) fn pack_rows<T: Half>(
    kernels: HalfKernels,
    source: &dyn Source<T>,
    rows: Range<usize>,
    steps: Range<usize>,
    to: &mut [f32],
    step: usize,
) {
    let words = kernels.words(steps.len());
    match source.order() {
        Order::AlongK => lines_to_words(kernels, source, rows, steps, to, [step, words]),
        Order::AcrossK => {
            let mut across = vec![0.0; kernels.words(STEPS) * ROWS];
            for (i, first) in rows.clone().step_by(ROWS).enumerate() {
                let count = ROWS.min(rows.end - first);
                for (j, from) in steps.clone().step_by(STEPS).enumerate() {
                    let part = from..steps.end.min(from + STEPS);
                    let words = kernels.words(part.len());
                    let across = &mut across[..words * count];
                    steps_to_words(kernels, source, first..first + count, part, across, count);
                    let to = &mut to[i * ROWS * step + j * kernels.words(STEPS)..];
                    transpose(across, count, count, words, to, step);
                }
            }
        }
    }
}

/// Packs a panel of B: `[words, width]`, of the columns `columns` and of the steps `steps` of k, with zeros after them. What
/// lies in columns past the last one is not specified.
fn pack_panel<T: Half>(
    kernels: HalfKernels,
    source: &dyn Source<T>,
    columns: Range<usize>,
    steps: Range<usize>,
    to: &mut [f32],
    width: usize,
) {
    match source.order() {
        Order::AcrossK => steps_to_words(kernels, source, columns, steps, to, width),
        Order::AlongK => {
            // Twice as many steps, as they are shorter, and a cache line more, so that lines do not share a set of a cache.
            const PART: usize = 2 * STEPS;
            let (most, count) = (kernels.words(PART), columns.len());
            let mut lines = vec![0.0; (most + 16) * count];
            for (i, from) in steps.clone().step_by(PART).enumerate() {
                let part = from..steps.end.min(from + PART);
                let words = kernels.words(part.len());
                lines_to_words(kernels, source, columns.clone(), part, &mut lines, [most + 16, words]);
                transpose(&lines, most + 16, words, count, &mut to[i * most * width..], width);
            }
        }
    }
}

/// The words of lines along k, `step` apart.
fn lines_to_words<T: Half>(
    kernels: HalfKernels,
    source: &dyn Source<T>,
    lines: Range<usize>,
    steps: Range<usize>,
    to: &mut [f32],
    [step, words]: [usize; 2],
) {
    let len = steps.len();
    if kernels.pairs() {
        let to: &mut [T] = cast_slice_mut(to);
        source.copy(lines.clone(), steps, to, 2 * step);
        if len < 2 * words {
            for to in to.chunks_mut(2 * step).take(lines.len()) {
                to[len..2 * words].fill(T::of(0.0));
            }
        }
        return;
    }
    const LINES: usize = 8;
    let mut halves = vec![T::of(0.0); LINES * len];
    for (i, first) in lines.clone().step_by(LINES).enumerate() {
        let some = first..lines.end.min(first + LINES);
        source.copy(some.clone(), steps.clone(), &mut halves, len);
        let to = to[i * LINES * step..].chunks_mut(step).take(some.len());
        for (to, from) in to.zip(halves.chunks_exact(len.max(1))) {
            to_acc(from, &mut to[..len]);
        }
    }
}

/// The words of lines across k: row `i` of `to` has the words `i` of the columns `range`, `width` apart.
fn steps_to_words<T: Half>(
    kernels: HalfKernels,
    source: &dyn Source<T>,
    range: Range<usize>,
    steps: Range<usize>,
    to: &mut [f32],
    width: usize,
) {
    let count = range.len();
    let mut halves = vec![T::of(0.0); STEPS * width];
    let per_word = if kernels.pairs() { 2 } else { 1 };
    for (i, from) in steps.clone().step_by(STEPS).enumerate() {
        let part = from..steps.end.min(from + STEPS);
        let len = part.len();
        source.copy(part, range.clone(), &mut halves, width);
        let to = &mut to[i * STEPS / per_word * width..];
        if !kernels.pairs() {
            to_acc(&halves[..len * width], &mut to[..len * width]);
            continue;
        }
        if !len.is_multiple_of(2) {
            halves[len * width..(len + 1) * width].fill(T::of(0.0));
        }
        let words = len.div_ceil(2);
        interleave(
            cast_slice(&halves[..2 * words * width]),
            cast_slice_mut(&mut to[..words * width]),
            width,
        );
    }
    // The words past the last step, of which only tiles have any.
    let filled = steps.len().div_ceil(per_word);
    let all = kernels.words(steps.len());
    for to in to.chunks_mut(width).take(all).skip(filled) {
        to[..count].fill(0.0);
    }
}

/// Makes words of pairs of rows, of `width` elements each: the first row has the lower half of a word.
fn interleave(from: &[u16], to: &mut [u32], width: usize) {
    vectorized(
        #[inline(always)]
        || {
            for (from, to) in from.chunks_exact(2 * width).zip(to.chunks_exact_mut(width)) {
                let (low, high) = from.split_at(width);
                for (to, (&low, &high)) in to.iter_mut().zip(low.iter().zip(high)) {
                    *to = u32::from(low) | u32::from(high) << 16;
                }
            }
        },
    );
}

/// B in panels of words, block by block of k.
pub(crate) struct HalfPanels {
    data: CpuBuffer,
    kernels: HalfKernels,
    /// The blocks of k.
    pub(crate) blocks: Vec<Range<usize>>,
    columns: usize,
}

impl HalfPanels {
    /// Packs the columns `columns` and the steps `k` of `source`, on all threads if they are many and `parallel`.
    pub(crate) fn packed<T: Half>(
        cpu: &Cpu,
        kernels: HalfKernels,
        source: &dyn Source<T>,
        columns: Range<usize>,
        k: Range<usize>,
        parallel: bool,
    ) -> Result<Self> {
        let (lanes, width) = (kernels.lanes(), kernels.panel());
        let blocks = blocks_of_k(kernels, k.clone());
        let words: usize = blocks.iter().map(|b| kernels.words(b.len())).sum();
        let mut data = cpu.scratch(DType::F32, words * columns.len().next_multiple_of(lanes))?;
        let mut jobs = Vec::new();
        let mut rest = data.as_mut_slice::<f32>();
        for block in &blocks {
            for from in columns.clone().step_by(width) {
                let some = from..columns.end.min(from + width);
                let padded = some.len().next_multiple_of(lanes);
                let (panel, after) = rest.split_at_mut(kernels.words(block.len()) * padded);
                jobs.push((block.clone(), some, panel, padded));
                rest = after;
            }
        }
        let run = |(steps, columns, panel, width): (Range<usize>, Range<usize>, &mut [f32], usize)| {
            pack_panel(kernels, source, columns, steps, panel, width);
        };
        if parallel && columns.len().saturating_mul(k.len()) > 2 * GRAIN {
            in_pool(|| jobs.into_par_iter().with_max_len(1).for_each(run));
        } else {
            jobs.into_iter().for_each(run);
        }
        Ok(HalfPanels {
            data,
            kernels,
            blocks,
            columns: columns.len(),
        })
    }

    /// The number of steps of the longest block of k.
    pub(crate) fn longest(&self) -> usize {
        self.blocks.iter().map(Range::len).max().unwrap_or(0)
    }

    /// The distance between panels of block `i` of k.
    pub(crate) fn apart(&self, i: usize) -> usize {
        self.kernels.words(self.blocks[i].len()) * self.kernels.panel()
    }

    /// The panels of block `i` of k from column `first` of these on, which is a multiple of a panel's width: `[words, width]`
    /// each, the last one as wide as the remaining columns rounded up to vectors.
    pub(crate) fn from(&self, i: usize, first: usize) -> &[f32] {
        debug_assert!(first.is_multiple_of(self.kernels.panel()));
        let padded = self.columns.next_multiple_of(self.kernels.lanes());
        let words = |block: &Range<usize>| self.kernels.words(block.len());
        let before: usize = self.blocks[..i].iter().map(words).sum();
        let len = words(&self.blocks[i]);
        &self.data.as_slice::<f32>()[before * padded..][..len * padded][first * len..]
    }
}
