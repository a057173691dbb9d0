//! Attention and transformer blocks against PyTorch's, and each fast way against the slow one.

use kiln_cpu::Cpu;
use kiln_nn::module::StateDict;
use kiln_nn::prelude::*;
use kiln_nn::{LoadOptions, weights::decode};

const OPTIONS: fn() -> AttentionOptions<'static, Cpu> = AttentionOptions::default;

pub(crate) fn close(got: &Tensor<Cpu>, want: &Tensor<Cpu>, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let want = want.to_f64().unwrap();
    let largest = want.iter().fold(0f64, |a, w| a.max(w.abs()));
    for (g, w) in got.to_f64().unwrap().iter().zip(&want) {
        // A few hundred operations in f64.
        assert!((g - w).abs() <= 1e-13 * largest, "{what}: {g}, expected {w}");
    }
}

/// The module with the parameters of the case `name` of a golden file, which gives PyTorch's result and gradient by `run`.
pub(crate) fn compare<M: Module<Cpu>>(
    (cpu, all): (&Cpu, &StateDict<Cpu>),
    name: &str,
    make: impl Fn(&mut Init<Cpu>) -> Result<M>,
    run: impl Fn(&M, &Tensor<Cpu>) -> Result<Tensor<Cpu>>,
) {
    let parameters = all.part(name);
    let mut module = make(&mut Init::new(cpu, 0).dtype(DType::F64)).unwrap();
    module.eval();
    let report = module.load_state_dict(&parameters, LoadOptions::partial()).unwrap();
    assert!(
        report.unexpected.is_empty() && report.mismatched.is_empty(),
        "{name}: {report}"
    );
    // PyTorch's dropouts have no counters.
    assert!(report.missing.iter().all(|m| m.ends_with("step")), "{name}: {report}");

    let io = |what: &str| all.float(&format!("{name}-{what}")).unwrap().clone();
    let x = io("x").requires_grad();
    let y = run(&module, &x).unwrap();
    close(&y, &io("y"), name);
    let sum = y.mul(&io("w")).unwrap().sum(&[], false).unwrap();
    close(sum.backward().unwrap().get(&x).unwrap(), &io("dx"), name);
}

/// The tensors of `../golden/attention.py`.
fn golden(cpu: &Cpu) -> StateDict<Cpu> {
    decode(include_bytes!("../golden/attention.safetensors"), cpu)
        .unwrap()
        .0
}

/// The module with the parameters of the golden case `name`, which gives PyTorch's result and gradient by `run`.
fn check<M: Module<Cpu>>(
    name: &str,
    make: impl Fn(&mut Init<Cpu>) -> Result<M>,
    run: impl Fn(&M, &Tensor<Cpu>, &Indices<Cpu>) -> Result<Tensor<Cpu>>,
) {
    let cpu = Cpu::poisoned();
    let all = golden(&cpu);
    let tokens = all.int("tokens").unwrap().reshape(&[2, 1, 1, 5]).unwrap();
    compare((&cpu, &all), name, make, |m, x| run(m, x, &tokens));
}

#[test]
fn multihead_attention_equals_pytorchs() {
    let make = |init: &mut Init<Cpu>| MultiheadAttention::new(init, 8, 2);
    check("plain", make, |m, x, _| m.forward(x));
    check("padded", make, |m, x, tokens| {
        m.attend(x, x, x, &AttentionOptions::masked(tokens))
    });
    check("causal", make, |m, x, _| m.attend(x, x, x, &AttentionOptions::causal()));
    check("cross", make, |m, x, _| {
        let keys = x.flip(&[1])?.narrow(1, 0, 3)?;
        m.attend(x, &keys, &keys.mul_scalar(2.0)?, &OPTIONS())
    });
}

#[test]
fn transformer_encoders_equal_pytorchs() {
    for first in [false, true] {
        let make = |init: &mut Init<Cpu>| {
            let block = TransformerEncoderLayer::builder(8, 2).feedforward(12);
            TransformerEncoder::new(init, &block.activation(Activation::Gelu).norm_first(first), 2)
        };
        check(&format!("encoder-{first}"), make, |m, x, tokens| {
            m.forward_masked(x, &AttentionOptions::masked(tokens))
        });
    }
}

