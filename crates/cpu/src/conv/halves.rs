//! Convolutions of halves as products of words: packing gathers the windows where they lie in the images, so that no operand is
//! widened as a whole.

use crate::Cpu;
use crate::conv::Geometry;
use crate::conv::windows::{Rows, Windows};
use crate::epilogue::Epilogue;
use crate::gemm::halves::{Block, Half, HalfKernels, HalfPanels, Matrix, Order, Source};
use crate::gemm::{BLOCK_WORK, CTile, SERIAL_THRESHOLD, blocks, matrix, sum_parts};
use crate::parallel::{chunks_mut, try_chunks_mut};
use crate::simd::lanes::from_acc;
use kiln_core::host::room;
use kiln_core::ops::ConvPass as Pass;
use kiln_core::{DType, Result};
use std::ops::Range;

/// The largest number of rows of a block of C, and of its columns: its sums, its windows and a block of the other operand stay in
/// an L2 cache together.
const MOST_ROWS: usize = 192;
const MOST_COLUMNS: usize = 512;
/// The approximate number of blocks of a large convolution.
const TASKS: usize = 32;
/// The largest number of sums of a block of a weight gradient, and of all partial weight gradients together.
const MOST_SUMS: usize = 1 << 17;
const PARTS: usize = 1 << 21;

/// What a row of a product costs besides its elements, and a piece of a window: measured on a Granite Rapids.
const ROW: usize = 300;
const PIECE: usize = 250;

/// True if [`forward`], [`data_grad`] or [`weight_grad`] can compute it.
pub(crate) fn is_supported(pass: Pass, g: &Geometry) -> bool {
    let few = pass != Pass::DataGrad || crate::conv::direct::has_few_remainders(g);
    g.groups == 1 && g.depth() > 0 && g.outputs > 0 && !g.empty() && few
}

/// The cost, as the number of multiply-adds of full vectors that take as long.
pub(crate) fn cost(kernels: HalfKernels, pass: Pass, g: &Geometry) -> usize {
    let lanes = kernels.lanes();
    let product = |a: usize, b: usize| a.saturating_mul(b);
    let steps = |k: usize| kernels.words(k) * if kernels.pairs() { 2 } else { 1 };
    // Elements that follow one another in an image, and what it takes to find them.
    let piece = |channels: usize| {
        if g.dilation[2] == 1 {
            channels * g.kernel[2]
        } else {
            channels
        }
    };
    let gather = |windows: usize, channels: usize, each: usize| {
        let depth = g.taps() * channels;
        product(windows, each * depth + ROW + PIECE * depth / piece(channels).max(1))
    };
    let (rows, depth) = (g.rows(), g.depth());
    let (sums, copies) = match pass {
        Pass::Forward => (
            product(product(rows, g.outputs.next_multiple_of(lanes)), steps(depth)),
            gather(rows, g.channels, 2).saturating_add(product(rows, 8 * g.outputs)),
        ),
        Pass::DataGrad => {
            let stride: usize = g.stride.iter().product();
            let positions = g.batch * g.in_positions();
            let (windows, of) = (positions, g.taps().div_ceil(stride) * g.outputs);
            (
                product(product(windows, g.channels.next_multiple_of(lanes)), steps(of)),
                (gather(windows, g.outputs, 2) / stride).saturating_add(product(windows, 8 * g.channels)),
            )
        }
        Pass::WeightGrad => (
            product(
                product(rows, g.outputs.next_multiple_of(lanes)),
                depth.next_multiple_of(lanes),
            ),
            gather(rows, g.channels, 6).saturating_add(product(rows, 10 * g.outputs)),
        ),
    };
    kernels.time(sums).saturating_add(copies)
}

/// The windows of some positions: a line is a window, whose elements are those of the kernel.
struct WindowLines<'a, T> {
    windows: &'a Windows,
    rows: Rows,
    data: &'a [T],
    order: Order,
}

impl<T: Half> Source<T> for WindowLines<'_, T> {
    fn order(&self) -> Order {
        self.order
    }

    fn copy(&self, lines: Range<usize>, range: Range<usize>, to: &mut [T], step: usize) {
        self.windows
            .gather((&self.rows, self.data, T::of(0.0)), lines, range, to, step);
    }
}

/// A matrix whose line `i` is that of this number.
struct NumberedLines<'a, T> {
    lines: Matrix<'a, T>,
    numbers: Option<&'a [usize]>,
    first: usize,
}

