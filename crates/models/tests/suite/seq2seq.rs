//! The encoder-decoder learns to reverse sequences, and writes the same with kept keys and values as in a whole pass.

use kiln_cpu::Cpu;
use kiln_models::{Seq2Seq, Seq2SeqConfig};
use kiln_nn::optim::Adam;
use kiln_nn::{CrossEntropyOptions, Indices, Init, Module, Optimizer};

const PADDING: i32 = 0;
const BEGIN: i32 = 9;
const END: i32 = 10;
const LONGEST: usize = 5;

/// Sequences of one to five numbers from 1 to 8, in an order without pattern.
fn sequence(number: u32) -> Vec<i32> {
    let mut state = number.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut draw = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    let length = 1 + draw(LONGEST as u32);
    (0..length).map(|_| 1 + draw(8) as i32).collect()
}

fn padded(mut ids: Vec<i32>, length: usize) -> Vec<i32> {
    ids.resize(length, PADDING);
    ids
}

#[test]
fn it_learns_to_reverse_sequences_of_different_lengths() {
    let cpu = Cpu::new();
    let config = Seq2SeqConfig {
        vocabulary: 11,
        layers: 1,
        width: 32,
        feedforward: 64,
        dropout: 0.0,
        ..Seq2SeqConfig::MINI
    };
    for tied in [true, false] {
        let mut net = Seq2Seq::new(Init::new(&cpu, 1), Seq2SeqConfig { tied, ..config }).unwrap();
        let mut adam = Adam::new(3e-3);
        for step in 0..600 {
            let (mut source, mut target, mut labels) = (Vec::new(), Vec::new(), Vec::new());
            for number in 0..32 {
                let ids = sequence(1000 + 32 * step + number);
                let reversed: Vec<i32> = ids.iter().rev().copied().collect();
                source.extend(padded(ids, LONGEST));
                target.extend(padded([&[BEGIN], &reversed[..]].concat(), LONGEST + 1));
                labels.extend(padded([&reversed[..], &[END]].concat(), LONGEST + 1));
            }
            let of = |ids: &[i32], length| Indices::from_slice(&cpu, ids, &[32, length]).unwrap();
            let source = of(&source, LONGEST);
            let mask = source.ne(PADDING).unwrap().reshape(&[32, 1, 1, LONGEST]).unwrap();
            let logits = net.forward(&source, &mask, &of(&target, LONGEST + 1)).unwrap();
            let options = CrossEntropyOptions {
                label_smoothing: 0.1,
                ignore_index: i64::from(PADDING),
                ..Default::default()
            };
            let loss = logits.cross_entropy_with(&of(&labels, LONGEST + 1), &options).unwrap();
            adam.step(&mut net, &loss.backward().unwrap()).unwrap();
        }
        net.eval();
        for beams in [1, 4] {
            let right = |number: &u32| {
                let ids = sequence(*number);
                let reversed: Vec<i32> = ids.iter().rev().copied().collect();
                net.write(&ids, [BEGIN, END], beams, 2 * LONGEST).unwrap() == reversed
            };
            let right = (0..100).filter(right).count();
            assert!(right >= 90, "tied: {tied}, {beams} beams: {right} of 100");
        }
    }
}

/// What is written token by token is the likeliest token behind each one of a whole pass, for sources of different lengths side by side.
#[test]
fn what_is_written_is_the_likeliest_behind_what_is_written() {
    let cpu = Cpu::new();
    let config = Seq2SeqConfig {
        vocabulary: 11,
        layers: 2,
        width: 16,
        feedforward: 32,
        ..Seq2SeqConfig::MINI
    };
    let mut net = Seq2Seq::new(Init::new(&cpu, 5), config).unwrap();
    net.eval();
    let sources: [&[i32]; 3] = [&[1, 2, 3, 4, 5, 6, 7], &[8], &[3, 3, 1]];
    let ids: Vec<i32> = sources.iter().flat_map(|s| padded(s.to_vec(), 7)).collect();
    let source = Indices::from_slice(&cpu, &ids, &[3, 7]).unwrap();
    let mask = source.ne(PADDING).unwrap().reshape(&[3, 1, 1, 7]).unwrap();
    const WRITTEN: usize = 13;
    assert_eq!(net.ends(), [BEGIN, END]);
    let (written, counts) = net.greedy(&source, &mask, WRITTEN).unwrap();
    assert_eq!(
        (written.shape().dims(), counts.shape().dims()),
        (&[3, WRITTEN][..], &[3][..])
    );
    let (written, counts) = (written.to_vec::<i32>().unwrap(), counts.to_vec::<i32>().unwrap());
    let before: Vec<i32> = written
        .chunks(WRITTEN)
        .flat_map(|w| [&[BEGIN], &w[..WRITTEN - 1]].concat())
        .collect();
    let before = Indices::from_slice(&cpu, &before, &[3, WRITTEN]).unwrap();
    let likeliest = net.forward(&source, &mask, &before).unwrap().argmax(-1, false).unwrap();
    let likeliest = likeliest.to_vec::<i32>().unwrap();
    for (row, source) in sources.iter().enumerate() {
        let text = &written[row * WRITTEN..][..counts[row] as usize];
        assert!(!text.contains(&END));
        // With the end, if it is there.
        let seen = (text.len() + 1).min(WRITTEN);
        assert_eq!(
            likeliest[row * WRITTEN..][..seen],
            written[row * WRITTEN..][..seen],
            "{row}"
        );
        assert_eq!(net.write(source, net.ends(), 1, WRITTEN).unwrap(), text, "{row}");
    }
    let (none, counts) = net.greedy(&source, &mask, 1).unwrap();
    assert_eq!((none.size(), counts.to_vec::<i32>().unwrap().len()), (3, 3));
    assert!(net.greedy(&source, &mask, 0).is_err());
}

#[test]
fn what_does_not_fit_is_refused() {
    let cpu = Cpu::new();
    let config = Seq2SeqConfig {
        vocabulary: 11,
        layers: 1,
        ..Seq2SeqConfig::MINI
    };
    assert!(Seq2Seq::new(Init::new(&cpu, 0), Seq2SeqConfig { width: 33, ..config }).is_err());
    assert!(Seq2Seq::new(Init::new(&cpu, 0), Seq2SeqConfig { heads: 3, ..config }).is_err());
    let mut net = Seq2Seq::new(Init::new(&cpu, 0), config).unwrap();
    net.eval();
    assert!(net.write(&[], [BEGIN, END], 1, 3).is_err());
    assert!(net.write(&[1], [BEGIN, END], 0, 3).is_err());
    assert!(net.write(&[11], [BEGIN, END], 1, 3).is_err());
    assert!(net.write(&[1], [BEGIN, END], 2, 3).unwrap().len() <= 3);
}
