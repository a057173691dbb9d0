//! Attention of bf16 by the tiles of a matrix unit: the block's queries, keys, values and gradients are multiplied as they are.
//! Weights of the softmax and gradients of scores, which are f32, become the sum of two bf16 each: what that leaves out is below
//! 2⁻¹⁶ of a number, far below the rounding of a result.

use super::call::by_head;
use crate::Cpu;
use crate::gemm::halves::{HalfKernels, HalfPanels, Matrix, Order, multiply, pack_rows};
use crate::gemm::{BLOCK_WORK, transpose};
use crate::ops::attention::backward::slopes;
use crate::ops::attention::forward::exponentials;
use crate::parallel::try_chunks_mut;
use crate::simd::isa::vectorized;
use crate::simd::lanes::{from_acc, round_bf16, widen_bf16};
use crate::simd::row_reduce::LANES;
use crate::simd::tiles::{self, SIDE};
use half::bf16;
use kiln_core::host::room;
use kiln_core::ops::AttentionParams;
use kiln_core::{DType, Result};
use ndarray::ArrayViewMut2;

/// The number of queries of a block: two rows of tiles, and a row of words of the sums over queries.
const QUERIES: usize = 2 * SIDE;
const KERNELS: HalfKernels = HalfKernels::Tiles;
/// A row past the last one of a panel.
static NOTHING: [f32; 2 * SIDE] = [0.0; 2 * SIDE];

/// True if attention of `dtype` is computed here.
pub(super) fn is_supported(dtype: DType, p: &AttentionParams) -> bool {
    dtype == DType::BF16 && tiles::available() && p.width > 0 && p.positions > 0
}

/// The parameters that all heads share.
struct Call<'a> {
    cpu: &'a Cpu,
    positions: usize,
    width: usize,
    /// The number of entries of a position: of the result, and of queries, keys and values together.
    joined: usize,
    packed: usize,
    causal: bool,
    scale: f32,
    /// The distance between rows of scores.
    stride: usize,
    parallel: bool,
}

/// Scratch memory of f32 or words, handed out in parts.
macro_rules! split {
    ($memory:expr, $($name:ident: $len:expr),+) => {
        let rest = $memory;
        $(let ($name, rest) = rest.split_at_mut($len);)+
        let _ = rest;
    };
}

impl<'a> Call<'a> {
    fn new(cpu: &'a Cpu, p: &AttentionParams) -> Self {
        let [positions, heads, width] = [p.positions, p.heads, p.width].map(|d| d as usize);
        Call {
            cpu,
            positions,
            width,
            joined: heads * width,
            packed: 3 * heads * width,
            causal: p.causal == 1,
            scale: p.scale as f32,
            stride: positions.next_multiple_of(LANES) + SIDE,
            parallel: p.flops() > 2 * BLOCK_WORK as u64,
        }
    }

    fn seen(&self, end: usize) -> usize {
        if self.causal { end } else { self.positions }
    }

    /// The queries, keys or values of a head.
    fn part<'x>(&self, sequence: &'x [bf16], head: usize, part: usize, order: Order) -> Matrix<'x, bf16> {
        Matrix {
            data: &sequence[part * self.joined + head * self.width..],
            step: self.packed,
            order,
        }
    }

    /// A head's vectors as the columns of a right operand, `[width, positions]`.
    fn turned(&self, x: Matrix<'_, bf16>) -> Result<HalfPanels> {
        let x = Matrix {
            order: Order::AlongK,
            ..x
        };
        HalfPanels::packed(self.cpu, KERNELS, &x, 0..self.positions, 0..self.width, false)
    }

    /// A head's vectors as the rows of a right operand, `[positions, width]`.
    fn lying(&self, x: Matrix<'_, bf16>) -> Result<HalfPanels> {
        let x = Matrix {
            order: Order::AcrossK,
            ..x
        };
        HalfPanels::packed(self.cpu, KERNELS, &x, 0..self.width, 0..self.positions, false)
    }

    /// `c = a·b` for the rows `first..end` of `a`, and the first `columns` columns of `b`, all of them or whole panels; `words` is memory for the rows of one
    /// block of k.
    fn product(
        &self,
        a: Matrix<'_, bf16>,
        [first, end, columns]: [usize; 3],
        b: &HalfPanels,
        words: &mut [f32],
        (c, c_step): (&mut [f32], usize),
    ) {
        for (i, steps) in b.blocks.iter().enumerate() {
            let count = KERNELS.words(steps.len());
            pack_rows(KERNELS, &a, first..end, steps.clone(), words, count);
            let size = [end - first, columns, count];
            multiply(
                KERNELS,
                size,
                (words, count),
                (b.from(i, 0), b.apart(i)),
                (c, c_step),
                i > 0,
            );
        }
    }

    /// `c = (high + low)·b` for rows of words that cover the first `seen` steps of k.
    fn split_product(
        &self,
        [rows, columns, seen]: [usize; 3],
        [high, low]: [&[f32]; 2],
        step: usize,
        b: &HalfPanels,
        (c, c_step): (&mut [f32], usize),
    ) {
        for (i, steps) in b.blocks.iter().enumerate().filter(|(_, steps)| steps.start < seen) {
            let words = KERNELS.words(seen.min(steps.end) - steps.start);
            for (j, part) in [high, low].into_iter().enumerate() {
                let a = (&part[steps.start / 2..], step);
                let panels = (b.from(i, 0), b.apart(i));
                multiply(KERNELS, [rows, columns, words], a, panels, (c, c_step), i + j > 0);
            }
        }
    }
}

