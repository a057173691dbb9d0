//! Mixed precision: which ops compute in which precision, and how far gradients are from those of f32.

use kiln_cpu::Cpu;
use kiln_nn::autograd::checkpoint;
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, Flatten, LayerNorm, Linear, MaxPool2d, Relu};
use kiln_nn::optim::{Optimizer, Sgd};
use kiln_nn::{
    DType, Error, Indices, Init, Layer, Module, Reduction, Result, Rng, Sequential, Tensor, autocast, autocast_dtype,
    no_grad,
};

type T = Tensor<Cpu>;

fn wave(cpu: &Cpu, shape: &[usize], dtype: DType) -> T {
    let n: usize = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
    Tensor::from_f64(cpu, &values, shape, dtype).expect("it fits")
}

/// An op of one tensor, by name.
type Op = (&'static str, fn(&T) -> Result<T>);

const LOW: &[Op] = &[
    ("matmul", |x| x.matmul(x)),
    ("matmul_t", |x| x.matmul_t(x, true, false)),
    ("linear", |x| x.linear(x, None, kiln_nn::Activation::None)),
    ("einsum", |x| Tensor::einsum("ij,jk->ik", &[x, x])),
    ("attention", |x| {
        x.scaled_dot_product_attention(x, x, &Default::default())
    }),
    ("self_attention", |x| x.reshape(&[1, 2, 18])?.self_attention(2, true)),
];

const HIGH: &[Op] = &[
    ("exp", |x| x.exp()),
    ("log", |x| x.abs()?.log()),
    ("square", |x| x.square()),
    ("powf", |x| x.powf(3.0)),
    ("pow", |x| x.abs()?.pow(x)),
    ("softmax", |x| x.softmax(-1)),
    ("log_softmax", |x| x.log_softmax(0)),
    ("logsumexp", |x| x.logsumexp(&[1], false)),
    ("sum", |x| x.sum(&[0], false)),
    ("cumsum", |x| x.cumsum(0)),
    ("prod", |x| x.prod(&[0], false)),
    ("cumprod", |x| x.cumprod(1)),
    ("norm", |x| x.norm(2.0, &[], false)),
    ("nuclear norm", |x| x.norm_nuclear(false)),
    ("layer_norm", |x| x.layer_norm(&[6], None, None, 1e-5)),
    ("rms_norm", |x| x.rms_norm(&[6], None, 1e-5)),
    ("group_norm", |x| x.group_norm(2, None, None, 1e-5)),
    ("mse_loss", |x| x.mse_loss(&x.neg()?, Reduction::Mean)),
    ("bce_with_logits", |x| x.bce_with_logits(x, None, Reduction::None)),
    ("softplus", |x| x.softplus(1.0, 20.0)),
];

const SAME: &[Op] = &[
    ("relu", |x| x.relu()),
    ("add", |x| x.add(x)),
    ("mean", |x| x.mean(&[], false)),
    ("max", |x| x.max(&[0], false)),
    ("tanh", |x| x.tanh()),
    ("mul_scalar", |x| x.mul_scalar(2.0)),
    ("transpose", |x| x.transpose(0, 1)),
    ("batch_norm", |x| Ok(x.batch_norm(None, None, 1e-5)?.0)),
];

#[test]
fn every_op_computes_in_the_precision_of_its_list() -> Result<()> {
    let cpu = Cpu::poisoned();
    for half in [DType::BF16, DType::F16] {
        for from in [DType::F32, half, DType::F64] {
            let x = wave(&cpu, &[6, 6], from);
            let check = |ops: &[Op], expected: DType| {
                for (name, op) in ops {
                    let y = autocast(half, || op(&x)).unwrap_or_else(|e| panic!("{name} of {from}: {e}"));
                    // f64 is left alone.
                    let expected = if from == DType::F64 { from } else { expected };
                    assert_eq!(y.dtype(), expected, "{name} of {from} inside of {half}");
                    assert_eq!(op(&x).unwrap().dtype(), from, "{name} of {from} outside");
                }
            };
            check(LOW, half);
            check(HIGH, DType::F32);
            check(SAME, from);
        }
    }
    Ok(())
}

#[test]
fn operands_of_two_precisions_meet_in_the_wider_one() -> Result<()> {
    let cpu = Cpu::poisoned();
    let (a, b) = (wave(&cpu, &[2, 3], DType::F32), wave(&cpu, &[2, 3], DType::BF16));
    let mask = a.gt_scalar(0.0)?;
    let ops: [(&str, &dyn Fn() -> Result<T>); 8] = [
        ("add", &|| b.add(&a)),
        ("sub", &|| a.sub(&b)),
        ("mul", &|| b.mul(&a)),
        ("maximum", &|| a.maximum(&b)),
        ("where", &|| Tensor::where_(&mask, &b, &a)),
        ("concat", &|| Tensor::concat(&[&b, &a], 0)),
        ("fmod", &|| b.fmod(&a)),
        ("mse_loss", &|| b.mse_loss(&a, Reduction::Mean)),
    ];
    for (name, op) in ops {
        assert!(matches!(op(), Err(Error::DTypeMismatch { .. })), "{name} outside");
        assert_eq!(autocast(DType::BF16, op)?.dtype(), DType::F32, "{name} inside");
    }
    let x = wave(&cpu, &[2, 3], DType::F64);
    let refused = autocast(DType::BF16, || x.add(&a)).unwrap_err();
    assert!(matches!(refused, Error::DTypeMismatch { .. }), "{refused}");
    assert_eq!(autocast(DType::BF16, || a.eq(&b)?.to_vec::<u8>())?.len(), 6);
    Ok(())
}

#[test]
fn the_switch_is_put_back() {
    let refused = autocast(DType::I32, || Ok(())).unwrap_err();
    assert_eq!(refused.to_string(), "autocast: dtype = i32, expected bf16, f16 or f32");
    let nested = autocast(DType::BF16, || {
        let off = autocast(DType::F32, || Ok(autocast_dtype()))?;
        let other = autocast(DType::F16, || Ok(autocast_dtype()))?;
        Ok([off, other, autocast_dtype()])
    });
    assert_eq!(nested.unwrap(), [None, Some(DType::F16), Some(DType::BF16)]);
    let _ = std::panic::catch_unwind(|| autocast(DType::BF16, || -> Result<()> { panic!("on purpose") }));
    assert_eq!(autocast_dtype(), None);
}

fn convolutional(init: &mut Init<Cpu>) -> Result<Sequential<Cpu>> {
    Ok(Sequential::new()
        .push(Conv2d::new(init, 3, 6, [3, 3])?)
        .push(BatchNorm::new(init, 6)?)
        .push(Relu)
        .push(MaxPool2d::new([2, 2]))
        .push(Flatten::default())
        .push(LayerNorm::new(init, &[54])?)
        .push(Dropout::new(init, 0.1)?)
        .push(Linear::new(init, 54, 5)?))
}

/// Gradients by the names of their parameters.
type Named = Vec<(String, Vec<f64>)>;

/// The gradients of a loss of the net, and the loss.
fn gradients(net: &Sequential<Cpu>, x: &T, labels: &Indices<Cpu>, dtype: DType) -> Result<(f64, Named)> {
    let loss = autocast(dtype, || net.forward(x)?.cross_entropy(labels))?;
    assert_eq!(loss.dtype(), DType::F32);
    let grads = loss.backward()?;
    let of = |(name, param): (String, &kiln_nn::Param<Cpu>)| {
        let grad = grads.get(param).expect("every parameter has one");
        assert_eq!(grad.dtype(), DType::F32, "{name}");
        Ok((name, grad.to_f64()?))
    };
    let all = net.named_parameters().into_iter().map(of).collect::<Result<_>>()?;
    Ok((loss.item()?, all))
}

#[test]
fn gradients_are_near_those_of_f32() -> Result<()> {
    let cpu = Cpu::poisoned();
    for seed in 0..12u64 {
        let samples = 2 + seed as usize % 4;
        let net = || convolutional(&mut Init::new(&cpu, seed));
        let x = Tensor::randn(&cpu, &[samples, 8, 8, 3], DType::F32, &mut Rng::new(seed))?;
        let labels: Vec<i32> = (0..samples as i32).map(|i| i % 5).collect();
        let labels = Indices::from_slice(&cpu, &labels, &[samples])?;
        let (loss, plain) = gradients(&net()?, &x, &labels, DType::F32)?;
        for (half, bound) in [(DType::BF16, 0.3), (DType::F16, 0.06)] {
            let (mixed, grads) = gradients(&net()?, &x, &labels, half)?;
            assert!(
                (mixed - loss).abs() <= bound * loss.abs().max(0.1),
                "{half}: {mixed}, {loss}"
            );
            for ((name, g), (_, exact)) in grads.iter().zip(&plain) {
                let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
                let size = norm(&mut exact.iter().copied());
                let off = norm(&mut g.iter().zip(exact).map(|(a, b)| a - b));
                // The bias before a batch norm has no gradient but noise.
                assert!(
                    off <= bound * size + 0.03,
                    "seed {seed}, {half} {name}: {off} of {size}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn a_weight_that_is_used_twice_is_cast_once_and_again_after_it_changed() -> Result<()> {
    let cpu = Cpu::poisoned();
    let mut linear = Linear::new(&mut Init::new(&cpu, 0), 4, 4)?;
    let x = wave(&cpu, &[2, 4], DType::F32);
    autocast(DType::BF16, || {
        let before = linear.forward(&x)?;
        assert_eq!(linear.forward(&x)?.to_f64()?, before.to_f64()?);
        let doubled = linear.weight.detach().mul_scalar(2.0)?;
        linear.weight.assign(&doubled)?;
        linear
            .bias
            .as_mut()
            .expect("it has one")
            .assign(&Tensor::zeros(&cpu, &[4], DType::F32)?)?;
        let expected = x.matmul_t(&doubled, false, true)?.to_f64()?;
        assert_eq!(linear.forward(&x)?.to_f64()?, expected);
        // Values that are written in place, into the memory that was cast.
        let leaf = x.copy()?.requires_grad();
        leaf.matmul_t(&doubled, false, true)?;
        let mut leaf = leaf;
        leaf.write(&[1f32; 8])?;
        let ones = Tensor::ones(&cpu, &[2, 4], DType::F32)?;
        let expected = ones.matmul_t(&doubled, false, true)?.to_f64()?;
        assert_eq!(leaf.matmul_t(&doubled, false, true)?.to_f64()?, expected);
        // A cast that was made without gradients is not taken where they are wanted.
        no_grad(|| linear.forward(&x))?;
        assert!(linear.forward(&x)?.is_tracked());
        Ok(())
    })?;
    // Both uses count for the gradient.
    let twice = autocast(DType::BF16, || linear.forward(&linear.forward(&x)?)?.sum(&[], false))?;
    let grads = twice.backward()?;
    assert_eq!(grads.get(&linear.weight).expect("it is used").dtype(), DType::F32);
    Ok(())
}

#[test]
fn a_checkpoint_computes_its_gradient_in_the_precision_of_its_forward_pass() -> Result<()> {
    let cpu = Cpu::poisoned();
    let (x, w) = (
        wave(&cpu, &[4, 4], DType::F32),
        wave(&cpu, &[4, 4], DType::F32).add_scalar(0.3)?,
    );
    let (x, w) = (x.requires_grad(), w.requires_grad());
    let f = |t: &[T]| t[0].matmul(&t[1])?.softmax(-1)?.square()?.sum(&[], false);
    let plain = autocast(DType::BF16, || f(&[x.clone(), w.clone()]))?.backward()?;
    let saved = autocast(DType::BF16, || checkpoint(&[&x, &w], f))?.backward()?;
    for t in [&x, &w] {
        let [a, b] = [&plain, &saved].map(|g| g.get(t).expect("it has one").to_f64());
        assert_eq!(a?, b?);
    }
    Ok(())
}

#[test]
fn small_updates_add_up_in_the_master_weights() -> Result<()> {
    let cpu = Cpu::poisoned();
    // A bf16 weight of 1 cannot hold a step of 2⁻¹²: 256 of them are lost, while the f32 master moves by 2⁻⁴.
    let run = |dtype: DType| -> Result<f64> {
        let mut linear = Linear::new(&mut Init::new(&cpu, 0).dtype(dtype), 1, 1)?;
        linear.weight.assign(&Tensor::ones(&cpu, &[1, 1], dtype)?)?;
        let x = Tensor::ones(&cpu, &[1, 1], DType::F32)?;
        let mut sgd = Sgd::new(2f64.powi(-12));
        for _ in 0..256 {
            let y = autocast(DType::BF16, || linear.forward(&x))?;
            sgd.step(&mut linear, &y.backward()?)?;
        }
        linear.weight.item()
    };
    assert_eq!([run(DType::F32)?, run(DType::BF16)?], [1.0 - 2f64.powi(-4), 1.0]);
    Ok(())
}
