//! BERT's heads at a small size learn, and what lies behind the end of a sequence changes nothing.

use kiln_core::Result;
use kiln_cpu::Cpu;
use kiln_models::{BertConfig, BertTagger};
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
