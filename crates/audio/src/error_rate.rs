//! Errors of recognised text.

/// The least number of insertions, deletions and substitutions that turn one list into another (Levenshtein;
/// `torchaudio.functional.edit_distance`).
pub fn edit_distance<T: PartialEq>(reference: &[T], found: &[T]) -> usize {
    // Distances of the beginning of `reference` so far to every beginning of `found`.
    let mut row: Vec<usize> = (0..=found.len()).collect();
    for (i, a) in reference.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in found.iter().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[found.len()]
}

/// Errors among the units of many texts: of characters for CER, of words for WER.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErrorRate {
    /// The sum of edit distances.
    pub errors: usize,
    /// The number of units in the references.
    pub length: usize,
}

impl ErrorRate {
    /// Adds the characters of a text, spaces included.
    pub fn add_characters(&mut self, reference: &str, found: &str) {
        let units = |text: &str| text.chars().collect::<Vec<_>>();
        self.add(&units(reference), &units(found));
    }

    /// Adds the words of a text, which white space separates.
    pub fn add_words(&mut self, reference: &str, found: &str) {
        let units = |text: &'_ str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        self.add(&units(reference), &units(found));
    }

    /// Adds any units.
    pub fn add<T: PartialEq>(&mut self, reference: &[T], found: &[T]) {
        self.errors += edit_distance(reference, found);
        self.length += reference.len();
    }

    /// Errors per unit of the references, which may be above 1; NaN if there are no references.
    pub fn rate(&self) -> f64 {
        self.errors as f64 / self.length as f64
    }
}

/// The character error rate of one text.
pub fn character_error_rate(reference: &str, found: &str) -> f64 {
    let mut rate = ErrorRate::default();
    rate.add_characters(reference, found);
    rate.rate()
}

/// The word error rate of one text.
pub fn word_error_rate(reference: &str, found: &str) -> f64 {
    let mut rate = ErrorRate::default();
    rate.add_words(reference, found);
    rate.rate()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: what is last is kept, substituted, deleted or inserted.
    fn by_definition(a: &[u8], b: &[u8]) -> usize {
        match (a, b) {
            ([], rest) | (rest, []) => rest.len(),
            ([a, more @ ..], [b, others @ ..]) => {
                let same = by_definition(more, others) + usize::from(a != b);
                let mut whole = vec![*a];
                whole.extend(more);
                let mut other = vec![*b];
                other.extend(others);
                same.min(by_definition(more, &other) + 1)
                    .min(by_definition(&whole, others) + 1)
            }
        }
    }

    proptest! {
        #[test]
        fn distances_are_those_of_the_definition(
            a in prop::collection::vec(0u8..3, 0..6),
            b in prop::collection::vec(0u8..3, 0..6),
        ) {
            prop_assert_eq!(edit_distance(&a, &b), by_definition(&a, &b));
        }
    }

    #[test]
    fn rates() {
        assert_eq!(character_error_rate("casa", "cosa"), 0.25);
        assert_eq!(word_error_rate("la casa roja", "casa  roja"), 1.0 / 3.0);
        assert_eq!(word_error_rate("a", "b c"), 2.0);
        assert!(character_error_rate("", "").is_nan());
        let mut both = ErrorRate::default();
        both.add_words("a b", "a");
        both.add_words("c d", "c d");
        assert_eq!((both.errors, both.length, both.rate()), (1, 4, 0.25));
    }
}