/// The nearest bf16, and that of what it leaves out; of a number that is not finite nothing is left out.
#[inline(always)]
fn parts(x: f32) -> [u16; 2] {
    let high = round_bf16(x);
    let rest = x - widen_bf16(high);
    [
        high,
        if rest.abs() < f32::INFINITY {
            round_bf16(rest)
        } else {
            0
        },
    ]
}

/// Rows of f32 as rows of two bf16 each: `high + low`, the first `seen` of a row and zeros up to `width`.
fn split_rows([rows, seen, width]: [usize; 3], from: &[f32], step: usize, [high, low]: [&mut [f32]; 2], words: usize) {
    let (high, low): (&mut [u16], &mut [u16]) = (bytemuck::cast_slice_mut(high), bytemuck::cast_slice_mut(low));
    vectorized(
        #[inline(always)]
        || {
            for i in 0..rows {
                let from = &from[i * step..][..seen];
                let (high, low) = (&mut high[2 * i * words..][..width], &mut low[2 * i * words..][..width]);
                for ((high, low), &x) in high.iter_mut().zip(low.iter_mut()).zip(from) {
                    [*high, *low] = parts(x);
                }
                high[seen..].fill(0);
                low[seen..].fill(0);
            }
        },
    );
}

/// Pairs of rows of f32 as panels of words, `[rows / 2, panel]` each, for `columns` columns: `high + low`. Rows past the last one
/// up to a multiple of 32 are zeros.
fn split_panels([rows, columns]: [usize; 2], from: &[f32], step: usize, [high, low]: [&mut [f32]; 2]) {
    let (high, low): (&mut [u32], &mut [u32]) = (bytemuck::cast_slice_mut(high), bytemuck::cast_slice_mut(low));
    let (width, words) = (KERNELS.panel(), KERNELS.words(rows));
    vectorized(
        #[inline(always)]
        || {
            for column in (0..columns).step_by(width) {
                let count = width.min(columns.next_multiple_of(SIDE) - column);
                for word in 0..words {
                    let at = column * words + word * count;
                    let (high, low) = (&mut high[at..][..count], &mut low[at..][..count]);
                    if 2 * word >= rows {
                        high.fill(0);
                        low.fill(0);
                        continue;
                    }
                    let even = &from[2 * word * step + column..][..count];
                    let odd = match 2 * word + 1 < rows {
                        true => &from[(2 * word + 1) * step + column..][..count],
                        false => &NOTHING[..count],
                    };
                    for (((high, low), &x), &y) in high.iter_mut().zip(low.iter_mut()).zip(even).zip(odd) {
                        let ([a, c], [b, d]) = (parts(x), parts(y));
                        *high = u32::from(a) | u32::from(b) << 16;
                        *low = u32::from(c) | u32::from(d) << 16;
                    }
                }
            }
        },
    );
}

/// The results of a head, and the log-sum-exp of every position.
type Head<'a> = (ArrayViewMut2<'a, bf16>, &'a mut [f32]);

