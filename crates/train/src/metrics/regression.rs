//! Errors of regression: mean squares, mean absolute values, and the coefficient of determination.

use super::wide::wide;
use super::{Metric, Reduction};
use crate::Output;
use kiln_core::{Backend, Error, Result};
use kiln_nn::Tensor;

/// Targets whose spread is below this share of their mean are constant; the rest is rounding.
const CONSTANT: f64 = 1e-14;

/// Predictions and targets of one length.
fn pairs<'a>(
    op: &'static str,
    predictions: &'a [f64],
    targets: &'a [f64],
) -> Result<impl Iterator<Item = (f64, f64)> + 'a> {
    match predictions.len() == targets.len() {
        true => Ok(predictions.iter().copied().zip(targets.iter().copied())),
        false => {
            let expected = format!("one for each of {} targets", targets.len());
            Err(Error::invalid(op, "predictions", predictions.len(), expected))
        }
    }
}

/// The mean of `(ŷ − y)²` (`sklearn.metrics.mean_squared_error`); NaN without values.
///
/// # Errors
/// Slices of different lengths.
pub fn mean_squared_error(predictions: &[f64], targets: &[f64]) -> Result<f64> {
    let squares = pairs("mse", predictions, targets)?.map(|(p, t)| (p - t) * (p - t));
    Ok(squares.sum::<f64>() / targets.len() as f64)
}

/// The mean of `|ŷ − y|` (`sklearn.metrics.mean_absolute_error`); NaN without values.
///
/// # Errors
/// Slices of different lengths.
pub fn mean_absolute_error(predictions: &[f64], targets: &[f64]) -> Result<f64> {
    let errors = pairs("mae", predictions, targets)?.map(|(p, t)| (p - t).abs());
    Ok(errors.sum::<f64>() / targets.len() as f64)
}

/// The coefficient of determination `1 − Σ(ŷ − y)² / Σ(y − ȳ)²` (`sklearn.metrics.r2_score`), of rows of `outputs` values the
/// mean over the columns. Of targets that are all equal it is 1 if the predictions are too, else 0. NaN for fewer than two
/// samples.
///
/// ```
/// let r2 = kiln_train::r2_score(&[2.5, 0.0, 2.0, 8.0], &[3.0, -0.5, 2.0, 7.0], 1)?;
/// assert!((r2 - 0.948_608_137_044_967_9).abs() < 1e-15);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Slices of different lengths, or of one that is no multiple of `outputs`.
pub fn r2_score(predictions: &[f64], targets: &[f64], outputs: usize) -> Result<f64> {
    let squares: Vec<f64> = pairs("r2", predictions, targets)?
        .map(|(p, t)| (p - t) * (p - t))
        .collect();
    if outputs == 0 || !targets.len().is_multiple_of(outputs) {
        let expected = format!("a divisor of the {} targets", targets.len());
        return Err(Error::invalid("r2", "outputs", outputs, expected));
    }
    let column = |i: usize| {
        let targets = targets.iter().skip(i).step_by(outputs);
        let count = targets.len() as f64;
        let mean = targets.clone().sum::<f64>() / count;
        Moments {
            count,
            mean,
            spread: targets.map(|t| (t - mean) * (t - mean)).sum(),
            residual: squares.iter().skip(i).step_by(outputs).sum(),
        }
    };
    Ok(determination(&(0..outputs).map(column).collect::<Vec<_>>()))
}

/// The number of targets, their mean, the squares of their distances from it, and of the predictions from them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Moments {
    count: f64,
    mean: f64,
    spread: f64,
    residual: f64,
}

impl Moments {
    /// The moments of both samples together (Chan, Golub and LeVeque, 1979).
    fn and(self, other: Moments) -> Moments {
        let count = self.count + other.count;
        let apart = other.mean - self.mean;
        Moments {
            count,
            mean: self.mean + apart * (other.count / count),
            spread: self.spread + other.spread + apart * apart * (self.count * other.count / count),
            residual: self.residual + other.residual,
        }
    }
}

fn determination(columns: &[Moments]) -> f64 {
    let one = |m: &Moments| {
        let constant = m.spread <= m.count * (CONSTANT * m.mean).powi(2);
        match (constant, m.residual == 0.0) {
            _ if m.count < 2.0 => f64::NAN,
            (true, true) => 1.0,
            (true, false) => 0.0,
            _ => 1.0 - m.residual / m.spread,
        }
    };
    columns.iter().map(one).sum::<f64>() / columns.len() as f64
}

/// Predictions and targets of the same shape.
fn inputs<B: Backend>(op: &'static str, output: &Output<B>) -> Result<(Tensor<B>, Tensor<B>)> {
    let (predictions, targets) = (output.floats("predictions")?, output.floats("targets")?);
    if predictions.shape() != targets.shape() {
        return Err(Error::ShapeMismatch {
            op,
            lhs: *predictions.shape(),
            rhs: *targets.shape(),
        });
    }
    Ok((wide(predictions)?, wide(targets)?))
}

