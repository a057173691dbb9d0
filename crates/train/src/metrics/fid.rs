//! The Fréchet distance of features as a metric of a run.

use super::frechet::{FeatureStatistics, frechet_distance};
use super::wide::wide;
use super::{Metric, Reduction};
use crate::Output;
use kiln_core::{Backend, Error, Result};
use kiln_nn::Tensor;

/// The Fréchet distance between the features of what the steps make and those of real samples: FID where the features are those of
/// Inception v3, as `fid` in the history. It is computed from the value `features` `[N, width]`, which the step takes from a net of
/// its own choice; only distances by the same net with the same weights compare.
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_nn::{DType, Tensor};
/// use kiln_train::{FeatureStatistics, FrechetDistance, Metric, Output};
///
/// let cpu = Cpu::new();
/// let mut real = FeatureStatistics::new(2);
/// real.add(&[0.0, 0.0, 2.0, 0.0, 0.0, 2.0, 2.0, 2.0])?;
/// let mut fid = FrechetDistance::new(real);
/// let features = Tensor::<Cpu>::from_slice(&cpu, &[3f32, 0.0, 5.0, 0.0, 3.0, 2.0, 5.0, 2.0], &[4, 2])?;
/// let output = Output::new(Tensor::zeros(&cpu, &[], DType::F32)?).with("features", features);
/// let term = fid.measure(&output)?;
/// Metric::<Cpu>::observe(&mut fid, &term.to_f64()?, term.shape());
/// assert!((Metric::<Cpu>::value(&mut fid, &[], 4) - 9.0).abs() < 1e-6);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FrechetDistance {
    name: String,
    real: FeatureStatistics,
    made: FeatureStatistics,
    error: Option<Error>,
}

impl FrechetDistance {
    /// Creates the metric, with the statistics of real samples.
    pub fn new(real: FeatureStatistics) -> Self {
        FrechetDistance {
            name: "fid".to_string(),
            made: FeatureStatistics::new(real.width()),
            real,
            error: None,
        }
    }

    /// Names the metric otherwise, where the features are not those of Inception v3.
    ///
    /// ```
    /// use kiln_cpu::Cpu;
    /// use kiln_train::{FeatureStatistics, FrechetDistance, Metric};
    ///
    /// let metric = FrechetDistance::new(FeatureStatistics::new(2)).named("frechet");
    /// assert_eq!(Metric::<Cpu>::name(&metric), "frechet");
    /// ```
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_string();
        self
    }
}

impl<B: Backend> Metric<B> for FrechetDistance {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn reads(&self) -> &[&'static str] {
        &["features"]
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let features = output.floats("features")?;
        match features.shape().dims() {
            [_, width] if *width == self.real.width() => wide(features),
            _ => {
                let expected = format!("[N, {}], as of the real samples", self.real.width());
                Err(Error::invalid("fid", "features", features.shape(), expected))
            }
        }
    }

    fn reduction(&self) -> Reduction {
        Reduction::Gather
    }

    fn observe(&mut self, term: &[f64], _: &[usize]) {
        if let Err(error) = self.made.add(term) {
            self.error.get_or_insert(error);
        }
    }

    fn value(&mut self, _: &[f64], _: u64) -> f64 {
        let made = std::mem::replace(&mut self.made, FeatureStatistics::new(self.real.width()));
        if self.error.is_some() || made.samples() == 0 {
            return f64::NAN;
        }
        frechet_distance(&self.real, &made).unwrap_or_else(|error| {
            self.error = Some(error);
            f64::NAN
        })
    }

    fn failure(&mut self) -> Option<Error> {
        self.error.take()
    }
}
