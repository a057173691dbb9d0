//! Roots of unity, and the tables of transforms that are made of them.

use crate::Result;
use kiln_core::host;
use std::f64::consts::FRAC_PI_2;

/// cos and sin of 2πk/n for `k` below `n`: the angle is reduced to at most an eighth of a turn in whole numbers.
fn root(k: usize, n: usize) -> (f64, f64) {
    let (k, n) = (k as u128, n as u128);
    let (quarter, rest) = (4 * k / n, 4 * k % n);
    let angle = |part: u128| part as f64 / n as f64 * FRAC_PI_2;
    let (c, s) = if 2 * rest <= n {
        (angle(rest).cos(), angle(rest).sin())
    } else {
        (angle(n - rest).sin(), angle(n - rest).cos())
    };
    match quarter {
        0 => (c, s),
        1 => (-s, c),
        2 => (-c, -s),
        _ => (s, -c),
    }
}

/// The n-th roots of unity. Of many, each is the product of two from short tables.
pub(super) struct Roots {
    n: usize,
    step: usize,
    coarse: Vec<(f64, f64)>,
    fine: Vec<(f64, f64)>,
    /// The sign of the exponent.
    sign: f64,
}

impl Roots {
    /// Up to this many are computed one by one.
    const FEW: usize = 1 << 12;

    /// Roots e^(∓2πik/n): with a minus unless `inverse`.
    pub(super) fn new(n: usize, inverse: bool) -> Self {
        let step = if n <= Self::FEW { n } else { n.isqrt() };
        Roots {
            n,
            step,
            coarse: (0..n.div_ceil(step)).map(|i| root(i * step, n)).collect(),
            fine: (0..step).map(|i| root(i, n)).collect(),
            sign: if inverse { 1.0 } else { -1.0 },
        }
    }

    /// The real and the imaginary part of the `k`-th root.
    pub(super) fn at(&self, k: usize) -> (f64, f64) {
        let (a, b) = (self.coarse[k / self.step], self.fine[k % self.step]);
        let (c, s) = if k < self.step {
            b
        } else {
            (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
        };
        (c, self.sign * s)
    }

    /// The matrix of a transform of `f` numbers as real ones: a column for each part of each input, the real parts first, a row for each
    /// result's two parts.
    pub(super) fn matrix(f: usize, inverse: bool, scale: f64) -> Vec<f64> {
        let roots = Roots::new(f, inverse);
        let mut m = vec![0.0; 4 * f * f];
        for k in 0..f {
            for j in 0..f {
                let (c, s) = roots.at(k * j % f);
                m[2 * k * 2 * f + j] = scale * c;
                m[2 * k * 2 * f + f + j] = -scale * s;
                m[(2 * k + 1) * 2 * f + j] = scale * s;
                m[(2 * k + 1) * 2 * f + f + j] = scale * c;
            }
        }
        m
    }

    /// The factors between two steps of a transform of `f·m` numbers, `[f, m]`: their real parts, and their imaginary parts.
    pub(super) fn twiddles(&self, f: usize) -> Result<(Vec<f64>, Vec<f64>)> {
        let m = self.n / f;
        let (mut re, mut im) = (host::room(self.n)?, host::room(self.n)?);
        for k in 0..f {
            for j in 0..m {
                let (c, s) = self.at(k * j);
                re.push(c);
                im.push(s);
            }
        }
        Ok((re, im))
    }
}

/// e^(∓πij²/n) for every `j` below `n`: with a minus unless `inverse`.
pub(super) fn chirp(n: usize, inverse: bool) -> Result<(Vec<f64>, Vec<f64>)> {
    let roots = Roots::new(2 * n, inverse);
    let (mut re, mut im) = (host::room(n)?, host::room(n)?);
    let mut square = 0;
    for j in 0..n {
        let (c, s) = roots.at(square);
        re.push(c);
        im.push(s);
        // (j + 1)² = j² + 2j + 1
        square = (square + 2 * j + 1) % (2 * n);
    }
    Ok((re, im))
}

/// The largest factor that is transformed by a product with its matrix.
const MOST: usize = 64;
/// The largest number of factors: with a batch on either side of them and the two parts they are dimensions of one tensor.
const FACTORS: usize = 5;

/// Factors of `n` of at most 64 each and about the same size; `None` if a prime is larger, or if they are too many.
pub(super) fn factors(n: usize) -> Option<Vec<usize>> {
    let (mut all, mut rest) = (Vec::new(), n);
    while rest > MOST {
        let mut count = 1;
        while MOST.checked_pow(count).is_some_and(|p| p < rest) {
            count += 1;
        }
        let fair = (rest as f64).powf(1.0 / f64::from(count)).ceil() as usize;
        let divides = |d: &usize| rest.is_multiple_of(*d);
        let above = (fair.max(2)..=MOST).find(divides);
        let next = above.or_else(|| (2..=MOST).rev().find(divides))?;
        all.push(next);
        rest /= next;
    }
    all.push(rest);
    (all.len() <= FACTORS).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_exact_to_a_rounding_or_two() {
        for n in [1, 2, 3, 5, 8, 64, 1000, 4096, 4097, 65536, 99991] {
            let roots = Roots::new(n, true);
            for k in (0..n).step_by(n / 1000 + 1) {
                let (c, s) = roots.at(k);
                // In a form that cancels nothing: the chord to the next root has the length 2·sin(π/n).
                let (c1, s1) = roots.at((k + 1) % n);
                let chord = 2.0 * (std::f64::consts::PI / n as f64).sin();
                assert!(((c - c1).hypot(s - s1) - chord).abs() < 4e-16, "{k} of {n}");
                assert!((c.hypot(s) - 1.0).abs() < 4e-16, "{k} of {n}");
            }
            assert_eq!(roots.at(0), (1.0, 0.0));
            if n % 4 == 0 {
                assert_eq!(Roots::new(n, false).at(n / 4).1, -1.0);
            }
        }
    }

    #[test]
    fn factors_are_of_similar_size() {
        assert_eq!(factors(1), Some(vec![1]));
        assert_eq!(factors(61), Some(vec![61]));
        assert_eq!(factors(4096), Some(vec![64, 64]));
        assert_eq!(factors(1 << 20), Some(vec![32; 4]));
        assert_eq!(factors(67), None);
        assert_eq!(factors(64 * 67), None);
        for n in 1..5000 {
            if let Some(all) = factors(n) {
                assert_eq!(all.iter().product::<usize>(), n);
                assert!(all.iter().all(|&f| f <= MOST));
            }
        }
    }
}
