//! Transpositions, a square block of vectors at a time.

use crate::gemm::CTile;
use crate::gemm::kernels::Gemm;
use crate::gemm::square::Square;
use std::marker::PhantomData;

/// Transposes: `to[k·width + n] = from[n·step + k]` for `k < steps`, `n < columns`.
///
/// # Panics
/// If either slice is too short, or rows of `to` overlap: a bug in the op.
pub(crate) fn transpose<A: Gemm>(from: &[A], step: usize, steps: usize, columns: usize, to: &mut [A], width: usize) {
    if steps == 0 || columns == 0 {
        return;
    }
    assert!(
        columns <= width && (steps - 1) * width + columns <= to.len(),
        "a transpose inside its slice"
    );
    transpose_tile(
        from,
        step,
        CTile {
            c: to.as_mut_ptr(),
            rows: steps,
            columns,
            step: width,
            memory: PhantomData,
        },
    );
}

/// Sets element `[k, n]` of `to` to `from[n·step + k]`.
///
/// # Panics
/// If `from` is too short: a bug in the op.
pub(crate) fn transpose_tile<A: Gemm>(from: &[A], step: usize, mut to: CTile<'_, A>) {
    let (steps, columns) = (to.rows, to.columns);
    if steps == 0 || columns == 0 {
        return;
    }
    assert!((columns - 1) * step + steps <= from.len(), "a matrix inside its slice");
    let kernels = A::kernels();
    let n = kernels.lanes;
    for row in (0..columns).step_by(n) {
        for column in (0..steps).step_by(n) {
            let square = Square {
                from: from[row * step + column..].as_ptr(),
                from_step: step,
                to: to.row(column).wrapping_add(row),
                to_step: to.step,
                rows: n.min(columns - row),
                columns: n.min(steps - column),
            };
            // SAFETY: `from` was compared above, and the tile has all of the block, exclusively borrowed; the instructions
            // are this machine's, as `Kernels` hands out no others.
            unsafe { (kernels.square)(&square) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_of_every_set_transpose() {
        fn check<A: Gemm>(of: fn(usize) -> A) {
            for kernels in A::all_kernels() {
                let n = kernels.lanes;
                for (rows, columns) in [(n, n), (1, n), (n, 1), (n - 1, n), (n, n - 1), (2, 3)] {
                    let (from_step, to_step) = (columns + 2, rows + 1);
                    // Both slices end with the last row.
                    let from: Vec<A> = (0..(rows - 1) * from_step + columns).map(of).collect();
                    let mut to = vec![of(9999); (columns - 1) * to_step + rows];
                    let square = Square {
                        from: from.as_ptr(),
                        from_step,
                        to: to.as_mut_ptr(),
                        to_step,
                        rows,
                        columns,
                    };
                    // SAFETY: both slices end with the last element of the block; the instruction set is one of this machine's.
                    unsafe { (kernels.square)(&square) };
                    for (at, got) in to.iter().enumerate() {
                        let (k, i) = (at / to_step, at % to_step);
                        let want = if i < rows { from[i * from_step + k] } else { of(9999) };
                        assert!(*got == want, "{} {rows}x{columns}: {k}, {i}", kernels.name);
                    }
                }
            }
        }
        check::<f32>(|x| x as f32);
        check::<f64>(|x| x as f64);
    }
}
