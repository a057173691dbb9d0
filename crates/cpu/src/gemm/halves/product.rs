//! Products of two matrices of halves.

use crate::Cpu;
use crate::epilogue::Epilogue;
use crate::gemm::halves::{Block, Half, HalfKernels, HalfPanels, Matrix, Order, finish};
use crate::gemm::shape::GemmShape;
use crate::gemm::{CTile, RowMap, SERIAL_THRESHOLD, blocks, gemm_nt_small, matrix, streamed_blocks};
use crate::simd::lanes::to_acc;
use kiln_core::{DType, Result};

/// The largest block of C that a task computes: its sums, its rows of A and a block of B stay in an L2 cache together.
const MOST_ROWS: usize = 192;
const MOST_COLUMNS: usize = 512;
/// The number of steps of k from which a block has half as many columns, and the fewest rows for which all of its B is read.
const LONG: usize = 1024;
const FEW_ROWS: usize = 128;
/// The approximate number of blocks of a large product.
const TASKS: usize = 16;

/// The rows and columns of the blocks of C.
fn block_size(kernels: HalfKernels, s: &GemmShape) -> [usize; 2] {
    if s.work() <= SERIAL_THRESHOLD * kernels.speed() {
        return [s.m.min(MOST_ROWS), s.n];
    }
    let (panel, tile) = (kernels.panel(), kernels.tile());
    let most = if s.k > LONG { MOST_COLUMNS / 2 } else { MOST_COLUMNS };
    let columns = s.n.div_ceil(s.n.div_ceil(most)).next_multiple_of(panel);
    let rows = s.m.div_ceil(TASKS.div_ceil(s.n.div_ceil(columns)));
    let rows = rows.clamp(FEW_ROWS, MOST_ROWS).min(s.m);
    [s.m.div_ceil(s.m.div_ceil(rows)).next_multiple_of(tile), columns]
}

/// `C = f(A·B + bias)` by `kernels`, which must support `T`.
pub(crate) fn product<T: Half>(
    cpu: &Cpu,
    kernels: HalfKernels,
    s: &GemmShape,
    [a, b]: [&[T]; 2],
    c: &mut [T],
    e: Epilogue<'_, f32>,
) -> Result<()> {
    let &GemmShape { m, n, k, .. } = s;
    let source = |data, transposed: bool, [along, across]: [usize; 2]| Matrix {
        data,
        step: if transposed { across } else { along },
        order: if transposed { Order::AcrossK } else { Order::AlongK },
    };
    let (a, b) = (source(a, s.trans_a, [k, m]), source(b, !s.trans_b, [k, n]));
    let size = block_size(kernels, s);
    let serial = s.work() <= SERIAL_THRESHOLD * kernels.speed();
    let panels = HalfPanels::packed(cpu, kernels, &b, 0..n, 0..k, !serial)?;
    blocks(matrix(c, m, n), size, kernels.tile(), [0; 2], &|[row, column], c| {
        let (rows, columns) = c.dim();
        let mut block = Block::new(cpu, kernels, [rows, columns], panels.longest())?;
        block.product(&a, row..row + rows, &panels, column);
        let e = Epilogue {
            bias: e.bias.map(|bias| &bias[column..]),
            ..e
        };
        block.finish(CTile::new(c), RowMap::First(rows), e);
        Ok(())
    })
}

/// The columns of C whose sums are kept in f32 at once.
const SUMS: usize = 64;

/// A product of few rows of A with a transposed B, along whose rows vectors run: B is read in place and widened in registers.
pub(crate) fn small_m<T: Half>(
    cpu: &Cpu,
    s: &GemmShape,
    [a, b]: [&[T]; 2],
    c: &mut [T],
    e: Epilogue<'_, f32>,
) -> Result<()> {
    let &GemmShape { m, n, k, .. } = s;
    let mut wide = cpu.scratch(DType::F32, m * k)?;
    to_acc(&a[..m * k], wide.as_mut_slice());
    let a = wide.as_slice::<f32>();
    let size = streamed_blocks(s, size_of::<T>());
    blocks(matrix(c, m, n), size, 1, [0; 2], &|[_, first], c| {
        let columns = c.ncols();
        let mut c = CTile::new(c);
        let mut memory = cpu.scratch(DType::F32, m * columns.min(SUMS))?;
        for from in (0..columns).step_by(SUMS) {
            let count = SUMS.min(columns - from);
            let sums = &mut memory.as_mut_slice::<f32>()[..m * count];
            let target = CTile::new(matrix(sums, m, count));
            let column = first + from;
            gemm_nt_small(T::all_dots()[0], (a, k), (b, k), column, k, target, Epilogue::NONE);
            let bias = e.bias.map(|bias| &bias[column..][..count]);
            for (i, sums) in sums.chunks_exact_mut(count).enumerate() {
                finish(sums, bias, e, &mut c.slice(i)[from..from + count]);
            }
        }
        Ok(())
    })
}