/// The sum of errors, each a part of its sample, and the number of samples.
fn summed<B: Backend>(
    op: &'static str,
    output: &Output<B>,
    error: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    let (predictions, targets) = inputs(op, output)?;
    let samples = predictions.shape().first().copied().unwrap_or(1);
    let each = predictions.size() / samples.max(1);
    let sum = error(&predictions.sub(&targets)?)?.sum(&[], false)?;
    let sum = sum.mul_scalar(1.0 / each.max(1) as f64)?.reshape(&[1usize])?;
    Tensor::concat(&[&sum, &sum.full_like(samples as f64)?], 0)
}

fn mean(sum: &[f64]) -> f64 {
    match sum {
        [sum, samples] => sum / samples,
        _ => f64::NAN,
    }
}

macro_rules! error {
    ($(#[$doc:meta])* $metric:ident, $name:literal, $term:expr, $value:expr) => {
        $(#[$doc])*
        ///
        /// It reads `predictions` and `targets`, floats of the same shape `[N, …]`, and sums them on the device: in f64 where the
        /// backend has it, else in f32.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $metric;

        impl $metric {
            #[doc = concat!("Creates the metric, named `", $name, "`.")]
            pub fn new() -> Self {
                $metric
            }
        }

        impl<B: Backend> Metric<B> for $metric {
            fn name(&self) -> String {
                $name.to_string()
            }

            fn reads(&self) -> &[&'static str] {
                &["predictions", "targets"]
            }

            fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
                summed($name, output, $term)
            }

            fn value(&mut self, sum: &[f64], _: u64) -> f64 {
                let value: fn(f64) -> f64 = $value;
                value(mean(sum))
            }
        }
    };
}

error!(
    /// The mean squared error, over all values (`sklearn.metrics.mean_squared_error`).
    Mse,
    "mse",
    |d| d.mul(d),
    |mean| mean
);
error!(
    /// The mean absolute error, over all values (`sklearn.metrics.mean_absolute_error`).
    Mae,
    "mae",
    |d| d.abs(),
    |mean| mean
);
error!(
    /// The root of the mean squared error over all values (`sklearn.metrics.root_mean_squared_error` of one output; of several,
    /// scikit-learn takes the mean of their roots).
    Rmse,
    "rmse",
    |d| d.mul(d),
    f64::sqrt
);

/// The coefficient of determination R² (`sklearn.metrics.r2_score`), the mean over the values of a sample: see [`r2_score`].
///
/// It reads `predictions` and `targets`, floats of the same shape `[N, …]`. Of each batch the mean of the targets and the sums
/// of squares about it are computed on the device and gathered, so that targets far from 0 lose no digits in f32; that waits
/// for the device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct R2 {
    columns: Vec<Moments>,
    error: Option<Error>,
}

impl R2 {
    /// Creates the metric, named `r2`.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<B: Backend> Metric<B> for R2 {
    fn name(&self) -> String {
        "r2".to_string()
    }

    fn reads(&self) -> &[&'static str] {
        &["predictions", "targets"]
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let (predictions, targets) = inputs("r2", output)?;
        let samples = predictions.shape().first().copied().unwrap_or(1);
        let rows = [samples, predictions.size() / samples.max(1)];
        let (predictions, targets) = (predictions.reshape(&rows)?, targets.reshape(&rows)?);
        let mean = targets.mean(&[0], true)?;
        let (apart, errors) = (targets.sub(&mean)?, predictions.sub(&targets)?);
        let sum = |x: Tensor<B>| x.sum(&[0], true);
        let (rest, spread, residual) = (
            sum(apart.clone())?,
            sum(apart.mul(&apart)?)?,
            sum(errors.mul(&errors)?)?,
        );
        Tensor::concat(&[&mean.full_like(samples as f64)?, &mean, &rest, &spread, &residual], 0)
    }

    fn reduction(&self) -> Reduction {
        Reduction::Gather
    }

    fn observe(&mut self, term: &[f64], shape: &[usize]) {
        let &[5, outputs] = shape else { return };
        if self.columns.is_empty() {
            self.columns = vec![Moments::default(); outputs];
        }
        if outputs != self.columns.len() {
            let expected = format!("{}, as in the batches before", self.columns.len());
            self.error
                .get_or_insert_with(|| Error::invalid("r2", "values of a sample", outputs, expected));
            return;
        }
        for (i, column) in self.columns.iter_mut().enumerate() {
            let [count, mean, rest, spread, residual] = [0, 1, 2, 3, 4].map(|row| term[row * outputs + i]);
            if count > 0.0 {
                // The mean was rounded: the rest of it, and what the squares are too large by.
                *column = column.and(Moments {
                    count,
                    mean: mean + rest / count,
                    spread: (spread - rest * rest / count).max(0.0),
                    residual,
                });
            }
        }
    }

    fn value(&mut self, _: &[f64], _: u64) -> f64 {
        let columns = std::mem::take(&mut self.columns);
        match self.error {
            None => determination(&columns),
            Some(_) => f64::NAN,
        }
    }

    fn failure(&mut self) -> Option<Error> {
        self.error.take()
    }
}
