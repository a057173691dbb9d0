//! Word and character error rates of sequences of token ids.

use super::edits::{Edits, character_edits, edits, word_edits};
use super::wide::wide_dtype;
use super::{Metric, Reduction};
use crate::Output;
use kiln_core::{Backend, Error, Result};
use kiln_nn::{Indices, Tensor};
use std::fmt;

const OP: &str = "error_rate";

/// Turns token ids into text.
type Decode = Box<dyn Fn(&[i32]) -> String>;

/// The elements that are compared.
enum Unit {
    Tokens,
    Words(Decode),
    Characters(Decode),
}

/// The error rate of sequences: the edits of all hypotheses for each element of all references, as jiwer has it (`jiwer.wer` and
/// `jiwer.cer`).
///
/// It reads token ids, i32 and padded, and their numbers: `hypotheses` `[N, H]` and `hypothesis_lengths` `[N]`, `references`
/// `[N, R]` and `reference_lengths` `[N]`. They are gathered, so the metric waits for the device; ids above 2²⁴ need a backend
/// with f64. It is an error if a length exceeds the padded one.
///
/// ```
/// # use kiln_nn::{DType, Indices, Tensor};
/// use kiln_train::{ErrorRate, Output, Running};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let loss = Tensor::zeros(&cpu, &[], DType::F32)?;
/// let output = Output::new(loss)
///     .with("hypotheses", Indices::from_slice(&cpu, &[0, 2, 1, 2], &[1, 4])?)
///     .with("hypothesis_lengths", Indices::from_slice(&cpu, &[4], &[1])?)
///     .with("references", Indices::from_slice(&cpu, &[0, 2, 0, -1, -1], &[1, 5])?)
///     .with("reference_lengths", Indices::from_slice(&cpu, &[3], &[1])?);
/// // The ids are characters; the last is a space, so that "a b " is compared with "a a".
/// let mut wer = ErrorRate::words(|ids| ids.iter().map(|&id| ['a', 'b', ' '][id as usize]).collect());
/// let mut running = Running::new();
/// running.add(&mut wer, &output, 1)?;
/// let values = running.finish(&mut wer)?;
/// assert_eq!((values["wer"], values["wer_substitutions"]), (0.5, 1.0));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct ErrorRate {
    name: String,
    unit: Unit,
    /// The blank, of hypotheses that are alignments.
    blank: Option<i32>,
    total: Edits,
    last: Option<Edits>,
    error: Option<Error>,
}

impl fmt::Debug for ErrorRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, last, .. } = self;
        f.debug_struct("ErrorRate")
            .field("name", name)
            .field("last", last)
            .finish_non_exhaustive()
    }
}

impl ErrorRate {
    fn of(name: &str, unit: Unit) -> Self {
        ErrorRate {
            name: name.to_string(),
            unit,
            blank: None,
            total: Edits::default(),
            last: None,
            error: None,
        }
    }

    /// Creates the metric, named `token_error_rate`, that compares the ids themselves.
    pub fn tokens() -> Self {
        Self::of("token_error_rate", Unit::Tokens)
    }

    /// Creates the metric, named `wer`, that compares the words of the text that `decode` makes from ids, separated by white
    /// space.
    pub fn words(decode: impl Fn(&[i32]) -> String + 'static) -> Self {
        Self::of("wer", Unit::Words(Box::new(decode)))
    }

    /// Creates the metric, named `cer`, that compares the characters of the text that `decode` makes from ids.
    pub fn characters(decode: impl Fn(&[i32]) -> String + 'static) -> Self {
        Self::of("cer", Unit::Characters(Box::new(decode)))
    }

