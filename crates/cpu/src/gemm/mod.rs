//! Matrix products: micro-kernels for each instruction set, and the loops around them.
//!
//! ```text
//! microkernel   the micro-kernels: a tile of C in registers, in three forms
//! kernels       the micro-kernels of this machine
//! pack          packing of B: cut along k and laid out in panels
//! square        the micro-kernel of transpositions
//! transpose     transposition of a matrix, a square of vectors at a time
//! halves        products of bf16 and f16, which packing reads as they are
//! indirect      A has rows that are contiguous in k, given by pointers: matrices, and windows of images (indirect GEMM)
//! transposed_a  A has columns that are contiguous
//! small_m       few rows of A, and a transposed B that is read in place
//! shape         the sizes of a product
//! plan          the algorithms of a product of two matrices, and the choice between them
//! product       the implementation of each algorithm
//! blocking      block sizes for this machine's caches
//! ```
//!
//! A product is cut into blocks of C for threads ([`blocks`]); the cuts depend on sizes alone. Within a block, every element
//! of C is one sum over k in order, one block of k after the other.

pub(crate) mod blocking;
pub(crate) mod halves;
pub(crate) mod indirect;
pub(crate) mod kernels;
pub(crate) mod microkernel;
pub(crate) mod pack;
pub(crate) mod plan;
mod product;
mod shape;
mod small_m;
pub(crate) mod square;
#[cfg(test)]
mod tests;
mod transpose;
mod transposed_a;

pub(crate) use crate::epilogue::Epilogue;
pub(crate) use indirect::{Pointers, RowMap, Taps, gemm_few_rows, gemm_indirect, gemm_nn};
pub(crate) use kernels::{Gemm, Kernels};
pub(crate) use microkernel::Segment;
pub(crate) use pack::{BOperand, KBlock, Panels, UNIT};
pub(crate) use product::Product;
pub(crate) use shape::GemmShape;
pub(crate) use small_m::{gemm_nt_small, streamed_blocks};
pub(crate) use transpose::{transpose, transpose_tile};
pub(crate) use transposed_a::{AOperand, gemm_tn, gemm_tn_segmented};

use crate::epilogue::finish_rows;
use crate::interrupt;
use crate::parallel::chunks_mut;
use kiln_core::Result;
use ndarray::{ArrayViewMut2, Axis};

/// The approximate number of multiply-adds of one block of a large product.
pub(crate) const BLOCK_WORK: usize = 1 << 20;

/// The number of multiply-adds up to which a product stays on one thread: 40 µs on a core with AVX-512, of which waking
/// another thread would take as much as it saves.
pub(crate) const SERIAL_THRESHOLD: usize = 2 * BLOCK_WORK;

/// A block of C that a product writes: rows of contiguous columns.
pub(crate) struct CTile<'a, A> {
    c: *mut A,
    rows: usize,
    columns: usize,
    step: usize,
    memory: std::marker::PhantomData<&'a mut [A]>,
}

impl<'a, A> CTile<'a, A> {
    /// # Panics
    /// If the columns of `c` are not contiguous: a bug in the op.
    pub(crate) fn new(mut c: ArrayViewMut2<'a, A>) -> Self {
        let (rows, columns) = c.dim();
        assert!(columns <= 1 || c.strides()[1] == 1, "columns of C are contiguous");
        let step = usize::try_from(c.strides()[0]).expect("rows of C go forward");
        assert!(rows <= 1 || step >= columns, "rows of C do not overlap");
        CTile {
            c: c.as_mut_ptr(),
            rows,
            columns,
            step,
            memory: std::marker::PhantomData,
        }
    }

    /// The start of row `row`.
    fn row(&mut self, row: usize) -> *mut A {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the view that this was made of has more than `row` rows, `step` apart.
        unsafe { self.c.add(row * self.step) }
    }

    /// Fills `to` with the starts of the rows from `first` on.
    fn rows(&mut self, first: usize, to: &mut [*mut A]) {
        assert!(first + to.len() <= self.rows, "rows of the target");
        let first = self.c.wrapping_add(first * self.step);
        for (i, to) in to.iter_mut().enumerate() {
            *to = first.wrapping_add(i.wrapping_mul(self.step));
        }
    }

    /// Row `row` as a slice.
    pub(crate) fn slice(&mut self, row: usize) -> &mut [A] {
        // SAFETY: `row` lies in the view, whose rows have `columns` contiguous elements borrowed for 'a.
        unsafe { std::slice::from_raw_parts_mut(self.row(row), self.columns) }
    }
}

impl<A: Gemm> CTile<'_, A> {
    /// Applies the epilogue to all rows; the first column is column `first` of the whole C.
    fn finish(&mut self, first: usize, e: Epilogue<'_, A>) {
        if e.is_none() {
            return;
        }
        let columns = self.columns;
        let bias = e.bias.map(|bias| &bias[first..first + columns]);
        for row in 0..self.rows {
            finish_rows(self.slice(row), columns, bias, e.activation);
        }
    }
}

/// A view of `c` as a matrix.
///
/// # Panics
/// If `c` has another size: a bug in the op.
pub(crate) fn matrix<A>(c: &mut [A], rows: usize, columns: usize) -> ArrayViewMut2<'_, A> {
    ArrayViewMut2::from_shape((rows, columns), c).expect("C has rows·columns elements")
}

/// A task on one block of C, given the row and column where the block starts.
pub(crate) type Task<'f, A> = dyn Fn([usize; 2], ArrayViewMut2<'_, A>) -> Result<()> + Sync + 'f;

/// Runs `f(origin, block)` over blocks of at most `size` of `c`, in parallel. Rows are cut at multiples of `unit`, into halves
/// of equal work. The cuts depend on the shape alone.
pub(crate) fn blocks<A: Send>(
    c: ArrayViewMut2<'_, A>,
    size: [usize; 2],
    unit: usize,
    origin: [usize; 2],
    f: &Task<'_, A>,
) -> Result<()> {
    if c.is_empty() {
        return Ok(());
    }
    let interrupt = interrupt::current();
    halves(c, size, unit, origin, &|origin, block| {
        interrupt::look(&interrupt)?;
        f(origin, block)
    })
}

fn halves<A: Send>(
    c: ArrayViewMut2<'_, A>,
    size: [usize; 2],
    unit: usize,
    origin: [usize; 2],
    f: &Task<'_, A>,
) -> Result<()> {
    let counts = [0, 1].map(|i| c.len_of(Axis(i)).div_ceil(size[i]));
    let axis = usize::from(counts[1] > counts[0]);
    if counts[axis] == 1 {
        return f(origin, c);
    }
    let cut = match axis {
        0 => (c.nrows() / 2).next_multiple_of(unit).min(size[0] * (counts[0] - 1)),
        _ => counts[1] / 2 * size[1],
    };
    let (low, high) = c.split_at(Axis(axis), cut);
    let mut after = origin;
    after[axis] += cut;
    let (low, high) = crate::parallel::join(
        || halves(low, size, unit, origin, f),
        || halves(high, size, unit, after, f),
    );
    low.and(high)
}

/// Sets `c[i]` to the sum of element `i` of all parts, first to last.
pub(crate) fn sum_parts<A: Gemm>(parts: &[A], c: &mut [A]) {
    let size = c.len();
    chunks_mut(c, 1, parts.len() / size.max(1), |at, chunk| {
        chunk.copy_from_slice(&parts[at..at + chunk.len()]);
        for part in parts.chunks_exact(size).skip(1) {
            for (c, p) in chunk.iter_mut().zip(&part[at..]) {
                *c += *p;
            }
        }
    });
}
