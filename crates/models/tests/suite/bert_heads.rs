//! BERT's heads at a small size learn, and what lies behind the end of a sequence changes nothing.

use kiln_core::Result;
use kiln_cpu::Cpu;
use kiln_models::{BertConfig, BertReader, BertTagger, best_span};
use kiln_nn::optim::{AdamW, Optimizer};
use kiln_nn::{Indices, Init, Module, Tensor};

const SMALL: BertConfig = BertConfig {
    vocabulary: 12,
    context: 10,
    types: 2,
    layers: 1,
    heads: 2,
    width: 16,
    hidden: 32,
    dropout: 0.0,
};
const N: usize = 6;
const T: usize = 10;

fn indices(values: &[i32], shape: &[usize]) -> Indices<Cpu> {
    Indices::from_slice(&Cpu::new(), values, shape).unwrap()
}

/// The ids, mask and length of sequences of several lengths.
fn sequences(seed: usize) -> (Vec<i32>, Vec<u8>) {
    let length = |n: usize| 4 + (n * 5 + seed) % 7;
    let at = |i: usize| (i / T, i % T);
    let id = |i: usize| ((i * 7 + i / T * 3 + seed * 5 + i * i % 11) % 12) as i32;
    let ids = (0..N * T).map(id).collect();
    let mask = (0..N * T).map(|i| u8::from(at(i).1 < length(at(i).0))).collect();
    (ids, mask)
}

fn mask_of(mask: &[u8]) -> Indices<Cpu> {
    Indices::from_slice(&Cpu::new(), mask, &[N, T]).unwrap()
}

/// Trains a network for some steps; returns the first and the last loss.
fn trained<M: Module<Cpu>>(net: &mut M, steps: usize, loss: impl Fn(&M, usize) -> Result<Tensor<Cpu>>) -> (f64, f64) {
    let mut optimizer = AdamW::new(5e-3);
    let mut step = |at: usize| {
        let loss = loss(net, at).unwrap();
        optimizer.step(net, &loss.backward().unwrap()).unwrap();
        loss.item().unwrap()
    };
    let losses: Vec<f64> = (0..steps).map(&mut step).collect();
    (losses[0], losses[steps - 1])
}

/// The tag of a token is told by it and by the one before.
#[test]
fn a_tagger_learns_tags_that_depend_on_the_word_before() {
    let mut net = BertTagger::new(Init::new(&Cpu::new(), 3), SMALL, 3).unwrap();
    let batch = |seed: usize| {
        let (ids, mask) = sequences(seed);
        let tag = |i: usize| match mask[i] == 0 || i.is_multiple_of(T) {
            true => -100,
            false => (i32::from(ids[i] > 5) + i32::from(ids[i - 1] > 5)) % 3,
        };
        let tags: Vec<i32> = (0..N * T).map(tag).collect();
        (indices(&ids, &[N, T]), mask_of(&mask), indices(&tags, &[N, T]))
    };
    let (first, last) = trained(&mut net, 400, |net, step| {
        let (ids, mask, tags) = batch(step % 20);
        net.forward(&ids, &mask)?.cross_entropy(&tags)
    });
    assert!(first > 0.9 && last < 0.15, "{first} to {last}");
    net.eval();
    let (ids, mask, tags) = batch(3);
    let logits = net.forward(&ids, &mask).unwrap();
    let found = logits.argmax(-1, false).unwrap().to_vec::<i32>().unwrap();
    let tags = tags.to_vec::<i32>().unwrap();
    let wrong = tags
        .iter()
        .zip(&found)
        .filter(|(tag, found)| **tag >= 0 && tag != found);
    assert_eq!(wrong.count(), 0);
    // Other ids behind the ends.
    let (mut other, mask_values) = sequences(3);
    for (id, mask) in other.iter_mut().zip(&mask_values) {
        *id = if *mask == 0 { (*id + 5) % 12 } else { *id };
    }
    let again = net.forward(&indices(&other, &[N, T]), &mask).unwrap();
    let (a, b) = (logits.to_f64().unwrap(), again.to_f64().unwrap());
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        assert!(mask_values[i / 3] == 0 || (a - b).abs() < 1e-5, "{i}: {a} and {b}");
    }
}

