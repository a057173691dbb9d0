//! The nuclear norm.

use crate::{Array, Case, Rounding, check_with, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Tensor, grad};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Nuclear {
    x: Array,
    keep_dim: bool,
}

/// The eigenvalues of XᵀX or XXᵀ, whichever is smaller, by rotations from both sides (Jacobi 1846).
fn eigenvalues(x: &[f64], m: usize, n: usize) -> Vec<f64> {
    let k = m.min(n);
    let at = |line: usize, i: usize| if m >= n { x[i * n + line] } else { x[line * n + i] };
    let mut a: Vec<Vec<f64>> = (0..k)
        .map(|i| {
            (0..k)
                .map(|j| (0..m.max(n)).map(|r| at(i, r) * at(j, r)).sum())
                .collect()
        })
        .collect();
    for _ in 0..30 {
        for p in 0..k {
            for q in p + 1..k {
                if a[p][q] == 0.0 {
                    continue;
                }
                let angle = 0.5 * (2.0 * a[p][q]).atan2(a[p][p] - a[q][q]);
                let (s, c) = angle.sin_cos();
                for row in &mut a {
                    (row[p], row[q]) = (c * row[p] + s * row[q], c * row[q] - s * row[p]);
                }
                let (above, from) = a.split_at_mut(q);
                for (x, y) in above[p].iter_mut().zip(&mut from[0]) {
                    (*x, *y) = (c * *x + s * *y, c * *y - s * *x);
                }
            }
        }
    }
    (0..k).map(|i| a[i][i].max(0.0)).collect()
}

impl Nuclear {
    fn each(&self, x: &Array, f: impl Fn(&[f64]) -> f64) -> Array {
        let (batch, matrix) = self.x.shape.split_at(self.x.shape.len() - 2);
        let mut shape = batch.to_vec();
        if self.keep_dim {
            shape.extend([1, 1]);
        }
        let (count, size) = (batch.iter().product::<usize>(), matrix.iter().product::<usize>());
        let of = |i: usize| {
            let own = &x.data[i * size..(i + 1) * size];
            let values = eigenvalues(own, matrix[0], matrix[1]);
            f(&values.iter().map(|v| v.sqrt()).collect::<Vec<_>>())
        };
        Array::new(&shape, (0..count).map(of).collect())
    }
}

impl Case for Nuclear {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].norm_nuclear(self.keep_dim)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.each(&x[0], |s| s.iter().sum())
    }

    /// The result is rounded once. The oracle's eigenvalues have the error of the largest one; their roots add that divided by the
    /// root.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let errors = self.each(&x[0], |s| {
            let largest = s.iter().fold(0.0, |m: f64, s| m.max(*s));
            s.iter().map(|s| s + largest * largest / s.max(1e-9)).sum()
        });
        Rounding::terms(40.0, errors)
    }

    /// Derivatives are divided by singular values, and second ones by sums of two.
    fn slope_terms(&self, x: &[Array]) -> f64 {
        let least = self.each(&x[0], |s| s.iter().fold(f64::INFINITY, |m, s| m.min(*s)));
        let least = least.data.iter().fold(1.0, |m: f64, s| m.min(*s));
        8.0 / (least * least)
    }
}

/// Matrices that are wide, tall and square, one and several, clear of lower ranks; and what is known of those.
pub fn nuclear_norm<B: Backend>(backend: &B) {
    let batch = prop::collection::vec(1usize..3, 0..3);
    let cases = (batch, 1usize..5, 1usize..5, any::<bool>()).prop_flat_map(|(mut shape, m, n, keep_dim)| {
        shape.extend([m, n]);
        shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Nuclear { x, keep_dim })
    });
    let clear = |case: &Nuclear| {
        let least = case.each(&case.x, |s| s.iter().fold(f64::INFINITY, |m, s| m.min(*s)));
        least.data.iter().all(|s| *s > 0.25)
    };
    check_with(16, backend, cases.prop_filter("matrices of full rank", clear));
    let run = || -> Result<()> {
        // Of rank 1: the subgradient has no part outside of the spans.
        let x = Tensor::from_f64(backend, &[3.0, 0.0, 4.0, 0.0, 0.0, 0.0], &[3, 2], DType::F32)?.requires_grad();
        let y = x.norm_nuclear(false)?;
        assert_eq!(y.item()?, 5.0);
        let slope = grad(&y, &[&x], None, true)?.remove(0);
        let slope = slope.map(|g| g.to_f64()).transpose()?.unwrap_or_default();
        let off = slope
            .iter()
            .zip([0.6, 0.0, 0.8, 0.0, 0.0, 0.0])
            .map(|(a, b)| (a - b).abs());
        assert!(off.fold(0.0, f64::max) < 1e-6, "{slope:?}");
        let zero = Tensor::zeros(backend, &[2, 2], DType::F32)?.requires_grad();
        let y = zero.norm_nuclear(true)?;
        assert_eq!((y.item()?, y.shape().dims()), (0.0, &[1, 1][..]));
        let slope = grad(&y, &[&zero], None, false)?.remove(0);
        assert_eq!(slope.map(|g| g.to_f64()).transpose()?, Some(vec![0.0; 4]));
        let empty = Tensor::zeros(backend, &[2, 0, 3], DType::F32)?;
        assert_eq!(empty.norm_nuclear(false)?.to_f64()?, [0.0, 0.0]);
        assert_eq!(empty.norm_nuclear(true)?.shape().dims(), [2, 1, 1]);
        let nan = Tensor::from_f64(backend, &[1.0, f64::NAN, 0.0, 2.0], &[2, 1, 2], DType::F32)?;
        let y = nan.norm_nuclear(false)?.to_f64()?;
        assert!(y[0].is_nan() && y[1] == 2.0, "{y:?}");
        refused!(nan.reshape(&[4])?.norm_nuclear(false), Error::Rank { .. });
        // A third derivative is refused, not zero.
        let g = grad(&x.norm_nuclear(false)?, &[&x], None, true)?.remove(0);
        let second = match g {
            Some(g) => grad(&g.square()?.sum(&[], false)?, &[&x], None, true)?.remove(0),
            None => None,
        };
        if let Some(second) = second {
            refused!(
                grad(&second.sum(&[], false)?, &[&x], None, false),
                Error::NoGradient { .. }
            );
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}
