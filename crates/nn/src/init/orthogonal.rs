//! Orthonormal vectors from random ones, on the host in f64.

use crate::Result;
use kiln_core::host;

/// Orthonormalises the rows (or the columns, when there are fewer columns) of a row-major matrix and scales them.
///
/// Modified Gram–Schmidt applied twice, which is orthogonal to working precision (Giraud et al. 2005). Its triangular
/// factor has a positive diagonal: the sign convention that makes the result uniformly distributed (Mezzadri 2007).
pub(super) fn orthogonal(values: Vec<f64>, rows: usize, gain: f64) -> Result<Vec<f64>> {
    if values.is_empty() {
        return Ok(values);
    }
    let columns = values.len() / rows;
    let transposed = columns < rows;
    let (count, length) = if transposed { (columns, rows) } else { (rows, columns) };
    // The vectors to orthonormalise, each contiguous.
    let mut vectors = if transposed {
        transpose(&values, rows, columns)?
    } else {
        values
    };
    for i in 0..count {
        let (done, rest) = vectors.split_at_mut(i * length);
        let v = &mut rest[..length];
        for _ in 0..2 {
            for u in done.chunks_exact(length) {
                let along: f64 = u.iter().zip(&*v).map(|(a, b)| a * b).sum();
                v.iter_mut().zip(u).for_each(|(b, a)| *b -= along * a);
            }
        }
        let norm = v.iter().map(|x| x * x).sum::<f64>().sqrt();
        // Random vectors are never dependent in practice; a zero vector stays zero rather than becoming NaN.
        if norm > 0.0 {
            v.iter_mut().for_each(|x| *x /= norm);
        }
    }
    vectors.iter_mut().for_each(|x| *x *= gain);
    if transposed {
        transpose(&vectors, columns, rows)
    } else {
        Ok(vectors)
    }
}

fn transpose(values: &[f64], rows: usize, columns: usize) -> Result<Vec<f64>> {
    host::collect((0..values.len()).map(|i| values[i % rows * columns + i / rows]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::philox::{Key, uniform};

    #[test]
    fn vectors_are_orthonormal() {
        for (rows, columns) in [(1, 1), (3, 7), (7, 3), (31, 31), (1, 5), (5, 1)] {
            let drawn: Vec<f64> = (0..rows * columns)
                .map(|i| f64::from(uniform(Key::new(1, 2, 3).word(i as u64))) - 0.5)
                .collect();
            let q = orthogonal(drawn, rows, 2.0).unwrap();
            let by_rows = rows <= columns;
            let n = rows.min(columns);
            let at = |v: usize, k: usize| {
                if by_rows {
                    q[v * columns + k]
                } else {
                    q[k * columns + v]
                }
            };
            for a in 0..n {
                for b in 0..n {
                    let dot: f64 = (0..rows.max(columns)).map(|k| at(a, k) * at(b, k)).sum();
                    let want = if a == b { 4.0 } else { 0.0 };
                    assert!((dot - want).abs() < 1e-12, "{rows}x{columns}: {a}·{b} = {dot}");
                }
            }
        }
    }
}
