//! The task of networks that fill in masked tokens.

use crate::task::{self, Phase, Views};
use crate::{Form, Shown};
use kiln_core::{Backend, Error, Result, Shape};
use kiln_data::{Batch, DataError, Draw, Loader, Sample, Transform};
use kiln_nn::{Indices, Module, Tensor, trace};
use kiln_train::Output;
use ndarray::Array2;
use std::ops::Range;
use std::sync::Arc;

/// The measured values that are shown. Perplexity is computed from the mean loss.
pub(crate) const VALUES: &[Shown] = &[
    Shown::new("loss", Form::Unit("nats/token")),
    Shown::new("perplexity", Form::ExpOf("loss")),
];

/// The best weights have the smallest loss.
pub(crate) const MONITOR: (&str, bool) = ("loss", false);

/// A batch of sequences with masked tokens.
#[derive(Batch)]
pub(crate) struct Masked {
    /// The tokens, `[N, T]`.
    pub(crate) ids: Array2<i32>,
    /// The positions that are predicted, of all `N·T`: `[N, M]`.
    pub(crate) positions: Array2<i32>,
    /// The tokens that belong there, `[N, M]`.
    pub(crate) labels: Array2<i32>,
}

/// The change from a window `[T + 1]` of tokens to masked tokens `[T]`: 15 % of the positions are predicted, of which four in five
/// become the mask's token, one in ten becomes a random token, and one in ten stays (Devlin et al. 2018). The number of positions is the
/// same for all windows of a length. The sample's targets are the positions, in order, and then their tokens.
///
/// Of the tokens of a tokenizer whole words are masked (BERT's whole word masking), between `[CLS]` and `[SEP]`; characters are masked one
/// by one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masking {
    vocabulary: u32,
    mask: u32,
    /// The token of character 0. The others follow, round the end of the vocabulary.
    first: u32,
}

impl Masking {
    /// That of `bert-base-uncased`, whose tokens up to 998 are special or unused, [MASK] among them; in a vocabulary that is too small for
    /// these, the mask is the last token.
    pub(crate) fn of(vocabulary: usize) -> Self {
        let vocabulary = u32::try_from(vocabulary).unwrap_or(u32::MAX).max(1);
        let (mask, first) = if vocabulary > 999 {
            (103, 999)
        } else {
            (vocabulary - 1, 0)
        };
        Masking {
            vocabulary,
            mask,
            first,
        }
    }

    /// The number of positions that are predicted in a sequence: 15 %, at least one.
    fn count(length: usize) -> usize {
        ((length * 15 + 50) / 100).clamp(1, length.max(1))
    }

    /// The token of a character.
    fn token(self, character: f32) -> f32 {
        ((character as u64 + u64::from(self.first)) % u64::from(self.vocabulary)) as f32
    }
}

impl Transform for Masking {
    fn apply(&self, sample: &mut Sample, draw: &Draw) -> kiln_data::Result<()> {
        let length = sample.input.len().saturating_sub(1);
        let words = Words::of(sample)?;
        let (mut ids, mask) = match &words {
            Some(words) => (words.ids.clone(), words.mask),
            None if length == 0 => return Err(layout(sample.shape, "windows [T + 1] of two or more")),
            None => (
                sample.input[..length].iter().map(|&c| self.token(c)).collect(),
                self.mask as f32,
            ),
        };
        let count = Masking::count(length);
        let (positions, drawn) = match &words {
            Some(words) => words.chosen(count, draw),
            None => {
                // The first entries of a permutation, drawn one by one.
                let mut order: Vec<usize> = (0..length).collect();
                shuffle(&mut order, count, draw);
                order.truncate(count);
                order.sort_unstable();
                (order, count)
            }
        };
        let labels: Vec<f32> = positions.iter().map(|&at| ids[at]).collect();
        for (i, &at) in positions.iter().enumerate() {
            let number = (drawn + 2 * i) as u32;
            match draw.below(number, 10) {
                0..8 => ids[at] = mask,
                8 => ids[at] = draw.below(number + 1, self.vocabulary) as f32,
                _ => {}
            }
        }
        sample.targets = positions.iter().map(|&at| at as f32).chain(labels).collect();
        sample.fill(Shape::new(&[length])?, ids.into_iter())
    }
}

