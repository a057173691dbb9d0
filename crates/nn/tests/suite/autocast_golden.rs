//! Mixed precision against torch.autocast: the dtype of every op, and losses and gradients of nets (`../golden/autocast.py`).

use kiln_cpu::Cpu;
use kiln_nn::{
    Activation, AttentionOptions, CrossEntropyOptions, DType, Gradients, Indices, Reduction, Result, Rng, Tensor,
    Window, autocast,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

type T = Tensor<Cpu>;

fn golden() -> Value {
    serde_json::from_str(include_str!("../golden/autocast.json")).unwrap()
}

fn names(golden: &Value) -> BTreeSet<&str> {
    golden.as_object().unwrap().keys().map(String::as_str).collect()
}

fn dtype(name: &Value, half: DType) -> DType {
    match name.as_str().unwrap() {
        "half" => half,
        "f32" => DType::F32,
        _ => DType::F64,
    }
}

/// An op of a tensor `[6, 6]`, by the name of the golden file.
type Op = (&'static str, fn(&T) -> Result<T>);

const MEAN: Reduction = Reduction::Mean;

fn labels(x: &T) -> Result<Indices<Cpu>> {
    Indices::arange(x.backend(), 0, 6)
}

const OPS: &[Op] = &[
    ("matmul", |x| x.matmul(x)),
    ("matmul_t", |x| x.matmul_t(x, true, false)),
    ("linear", |x| x.linear(x, Some(&x.i(0)?), Activation::None)),
    ("einsum", |x| Tensor::einsum("ij,jk->ik", &[x, x])),
    ("attention", |x| {
        let x = x.unsqueeze(0)?;
        x.scaled_dot_product_attention(&x, &x, &AttentionOptions::default())
    }),
    ("conv", |x| {
        x.unsqueeze(0)?
            .conv(&x.unsqueeze(1)?, None, &Window::new([1]), 1, Activation::None)
    }),
    ("conv_transpose", |x| {
        x.unsqueeze(0)?
            .conv_transpose(&x.unsqueeze(1)?, None, &Window::new([1]), [0; 3], 1, Activation::None)
    }),
    ("prelu", |x| x.prelu(&x.i((0, ..1))?)),
    ("exp", |x| x.exp()),
    ("expm1", |x| x.expm1()),
    ("exp2", |x| x.exp2()),
    ("log", |x| x.log()),
    ("log2", |x| x.log2()),
    ("log10", |x| x.log10()),
    ("log1p", |x| x.log1p()),
    ("rsqrt", |x| x.rsqrt()),
    ("reciprocal", |x| x.reciprocal()),
    ("square", |x| x.square()),
    ("powf", |x| x.powf(3.0)),
    ("pow", |x| x.pow(x)),
    ("tan", |x| x.tan()),
    ("asin", |x| x.asin()),
    ("acos", |x| x.acos()),
    ("sinh", |x| x.sinh()),
    ("cosh", |x| x.cosh()),
    ("softplus", |x| x.softplus(1.0, 20.0)),
    ("softmax", |x| x.softmax(-1)),
    ("log_softmax", |x| x.log_softmax(-1)),
    ("sum", |x| x.sum(&[0], false)),
    ("prod", |x| x.prod(&[0], false)),
    ("cumsum", |x| x.cumsum(0)),
    ("cumprod", |x| x.cumprod(0)),
    ("norm", |x| x.norm(2.0, &[], false)),
    ("layer_norm", |x| x.layer_norm(&[6], None, None, 1e-5)),
    ("group_norm", |x| x.group_norm(2, None, None, 1e-5)),
    ("mse_loss", |x| x.mse_loss(x, MEAN)),
    ("l1_loss", |x| x.l1_loss(x, MEAN)),
    ("huber_loss", |x| x.huber_loss(x, 1.0, MEAN)),
    ("smooth_l1_loss", |x| x.smooth_l1_loss(x, 1.0, MEAN)),
    ("bce_with_logits", |x| x.bce_with_logits(x, None, MEAN)),
    ("kl_div", |x| x.kl_div(x, false, MEAN)),
    ("cross_entropy", |x| x.cross_entropy(&labels(x)?)),
    ("nll_loss", |x| {
        x.nll_loss_with(&labels(x)?, &CrossEntropyOptions::default())
    }),
    ("relu", |x| x.relu()),
    ("gelu", |x| x.gelu()),
    ("silu", |x| x.silu()),
    ("sigmoid", |x| x.sigmoid()),
    ("tanh", |x| x.tanh()),
    ("abs", |x| x.abs()),
    ("neg", |x| x.neg()),
    ("sqrt", |x| x.sqrt()),
    ("sin", |x| x.sin()),
    ("cos", |x| x.cos()),
    ("atan", |x| x.atan()),
    ("erf", |x| x.erf()),
    ("clamp", |x| x.clamp(-1.0, 1.0)),
    ("mean", |x| x.mean(&[], false)),
    ("max", |x| x.max(&[0], false)),
    ("logsumexp", |x| x.logsumexp(&[0], false)),
    ("var", |x| x.var(&[], 1, false)),
    ("add", |x| x.add(x)),
    ("mul", |x| x.mul(x)),
    ("div", |x| x.div(x)),
    ("mul_scalar", |x| x.mul_scalar(2.0)),
    ("transpose", |x| x.transpose(0, 1)),
    ("narrow", |x| x.narrow(0, 0, 2)),
    ("max_pool", |x| x.unsqueeze(0)?.max_pool(&Window::new([2]), false)),
    ("avg_pool", |x| x.unsqueeze(0)?.avg_pool(&Window::new([2]), false, true)),
    ("dropout", |x| x.dropout(0.5, &mut Rng::new(0))),
    ("batch_norm", |x| Ok(x.batch_norm(None, None, 1e-5)?.0)),
];

#[test]
fn every_op_has_the_dtype_that_it_has_in_pytorch() -> Result<()> {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let own: BTreeSet<&str> = OPS.iter().map(|(name, _)| *name).collect();
    assert_eq!(own, names(&golden["dtypes"]));
    for half in [DType::BF16, DType::F16] {
        for (i, from) in [DType::F32, half, DType::F64].into_iter().enumerate() {
            let x = wave(&cpu, &[6, 6], 0.9, 1.0, from)?;
            for (name, op) in OPS {
                let y = autocast(half, || op(&x)).unwrap_or_else(|e| panic!("{name} of {from}: {e}"));
                let want = dtype(&golden["dtypes"][name][i], half);
                assert_eq!(y.dtype(), want, "{name} of {from} inside of {half}");
            }
        }
    }
    Ok(())
}

/// An op of a half and of a tensor of f32.
type Mixed = (&'static str, fn(&T, &T) -> Result<T>);

const MIXED: &[Mixed] = &[
    ("add", |a, b| a.add(b)),
    ("sub", |a, b| a.sub(b)),
    ("mul", |a, b| a.mul(b)),
    ("div", |a, b| a.div(b)),
    ("maximum", |a, b| a.maximum(b)),
    ("atan2", |a, b| a.atan2(b)),
    ("where", |a, b| Tensor::where_(&a.gt_scalar(0.0)?, a, b)),
    ("concat", |a, b| Tensor::concat(&[a, b], 0)),
    ("stack", |a, b| Tensor::stack(&[a, b], 0)),
    ("matmul", |a, b| a.matmul(b)),
    ("mse_loss", |a, b| a.mse_loss(b, MEAN)),
    ("batch_norm", |a, b| {
        Ok(a.batch_norm(Some(&b.i(0)?), Some(&b.i(1)?), 1e-5)?.0)
    }),
];

#[test]
fn operands_of_two_dtypes_meet_as_in_pytorch() -> Result<()> {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    let own: BTreeSet<&str> = MIXED.iter().map(|(name, _)| *name).collect();
    assert_eq!(own, names(&golden["mixed"]));
    for half in [DType::BF16, DType::F16] {
        let b = wave(&cpu, &[6, 6], 0.9, 1.0, DType::F32)?;
        let a = b.to_dtype(half)?;
        for (name, op) in MIXED {
            let y = autocast(half, || op(&a, &b)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(
                y.dtype(),
                dtype(&golden["mixed"][name], half),
                "{name} inside of {half}"
            );
        }
    }
    Ok(())
}

fn wave(cpu: &Cpu, shape: &[usize], k: f64, scale: f64, dtype: DType) -> Result<T> {
    let n: usize = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|i| (i as f64 * k).sin() * scale).collect();
    Tensor::from_f64(cpu, &values, shape, dtype)
}

/// Parameters by name, in PyTorch's layouts.
type Params = BTreeMap<String, T>;

fn dense(p: &Params, x: &T) -> Result<T> {
    let h = x.linear(&p["a"], Some(&p["b"]), Activation::None)?.tanh()?;
    let h = h.linear(&p["c"], Some(&p["d"]), Activation::None)?.relu()?;
    h.linear(&p["e"], None, Activation::None)
}

fn convolutional(p: &Params, x: &T) -> Result<T> {
    let last = |t: &T| t.permute(&[0, 2, 3, 1]);
    let h = last(x)?.conv(
        &last(&p["a"])?,
        Some(&p["b"]),
        &Window::new([3, 3]),
        1,
        Activation::None,
    )?;
    let h = h.relu()?.batch_norm(Some(&p["c"]), Some(&p["d"]), 1e-2)?.0;
    let h = h.max_pool(&Window::new([2, 2]).stride([2, 2]), false)?;
    h.flatten(1, -1)?.linear(&p["e"], None, Activation::None)
}

fn attention(p: &Params, x: &T) -> Result<T> {
    let qkv = x.reshape(&[6usize, 4, 6])?.linear(&p["a"], None, Activation::None)?;
    let [q, k, v] = [0, 6, 12].map(|at| qkv.narrow(-1, at, 6));
    let h = q?.scaled_dot_product_attention(&k?, &v?, &AttentionOptions::default())?;
    h.gelu()?
        .flatten(1, -1)?
        .linear(&p["b"], Some(&p["c"]), Activation::None)
}

fn size<'a>(v: impl Iterator<Item = &'a f64>) -> f64 {
    v.map(|x| x * x).sum::<f64>().sqrt()
}

/// Losses are within the rounding of logits to bf16, 2⁻⁸ of at most 1.5; the error of a gradient has a norm of at most four roundings
/// of its own, but what PyTorch stores in bf16 on the way, attention's weights among it, differs.
#[test]
fn nets_have_the_losses_and_gradients_of_pytorch() -> Result<()> {
    let (cpu, golden) = (Cpu::poisoned(), golden());
    type Net = fn(&Params, &T) -> Result<T>;
    let nets: [(&str, Net, &[usize]); 3] = [
        ("dense", dense, &[6, 5]),
        ("convolutional", convolutional, &[6, 2, 6, 6]),
        ("attention", attention, &[6, 24]),
    ];
    for (name, net, shape) in nets {
        let golden = &golden["nets"][name];
        let mut p = Params::new();
        for (i, (key, shape)) in golden["shapes"].as_object().unwrap().iter().enumerate() {
            let shape: Vec<usize> = shape
                .as_array()
                .unwrap()
                .iter()
                .map(|d| d.as_u64().unwrap() as usize)
                .collect();
            let w = wave(&cpu, &shape, 0.7 + 0.4 * i as f64, 0.5, DType::F32)?;
            p.insert(key.clone(), w.requires_grad());
        }
        let x = wave(&cpu, shape, 1.3, 1.0, DType::F32)?;
        let labels: Vec<i32> = (0..6).map(|i| i % 4).collect();
        let labels = Indices::from_slice(&cpu, &labels, &[6])?;
        let run = |dtype| -> Result<(f64, Gradients<Cpu>)> {
            let loss = autocast(dtype, || net(&p, &x)?.cross_entropy(&labels))?;
            Ok((loss.item()?, loss.backward()?))
        };
        let unit = 2f64.powi(-8);
        let (exact, _) = run(DType::F32)?;
        let want = golden["f32"].as_f64().unwrap();
        assert!((exact - want).abs() < 1e-5, "{name} in f32: {exact}, expected {want}");
        let (loss, grads) = run(DType::BF16)?;
        let want = golden["loss"].as_f64().unwrap();
        assert!((loss - want).abs() < 1.5 * unit, "{name}: {loss}, expected {want}");
        for (key, param) in &p {
            let got = grads.get(param).expect("it is used").to_f64()?;
            let want: Vec<f64> = golden["grads"][key]
                .as_array()
                .unwrap()
                .iter()
                .map(|v| v.as_f64().unwrap())
                .collect();
            let off: Vec<f64> = got.iter().zip(&want).map(|(a, b)| a - b).collect();
            let (off, size) = (size(off.iter()), size(want.iter()));
            assert!(
                off <= 4.0 * unit * size + 1e-4,
                "{name}: gradient of {key} is off by {off} of {size}"
            );
        }
    }
    Ok(())
}