    /// Gives the metric another name, such as `cer` where the tokens are characters.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Takes hypotheses for alignments of CTC, a class for each step: repetitions are merged and the blank is left out before they are
    /// compared. References are labels as they are.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # use kiln_train::{ErrorRate, Output, Running};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let output = Output::new(Tensor::zeros(&cpu, &[], DType::F32)?);
    /// let output = output
    ///     .with("hypotheses", Indices::from_slice(&cpu, &[3, 3, 0, 3, 1], &[1, 5])?)
    ///     .with("hypothesis_lengths", Indices::from_slice(&cpu, &[5], &[1])?)
    ///     .with("references", Indices::from_slice(&cpu, &[3, 3, 2], &[1, 3])?)
    ///     .with("reference_lengths", Indices::from_slice(&cpu, &[3], &[1])?);
    /// let mut cer = ErrorRate::tokens().ctc(0).named("cer");
    /// let mut running = Running::new();
    /// running.add(&mut cer, &output, 1)?;
    /// assert_eq!(running.finish(&mut cer)?["cer"], 1.0 / 3.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn ctc(mut self, blank: i32) -> Self {
        self.blank = Some(blank);
        self
    }

    /// The edits of the last epoch or evaluation; `None` before the first.
    pub fn edits(&self) -> Option<&Edits> {
        self.last.as_ref()
    }

    /// Adds the edits of one row: the padded length of the hypothesis, both lengths, the hypothesis, the reference.
    fn add(&mut self, row: &[f64]) -> Result<()> {
        let &[padded, hypothesis, reference, ref ids @ ..] = row else {
            return Ok(());
        };
        let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
        let (hypotheses, references) = ids.split_at(padded as usize);
        let prefix = |name, ids: &'_ [i32], length: f64| match length >= 0.0 && length <= ids.len() as f64 {
            true => Ok(length as usize),
            false => Err(Error::invalid(
                OP,
                name,
                length,
                format!("0 to {}, the padded length", ids.len()),
            )),
        };
        let hypothesis = &hypotheses[..prefix("hypothesis_lengths", hypotheses, hypothesis)?];
        let hypothesis = &match self.blank {
            Some(blank) => labels_of(hypothesis, blank),
            None => hypothesis.to_vec(),
        };
        let reference = &references[..prefix("reference_lengths", references, reference)?];
        self.total = self.total
            + match &self.unit {
                Unit::Tokens => edits(reference, hypothesis),
                Unit::Words(decode) => word_edits(&decode(reference), &decode(hypothesis)),
                Unit::Characters(decode) => character_edits(&decode(reference), &decode(hypothesis)),
            };
        Ok(())
    }
}

/// The labels of an alignment: repetitions merged, blanks left out.
fn labels_of(alignment: &[i32], blank: i32) -> Vec<i32> {
    let mut labels = alignment.to_vec();
    labels.dedup();
    labels.retain(|&label| label != blank);
    labels
}

/// Padded sequences as floats `[N, L]`, and their lengths `[N, 1]`.
fn sequences<B: Backend>(sequences: &Indices<B>, lengths: &Indices<B>) -> Result<(Tensor<B>, Tensor<B>)> {
    let &[rows, _] = sequences.shape().dims() else {
        return Err(Error::Rank {
            op: OP,
            expected: "2",
            rank: sequences.shape().len(),
        });
    };
    if lengths.shape().dims() != [rows] {
        return Err(Error::ShapeMismatch {
            op: OP,
            lhs: *sequences.shape(),
            rhs: *lengths.shape(),
        });
    }
    let dtype = wide_dtype(sequences.backend());
    let lengths = lengths.to_float(dtype)?.reshape(&[rows, 1])?;
    Ok((sequences.to_float(dtype)?, lengths))
}

impl<B: Backend> Metric<B> for ErrorRate {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn reads(&self) -> &[&'static str] {
        &["hypotheses", "hypothesis_lengths", "references", "reference_lengths"]
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let read = |name, lengths| sequences(output.integers(name)?, output.integers(lengths)?);
        let (hypotheses, hypothesis) = read("hypotheses", "hypothesis_lengths")?;
        let (references, reference) = read("references", "reference_lengths")?;
        let padded = hypothesis.full_like(hypotheses.shape()[1] as f64)?;
        Tensor::concat(&[&padded, &hypothesis, &reference, &hypotheses, &references], 1)
    }

    fn reduction(&self) -> Reduction {
        Reduction::Gather
    }

    fn observe(&mut self, term: &[f64], shape: &[usize]) {
        for row in term.chunks_exact(shape.get(1).copied().unwrap_or(1)) {
            if let Err(error) = self.add(row) {
                self.error.get_or_insert(error);
            }
        }
    }

    fn value(&mut self, _: &[f64], _: u64) -> f64 {
        let total = std::mem::take(&mut self.total);
        match self.error {
            None => self.last.insert(total).rate(),
            Some(_) => f64::NAN,
        }
    }

    fn failure(&mut self) -> Option<Error> {
        self.error.take()
    }

    fn details(&self) -> Vec<(String, f64)> {
        let count = |name: &str, of: fn(&Edits) -> u64| {
            let count = self.last.as_ref().map_or(f64::NAN, |edits| of(edits) as f64);
            (format!("{}_{name}", self.name), count)
        };
        vec![
            count("substitutions", |e| e.substitutions),
            count("insertions", |e| e.insertions),
            count("deletions", |e| e.deletions),
        ]
    }
}
