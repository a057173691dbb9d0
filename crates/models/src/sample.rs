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
    top_p: f64,
    repetition_penalty: f64,
    key: Key,
    drawn: u64,
}

impl Sampler {
    /// A sampler that draws by the model's probabilities.
    pub fn new(seed: u64) -> Self {
        Sampler {
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            repetition_penalty: 1.0,
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

    /// Draws only among the most probable tokens that together have at least probability `p`, of those that
    /// [`top_k`](Sampler::top_k) leaves (nucleus sampling; Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019).
    ///
    /// # Errors
    /// A `p` outside of `0..=1`.
    pub fn top_p(mut self, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::invalid("sampler", "top_p", p, "a probability from 0 to 1"));
        }
        self.top_p = p;
        Ok(self)
    }

    /// Makes tokens that the text has already less probable: their logits are divided by the penalty if they are above 0, and else
    /// multiplied by it (Keskar et al., "CTRL", 2019; `repetition_penalty` of Hugging Face's transformers). 1 changes nothing.
    ///
    /// # Errors
    /// A penalty that is not a finite number above 0.
    pub fn repetition_penalty(mut self, penalty: f64) -> Result<Self> {
        if !(penalty.is_finite() && penalty > 0.0) {
            let expected = "a finite number above 0";
            return Err(Error::invalid("sampler", "repetition_penalty", penalty, expected));
        }
        self.repetition_penalty = penalty;
        Ok(self)
    }

    /// Draws the token behind a text from the logits, one for each token. Of equal logits the lower token counts as the more
    /// probable. Tokens of the text that have no logit are passed over.
    ///
    /// # Errors
    /// No logits, or one that is not finite.
    pub fn draw(&mut self, logits: &[f32], text: &[i32]) -> Result<usize> {
        if let Some(bad) = logits.iter().find(|l| !l.is_finite()) {
            return Err(Error::invalid("sampler", "logits", bad, "finite numbers"));
        }
        let penalised = self.penalised(logits, text);
        let logits = penalised.as_deref().unwrap_or(logits);
        let mut order: Vec<usize> = (0..logits.len()).collect();
        let by_logit = |&a: &usize, &b: &usize| logits[b].total_cmp(&logits[a]).then(a.cmp(&b));
        let Some(first) = order.iter().copied().min_by(by_logit) else {
            return Err(Error::invalid("sampler", "logits", "none", "one for each token"));
        };
        if self.temperature == 0.0 {
            return Ok(first);
        }
        if let Some(k) = self.top_k.filter(|&k| k < order.len()) {
            order.select_nth_unstable_by(k - 1, by_logit);
            order.truncate(k);
        }
        order.sort_unstable_by(by_logit);
        let largest = f64::from(logits[first]);
        let mut weights: Vec<f64> = order
            .iter()
            .map(|&i| ((f64::from(logits[i]) - largest) / self.temperature).exp())
            .collect();
        if self.top_p < 1.0 {
            let enough = self.top_p * weights.iter().sum::<f64>();
            let mut sum = 0.0;
            let less = weights.iter().take_while(|&weight| {
                sum += weight;
                sum < enough
            });
            let kept = less.count() + 1;
            weights.truncate(kept);
            order.truncate(kept);
        }
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

    /// The logits with the penalty of the tokens of a text; none if there is no penalty.
    fn penalised(&self, logits: &[f32], text: &[i32]) -> Option<Vec<f32>> {
        if self.repetition_penalty == 1.0 || text.is_empty() {
            return None;
        }
        let penalty = self.repetition_penalty as f32;
        let mut penalised = logits.to_vec();
        for &token in text {
            // From the logits as they were: a token that occurs twice is penalised once.
            if let Some(&logit) = usize::try_from(token).ok().and_then(|token| logits.get(token)) {
                penalised[token as usize] = if logit > 0.0 { logit / penalty } else { logit * penalty };
            }
        }
        Some(penalised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, -1.0];

    fn drawn(mut sampler: Sampler, n: usize) -> Vec<usize> {
        (0..n).map(|_| sampler.draw(&LOGITS, &[]).unwrap()).collect()
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
        assert_eq!(greedy.draw(&[1.0, 1.0], &[]).unwrap(), 0);
        assert_eq!(Sampler::new(0).top_k(9).unwrap().draw(&[1.0], &[]).unwrap(), 0);
    }

    #[test]
    fn a_nucleus_has_the_fewest_tokens_of_its_probability() {
        // Probabilities 0.087, 0.644, 0.237, 0.032.
        for (p, tokens) in [
            (0.0, &[1][..]),
            (0.6, &[1]),
            (0.7, &[1, 2]),
            (0.95, &[0, 1, 2]),
            (1.0, &[0, 1, 2, 3]),
        ] {
            let mut found = drawn(Sampler::new(1).top_p(p).unwrap(), 2000);
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, tokens, "{p}");
        }
        // The probabilities are those of the tokens that `top_k` leaves: 0.73 and 0.27.
        let both = Sampler::new(1).top_k(2).unwrap().top_p(0.7).unwrap();
        assert!(drawn(both, 200).iter().all(|&t| t == 1));
    }

    #[test]
    fn repeated_tokens_become_less_likely() {
        let greedy = |penalty: f64, text: &[i32]| {
            let sampler = Sampler::new(0).temperature(0.0).unwrap();
            sampler
                .repetition_penalty(penalty)
                .unwrap()
                .draw(&LOGITS, text)
                .unwrap()
        };
        assert_eq!(greedy(1.9, &[1, 1, 1]), 1);
        assert_eq!(greedy(2.1, &[1]), 2);
        assert_eq!(greedy(2.1, &[]), 1);
        // Tokens without a logit, as those before a smaller vocabulary.
        assert_eq!(greedy(2.1, &[7, -1]), 1);
        // A negative logit becomes smaller, not larger.
        let mut sampler = Sampler::new(0)
            .temperature(0.0)
            .unwrap()
            .repetition_penalty(3.0)
            .unwrap();
        assert_eq!(sampler.draw(&[-1.0, -2.0], &[0]).unwrap(), 1);
    }

    #[test]
    fn what_cannot_be_drawn_from_is_refused() {
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Sampler::new(0).temperature(wrong).is_err(), "{wrong}");
        }
        assert!(Sampler::new(0).top_k(0).is_err());
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert!(Sampler::new(0).top_p(wrong).is_err(), "{wrong}");
        }
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Sampler::new(0).repetition_penalty(wrong).is_err(), "{wrong}");
        }
        assert!(Sampler::new(0).draw(&[], &[]).is_err());
        assert!(Sampler::new(0).draw(&[0.0, f32::NAN], &[]).is_err());
    }
}
