//! Low-rank additions against the formula, merged and saved.

use kiln_cpu::Cpu;
use kiln_nn::lora::{self, LoraOptions};
use kiln_nn::prelude::*;
use kiln_nn::{LoadOptions, WeightsError};

/// A block with projections that are layers and others that are none.
fn net(cpu: &Cpu, seed: u64) -> TransformerEncoderLayer<Cpu> {
    let init = &mut Init::new(cpu, seed).dtype(DType::F64);
    let options = TransformerEncoderLayer::builder(8, 2).feedforward(12).dropout(0.0);
    options.activation(Activation::Gelu).build(init).unwrap()
}

fn randn(cpu: &Cpu, shape: &[usize], seed: u64) -> Tensor<Cpu> {
    Tensor::randn(cpu, shape, DType::F64, &mut Rng::new(seed)).unwrap()
}

fn near(got: &Tensor<Cpu>, want: &Tensor<Cpu>, bound: f64) {
    let apart = got
        .sub(want)
        .unwrap()
        .abs()
        .unwrap()
        .max(&[], false)
        .unwrap()
        .item()
        .unwrap();
    assert!(apart < bound, "{apart}");
}

#[test]
fn an_addition_is_its_formula_and_can_be_merged() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 1).dtype(DType::F64);
    let x = randn(&cpu, &[2, 3, 8], 1);
    let mut layer = Linear::builder(8, 6).activation(Activation::Tanh).build(init).unwrap();
    let before = layer.forward(&x).unwrap();
    let options = LoraOptions {
        alpha: 6.0,
        ..LoraOptions::new(2)
    };
    assert_eq!(options.adapt(init, &mut layer).unwrap(), [""]);
    assert_eq!(layer.forward(&x).unwrap().to_f64().unwrap(), before.to_f64().unwrap());
    let lora = layer.lora.as_mut().unwrap();
    lora.b.weight.assign(&randn(&cpu, &[6, 2], 2)).unwrap();
    // tanh(x·(W + 3·B·A)ᵀ + b)
    let sum = lora.b.weight.matmul(&lora.a.weight).unwrap().mul_scalar(3.0).unwrap();
    let weight = layer.weight.add(&sum).unwrap();
    let want = x.linear(&weight, layer.bias.as_deref(), Activation::Tanh).unwrap();
    near(&layer.forward(&x).unwrap(), &want, 1e-14);
    let kept = layer.weight.copy().unwrap();
    lora::merge(&mut layer).unwrap();
    lora::merge(&mut layer).unwrap(); // once
    near(&layer.forward(&x).unwrap(), &want, 1e-14);
    lora::unmerge(&mut layer).unwrap();
    near(&layer.weight, &kept, 1e-14);
    lora::remove(&mut layer).unwrap();
    assert!(layer.lora.is_none());
    near(&layer.forward(&x).unwrap(), &want, 1e-14);
}

#[test]
fn packed_projections_of_attention_have_an_addition() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 1).dtype(DType::F64);
    let mut layer = MultiheadAttention::new(init, 8, 2).unwrap();
    let options = LoraOptions {
        alpha: 6.0,
        ..LoraOptions::new(2)
    };
    assert_eq!(options.adapt(init, &mut layer).unwrap(), ["", "out_proj"]);
    let lora = layer.lora.as_mut().unwrap();
    lora.b.weight.assign(&randn(&cpu, &[24, 2], 2)).unwrap();
    let sum = lora.b.weight.matmul(&lora.a.weight).unwrap().mul_scalar(3.0).unwrap();
    let mut whole = MultiheadAttention::new(&mut Init::new(&cpu, 1).dtype(DType::F64), 8, 2).unwrap();
    whole
        .in_proj_weight
        .assign(&layer.in_proj_weight.add(&sum).unwrap())
        .unwrap();
    // Of one input, and of a query with keys of others.
    let (x, memory) = (randn(&cpu, &[2, 3, 8], 1), randn(&cpu, &[2, 5, 8], 2));
    let all = AttentionOptions::default();
    let of = |layer: &MultiheadAttention<Cpu>| {
        [
            layer.forward(&x).unwrap(),
            layer.attend(&x, &memory, &memory, &all).unwrap(),
        ]
    };
    let want = of(&whole);
    let check = |layer: &MultiheadAttention<Cpu>| {
        of(layer)
            .iter()
            .zip(&want)
            .for_each(|(got, want)| near(got, want, 1e-13));
    };
    check(&layer);
    let names: Vec<String> = layer.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[2..4], ["lora_A.weight", "lora_B.weight"]);
    lora::merge(&mut layer).unwrap();
    check(&layer);
    lora::remove(&mut layer).unwrap();
    assert!(layer.lora.is_none());
    check(&layer);
}

