//! The Fréchet distance between two sets of feature vectors.

use kiln_core::{Error, Result};
use nalgebra::{DMatrix, DVector};

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
    mean: DVector<f64>,
    /// The sum of the outer products of deviations from the mean.
    scatter: DMatrix<f64>,
}

impl FeatureStatistics {
    /// Creates statistics of vectors of `width` features, of which there are none yet.
    pub fn new(width: usize) -> Self {
        FeatureStatistics {
            samples: 0,
            mean: DVector::zeros(width),
            scatter: DMatrix::zeros(width, width),
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
        self.mean.as_slice()
    }

    /// The covariance matrix, row-major `[width, width]`, divided by one less than the number of vectors as `numpy.cov` does; NaN
    /// with fewer than two.
    pub fn covariance(&self) -> Vec<f64> {
        self.covariances().as_slice().to_vec()
    }

    fn covariances(&self) -> DMatrix<f64> {
        match self.samples {
            0 | 1 => self.scatter.map(|_| f64::NAN),
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
        // Vectors are columns.
        let mut batch = DMatrix::from_column_slice(width, features.len() / width, features);
        let mean = batch.column_mean();
        batch.column_iter_mut().for_each(|mut column| column -= &mean);
        let (before, now) = (self.samples as f64, batch.ncols() as f64);
        let (apart, all) = (mean - &self.mean, before + now);
        self.scatter += &batch * batch.transpose() + &apart * apart.transpose() * (before * now / all);
        self.mean += apart * (now / all);
        self.samples += batch.ncols() as u64;
        Ok(())
    }
}

/// The eigenvalues of a positive semi-definite matrix and its eigenvectors; those that rounding made negative are 0.
fn decomposed(matrix: DMatrix<f64>) -> (DVector<f64>, DMatrix<f64>) {
    let eigen = matrix.symmetric_eigen();
    (eigen.eigenvalues.map(|value| value.max(0.0)), eigen.eigenvectors)
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
    let apart = (&a.mean - &b.mean).norm_squared();
    let traces = first.trace() + second.trace();
    let (values, vectors) = decomposed(first);
    let root = &vectors * DMatrix::from_diagonal(&values.map(f64::sqrt)) * vectors.transpose();
    let product = &root * second * &root;
    // Rounding makes the product a little unsymmetric.
    let product = (&product + product.transpose()) * 0.5;
    let shared: f64 = product.symmetric_eigenvalues().iter().map(|v| v.max(0.0).sqrt()).sum();
    Ok(apart + traces - 2.0 * shared)
}