/// Packed projections and the fused op are taken where there is no mask; a mask that allows everything takes the other way.
#[test]
fn every_way_gives_the_same_attention() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 3).dtype(DType::F64);
    let attention = MultiheadAttention::new(init, 12, 3).unwrap();
    let x = Tensor::randn(&cpu, &[2, 7, 12], DType::F64, &mut Rng::new(1)).unwrap();
    let all = Indices::from_slice(&cpu, &[1u8; 7], &[7]).unwrap();
    let zero = Tensor::zeros(&cpu, &[1, 3, 7, 7], DType::F64).unwrap();
    for causal in [false, true] {
        let options = AttentionOptions { causal, ..OPTIONS() };
        let run = |x: &Tensor<Cpu>, options| {
            let x = x.detach().requires_grad();
            let y = attention.attend(&x, &x, &x, options).unwrap();
            let loss = y.square().unwrap().sum(&[], false).unwrap();
            let grads = loss.backward().unwrap();
            [
                y,
                grads.get(&x).unwrap().clone(),
                grads.get(&attention.in_proj_weight).unwrap().clone(),
            ]
        };
        let want = run(&x, &options);
        let masked = AttentionOptions {
            mask: Some(&all),
            ..options
        };
        let biased = AttentionOptions {
            bias: Some(&zero),
            ..options
        };
        let scaled = AttentionOptions {
            scale: Some(0.5),
            ..options
        };
        for (got, name) in [
            (run(&x, &masked), "mask"),
            (run(&x, &biased), "bias"),
            (run(&x, &scaled), "scale"),
        ] {
            for (got, want) in got.iter().zip(&want) {
                close(got, want, name);
            }
        }
        let separate = attention.attend(&x, &x.clone(), &x.clone(), &options).unwrap();
        close(&separate, &want[0], "separate");
    }
}

/// A query whose keys are all masked gives 0 and no NaN, in its gradient neither.
#[test]
fn a_query_without_keys_gives_zero() {
    let cpu = Cpu::poisoned();
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
        let make = |seed| {
            let x = Tensor::randn(&cpu, &[2, 3, 4], DType::F32, &mut Rng::new(seed)).unwrap();
            x.to_dtype(dtype).unwrap().requires_grad()
        };
        let [q, k, v] = [1, 2, 3].map(make);
        let mask = Indices::from_slice(&cpu, &[1u8, 0, 1, 0, 0, 0], &[2, 1, 3]).unwrap();
        let y = q
            .scaled_dot_product_attention(&k, &v, &AttentionOptions::masked(&mask))
            .unwrap();
        assert_eq!(y.i(1).unwrap().to_f64().unwrap(), [0.0; 12], "{dtype}");
        let grads = y.sum(&[], false).unwrap().backward().unwrap();
        for x in [&q, &k, &v] {
            let g = grads.get(x).unwrap().to_f64().unwrap();
            assert!(g.iter().all(|g| g.is_finite()), "{dtype}: {g:?}");
            assert!(g[12..].iter().all(|&g| g == 0.0), "{dtype}: {g:?}");
        }
        // The masked key of the first sample has no influence.
        assert_eq!(
            grads.get(&k).unwrap().i((0, 1)).unwrap().to_f64().unwrap(),
            [0.0; 4],
            "{dtype}"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    assert!(MultiheadAttention::new(init, 10, 3).is_err());
    assert!(MultiheadAttention::new(init, 0, 0).is_err());
    assert!(TransformerEncoderLayer::builder(8, 2).dropout(1.5).build(init).is_err());
    let attention = MultiheadAttention::new(init, 8, 2).unwrap();
    let x = |shape: &[usize]| Tensor::zeros(&cpu, shape, DType::F32).unwrap();
    assert!(attention.forward(&x(&[2, 5, 6])).is_err());
    let mask = Indices::from_slice(&cpu, &[1u8; 4], &[4]).unwrap();
    let ok = x(&[2, 5, 8]);
    assert!(
        attention
            .attend(&ok, &ok, &ok, &AttentionOptions::masked(&mask))
            .is_err()
    );
    assert!(attention.attend(&ok, &x(&[2, 5]), &ok, &OPTIONS()).is_err());
    assert!(
        x(&[3])
            .scaled_dot_product_attention(&x(&[3]), &x(&[3]), &OPTIONS())
            .is_err()
    );
}