/// Draws the first `count` entries of a permutation.
fn shuffle<T>(entries: &mut [T], count: usize, draw: &Draw) {
    let all = entries.len();
    for i in 0..count.min(all) {
        entries.swap(i, i + draw.below(i as u32, (all - i) as u32) as usize);
    }
}

/// A window of the tokens of a tokenizer, as BERT reads it: `[CLS]`, the tokens, `[SEP]`.
struct Words {
    ids: Vec<f32>,
    /// The token that hides others.
    mask: f32,
    /// The positions of each word.
    words: Vec<Range<usize>>,
}

impl Words {
    /// Those of a sample `[T + 1]` with the targets `[mask, cls, sep, begins…]`; `None` for one of characters, which has no targets.
    ///
    /// # Errors
    /// Other targets, and windows that are too short.
    fn of(sample: &Sample) -> kiln_data::Result<Option<Self>> {
        let length = sample.input.len().saturating_sub(1);
        let (mask, cls, sep, begins) = match sample.targets[..] {
            [] => return Ok(None),
            [mask, cls, sep, ref begins @ ..] if begins.len() == length + 1 && length > 2 => (mask, cls, sep, begins),
            _ => return Err(layout(sample.shape, "windows [T + 1] of four or more")),
        };
        let mut ids = vec![cls];
        ids.extend(&sample.input[..length - 2]);
        ids.push(sep);
        let mut words: Vec<Range<usize>> = Vec::new();
        for at in 1..length - 1 {
            match words.last_mut() {
                Some(word) if begins[at - 1] == 0.0 => word.end = at + 1,
                _ => words.push(at..at + 1),
            }
        }
        Ok(Some(Words { ids, mask, words }))
    }

    /// The positions of whole words, drawn one by one, so many in all: a word that would be too long is passed over, and one is cut where
    /// no others are left. Also the number of draws.
    fn chosen(&self, count: usize, draw: &Draw) -> (Vec<usize>, usize) {
        let mut order = self.words.clone();
        let drawn = order.len();
        shuffle(&mut order, drawn, draw);
        let (mut positions, mut others) = (Vec::with_capacity(count), Vec::new());
        for word in order {
            match positions.len() + word.len() <= count {
                true => positions.extend(word),
                false => others.push(word),
            }
        }
        let left = count - positions.len();
        positions.extend(others.into_iter().flatten().take(left));
        positions.sort_unstable();
        (positions, drawn)
    }
}

/// The error of samples that make no batch.
fn layout(found: impl std::fmt::Display, expected: &str) -> DataError {
    DataError::Layout {
        found: found.to_string(),
        expected: expected.to_string(),
    }
}

impl Masked {
    /// Makes a batch of masked sequences of one length.
    fn collate(samples: &[Sample]) -> kiln_data::Result<Masked> {
        let first = samples.first().map_or((0, 0), |s| (s.input.len(), s.targets.len() / 2));
        let (length, count) = first;
        if let Some(other) = samples
            .iter()
            .find(|s| s.input.len() != length || s.targets.len() != 2 * count)
        {
            let expected = format!("[{length}] with {count} masked positions");
            return Err(layout(other.shape, &expected));
        }
        let array = |width: usize, values: Vec<i32>| {
            Array2::from_shape_vec((samples.len(), width), values).map_err(|_| layout(width, "samples of one length"))
        };
        let of = |part: fn(&Sample, usize) -> &[f32]| {
            let values = samples.iter().flat_map(|s| part(s, s.targets.len() / 2));
            values.map(|&value| value as i32).collect::<Vec<i32>>()
        };
        let mut positions = of(|s, count| &s.targets[..count]);
        for (row, of_row) in positions.chunks_mut(count.max(1)).enumerate() {
            of_row.iter_mut().for_each(|at| *at += (row * length) as i32);
        }
        Ok(Masked {
            ids: array(length, of(|s, _| &s.input))?,
            positions: array(count, positions)?,
            labels: array(count, of(|s, count| &s.targets[count..]))?,
        })
    }
}

/// A network from tokens, some of them masked, to the logits of those that belong there.
pub(crate) trait MaskedModel<B: Backend>: Module<B> {
    /// Ids `[N, T]` and `[M]` positions of all `N·T` to logits `[M, vocabulary]`.
    ///
    /// # Errors
    /// Ids or positions that are not i32 or out of range; more tokens than the network takes.
    fn logits(&self, ids: &Indices<B>, positions: &Indices<B>) -> Result<Tensor<B>>;

