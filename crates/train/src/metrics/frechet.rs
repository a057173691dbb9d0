//! The Fréchet distance between two sets of feature vectors.

use super::eigen::{spectral, symmetric_eigen};
use kiln_core::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// Mean and covariance of feature vectors, in f64, gathered batch by batch (Chan, Golub and LeVeque 1979, so that a mean far from
/// zero costs no digits).
///
/// ```
/// use kiln_train::{FeatureStatistics, frechet_distance};
///
/// let mut real = FeatureStatistics::new(2);
/// real.add(&[0.0, 0.0, 2.0, 0.0, 0.0, 2.0, 2.0, 2.0])?;
/// let mut made = FeatureStatistics::new(2);
/// made.add(&[3.0, 0.0, 5.0, 0.0])?;
/// made.add(&[3.0, 2.0, 5.0, 2.0])?;
/// assert!((frechet_distance(&real, &made)? - 9.0).abs() < 1e-9);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureStatistics {
    samples: u64,
    mean: Array1<f64>,
    /// The sum of the outer products of deviations from the mean.
    scatter: Array2<f64>,
}

impl FeatureStatistics {
    /// Creates statistics of vectors of `width` features, of which there are none yet.
    pub fn new(width: usize) -> Self {
        FeatureStatistics {
            samples: 0,
            mean: Array1::zeros(width),
            scatter: Array2::zeros((width, width)),
        }
    }

    /// The number of features of a vector.
    pub fn width(&self) -> usize {
        self.mean.len()
    }

    /// The number of vectors.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The mean of each feature.
    pub fn mean(&self) -> &[f64] {
        self.mean.as_slice().unwrap_or_default()
    }

    /// The covariance matrix, row-major `[width, width]`, divided by one less than the number of vectors as `numpy.cov` does; NaN
    /// with fewer than two.
    pub fn covariance(&self) -> Vec<f64> {
        self.covariances().into_iter().collect()
    }

    fn covariances(&self) -> Array2<f64> {
        match self.samples {
            0 | 1 => self.scatter.mapv(|_| f64::NAN),
            n => &self.scatter / (n - 1) as f64,
        }
    }

    /// Adds vectors, row-major `[N, width]`.
    ///
    /// # Errors
    /// Features that are not a multiple of the width; one that is not finite, with which nothing is added.
    pub fn add(&mut self, features: &[f64]) -> Result<()> {
        const OP: &str = "feature_statistics";
        let width = self.width();
        if width == 0 || !features.len().is_multiple_of(width) {
            let expected = format!("a multiple of the {width} features of a vector");
            return Err(Error::invalid(OP, "features", features.len(), expected));
        }
        if let Some(at) = features.iter().position(|f| !f.is_finite()) {
            let found = format!("{} in vector {}", features[at], at / width);
            return Err(Error::invalid(OP, "features", found, "finite numbers"));
        }
        if features.is_empty() {
            return Ok(());
        }
        let rows = features.len() / width;
        let Ok(batch) = ArrayView2::from_shape((rows, width), features) else {
            unreachable!("the length is a multiple of the width");
        };
        let mean = batch.sum_axis(Axis(0)) / rows as f64;
        let batch = &batch - &mean;
        let (before, now) = (self.samples as f64, rows as f64);
        let (apart, all) = (mean - &self.mean, before + now);
        let column = apart.view().insert_axis(Axis(1));
        self.scatter += &(batch.t().dot(&batch) + column.dot(&column.t()) * (before * now / all));
        self.mean += &(apart * (now / all));
        self.samples += rows as u64;
        Ok(())
    }
}

/// The squared Fréchet distance between the normal distributions with these means and covariances,
/// `‖μ₁ − μ₂‖² + Tr(Σ₁ + Σ₂ − 2·√(Σ₁·Σ₂))` (Heusel et al. 2017). The trace of the square root is the sum of the square roots of the
/// eigenvalues of `√Σ₁·Σ₂·√Σ₁`, which is symmetric, so singular covariances need no correction. Two decompositions: the time grows with
/// the cube of the number of features.
///
/// See the example of [`FeatureStatistics`].
///
/// # Errors
/// Vectors of different widths, fewer than two vectors in one of them.
pub fn frechet_distance(a: &FeatureStatistics, b: &FeatureStatistics) -> Result<f64> {
    const OP: &str = "frechet_distance";
    if a.width() != b.width() {
        let expected = format!("{}, as in the other statistics", a.width());
        return Err(Error::invalid(OP, "features", b.width(), expected));
    }
    if let Some(few) = [a, b].into_iter().find(|s| s.samples < 2) {
        return Err(Error::invalid(OP, "samples", few.samples, "at least 2 vectors"));
    }
    let (first, second) = (a.covariances(), b.covariances());
    let apart = (&a.mean - &b.mean).mapv(|x| x * x).sum();
    let traces = first.diag().sum() + second.diag().sum();
    // Rounding may make an eigenvalue of 0 negative, and the product a little unsymmetric.
    let root_of = |value: f64| value.max(0.0).sqrt();
    let (values, vectors) = symmetric_eigen(first);
    let root = spectral(&values, &vectors, root_of);
    let product = root.dot(&second).dot(&root);
    let (values, _) = symmetric_eigen((&product + &product.t()) * 0.5);
    let shared: f64 = values.into_iter().map(root_of).sum();
    Ok(apart + traces - 2.0 * shared)
}
