//! Decoders, whole transformers and rotary positions against PyTorch's and Hugging Face's, writing with caches against whole passes,
//! and gradients of gradients of attention.

use crate::attention::{close, compare};
use kiln_cpu::Cpu;
use kiln_nn::module::StateDict;
use kiln_nn::prelude::*;
use kiln_nn::{KeyValueCache, weights::decode};

/// The tensors of `../golden/transformer.py`.
fn golden(cpu: &Cpu) -> StateDict<Cpu> {
    decode(include_bytes!("../golden/transformer.safetensors"), cpu)
        .unwrap()
        .0
}

fn randn(cpu: &Cpu, shape: &[usize], seed: u64) -> Tensor<Cpu> {
    Tensor::randn(cpu, shape, DType::F64, &mut Rng::new(seed)).unwrap()
}

#[test]
fn decoders_and_whole_transformers_equal_pytorchs() {
    let cpu = Cpu::poisoned();
    let all = golden(&cpu);
    let memory = all.float("memory").unwrap();
    let tokens = all.int("tokens").unwrap().reshape(&[2, 1, 1, 5]).unwrap();
    let padded = AttentionOptions::masked(&tokens);
    for first in [false, true] {
        let options = TransformerDecoderLayer::builder(8, 2).feedforward(12).norm_first(first);
        for (name, activation) in [("relu", Activation::Relu), ("gelu", Activation::Gelu)] {
            compare(
                (&cpu, &all),
                &format!("decoder-{first}-{name}"),
                |init| TransformerDecoder::new(init, &options.clone().activation(activation), 2),
                |m, x| m.forward_masked(x, memory, &AttentionOptions::causal(), &padded),
            );
        }
        let masks = TransformerMasks {
            source: padded,
            memory: padded,
            ..TransformerMasks::causal()
        };
        compare(
            (&cpu, &all),
            &format!("whole-{first}"),
            |init| Transformer::new(init, &options, 2, 2),
            |m, x| m.forward_masked(memory, x, &masks),
        );
    }
}

#[test]
fn rotary_positions_equal_those_of_llama_neox_and_gptj() {
    let cpu = Cpu::poisoned();
    let all = golden(&cpu);
    let at = Rotary {
        offset: 3,
        ..Rotary::default()
    };
    let cases = [
        ("rotary-llama", Rotary { base: 500.0, ..at }),
        ("rotary-neox", Rotary { dims: Some(4), ..at }),
        (
            "rotary-gptj",
            Rotary {
                dims: Some(6),
                interleaved: true,
                ..at
            },
        ),
    ];
    for (name, options) in cases {
        let io = |what: &str| all.float(&format!("{name}-{what}")).unwrap().clone();
        let x = io("x").requires_grad();
        let y = x.rotary_embedding(&options).unwrap();
        close(&y, &io("y"), name);
        let sum = y.mul(&io("w")).unwrap().sum(&[], false).unwrap();
        close(sum.backward().unwrap().get(&x).unwrap(), &io("dx"), name);
    }
}

