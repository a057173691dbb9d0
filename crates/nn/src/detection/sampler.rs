//! A few candidates of many to learn from.

use super::Match;
use crate::{Error, Result, Rng};

/// Draws candidates to learn from, with at most a given share of those that stand for a target (`BalancedPositiveNegativeSampler` of
/// torchvision's detectors), by the numbers of an [`Rng`]: the same for every backend.
///
/// ```
/// use kiln_nn::Rng;
/// use kiln_nn::detection::{BalancedSampler, Match};
/// let matches = [Match::Target(0), Match::Background, Match::Ignored, Match::Background, Match::Background];
/// let drawn = BalancedSampler::new(3, 0.5)?.sample(&matches, &mut Rng::new(0))?;
/// assert_eq!(drawn.positive, [0]);
/// assert_eq!(drawn.negative.len(), 2);
/// assert!(!drawn.negative.contains(&2));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BalancedSampler {
    size: usize,
    positive_fraction: f64,
}

/// The positions of candidates that were drawn, in ascending order.
///
/// See the example of [`BalancedSampler`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Those that stand for a target.
    pub positive: Vec<usize>,
    /// Those of background.
    pub negative: Vec<usize>,
}

impl BalancedSampler {
    /// Draws `size` candidates for each image, of which at most `positive_fraction` stand for targets; with fewer of those there are more
    /// of background.
    ///
    /// See the example of [`BalancedSampler`].
    ///
    /// # Errors
    /// A fraction outside of `0..=1`.
    pub fn new(size: usize, positive_fraction: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&positive_fraction) {
            let expected = "a number from 0 to 1";
            return Err(Error::invalid(
                "balanced_sampler",
                "positive_fraction",
                positive_fraction,
                expected,
            ));
        }
        Ok(BalancedSampler {
            size,
            positive_fraction,
        })
    }

    /// Draws among the candidates of one image. Two draws are taken of `rng`.
    ///
    /// See the example of [`BalancedSampler`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn sample(&self, matches: &[Match], rng: &mut Rng) -> Result<Sampled> {
        let of = |wanted: fn(&Match) -> bool| -> Vec<usize> {
            let all = matches.iter().enumerate();
            all.filter(|(_, m)| wanted(m)).map(|(i, _)| i).collect()
        };
        let positive = of(|m| matches!(m, Match::Target(_)));
        let negative = of(|m| *m == Match::Background);
        let count = ((self.size as f64 * self.positive_fraction) as usize).min(positive.len());
        let positive = some(positive, count, rng)?;
        let rest = self.size.saturating_sub(positive.len());
        Ok(Sampled {
            negative: some(negative, rest, rng)?,
            positive,
        })
    }
}

/// At most `count` of `all`, which are in order, drawn without replacement; they stay in order.
fn some(all: Vec<usize>, count: usize, rng: &mut Rng) -> Result<Vec<usize>> {
    let key = rng.next_key();
    if count >= all.len() {
        return Ok(all);
    }
    let mut order = key.permutation(all.len())?;
    order.truncate(count);
    order.sort_unstable();
    Ok(order.into_iter().map(|i| all[i]).collect())
}
