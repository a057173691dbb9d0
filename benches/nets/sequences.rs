//! Batches of networks of sequences, by the fields of their tasks: texts with padding, speech, pairs of texts.

use crate::row::{Row, STEPS, batch_of};
use kiln_core::philox::Key;
use kiln_core::{DType, Result};
use kiln_cpu::Cpu;
use kiln_models::Model;
use kiln_nn::module::{StateDict, Value};
use kiln_nn::{Indices, Rng, Tensor};

/// Begins the names of the arrays in a row's file, of which each has one part for each step.
pub(crate) const PREFIX: &str = "batch.";

/// Tokens of the longest text of a batch.
const TOKENS: usize = 128;

/// Frames and letters of the longest utterance.
const FRAMES: usize = 320;
const LETTERS: usize = 32;

/// Tokens of the longest source and of its target.
const SOURCE: usize = 48;

/// The draws of a row's integers.
struct Draws {
    key: Key,
    drawn: u64,
}

impl Draws {
    fn below(&mut self, bound: usize) -> i32 {
        self.drawn += 1;
        self.key.below(self.drawn, bound as u32) as i32
    }

    /// So many random integers below `bound`.
    fn ids(&mut self, count: usize, bound: usize) -> Vec<i32> {
        (0..count).map(|_| self.below(bound)).collect()
    }

    /// Lengths of the sequences of all batches, from a third of the longest, which each batch has, to it.
    fn lengths(&mut self, batch: usize, longest: usize) -> Vec<i32> {
        let shortest = longest / 3;
        let length = |i: usize| match i % batch {
            0 => longest as i32,
            _ => shortest as i32 + self.below(longest - shortest + 1),
        };
        (0..STEPS * batch).map(length).collect()
    }
}

/// Puts `value` behind the ends of rows of `width`.
fn padded(mut ids: Vec<i32>, lengths: &[i32], width: usize, value: i32) -> Vec<i32> {
    for (row, &length) in ids.chunks_exact_mut(width).zip(lengths) {
        row[length as usize..].fill(value);
    }
    ids
}

/// True if the row's batches are made here.
pub(crate) fn are_of(model: Model) -> bool {
    matches!(model, Model::BertClassifier | Model::DeepSpeech2 | Model::Transformer)
}

/// The arrays of all batches of a row.
pub(crate) fn arrays(row: Row) -> Result<StateDict<Cpu>> {
    let (cpu, count) = (Cpu::new(), STEPS * row.batch);
    let mut draws = Draws {
        key: Key::new(3, 1, 0),
        drawn: 0,
    };
    let mut dict = StateDict::new();
    let mut put = |name: &str, value: Value<Cpu>| dict.insert(format!("{PREFIX}{name}"), value);
    let ints = |ids: &[i32], width: Option<usize>| -> Result<Value<Cpu>> {
        let shape = [STEPS, row.batch, width.unwrap_or(1)];
        let shape = if width.is_some() { &shape[..] } else { &shape[..2] };
        Ok(Value::Int(Indices::from_slice(&cpu, ids, shape)?))
    };
    let mask = |lengths: &[i32], width: usize| -> Result<Value<Cpu>> {
        let inside = lengths
            .iter()
            .flat_map(|&length| (0..width).map(move |at| u8::from((at as i32) < length)));
        let inside: Vec<u8> = inside.collect();
        Ok(Value::Int(Indices::from_slice(
            &cpu,
            &inside,
            &[STEPS, row.batch, width],
        )?))
    };
    let outputs = row.model.outputs();
    match row.model {
        Model::BertClassifier => {
            let lengths = draws.lengths(row.batch, TOKENS);
            let ids = draws.ids(count * TOKENS, 30_000);
            put("ids", ints(&padded(ids, &lengths, TOKENS, 0), Some(TOKENS))?);
            put("mask", mask(&lengths, TOKENS)?);
            put("labels", ints(&draws.ids(count, outputs), None)?);
        }
        Model::DeepSpeech2 => {
            let (frames, counts) = (draws.lengths(row.batch, FRAMES), draws.lengths(row.batch, LETTERS));
            // Half as many letters as steps at most, so that every utterance has an alignment.
            let counts: Vec<i32> = counts
                .iter()
                .zip(&frames)
                .map(|(&c, &f)| c.min(f / 10).max(1))
                .collect();
            let bins = row.model.input().shape[1];
            let shape = [STEPS, row.batch, FRAMES, bins];
            put(
                "features",
                Value::Float(Tensor::randn(&cpu, &shape, DType::F32, &mut Rng::new(2))?),
            );
            put("frames", ints(&frames, None)?);
            let letters: Vec<i32> = draws
                .ids(count * LETTERS, outputs - 1)
                .iter()
                .map(|id| id + 1)
                .collect();
            put("labels", ints(&padded(letters, &counts, LETTERS, 0), Some(LETTERS))?);
            put("counts", ints(&counts, None)?);
        }
        _ => {
            let (source, target) = (draws.lengths(row.batch, SOURCE), draws.lengths(row.batch, SOURCE));
            let ids = draws.ids(count * SOURCE, outputs);
            put("source", ints(&padded(ids, &source, SOURCE, 0), Some(SOURCE))?);
            put("mask", mask(&source, SOURCE)?);
            let ids = draws.ids(count * SOURCE, outputs);
            put("target", ints(&padded(ids.clone(), &target, SOURCE, 0), Some(SOURCE))?);
            put("labels", ints(&padded(ids, &target, SOURCE, -100), Some(SOURCE))?);
            put("counts", ints(&target, None)?);
        }
    }
    Ok(dict)
}

/// Takes the batches of a row out of its file.
pub(crate) fn batches(dict: &mut StateDict<Cpu>) -> Result<Vec<StateDict<Cpu>>> {
    let names: Vec<String> = dict
        .names()
        .filter(|name| name.starts_with(PREFIX))
        .map(str::to_string)
        .collect();
    let mut batches = vec![StateDict::new(); STEPS];
    for name in names {
        let Some(all) = dict.remove(&name) else { continue };
        for (step, batch) in batches.iter_mut().enumerate() {
            batch.insert(&name[PREFIX.len()..], batch_of(&all, step)?);
        }
    }
    Ok(batches)
}