/// The answer is what two tokens mark, one at each end.
#[test]
fn a_reader_learns_where_an_answer_is() {
    let mut net = BertReader::new(Init::new(&Cpu::new(), 5), SMALL).unwrap();
    // The question is two tokens; the text ends with the mask.
    let batch = |seed: usize| {
        let (mut ids, mask) = sequences(seed);
        let types: Vec<i32> = (0..N * T).map(|i| i32::from(i % T >= 2)).collect();
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for n in 0..N {
            let end = (0..T).filter(|&at| mask[n * T + at] == 1).count();
            let from = 2 + (n + seed) % (end - 2);
            let to = (from + (n + seed) % 3).min(end - 1);
            for at in 0..end {
                ids[n * T + at] = match at {
                    _ if at == from => 10,
                    _ if at == to => 11,
                    _ => ids[n * T + at] % 10,
                };
            }
            first.push(from as i32);
            last.push(to as i32);
        }
        let ids = [ids, types].map(|values| indices(&values, &[N, T]));
        (ids, mask_of(&mask), first, last)
    };
    let loss = |net: &BertReader<Cpu>, step: usize| {
        let ([ids, types], mask, first, last) = batch(step % 40);
        let logits = net.forward(&ids, &types, &mask)?;
        BertReader::loss(&logits, &indices(&first, &[N]), &indices(&last, &[N]))
    };
    let (before, after) = trained(&mut net, 400, loss);
    assert!(before > 1.8 && after < 0.3, "{before} to {after}");
    net.eval();
    let ([ids, types], mask, first, last) = batch(40);
    let logits = net.forward(&ids, &types, &mask).unwrap();
    let of = |n: usize, which: usize| -> Vec<f32> {
        let values = logits.to_vec::<f32>().unwrap();
        (0..T).map(|at| values[(n * T + at) * 2 + which]).collect()
    };
    let right = (0..N).filter(|&n| {
        let found = best_span(&of(n, 0), &of(n, 1), 2..T, 4).unwrap().0;
        found == (first[n] as usize..last[n] as usize + 1)
    });
    assert!(right.count() >= N - 1);
    // A position behind the end is left out, as one of an answer that was cut off.
    let behind = vec![T as i32; N];
    let of_first = BertReader::loss(&logits, &indices(&first, &[N]), &indices(&behind, &[N]));
    assert!(of_first.unwrap().item().unwrap().is_nan());
    let mut one = behind;
    one[0] = last[0];
    let partly = BertReader::loss(&logits, &indices(&first, &[N]), &indices(&one, &[N])).unwrap();
    assert!(partly.item().unwrap().is_finite());
    let wrong = indices(&[T as i32 + 1; N], &[N]);
    assert!(BertReader::loss(&logits, &wrong, &wrong).is_err());
}

/// The best span is that of a search of all pairs.
#[test]
fn the_best_span_is_the_largest_sum_of_all_that_are_valid() {
    let score = |seed: usize, at: usize| ((at * 37 + seed * 101 + at * at * 7) % 23) as f32;
    for seed in 0..40 {
        let first: Vec<f32> = (0..12).map(|at| score(seed, at)).collect();
        let last: Vec<f32> = (0..12).map(|at| score(seed + 50, at)).collect();
        for (text, longest) in [(0..12, 12), (3..9, 2), (5..6, 1), (2..40, 100)] {
            let (found, highest) = best_span(&first, &last, text.clone(), longest).unwrap();
            let pairs = (0..12).flat_map(|from| (from..12).map(move |to| (from, to)));
            let valid = pairs.filter(|(from, to)| text.contains(from) && text.contains(to) && to - from < longest);
            let expected = valid.map(|(from, to)| first[from] + last[to]).fold(f32::MIN, f32::max);
            assert_eq!(highest, expected, "{text:?} {longest}");
            assert!(text.contains(&found.start) && found.len() <= longest);
            assert_eq!(first[found.start] + last[found.end - 1], highest);
        }
        assert!(best_span(&first, &last, 4..4, 3).is_none() && best_span(&first, &last, 1..5, 0).is_none());
    }
}