pub(super) fn forward(cpu: &Cpu, p: &AttentionParams, qkv: &[bf16], y: &mut [bf16], lse: &mut [f32]) -> Result<()> {
    if y.is_empty() {
        return Ok(());
    }
    let call = Call::new(cpu, p);
    let (batch, heads) = (p.batch as usize, p.heads as usize);
    let y = by_head(y, [batch, call.positions, heads, call.width])?;
    let mut results: Vec<Head<'_>> = room(y.len())?;
    results.extend(y.into_iter().zip(lse.chunks_exact_mut(call.positions)));
    try_chunks_mut(&mut results, 1, call.parallel, |i, head| {
        let sequence = &qkv[i / heads * call.positions * call.packed..];
        call.forward(sequence, i % heads, &mut head[0])
    })
}

impl Call<'_> {
    fn forward(&self, sequence: &[bf16], head: usize, (y, lse): &mut Head<'_>) -> Result<()> {
        let [q, k, v] = [0, 1, 2].map(|part| self.part(sequence, head, part, Order::AlongK));
        let (keys, values) = (self.turned(k)?, self.lying(v)?);
        let (words, wide) = (KERNELS.words(self.positions), self.width.next_multiple_of(SIDE));
        let q_words = KERNELS.words(keys.longest());
        let sizes = [
            QUERIES * self.stride,
            QUERIES * q_words,
            QUERIES * words,
            QUERIES * words,
            QUERIES * wide,
        ];
        let mut memory = self.cpu.scratch(DType::F32, sizes.iter().sum())?;
        split!(memory.as_mut_slice::<f32>(), scores: sizes[0], rows: sizes[1], high: sizes[2], low: sizes[3], sums: sizes[4]);
        for first in (0..self.positions).step_by(QUERIES) {
            let end = (first + QUERIES).min(self.positions);
            let (count, seen) = (end - first, self.seen(end));
            self.product(q, [first, end, seen], &keys, rows, (scores, self.stride));
            let mut totals = [0f32; QUERIES];
            vectorized(
                #[inline(always)]
                || {
                    let rows = scores.chunks_exact_mut(self.stride).zip(lse[first..end].iter_mut());
                    for (i, (row, lse)) in rows.enumerate() {
                        let row = &mut row[..seen.next_multiple_of(LANES)];
                        (*lse, totals[i]) = exponentials(self.scale, row, self.seen(first + i + 1));
                    }
                },
            );
            let covered = seen.next_multiple_of(2 * SIDE);
            split_rows([count, seen, covered], scores, self.stride, [high, low], words);
            let size = [count, self.width, seen];
            self.split_product(size, [high, low], words, &values, (sums, wide));
            for (i, sums) in sums.chunks_exact_mut(wide).take(count).enumerate() {
                let (sums, divided) = (&mut sums[..self.width], 1.0 / totals[i]);
                sums.iter_mut().for_each(|y| *y *= divided);
                let mut to = y.row_mut(first + i);
                from_acc(sums, to.as_slice_mut().expect("a position's entries are adjacent"));
            }
        }
        Ok(())
    }
}

/// The operands of the gradient.
pub(super) struct Given<'a> {
    pub(super) qkv: &'a [bf16],
    pub(super) lse: &'a [f32],
    pub(super) g: &'a [bf16],
}

pub(super) fn backward(cpu: &Cpu, p: &AttentionParams, given: &Given<'_>, dqkv: &mut [bf16]) -> Result<()> {
    if dqkv.is_empty() {
        return Ok(());
    }
    let call = Call::new(cpu, p);
    let (batch, heads) = (p.batch as usize, p.heads as usize);
    // The parts of a sequence are the heads of the queries, then of the keys, then of the values.
    let mut parts = by_head(dqkv, [batch, call.positions, 3 * heads, call.width])?.into_iter();
    let mut tasks = room(batch.saturating_mul(heads))?;
    for _ in 0..batch {
        let [q, k, v] = [0; 3].map(|_| parts.by_ref().take(heads).collect::<Vec<_>>());
        tasks.extend(q.into_iter().zip(k).zip(v).map(|((q, k), v)| [q, k, v]));
    }
    try_chunks_mut(&mut tasks, 1, call.parallel, |i, task| {
        let (sequence, head) = (i / heads * call.positions, i % heads);
        let g = Matrix {
            data: &given.g[sequence * call.joined + head * call.width..],
            step: call.joined,
            order: Order::AlongK,
        };
        let lse = &given.lse[i * call.positions..][..call.positions];
        call.gradient(&given.qkv[sequence * call.packed..], head, g, lse, &mut task[0])
    })
}

