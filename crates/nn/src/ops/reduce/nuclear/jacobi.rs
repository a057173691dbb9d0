//! Singular values by one-sided Jacobi rotations (Hestenes 1958; Demmel and Veselić 1992).

use crate::Result;
use kiln_core::host;

/// Matrices as U·S·Vᵀ, with k = min(m, n) columns.
pub(super) struct Parts {
    /// `[b, m, k]`, with a column of zeros for each singular value of 0.
    pub(super) u: Vec<f64>,
    /// `[b, k]`, in no order; 0 where a value is no more than rounding.
    pub(super) s: Vec<f64>,
    /// `[b, n, k]`, as U.
    pub(super) v: Vec<f64>,
}

/// Decomposes row-major matrices `[m, n]`, one behind the other.
pub(super) fn decompose(matrices: &[f64], m: usize, n: usize) -> Result<Parts> {
    let (size, k) = (m * n, m.min(n));
    let count = matrices.len() / size.max(1);
    let mut parts = Parts {
        u: host::room(count * m * k)?,
        s: host::room(count * k)?,
        v: host::room(count * n * k)?,
    };
    for a in matrices.chunks(size.max(1)) {
        // Columns of the matrix, or of its transpose if that is the taller one: lines of this array.
        let (rows, columns) = (m.max(n), k);
        let mut lines = host::room(size)?;
        for c in 0..columns {
            lines.extend((0..rows).map(|r| if m >= n { a[r * n + c] } else { a[c * n + r] }));
        }
        let (lines, turns, s) = rotate(lines, rows, columns)?;
        let (u, v) = if m >= n { (lines, turns) } else { (turns, lines) };
        let transposed = |x: &[f64], rows: usize| -> Vec<f64> {
            let at = |i: usize| x[i % columns * rows + i / columns];
            (0..rows * columns).map(at).collect()
        };
        parts.u.extend(transposed(&u, m));
        parts.v.extend(transposed(&v, n));
        parts.s.extend(s);
    }
    Ok(parts)
}

/// Turns `columns` lines of `rows` numbers in pairs until all are orthogonal: the lines as unit vectors, the turns as lines, and the
/// lengths.
fn rotate(mut x: Vec<f64>, rows: usize, columns: usize) -> Result<(Vec<f64>, Vec<f64>, Vec<f64>)> {
    /// Ten are more than enough for any matrix that is known.
    const SWEEPS: usize = 60;
    let largest = x.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    let mut turns = host::repeat(0.0, columns * columns)?;
    (0..columns).for_each(|i| turns[i * columns + i] = 1.0);
    if x.iter().any(|v| !v.is_finite()) {
        let nan = f64::NAN;
        return Ok((
            host::repeat(nan, x.len())?,
            host::repeat(nan, turns.len())?,
            vec![nan; columns],
        ));
    }
    if largest == 0.0 {
        turns.fill(0.0);
        return Ok((x, turns, vec![0.0; columns]));
    }
    // Squares neither overflow nor vanish.
    x.iter_mut().for_each(|v| *v /= largest);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for _ in 0..SWEEPS {
        let mut turned = false;
        for p in 0..columns {
            for q in p + 1..columns {
                let (a, b) = (&x[p * rows..][..rows], &x[q * rows..][..rows]);
                let (aa, bb, ab) = (dot(a, a), dot(b, b), dot(a, b));
                if ab.abs() <= f64::EPSILON * (aa * bb).sqrt() || ab == 0.0 {
                    continue;
                }
                turned = true;
                let zeta = (bb - aa) / (2.0 * ab);
                let t = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
                let c = 1.0 / t.hypot(1.0);
                turn(&mut x, (p, q), rows, (c, c * t));
                turn(&mut turns, (p, q), columns, (c, c * t));
            }
        }
        if !turned {
            break;
        }
    }
    let mut s: Vec<f64> = x.chunks(rows).map(|line| dot(line, line).sqrt()).collect();
    let most = s.iter().fold(0.0, |m: f64, s| m.max(*s));
    for (i, s) in s.iter_mut().enumerate() {
        let (line, turn) = (&mut x[i * rows..][..rows], &mut turns[i * columns..][..columns]);
        if *s <= most * rows as f64 * f64::EPSILON {
            *s = 0.0;
            line.fill(0.0);
            turn.fill(0.0);
        } else {
            line.iter_mut().for_each(|v| *v /= *s);
            *s *= largest;
        }
    }
    Ok((x, turns, s))
}

/// Turns two lines of `size` numbers in their plane.
fn turn(x: &mut [f64], (p, q): (usize, usize), size: usize, (c, s): (f64, f64)) {
    let (before, from) = x.split_at_mut(q * size);
    let (a, b) = (&mut before[p * size..][..size], &mut from[..size]);
    for (a, b) in a.iter_mut().zip(b) {
        (*a, *b) = (c * *a - s * *b, s * *a + c * *b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U·S·Vᵀ is the matrix, and UᵀU and VᵀV are unit matrices where there is a singular value.
    #[test]
    fn products_give_the_matrix_back() {
        let mut seed = 1u64;
        for (m, n) in [(1, 1), (4, 4), (7, 3), (2, 9), (20, 20)] {
            let mut a: Vec<f64> = (0..2 * m * n)
                .map(|_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (seed >> 40) as f64 / f64::from(1 << 23) - 1.0
                })
                .collect();
            // The second matrix has the rank 1.
            (m * n..2 * m * n).for_each(|i| a[i] = ((i % n) as f64 + 1.0) * ((i - m * n) / n) as f64);
            let (parts, k) = (decompose(&a, m, n).unwrap(), m.min(n));
            for (b, a) in a.chunks(m * n).enumerate() {
                let (u, v, s) = (&parts.u[b * m * k..], &parts.v[b * n * k..], &parts.s[b * k..][..k]);
                for (i, a) in a.iter().enumerate() {
                    let product: f64 = (0..k).map(|j| u[i / n * k + j] * s[j] * v[i % n * k + j]).sum();
                    assert!((product - a).abs() < 1e-13 * (m * n) as f64 * (m * n) as f64, "{m} {n}");
                }
                for (x, rows) in [(u, m), (v, n)] {
                    for (i, j) in (0..k * k).map(|i| (i / k, i % k)) {
                        let product: f64 = (0..rows).map(|r| x[r * k + i] * x[r * k + j]).sum();
                        let want = if i == j && s[i] > 0.0 { 1.0 } else { 0.0 };
                        assert!((product - want).abs() < 1e-13, "{m} {n}: {product}");
                    }
                }
                let rank = s.iter().filter(|s| **s > 0.0).count();
                assert_eq!(rank, if b == 0 { k } else { usize::from(m > 1) }, "{m} {n}: {s:?}");
            }
        }
    }
}
