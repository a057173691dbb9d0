//! The edits that turn one sequence into another.

use std::iter::Sum;
use std::ops::Add;

/// The edits that turn references into hypotheses, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Edits {
    /// Elements of the reference that are another element in the hypothesis.
    pub substitutions: u64,
    /// Elements of the hypothesis that the reference lacks.
    pub insertions: u64,
    /// Elements of the reference that the hypothesis lacks.
    pub deletions: u64,
    /// Elements of the reference that are in the hypothesis too.
    pub hits: u64,
}

impl Edits {
    /// The number of edits.
    pub fn distance(&self) -> u64 {
        self.substitutions + self.insertions + self.deletions
    }

    /// The number of elements of the references.
    pub fn reference_length(&self) -> u64 {
        self.hits + self.substitutions + self.deletions
    }

    /// The error rate: edits for each element of the references. It exceeds 1 where hypotheses are much longer. Of references
    /// without elements it is the number of insertions, as jiwer has it.
    pub fn rate(&self) -> f64 {
        self.distance() as f64 / self.reference_length().max(1) as f64
    }

    fn substitute(self) -> Self {
        Edits {
            substitutions: self.substitutions + 1,
            ..self
        }
    }

    fn insert(self) -> Self {
        Edits {
            insertions: self.insertions + 1,
            ..self
        }
    }

    fn delete(self) -> Self {
        Edits {
            deletions: self.deletions + 1,
            ..self
        }
    }

    fn hit(self) -> Self {
        Edits {
            hits: self.hits + 1,
            ..self
        }
    }
}

impl Add for Edits {
    type Output = Edits;

    fn add(self, other: Edits) -> Edits {
        Edits {
            substitutions: self.substitutions + other.substitutions,
            insertions: self.insertions + other.insertions,
            deletions: self.deletions + other.deletions,
            hits: self.hits + other.hits,
        }
    }
}

impl Sum for Edits {
    fn sum<I: Iterator<Item = Edits>>(edits: I) -> Edits {
        edits.fold(Edits::default(), Add::add)
    }
}

/// The Levenshtein distance: the least number of substitutions, insertions and deletions that turn one sequence into the other.
/// Time is the product of the lengths.
///
/// ```
/// let distance = kiln_train::edit_distance(b"kitten", b"sitting");
/// assert_eq!(distance, 3);
/// ```
pub fn edit_distance<T: PartialEq>(reference: &[T], hypothesis: &[T]) -> usize {
    // The distances of the first elements of the reference from the first 0, 1, … of the hypothesis.
    let mut row: Vec<usize> = (0..=hypothesis.len()).collect();
    for (i, x) in reference.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in hypothesis.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[hypothesis.len()]
}

/// The edits of a shortest way from the reference to the hypothesis. Of several shortest ways it is the one that RapidFuzz, and so
/// jiwer, takes: what both begin or end with is kept, then from the end a deletion goes before an insertion, and that before a
/// substitution.
///
/// ```
/// let edits = kiln_train::edits(b"kitten", b"sitting");
/// assert_eq!((edits.substitutions, edits.insertions, edits.deletions, edits.hits), (2, 1, 0, 4));
/// ```
pub fn edits<T: PartialEq>(reference: &[T], hypothesis: &[T]) -> Edits {
    let same = |pair: &(&T, &T)| pair.0 == pair.1;
    let start = reference.iter().zip(hypothesis).take_while(same).count();
    let (x, y) = (&reference[start..], &hypothesis[start..]);
    let end = x.iter().rev().zip(y.iter().rev()).take_while(same).count();
    let (x, y) = (&x[..x.len() - end], &y[..y.len() - end]);
    let mut row: Vec<Edits> = vec![Edits::default(); y.len() + 1];
    for j in 0..y.len() {
        row[j + 1] = row[j].insert();
    }
    for x in x {
        let deleted = row[0].delete();
        let mut diagonal = std::mem::replace(&mut row[0], deleted);
        for (j, y) in y.iter().enumerate() {
            let (above, left) = (row[j + 1], row[j]);
            let substituted = diagonal.distance() + u64::from(x != y);
            let least = substituted.min(above.distance() + 1).min(left.distance() + 1);
            row[j + 1] = if least == above.distance() + 1 {
                above.delete()
            } else if left.distance() + 1 == diagonal.distance() {
                left.insert()
            } else if x == y {
                diagonal.hit()
            } else {
                diagonal.substitute()
            };
            diagonal = above;
        }
    }
    let kept = Edits {
        hits: (start + end) as u64,
        ..Edits::default()
    };
    row[y.len()] + kept
}

/// The edits of words, which white space separates (`jiwer.process_words`).
///
/// ```
/// let edits = kiln_train::word_edits("the cat sat", "the cat  sat down");
/// assert_eq!(edits.rate(), 1.0 / 3.0);
/// ```
pub fn word_edits(reference: &str, hypothesis: &str) -> Edits {
    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }
    edits(&words(reference), &words(hypothesis))
}

/// The edits of characters, without white space at both ends (`jiwer.process_characters`).
///
/// ```
/// let edits = kiln_train::character_edits("naïve", " naive");
/// assert_eq!((edits.distance(), edits.reference_length()), (1, 5));
/// ```
pub fn character_edits(reference: &str, hypothesis: &str) -> Edits {
    fn characters(text: &str) -> Vec<char> {
        text.trim().chars().collect()
    }
    edits(&characters(reference), &characters(hypothesis))
}