impl Call<'_> {
    fn gradient(
        &self,
        sequence: &[bf16],
        head: usize,
        g: Matrix<'_, bf16>,
        lse: &[f32],
        [dq, dk, dv]: &mut [ArrayViewMut2<'_, bf16>; 3],
    ) -> Result<()> {
        let [q, k, v] = [0, 1, 2].map(|part| self.part(sequence, head, part, Order::AlongK));
        let (keys, values, lying) = (self.turned(k)?, self.turned(v)?, self.lying(k)?);
        let words = KERNELS.words(self.positions);
        let (wide, tall) = (self.width.next_multiple_of(SIDE), self.positions.next_multiple_of(SIDE));
        // Rows of queries, or of their entries as sums over a block of queries have them.
        let row_words = (QUERIES * KERNELS.words(keys.longest())).max(wide * SIDE);
        let split = (QUERIES * words).max(SIDE * tall);
        let sizes = [
            QUERIES * self.stride,
            QUERIES * self.stride,
            row_words,
            split,
            split,
            QUERIES * wide,
            wide * tall,
        ];
        let [scores, gradients, rows, high, low, sums, all] = sizes;
        let mut memory = self.cpu.scratch(DType::F32, sizes.iter().sum::<usize>() + all)?;
        split!(memory.as_mut_slice::<f32>(), p: scores, ds: gradients, rows: rows, high: high, low: low, sums: sums, keys_sum: all, values_sum: all);
        keys_sum.fill(0.0);
        values_sum.fill(0.0);
        for first in (0..self.positions).step_by(QUERIES) {
            let end = (first + QUERIES).min(self.positions);
            let (count, seen) = (end - first, self.seen(end));
            self.product(q, [first, end, seen], &keys, rows, (p, self.stride));
            self.product(g, [first, end, seen], &values, rows, (ds, self.stride));
            let columns = seen.next_multiple_of(LANES);
            vectorized(
                #[inline(always)]
                || {
                    let rows = p.chunks_exact_mut(self.stride).zip(ds.chunks_exact_mut(self.stride));
                    for (i, (p, ds)) in (first..end).zip(rows) {
                        slopes(
                            self.scale,
                            lse[i],
                            None,
                            &mut p[..columns],
                            &mut ds[..columns],
                            self.seen(i + 1),
                        );
                    }
                },
            );
            let covered = seen.next_multiple_of(2 * SIDE);
            split_rows([count, seen, covered], ds, self.stride, [high, low], words);
            self.split_product([count, self.width, seen], [high, low], words, &lying, (sums, wide));
            for (i, sums) in sums.chunks_exact(wide).take(count).enumerate() {
                let mut to = dq.row_mut(first + i);
                from_acc(
                    &sums[..self.width],
                    to.as_slice_mut().expect("a position's entries are adjacent"),
                );
            }
            // The sums over queries, transposed: [entries, keys].
            for (x, left, sum) in [(&*p, g, &mut *values_sum), (&*ds, q, &mut *keys_sum)] {
                split_panels([count, seen], x, self.stride, [high, low]);
                let query_words = KERNELS.words(count);
                let left = Matrix {
                    data: &left.data[first * left.step..],
                    order: Order::AcrossK,
                    ..left
                };
                pack_rows(KERNELS, &left, 0..self.width, 0..count, rows, query_words);
                for part in [&*high, &*low] {
                    let panels = (part, query_words * KERNELS.panel());
                    let size = [self.width, seen, query_words];
                    multiply(KERNELS, size, (rows, query_words), panels, (&mut *sum, tall), true);
                }
            }
        }
        let mut turned = self.cpu.scratch(DType::F32, self.positions * wide)?;
        let turned = turned.as_mut_slice::<f32>();
        for (sum, to) in [(&*keys_sum, dk), (&*values_sum, dv)] {
            transpose(sum, tall, self.positions, self.width, turned, wide);
            for (i, from) in turned.chunks_exact(wide).enumerate() {
                let mut to = to.row_mut(i);
                from_acc(
                    &from[..self.width],
                    to.as_slice_mut().expect("a position's entries are adjacent"),
                );
            }
        }
        Ok(())
    }
}