/// Positions one by one, or some at once, behind a cache are those of a whole pass, with rotary positions too.
#[test]
fn writing_with_a_cache_is_a_whole_pass() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 5).dtype(DType::F64);
    let (x, memory) = (randn(&cpu, &[3, 6, 8], 1), randn(&cpu, &[3, 4, 8], 2));
    let mask = Indices::from_slice(&cpu, &[1u8, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0], &[3, 1, 1, 4]).unwrap();
    let source = AttentionOptions::masked(&mask);
    for rotary in [None, Some(Rotary::default())] {
        let mut options = TransformerDecoderLayer::builder(8, 2).feedforward(16).norm_first(true);
        if let Some(rotary) = rotary {
            options = options.rotary(rotary);
        }
        let mut decoder = TransformerDecoder::new(init, &options, 2).unwrap();
        decoder.eval();
        let whole = decoder
            .forward_masked(&x, &memory, &AttentionOptions::causal(), &source)
            .unwrap();
        let mut cache = decoder.cache(&memory).unwrap();
        for piece in [2, 1, 3] {
            let at = cache.len();
            let y = decoder
                .next(&x.narrow(1, at, piece).unwrap(), &mut cache, &source)
                .unwrap();
            close(&y, &whole.narrow(1, at, piece).unwrap(), "piece");
        }
        // The sequences of a cache in another order go on as they would have.
        let rows = Indices::from_slice(&cpu, &[2i32, 0], &[2]).unwrap();
        let (next, swapped) = (randn(&cpu, &[3, 1, 8], 3), mask.index_select(0, &rows).unwrap());
        let mut chosen = cache.select(&rows).unwrap();
        let of_chosen = next.index_select(0, &rows).unwrap();
        let y = decoder
            .next(&of_chosen, &mut chosen, &AttentionOptions::masked(&swapped))
            .unwrap();
        let want = decoder.next(&next, &mut cache, &source).unwrap();
        close(&y, &want.index_select(0, &rows).unwrap(), "chosen");
        assert!(decoder.next(&randn(&cpu, &[2, 1, 8], 4), &mut cache, &source).is_err());
        assert_eq!(cache.len(), 7);
    }
    let attention = MultiheadAttention::builder(8, 2)
        .rotary(Rotary::default())
        .build(init)
        .unwrap();
    let mut cache = KeyValueCache::new();
    attention.attend_cached(&x, &mut cache).unwrap();
    assert_eq!(cache.len(), 6);
    assert!(
        MultiheadAttention::builder(6, 2)
            .rotary(Rotary::default())
            .build(init)
            .unwrap()
            .forward(&randn(&cpu, &[1, 2, 6], 0))
            .is_err()
    );
}

/// A gradient of a gradient through attention with masks, a cross-attention and rotary positions is what central differences of the
/// gradient say.
#[test]
fn attention_has_gradients_of_gradients() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 7).dtype(DType::F64);
    let options = TransformerDecoderLayer::builder(8, 2)
        .feedforward(16)
        .activation(Activation::Gelu);
    let block = options
        .dropout(0.0)
        .rotary(Rotary::default())
        .build_decoder(init)
        .unwrap();
    let (x, memory) = (randn(&cpu, &[2, 3, 8], 1), randn(&cpu, &[2, 4, 8], 2));
    let mask = Indices::from_slice(&cpu, &[1u8, 1, 1, 1, 1, 1, 0, 0], &[2, 1, 1, 4]).unwrap();
    let (v, w) = (randn(&cpu, &[2, 3, 8], 3), randn(&cpu, &[2, 3, 8], 4));
    // The derivative of Σ w·y in the direction of v.
    let slope = |x: &Tensor<Cpu>, create_graph: bool| {
        let y = block.forward_masked(
            x,
            &memory,
            &AttentionOptions::causal(),
            &AttentionOptions::masked(&mask),
        );
        let sum = y.unwrap().mul(&w).unwrap().sum(&[], false).unwrap();
        let g = grad(&sum, &[x], None, create_graph).unwrap().remove(0).unwrap();
        g.mul(&v).unwrap().sum(&[], false).unwrap()
    };
    let leaf = x.requires_grad();
    let second = grad(&slope(&leaf, true), &[&leaf], None, false)
        .unwrap()
        .remove(0)
        .unwrap();
    let step = 1e-5;
    for (i, got) in second.to_f64().unwrap().into_iter().enumerate() {
        let moved = |by: f64| {
            let mut values = x.to_f64().unwrap();
            values[i] += by;
            let x = Tensor::from_f64(&cpu, &values, &[2, 3, 8], DType::F64)
                .unwrap()
                .requires_grad();
            slope(&x, false).item().unwrap()
        };
        let want = (moved(step) - moved(-step)) / (2.0 * step);
        assert!(
            (got - want).abs() < 1e-6 * (1.0 + want.abs()),
            "{i}: {got}, expected {want}"
        );
    }
}