impl<T: Half> Source<T> for NumberedLines<'_, T> {
    fn order(&self) -> Order {
        self.lines.order
    }

    fn copy(&self, lines: Range<usize>, range: Range<usize>, to: &mut [T], step: usize) {
        let Some(numbers) = self.numbers else {
            return self
                .lines
                .copy(self.first + lines.start..self.first + lines.end, range, to, step);
        };
        for (&number, to) in numbers[lines].iter().zip(to.chunks_mut(step)) {
            let line = self.first + number;
            self.lines.copy(line..line + 1, range.clone(), to, step);
        }
    }
}

/// The weights of some taps across k: line `tap·outputs + output` is that of the output's weights at the tap.
struct TapLines<'a, T> {
    data: &'a [T],
    /// Where the taps start in the weights of an output, and the distance of the next output's.
    starts: Vec<usize>,
    depth: usize,
    outputs: usize,
}

impl<T: Half> Source<T> for TapLines<'_, T> {
    fn order(&self) -> Order {
        Order::AcrossK
    }

    fn copy(&self, lines: Range<usize>, range: Range<usize>, to: &mut [T], step: usize) {
        for (line, to) in lines.zip(to.chunks_mut(step)) {
            let at = self.starts[line / self.outputs] + line % self.outputs * self.depth;
            to[..range.len()].copy_from_slice(&self.data[at + range.start..at + range.end]);
        }
    }
}

/// Rows and columns of the blocks of C for tasks, and whether there is one task alone.
fn block_size(kernels: HalfKernels, [rows, columns, depth]: [usize; 3]) -> ([usize; 2], bool) {
    let work = rows.saturating_mul(columns).saturating_mul(depth);
    // Gathering takes as long as a good many multiply-adds.
    let serial = work <= SERIAL_THRESHOLD * kernels.speed().min(4);
    let (panel, tile) = (kernels.panel(), kernels.tile());
    let columns = columns
        .div_ceil(columns.div_ceil(MOST_COLUMNS).max(1))
        .next_multiple_of(panel);
    let size = if serial {
        MOST_ROWS
    } else {
        rows.div_ceil(TASKS).clamp(2 * tile, MOST_ROWS)
    };
    ([size.next_multiple_of(tile), columns], serial)
}

/// `y = f(x ⋆ w + bias)`.
pub(crate) fn forward<T: Half>(
    cpu: &Cpu,
    kernels: HalfKernels,
    g: &Geometry,
    [x, w]: [&[T]; 2],
    e: Epilogue<'_, f32>,
    y: &mut [T],
) -> Result<()> {
    let windows = Windows::forward(g);
    let weights = Matrix {
        data: w,
        step: g.depth(),
        order: Order::AlongK,
    };
    let (size, serial) = block_size(kernels, [g.rows(), g.outputs, g.depth()]);
    let panels = HalfPanels::packed(cpu, kernels, &weights, 0..g.outputs, 0..g.depth(), !serial)?;
    let y = matrix(y, g.rows(), g.outputs);
    blocks(y, size, size[0], [0; 2], &|[row, column], y| {
        let (count, columns) = y.dim();
        let lines = WindowLines {
            windows: &windows,
            rows: windows.rows(row..row + count),
            data: x,
            order: Order::AlongK,
        };
        let mut block = Block::new(cpu, kernels, [count, columns], panels.longest())?;
        block.product(&lines, 0..count, &panels, column);
        let e = Epilogue {
            bias: e.bias.map(|bias| &bias[column..]),
            ..e
        };
        block.finish(CTile::new(y), lines.rows.places(), e);
        Ok(())
    })
}

/// The gradient with respect to the input: every input position gathers from the windows that read it.
pub(crate) fn data_grad<T: Half>(
    cpu: &Cpu,
    kernels: HalfKernels,
    p: &Geometry,
    [g, w]: [&[T]; 2],
    dx: &mut [T],
) -> Result<()> {
    let classes = Windows::backward(p);
    let positions = p.batch * p.in_positions();
    // Positions that no output reads belong to no class.
    if classes.iter().map(Windows::positions).sum::<usize>() < p.in_positions() {
        chunks_mut(dx, 1, 1, |_, dx| dx.fill(T::of(0.0)));
        if classes.is_empty() {
            return Ok(());
        }
    }
    let depth = p.taps() * p.outputs / classes.len();
    let (size, serial) = block_size(kernels, [positions, p.channels, depth]);
    let mut products = Vec::new();
    for windows in &classes {
        let mut starts = room(windows.taps())?;
        windows.each_tap(|[d, h, w]| starts.push(((d * p.kernel[1] + h) * p.kernel[2] + w) * p.channels));
        if windows.descends() {
            starts.reverse();
        }
        let steps = starts.len() * p.outputs;
        let weights = TapLines {
            data: w,
            starts,
            depth: p.depth(),
            outputs: p.outputs,
        };
        let panels = HalfPanels::packed(cpu, kernels, &weights, 0..p.channels, 0..steps, !serial)?;
        products.push((windows, panels));
    }
    // Each class has its part of a block's positions.
    let size = [size[0] * classes.len(), size[1]];
    let dx = matrix(dx, positions, p.channels);
    blocks(dx, size, size[0], [0; 2], &|[row, column], mut dx| {
        for (windows, panels) in &products {
            let lines = WindowLines {
                windows,
                rows: windows.rows(row..row + dx.nrows()),
                data: g,
                order: Order::AlongK,
            };
            let count = lines.rows.places().len();
            let mut block = Block::new(cpu, kernels, [count, dx.ncols()], panels.longest())?;
            block.product(&lines, 0..count, panels, column);
            block.finish(CTile::new(dx.view_mut()), lines.rows.places(), Epilogue::NONE);
        }
        Ok(())
    })
}

