//! Sampling of tokens from a language model.

use kiln_core::philox::{Key, spaces, uniform};
use kiln_core::{Error, Result};

/// Draws the next token from a model's logits.
///
/// The tokens are a pure function of logits, options, seed and the number of draws before.
#[derive(Clone, Debug)]
pub struct Sampler {
    temperature: f64,
    top_k: Option<usize>,
    key: Key,
    drawn: u64,
}

impl Sampler {
    /// A sampler that draws by the model's probabilities.
    pub fn new(seed: u64) -> Self {
        Sampler {
            temperature: 1.0,
            top_k: None,
            key: Key::new(seed, *spaces::SAMPLING.start(), 0),
            drawn: 0,
        }
    }

    /// Divides the logits by a temperature: below 1 probable tokens become more probable; 0 always takes the most probable one.
    ///
    /// # Errors
    /// A temperature that is negative or not finite.
    pub fn temperature(mut self, temperature: f64) -> Result<Self> {
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(Error::invalid(
                "sampler",
                "temperature",
                temperature,
                "a finite number of 0 or more",
            ));
        }
        self.temperature = temperature;
        Ok(self)
    }

    /// Draws only among the `k` most probable tokens.
    ///
    /// # Errors
    /// A `k` of 0.
    pub fn top_k(mut self, k: usize) -> Result<Self> {
        if k == 0 {
            return Err(Error::invalid("sampler", "top_k", k, "at least 1"));
        }
        self.top_k = Some(k);
        Ok(self)
    }

    /// Draws a token from the logits, one for each token. Of equal logits the lower token counts as the more probable.
    ///
    /// # Errors
    /// No logits, or one that is not finite.
    pub fn draw(&mut self, logits: &[f32]) -> Result<usize> {
        if let Some(bad) = logits.iter().find(|l| !l.is_finite()) {
            return Err(Error::invalid("sampler", "logits", bad, "finite numbers"));
        }
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let Some(&first) = order.first() else {
            return Err(Error::invalid("sampler", "logits", "none", "one for each token"));
        };
        if self.temperature == 0.0 {
            return Ok(first);
        }
        order.truncate(self.top_k.unwrap_or(usize::MAX));
        let largest = f64::from(logits[first]);
        let weights: Vec<f64> = order
            .iter()
            .map(|&i| ((f64::from(logits[i]) - largest) / self.temperature).exp())
            .collect();
        let mut left = f64::from(uniform(self.key.word(self.drawn))) * weights.iter().sum::<f64>();
        self.drawn += 1;
        for (&token, weight) in order.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return Ok(token);
            }
        }
        // Rounding can leave `left` at 0 or a little above.
        Ok(order[order.len() - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, -1.0];

    fn drawn(mut sampler: Sampler, n: usize) -> Vec<usize> {
        (0..n).map(|_| sampler.draw(&LOGITS).unwrap()).collect()
    }

    #[test]
    fn tokens_come_as_often_as_they_are_likely() {
        let n = 20_000;
        for temperature in [0.5, 1.0, 2.0] {
            let tokens = drawn(Sampler::new(3).temperature(temperature).unwrap(), n);
            let sum: f64 = LOGITS.iter().map(|&l| (f64::from(l) / temperature).exp()).sum();
            for (token, &logit) in LOGITS.iter().enumerate() {
                let expected = (f64::from(logit) / temperature).exp() / sum;
                let share = tokens.iter().filter(|&&t| t == token).count() as f64 / n as f64;
                // Four standard deviations.
                let bound = 4.0 * (expected * (1.0 - expected) / n as f64).sqrt();
                assert!(
                    (share - expected).abs() < bound,
                    "{temperature}: {share} for {expected}"
                );
            }
        }
    }

    #[test]
    fn options_keep_to_the_likeliest() {
        assert_eq!(drawn(Sampler::new(0).temperature(0.0).unwrap(), 3), [1, 1, 1]);
        assert_eq!(drawn(Sampler::new(0).top_k(1).unwrap(), 3), [1, 1, 1]);
        let two = drawn(Sampler::new(0).top_k(2).unwrap(), 200);
        assert!(two.iter().all(|t| [1, 2].contains(t)) && two.contains(&2));
        assert_eq!(drawn(Sampler::new(5), 50), drawn(Sampler::new(5), 50));
        assert_ne!(drawn(Sampler::new(5), 50), drawn(Sampler::new(6), 50));
        // A tie goes to the first token, and a `k` above the number of tokens allows all.
        let mut greedy = Sampler::new(0).temperature(0.0).unwrap();
        assert_eq!(greedy.draw(&[1.0, 1.0]).unwrap(), 0);
        assert_eq!(Sampler::new(0).top_k(9).unwrap().draw(&[1.0]).unwrap(), 0);
    }

    #[test]
    fn what_cannot_be_drawn_from_is_refused() {
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Sampler::new(0).temperature(wrong).is_err(), "{wrong}");
        }
        assert!(Sampler::new(0).top_k(0).is_err());
        assert!(Sampler::new(0).draw(&[]).is_err());
        assert!(Sampler::new(0).draw(&[0.0, f32::NAN]).is_err());
    }
}
