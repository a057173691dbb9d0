//! Mistakes of typing in texts.

use super::{Draw, Transform};
use crate::{DataError, Result, Sample};
use kiln_core::Shape;

/// Puts mistakes into the words of a text, whose characters are the input's code points: in each word of two letters or more, with a
/// probability, one letter is left out, one is put in, one becomes another, or two neighbours change places. Letters that come in are those
/// of the text, so that no character becomes another that a vocabulary of the text lacks.
///
/// ```
/// use kiln_data::{Draw, Typos};
/// let text = "all my means are sane, my motive and my object mad";
/// let noised = Typos::new(0.3)?.of(text, &Draw::new(0, 0, 0));
/// assert_ne!(noised, text);
/// assert_eq!(noised, Typos::new(0.3)?.of(text, &Draw::new(0, 0, 0)));
/// # Ok::<(), kiln_data::DataError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Typos {
    rate: f32,
}

impl Default for Typos {
    /// Three words of ten have a mistake.
    fn default() -> Self {
        Typos { rate: 0.3 }
    }
}

impl Typos {
    /// Mistakes in words with this probability.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] unless it is in `0..=1`.
    pub fn new(rate: f32) -> Result<Self> {
        match (0.0..=1.0).contains(&rate) {
            true => Ok(Typos { rate }),
            false => Err(DataError::invalid("typos", "rate", rate, "a probability from 0 to 1")),
        }
    }

    /// The text with mistakes.
    pub fn of(&self, text: &str, draw: &Draw) -> String {
        self.noised(&text.chars().collect::<Vec<_>>(), draw)
            .into_iter()
            .collect()
    }

    fn noised(&self, text: &[char], draw: &Draw) -> Vec<char> {
        let small: Vec<char> = text.iter().copied().filter(|c| c.is_lowercase()).collect();
        let mut noised = Vec::with_capacity(text.len() + text.len() / 4);
        let (mut at, mut word) = (0, 0u32);
        while at < text.len() {
            let letters = text[at..].iter().take_while(|c| c.is_alphabetic()).count();
            if letters < 2 {
                let through = letters.max(1);
                noised.extend_from_slice(&text[at..at + through]);
                at += through;
                continue;
            }
            let mut letters = text[at..at + letters].to_vec();
            at += letters.len();
            // Four draws for each word, whether they are used or not.
            let drawn = |number: u32, bound: usize| draw.below(4 * word + number, bound as u32) as usize;
            if draw.uniform(4 * word) < self.rate {
                let from = if small.is_empty() { text } else { &small };
                let letter = from[drawn(3, from.len())];
                match drawn(1, 4) {
                    0 => {
                        letters.remove(drawn(2, letters.len()));
                    }
                    1 => letters.insert(drawn(2, letters.len() + 1), letter),
                    2 => {
                        let place = drawn(2, letters.len());
                        letters[place] = letter;
                    }
                    _ => {
                        let first = drawn(2, letters.len() - 1);
                        letters.swap(first, first + 1);
                    }
                }
            }
            noised.append(&mut letters);
            word += 1;
        }
        noised
    }
}

impl Transform for Typos {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<()> {
        let character = |&value: &f32| char::from_u32(value as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
        let text: Vec<char> = sample.input.iter().map(character).collect();
        let noised = self.noised(&text, draw);
        let shape = Shape::new(&[noised.len()])?;
        sample.fill(shape, noised.into_iter().map(|c| u32::from(c) as f32))
    }
}