#[test]
fn additions_alone_train_and_are_saved() {
    let cpu = Cpu::poisoned();
    let (mut model, base) = (net(&cpu, 1), net(&cpu, 1));
    let options = LoraOptions {
        target_modules: vec!["linear?".parse().unwrap(), "self_attn.out_proj".parse().unwrap()],
        dropout: 0.1,
        ..LoraOptions::new(3)
    };
    let init = &mut Init::new(&cpu, 2).dtype(DType::F64);
    let adapted = options.adapt(init, &mut model).unwrap();
    assert_eq!(adapted, ["self_attn.out_proj", "linear1", "linear2"]);
    assert!(options.adapt(init, &mut model).is_err());
    let trained: Vec<String> = model
        .named_parameters()
        .into_iter()
        .filter(|(_, p)| p.is_trainable())
        .map(|(n, _)| n)
        .collect();
    assert_eq!(trained.len(), 6);
    assert!(trained.iter().all(|name| name.contains(".lora_")), "{trained:?}");
    let mut optimizer = AdamW::new(1e-2);
    let (x, target) = (randn(&cpu, &[2, 3, 8], 1), randn(&cpu, &[2, 3, 8], 2));
    let mut losses = Vec::new();
    for _ in 0..20 {
        let loss = model.forward(&x).unwrap().mse_loss(&target, Reduction::Mean).unwrap();
        losses.push(loss.item().unwrap());
        optimizer.step(&mut model, &loss.backward().unwrap()).unwrap();
    }
    assert!(losses[19] < losses[0], "{losses:?}");
    // The base is as it was, and the optimizer knows nothing of it.
    for (name, p) in base.named_parameters() {
        let now = model
            .named_parameters()
            .into_iter()
            .find(|(n, _)| *n == name)
            .unwrap()
            .1;
        assert_eq!(now.to_f64().unwrap(), p.to_f64().unwrap(), "{name}");
    }
    let state = optimizer.state_dict().unwrap();
    let of_base = |name: &&str| name.contains("weight") && !name.contains("lora_");
    assert!(
        !state.names().any(|name| of_base(&name)),
        "{:?}",
        state.names().collect::<Vec<_>>()
    );

    let saved = lora::state_dict(&model);
    // The dropouts of the block count on.
    let kept = |name: &str| name.contains("lora_") || name.ends_with("step");
    assert!(saved.names().all(kept), "{saved:?}");
    let mut other = net(&cpu, 1);
    options
        .adapt(&mut Init::new(&cpu, 9).dtype(DType::F64), &mut other)
        .unwrap();
    lora::load_state_dict(&mut other, &saved, LoadOptions::strict()).unwrap();
    model.eval();
    other.eval();
    let want = model.forward(&x).unwrap();
    assert_eq!(other.forward(&x).unwrap().to_f64().unwrap(), want.to_f64().unwrap());
    lora::remove(&mut other).unwrap();
    near(&other.forward(&x).unwrap(), &want, 1e-13);
    assert_eq!(other.named_parameters().len(), base.named_parameters().len());

    // Of another rank, or for other layers.
    let refused = |options: &LoraOptions| {
        let mut other = net(&cpu, 1);
        options
            .adapt(&mut Init::new(&cpu, 9).dtype(DType::F64), &mut other)
            .unwrap();
        let failed = lora::load_state_dict(&mut other, &saved, LoadOptions::strict());
        assert!(matches!(failed, Err(WeightsError::Misfit(_))), "{failed:?}");
    };
    refused(&LoraOptions {
        r: 2,
        ..options.clone()
    });
    refused(
        &LoraOptions {
            target_modules: Vec::new(),
            ..LoraOptions::new(3)
        }
        .clone(),
    );
    refused(&LoraOptions {
        target_modules: vec!["linear1".parse().unwrap()],
        ..options.clone()
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0).dtype(DType::F64);
    let refused = |options: LoraOptions, init: &mut Init<Cpu>| {
        let mut model = net(&cpu, 0);
        let failed = options.adapt(init, &mut model).unwrap_err().to_string();
        assert!(model.named_parameters().iter().all(|(_, p)| p.is_trainable()));
        failed
    };
    assert!(refused(LoraOptions::new(0), init).contains('r'));
    assert!(
        refused(
            LoraOptions {
                alpha: f64::NAN,
                ..LoraOptions::new(1)
            },
            init
        )
        .contains("alpha")
    );
    assert!(
        refused(
            LoraOptions {
                dropout: 1.5,
                ..LoraOptions::new(1)
            },
            init
        )
        .contains("dropout")
    );
    let misspelt = LoraOptions {
        target_modules: vec!["c_atn".parse().unwrap()],
        ..LoraOptions::new(1)
    };
    let message = refused(misspelt, init);
    assert!(message.contains("c_atn") && message.contains("out_proj"), "{message}");
    assert!(
        LoraOptions::new(1)
            .adapt(init, &mut LayerNorm::new(&mut Init::new(&cpu, 0), &[4]).unwrap())
            .is_err()
    );
}