    /// The backend of its parameters.
    fn backend(&self) -> &B;
}

/// A network that is trained on masked tokens.
pub(crate) type Task<B> = task::Task<B, Box<dyn MaskedModel<B>>, Masked>;

/// The logits of the masked positions, `[N·M, vocabulary]`.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn logits<B: Backend>(net: &Box<dyn MaskedModel<B>>, batch: &MaskedOn<B>) -> Result<Tensor<B>> {
    net.logits(&batch.ids, &batch.positions.reshape(&[batch.positions.size()])?)
}

/// The cross-entropy with the tokens that belong to the masked positions.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn step<B: Backend>(net: &Box<dyn MaskedModel<B>>, batch: &MaskedOn<B>) -> Result<Output<B>> {
    let logits = logits(net, batch)?;
    let labels = batch.labels.reshape(&[batch.labels.size()])?;
    let loss = trace::part(net.backend(), "loss", || logits.cross_entropy(&labels))?;
    Ok(Output::new(loss))
}

/// The logits `[N, T', vocabulary]` of all tokens of texts `[N, T]` that end with negative numbers, which there are as many of in each: every token
/// attends to all others.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn of_tokens<B: Backend>(net: &Box<dyn MaskedModel<B>>, texts: &Tensor<B>) -> Result<Tensor<B>> {
    let values = texts.to_vec::<f32>()?;
    let rows: Vec<&[f32]> = values.chunks((values.len() / texts.shape()[0].max(1)).max(1)).collect();
    let used = |row: &&[f32]| row.iter().take_while(|&&id| id >= 0.0).count();
    let length = rows.first().map_or(0, used);
    if let Some(other) = rows.iter().map(used).find(|&other| other != length || other == 0) {
        let expected = format!("{}, as in the first text", length.max(1));
        return Err(Error::invalid("masked", "tokens of a text", other, expected));
    }
    let ids: Vec<i32> = rows
        .iter()
        .flat_map(|row| &row[..length])
        .map(|&id| id as i32)
        .collect();
    let positions: Vec<i32> = (0..ids.len() as i32).collect();
    let ids = Indices::from_slice(net.backend(), &ids, &[rows.len(), length])?;
    let positions = Indices::from_slice(net.backend(), &positions, &[positions.len()])?;
    let logits = net.logits(&ids, &positions)?;
    logits.reshape(&[rows.len(), length, logits.shape()[1]])
}

