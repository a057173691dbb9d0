//! Entities of tagged words, and their F1.

use super::{Metric, Reduction};
use crate::Output;
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Indices, Tensor};
use std::ops::Range;

/// The label of a token that has no tag.
const IGNORED: f64 = -100.0;

/// An entity: words of a sentence that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entity<'a> {
    /// Its kind: `PER` of `B-PER`.
    pub kind: &'a str,
    /// Its words.
    pub words: Range<usize>,
}

/// A tag as its letter, `B`, `I`, `E`, `S` or `O`, and its kind. Another tag, such as one of a part of speech, is a word by itself.
fn split(tag: &str) -> (char, &str) {
    match tag {
        "O" | "B" | "I" | "E" | "S" => (tag.chars().next().unwrap_or('O'), "_"),
        _ => match tag.split_at_checked(2) {
            Some((letter @ ("B-" | "I-" | "E-" | "S-"), kind)) => (letter.chars().next().unwrap_or('O'), kind),
            _ => ('S', tag),
        },
    }
}

/// The entities of a sentence by its tags, in order: of the schemes IOB1, IOB2 (BIO) and IOBES, read as `conlleval` and `seqeval` read them,
/// which take an entity that begins with `I-` too.
///
/// ```
/// let found = kiln_train::entities(&["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]);
/// let found: Vec<_> = found.iter().map(|entity| (entity.kind, entity.words.clone())).collect();
/// assert_eq!(found, [("PER", 0..2), ("LOC", 3..4), ("LOC", 4..5)]);
/// ```
pub fn entities<'a>(tags: &[&'a str]) -> Vec<Entity<'a>> {
    let mut found = Vec::new();
    let (mut before, mut kind_before, mut begin) = ('O', "", 0);
    for (at, tag) in tags.iter().copied().chain(["O"]).enumerate() {
        let (letter, kind) = split(tag);
        let other = kind_before != kind;
        let ends = matches!(before, 'E' | 'S')
            || matches!((before, letter), ('B' | 'I', 'B' | 'S' | 'O'))
            || (before != 'O' && other);
        if ends {
            found.push(Entity {
                kind: kind_before,
                words: begin..at,
            });
        }
        let begins = matches!(letter, 'B' | 'S')
            || matches!((before, letter), ('E' | 'S' | 'O', 'E' | 'I'))
            || (letter != 'O' && other);
        if begins {
            begin = at;
        }
        (before, kind_before) = (letter, kind);
    }
    found
}

/// Counts over sentences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    words: u64,
    right: u64,
    expected: u64,
    predicted: u64,
    found: u64,
}

/// The F1 of entities: the harmonic mean of precision and recall of entities that have all their words and their kind right, over all kinds
/// (`seqeval.metrics.f1_score`; `overall_f1` of Hugging Face's examples). Its details are `precision`, `recall` and the `accuracy` of words.
/// A ratio whose divisor is 0 is 0.
///
/// It reads `scores` `[N, T, tags]` and `labels` `[N, T]`, of which tokens labelled −100 are left out. They are gathered, so the metric waits
/// for the device.
///
/// ```
/// # use kiln_nn::{DType, Indices, Tensor};
/// use kiln_train::{EntityF1, Output, Running};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let output = Output::new(Tensor::zeros(&cpu, &[], DType::F32)?);
/// let labels = Indices::from_slice(&cpu, &[1, 2, 0, -100], &[1, 4])?;
/// let predicted = Indices::from_slice(&cpu, &[1, 2, 1, 0], &[1, 4])?;
/// let output = output.with_scores(predicted.one_hot(3, DType::F32)?, &labels);
/// let mut f1 = EntityF1::new(["O", "B-PER", "I-PER"]);
/// let mut running = Running::new();
/// running.add(&mut f1, &output, 1)?;
/// let values = running.finish(&mut f1)?;
/// assert_eq!((values["precision"], values["recall"]), (0.5, 1.0));
/// assert!((values["f1"] - 2.0 / 3.0).abs() < 1e-12 && (values["accuracy"] - 2.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EntityF1 {
    names: Vec<String>,
    counts: Counts,
    last: Option<Counts>,
}

impl EntityF1 {
    /// Creates the metric, named `f1`, for tags of these names, in the order of their numbers.
    pub fn new<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        EntityF1 {
            names: names.into_iter().map(Into::into).collect(),
            counts: Counts::default(),
            last: None,
        }
    }

    /// Adds a sentence: the predicted tags of its tokens, then their labels.
    fn add(&mut self, row: &[f64]) {
        let (predicted, labels) = row.split_at(row.len() / 2);
        let pairs: Vec<(f64, f64)> = predicted.iter().copied().zip(labels.iter().copied()).collect();
        let tagged = || pairs.iter().filter(|(_, label)| *label != IGNORED);
        let name = |tag: &f64| self.names.get(*tag as usize).map_or("O", String::as_str);
        let predicted: Vec<&str> = tagged().map(|(tag, _)| name(tag)).collect();
        let expected: Vec<&str> = tagged().map(|(_, tag)| name(tag)).collect();
        let right = tagged().filter(|(tag, label)| tag == label).count();
        let (of_predicted, of_expected) = (entities(&predicted), entities(&expected));
        let found = of_predicted
            .iter()
            .filter(|entity| of_expected.contains(entity))
            .count();
        let counts = &mut self.counts;
        counts.words += expected.len() as u64;
        counts.right += right as u64;
        counts.expected += of_expected.len() as u64;
        counts.predicted += of_predicted.len() as u64;
        counts.found += found as u64;
    }
}

fn ratio(x: u64, y: u64) -> f64 {
    if y == 0 { 0.0 } else { x as f64 / y as f64 }
}

impl<B: Backend> Metric<B> for EntityF1 {
    fn name(&self) -> String {
        "f1".to_string()
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let (scores, labels) = (output.floats("scores")?, output.integers("labels")?);
        let predicted = scores.argmax(-1, false)?;
        if predicted.shape() != labels.shape() || predicted.shape().len() != 2 {
            return Err(Error::ShapeMismatch {
                op: "entity_f1",
                lhs: *labels.shape(),
                rhs: *predicted.shape(),
            });
        }
        // Exact: there are fewer than 2²⁴ tags.
        let float = |of: &Indices<B>| of.to_float(DType::F32);
        Tensor::concat(&[&float(&predicted)?, &float(labels)?], 1)
    }

    fn reduction(&self) -> Reduction {
        Reduction::Gather
    }

    fn observe(&mut self, term: &[f64], shape: &[usize]) {
        let width = shape.get(1).copied().unwrap_or(1).max(1);
        term.chunks_exact(width).for_each(|row| self.add(row));
    }

    fn value(&mut self, _: &[f64], _: u64) -> f64 {
        let counts = *self.last.insert(std::mem::take(&mut self.counts));
        match counts.words {
            0 => f64::NAN,
            _ => ratio(2 * counts.found, counts.predicted + counts.expected),
        }
    }

    fn details(&self) -> Vec<(String, f64)> {
        let of = |name: &str, of: fn(&Counts) -> (u64, u64)| {
            let value = self.last.as_ref().map_or(f64::NAN, |counts| {
                let (x, y) = of(counts);
                ratio(x, y)
            });
            (name.to_string(), value)
        };
        vec![
            of("precision", |c| (c.found, c.predicted)),
            of("recall", |c| (c.found, c.expected)),
            of("accuracy", |c| (c.right, c.words)),
        ]
    }
}
