//! Histograms over TensorBoard's buckets, as `torch.utils.tensorboard` makes them.

use crate::{Result, TensorBoardError};

/// The limits of all buckets: 0, and the powers of 1.1 from 1e-12 to 1e20 on either side of it.
fn limits() -> Vec<f64> {
    let mut positive = Vec::new();
    let mut limit = 1e-12;
    while limit < 1e20 {
        positive.push(limit);
        limit *= 1.1;
    }
    let negative = positive.iter().rev().map(|limit| -limit);
    negative.chain([0.0]).chain(positive.iter().copied()).collect()
}

/// The moments of some values, and how many of them are in each bucket.
#[derive(Debug, PartialEq)]
pub(crate) struct Histogram {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) num: f64,
    pub(crate) sum: f64,
    pub(crate) sum_squares: f64,
    /// The upper limit of each bucket from the one before the first with values to the last with values.
    pub(crate) limits: Vec<f64>,
    pub(crate) counts: Vec<f64>,
}

impl Histogram {
    pub(crate) fn of(tag: &str, values: &[f32]) -> Result<Self> {
        let bad = values.iter().filter(|v| !v.is_finite()).count();
        if values.is_empty() {
            return Err(TensorBoardError::Empty { tag: tag.to_string() });
        }
        if bad > 0 {
            return Err(TensorBoardError::NonFinite {
                tag: tag.to_string(),
                bad,
                values: values.len(),
            });
        }
        let limits = limits();
        let mut counts = vec![0.0; limits.len() - 1];
        let (mut min, mut max, mut sum, mut sum_squares) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0);
        for value in values.iter().map(|v| f64::from(*v)) {
            // A bucket holds its lower limit; what lies beyond the last limit counts in the last bucket.
            let above = limits.partition_point(|limit| *limit <= value);
            counts[above.clamp(1, limits.len() - 1) - 1] += 1.0;
            min = min.min(value);
            max = max.max(value);
            sum += value;
            sum_squares += value * value;
        }
        let first = counts.iter().position(|n| *n > 0.0).unwrap_or_default();
        let end = counts.iter().rposition(|n| *n > 0.0).unwrap_or_default() + 1;
        // An empty bucket in front gives the lower limit of the first.
        let counts = std::iter::once(0.0).chain(counts[first..end].iter().copied());
        Ok(Histogram {
            min,
            max,
            num: values.len() as f64,
            sum,
            sum_squares,
            counts: counts.collect(),
            limits: limits[first..=end].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bucket_around_it() {
        let values = [0.0, -1.5, 2.0, 2.0, 1e30, -1e30, 1e-20];
        let histogram = Histogram::of("w", &values).unwrap();
        assert_eq!(histogram.counts.iter().sum::<f64>(), 7.0);
        assert_eq!(histogram.counts.len(), histogram.limits.len());
        for value in [0.0, -1.5, 2.0] {
            let bucket = histogram.limits.iter().position(|limit| *limit > value).unwrap();
            assert!(histogram.counts[bucket] > 0.0, "{value}");
        }
        assert!(Histogram::of("w", &[]).is_err());
        let error = Histogram::of("w", &[1.0, f32::NAN]).unwrap_err().to_string();
        assert!(error.contains("`w`") && error.contains("1 of 2"), "{error}");
    }
}