/// The network with its task.
pub(crate) fn task<B: Backend>(net: impl MaskedModel<B> + 'static, masking: Masking) -> Task<B> {
    task::Task {
        net: Box::new(net),
        prepare: Some(Arc::new(masking)),
        loader: |dataset, options, _| Loader::with_collate(dataset, Masked::collate, options),
        phases: vec![Phase {
            name: "",
            step: step::<B>,
            trains: |_| true,
        }],
        measure: step::<B>,
        forward: logits::<B>,
        metrics: |_| Ok(Vec::new()),
        views: Views {
            tokens: Some(of_tokens::<B>),
            ..Views::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 200;
    const VOCABULARY: usize = 2000;

    fn window(index: usize, epoch: u64) -> Sample {
        let mut sample = Sample::default();
        let characters = (0..LENGTH + 1).map(|at| (at % 7) as f32);
        sample.fill(Shape::new(&[LENGTH + 1]).unwrap(), characters).unwrap();
        let masking = Masking::of(VOCABULARY);
        masking.apply(&mut sample, &Draw::new(5, epoch, index)).unwrap();
        sample
    }

    #[test]
    fn of_the_masked_positions_most_are_masks_and_few_are_random_or_stay() {
        let [mut masks, mut stays, mut other, mut all] = [0u32; 4];
        for index in 0..200 {
            let sample = window(index, 0);
            assert_eq!((sample.input.len(), sample.targets.len()), (LENGTH, 60));
            let (positions, labels) = sample.targets.split_at(30);
            assert!(positions.windows(2).all(|p| p[0] < p[1]) && positions[29] < LENGTH as f32);
            for (&at, &label) in positions.iter().zip(labels) {
                let (at, found) = (at as usize, sample.input[at as usize]);
                assert_eq!(label, 999.0 + (at % 7) as f32);
                all += 1;
                match found {
                    103.0 => masks += 1,
                    found if found == label => stays += 1,
                    _ => other += 1,
                }
            }
            // What is not predicted is as it was.
            let chosen = |at: usize| positions.contains(&(at as f32));
            assert!((0..LENGTH).all(|at| chosen(at) || sample.input[at] == 999.0 + (at % 7) as f32));
        }
        // Within four standard deviations.
        let near = |count: u32, share: f64| {
            let (n, found) = (f64::from(all), f64::from(count));
            (found - share * n).abs() < 4.0 * (n * share * (1.0 - share)).sqrt()
        };
        assert!(
            near(masks, 0.8) && near(stays, 0.1) && near(other, 0.1),
            "{masks} {stays} {other}"
        );
    }

    #[test]
    fn each_epoch_masks_anew_and_each_sample_by_itself() {
        assert_eq!(window(3, 1), window(3, 1));
        assert_ne!(window(3, 1).targets, window(3, 2).targets);
        assert_ne!(window(3, 1).targets, window(4, 1).targets);
        let mut short = Sample::default();
        short.fill(Shape::new(&[1]).unwrap(), [0.0].into_iter()).unwrap();
        assert!(Masking::of(5).apply(&mut short, &Draw::new(0, 0, 0)).is_err());
    }

    #[test]
    fn a_batch_counts_positions_from_its_start() {
        let batch = Masked::collate(&[window(0, 0), window(1, 0)]).unwrap();
        assert_eq!(batch.ids.dim(), (2, LENGTH));
        assert_eq!((batch.positions.dim(), batch.labels.dim()), ((2, 30), (2, 30)));
        for (row, positions) in batch.positions.rows().into_iter().enumerate() {
            assert!(positions.iter().all(|&at| (at as usize) / LENGTH == row));
        }
        let uneven = [window(0, 0), Sample::default()];
        assert!(Masked::collate(&uneven).is_err());
    }

    #[test]
    fn whole_words_are_masked_between_the_special_tokens() {
        for index in 0..50 {
            let mut sample = Sample::default();
            // Words of one, two and three tokens.
            let begins = [1.0, 1.0, 0.0, 1.0, 0.0, 0.0];
            let ids = (0..LENGTH + 1).map(|at| (10 + at % 6) as f32);
            sample.fill(Shape::new(&[LENGTH + 1]).unwrap(), ids).unwrap();
            sample.targets = [4.0, 2.0, 3.0]
                .into_iter()
                .chain((0..LENGTH + 1).map(|at| begins[at % 6]))
                .collect();
            Masking::of(VOCABULARY)
                .apply(&mut sample, &Draw::new(5, 0, index))
                .unwrap();
            assert_eq!((sample.input[0], sample.input[LENGTH - 1]), (2.0, 3.0));
            let (positions, labels) = sample.targets.split_at(30);
            let chosen = |at: usize| positions.contains(&(at as f32));
            assert!(!chosen(0) && !chosen(LENGTH - 1));
            for (&at, &label) in positions.iter().zip(labels) {
                let at = at as usize;
                assert_eq!(label, (10 + (at - 1) % 6) as f32);
                // The rest of the word is chosen too, but at the end of the window.
                let word = |at: usize| (1 + (at - 1) / 6 * 6) + [0, 1, 1, 3, 3, 3][(at - 1) % 6];
                assert!((word(at)..at).all(chosen), "{at} of {positions:?}");
            }
        }
        let mut odd = window(0, 0);
        assert!(Masking::of(5).apply(&mut odd, &Draw::new(0, 0, 0)).is_err());
    }

    #[test]
    fn small_vocabularies_have_a_mask_too() {
        let masking = Masking::of(17);
        assert_eq!((masking.mask, masking.token(3.0)), (16, 3.0));
        assert_eq!(Masking::of(30_522).token(65.0), 1064.0);
        assert_eq!(Masking::of(30_522).token(30_521.0), 998.0);
        for (length, count) in [(1, 1), (8, 1), (20, 3), (512, 77)] {
            assert_eq!(Masking::count(length), count);
        }
    }
}
