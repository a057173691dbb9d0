//! Eigenvalues and eigenvectors of symmetric matrices on the host, in f64: Householder's tridiagonal form, then implicit QL steps
//! (Golub and Van Loan, Matrix Computations, sections 8.3.1 and 8.3.3).

use ndarray::{Array1, Array2, Axis, s};

/// The number of QL steps for one eigenvalue, of which two or three are usual.
const STEPS: usize = 60;

/// The eigenvalues of a symmetric matrix, in no order, and its eigenvectors as rows.
pub(super) fn symmetric_eigen(a: Array2<f64>) -> (Vec<f64>, Array2<f64>) {
    let (mut diagonal, mut below, mut vectors) = tridiagonal(a);
    for first in 0..diagonal.len() {
        for _ in 0..STEPS {
            let last = block_end(&diagonal, &below, first);
            if last == first {
                break;
            }
            ql_step(&mut diagonal, &mut below, &mut vectors, first, last);
        }
    }
    (diagonal, vectors)
}

/// The diagonal and subdiagonal of `Q·a·Qᵀ`, and Q. The subdiagonal ends with a zero.
fn tridiagonal(mut a: Array2<f64>) -> (Vec<f64>, Vec<f64>, Array2<f64>) {
    let n = a.nrows();
    let mut q = Array2::eye(n);
    let mut below = vec![0.0; n];
    for (k, below) in below.iter_mut().enumerate().take(n.saturating_sub(1)) {
        let mut v: Array1<f64> = a.slice(s![k + 1.., k]).to_owned();
        let length = v.dot(&v).sqrt();
        let reflected = if v[0] > 0.0 { -length } else { length };
        *below = reflected;
        v[0] -= reflected;
        let square = v.dot(&v);
        if square == 0.0 {
            continue;
        }
        let mut rest = a.slice_mut(s![k + 1.., k + 1..]);
        let p = rest.dot(&v) * (2.0 / square);
        let w = &p - &(&v * (v.dot(&p) / square));
        for ((mut row, &vi), &wi) in rest.axis_iter_mut(Axis(0)).zip(&v).zip(&w) {
            row.zip_mut_with(&w, |x, &wj| *x -= vi * wj);
            row.zip_mut_with(&v, |x, &vj| *x -= wi * vj);
        }
        let mut rows = q.slice_mut(s![k + 1.., ..]);
        let along = rows.t().dot(&v) * (2.0 / square);
        for (mut row, &vi) in rows.axis_iter_mut(Axis(0)).zip(&v) {
            row.zip_mut_with(&along, |x, &y| *x -= vi * y);
        }
    }
    (a.diag().to_vec(), below, q)
}

/// The last row of the block that begins at `first` and whose subdiagonal has no zero; a negligible entry counts as one.
fn block_end(diagonal: &[f64], below: &[f64], first: usize) -> usize {
    let negligible = |i: usize| {
        let size = diagonal[i].abs() + diagonal[i + 1].abs();
        below[i].abs() <= f64::EPSILON * size
    };
    (first..diagonal.len() - 1)
        .find(|&i| negligible(i))
        .unwrap_or(diagonal.len() - 1)
}

/// One implicit QL step with Wilkinson's shift on the block from `first` to `last`.
fn ql_step(diagonal: &mut [f64], below: &mut [f64], vectors: &mut Array2<f64>, first: usize, last: usize) {
    let half = (diagonal[first + 1] - diagonal[first]) / (2.0 * below[first]);
    let root = half.hypot(1.0).copysign(half);
    let mut g = diagonal[last] - diagonal[first] + below[first] / (half + root);
    let (mut sine, mut cosine, mut shift) = (1.0, 1.0, 0.0);
    for i in (first..last).rev() {
        let (f, b) = (sine * below[i], cosine * below[i]);
        let length = f.hypot(g);
        below[i + 1] = length;
        if length == 0.0 {
            diagonal[i + 1] -= shift;
            below[last] = 0.0;
            return;
        }
        (sine, cosine) = (f / length, g / length);
        g = diagonal[i + 1] - shift;
        let turn = (diagonal[i] - g) * sine + 2.0 * cosine * b;
        shift = sine * turn;
        diagonal[i + 1] = g + shift;
        g = cosine * turn - b;
        rotate(vectors, i, sine, cosine);
    }
    diagonal[first] -= shift;
    below[first] = g;
    below[last] = 0.0;
}

/// Rotates rows `i` and `i + 1`.
fn rotate(vectors: &mut Array2<f64>, i: usize, sine: f64, cosine: f64) {
    let (mut upper, mut lower) = vectors.multi_slice_mut((s![i, ..], s![i + 1, ..]));
    ndarray::Zip::from(&mut upper).and(&mut lower).for_each(|u, l| {
        (*u, *l) = (cosine * *u - sine * *l, sine * *u + cosine * *l);
    });
}

/// The matrix `Σ f(λ)·v·vᵀ` over eigenvalues λ and eigenvectors v.
pub(super) fn spectral(values: &[f64], vectors: &Array2<f64>, f: impl Fn(f64) -> f64) -> Array2<f64> {
    let weights = Array1::from_iter(values.iter().map(|&value| f(value)));
    let scaled = vectors * &weights.insert_axis(Axis(1));
    vectors.t().dot(&scaled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_the_sum_of_its_eigenvectors() {
        for n in [1, 2, 3, 8, 33, 60] {
            for kind in 0..4 {
                let wave = |i: usize, j: usize| ((i * 7 + j * 13 + kind) as f64 * 0.37).sin();
                let mut a = Array2::from_shape_fn((n, n), |(i, j)| match kind {
                    // Dense, of rank 1, diagonal with equal entries, and with zeros.
                    0 => wave(i, j) + wave(j, i),
                    1 => (i + 1) as f64 * (j + 1) as f64,
                    2 => f64::from(u8::from(i == j)) * 5.0,
                    _ => 0.0,
                });
                a = (&a + &a.t()) * 0.5;
                let scale = a.iter().fold(1.0f64, |m, x| m.max(x.abs())) * n as f64;
                let (values, vectors) = symmetric_eigen(a.clone());
                let apart = |x: &Array2<f64>, y: &Array2<f64>| (x - y).iter().fold(0.0f64, |m, d| m.max(d.abs()));
                assert!(
                    apart(&spectral(&values, &vectors, |v| v), &a) < 1e-13 * scale,
                    "{n}, {kind}"
                );
                assert!(
                    apart(&vectors.dot(&vectors.t()), &Array2::eye(n)) < 1e-13 * n as f64,
                    "{n}, {kind}"
                );
            }
        }
        assert!(symmetric_eigen(Array2::zeros((0, 0))).0.is_empty());
    }
}