/// The gradient with respect to the weight: `gᵀ·x` over fixed parts of the positions, whose sums are added in order.
pub(crate) fn weight_grad<T: Half>(
    cpu: &Cpu,
    kernels: HalfKernels,
    p: &Geometry,
    [g, x]: [&[T]; 2],
    dw: &mut [T],
) -> Result<()> {
    let windows = Windows::forward(p);
    let (rows, depth, outputs, size) = (p.rows(), p.depth(), p.outputs, dw.len());
    let unit = kernels.unit();
    let tasks = match p.work() {
        work if work <= SERIAL_THRESHOLD * kernels.speed().min(4) => 1,
        work => (work / (BLOCK_WORK * kernels.speed().min(4))).clamp(2, TASKS),
    };
    let width = (MOST_SUMS / outputs).max(1).next_multiple_of(kernels.panel());
    let parts = tasks.min((PARTS / size).max(1)).min(rows.div_ceil(unit));
    let part = rows.div_ceil(parts).next_multiple_of(unit);
    // The sums of each part, in blocks of `width` columns.
    let mut sums = cpu.scratch(DType::F32, parts * size)?;
    let mut chunks = Vec::new();
    for (i, sums) in sums.as_mut_slice::<f32>().chunks_mut(size).enumerate() {
        let mut rest = sums;
        for from in (0..depth).step_by(width) {
            let columns = from..depth.min(from + width);
            let (chunk, after) = rest.split_at_mut(outputs * columns.len());
            chunks.push(((i * part).min(rows)..((i + 1) * part).min(rows), columns, chunk));
            rest = after;
        }
    }
    try_chunks_mut(&mut chunks, 1, tasks > 1, |_, chunk| {
        let (rows, columns, sums) = &mut chunk[0];
        if rows.start == rows.end {
            sums.fill(0.0);
            return Ok(());
        }
        let mut block = Block::new(cpu, kernels, [outputs, columns.len()], unit)?;
        for at in rows.clone().step_by(unit) {
            let lines = WindowLines {
                windows: &windows,
                rows: windows.rows(at..rows.end.min(at + unit)),
                data: x,
                order: Order::AcrossK,
            };
            let places = lines.rows.places();
            let gradients = NumberedLines {
                lines: Matrix {
                    data: g,
                    step: outputs,
                    order: Order::AcrossK,
                },
                numbers: places.listed(),
                first: at,
            };
            let panels = HalfPanels::packed(cpu, kernels, &lines, columns.clone(), 0..places.len(), false)?;
            for i in 0..panels.blocks.len() {
                block.add(&gradients, 0..outputs, &panels, i, 0, at > rows.start || i > 0);
            }
        }
        let (from, step) = block.sums();
        for (to, from) in sums.chunks_exact_mut(columns.len()).zip(from.chunks_exact(step)) {
            to.copy_from_slice(&from[..columns.len()]);
        }
        Ok(())
    })?;
    let sums = sums.as_mut_slice::<f32>();
    let mut total = cpu.scratch(DType::F32, if parts > 1 { size } else { 0 })?;
    let total = total.as_mut_slice::<f32>();
    let sums: &[f32] = if parts > 1 {
        sum_parts(sums, total);
        total
    } else {
        sums
    };
    chunks_mut(dw, depth, 1, |at, dw| {
        for (i, row) in dw.chunks_exact_mut(depth).enumerate() {
            let output = at / depth + i;
            for (i, to) in row.chunks_mut(width).enumerate() {
                let from = &sums[i * width * outputs + output * to.len()..][..to.len()];
                from_acc(from, to);
            }
        }
    });
    Ok(())
}
