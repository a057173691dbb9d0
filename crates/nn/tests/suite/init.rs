//! Initialisation: bounds, moments, names, and streams.

use kiln_core::philox::spaces;
use kiln_cpu::Cpu;
use kiln_nn::init::{Fan, Nonlinearity, Scaled, Spread};
use kiln_nn::layers::{Conv2d, Embedding, Linear};
use kiln_nn::{DType, Error, Init, Initializer, Module, Rng, Scheme, Shape, Tensor};

fn drawn(text: &str, shape: &[usize]) -> Vec<f64> {
    let init = &mut Init::new(&Cpu::poisoned(), 11);
    init.tensor(shape, &text.parse().unwrap()).unwrap().to_f64().unwrap()
}

fn moments(v: &[f64]) -> (f64, f64) {
    let mean = v.iter().sum::<f64>() / v.len() as f64;
    let var = v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64;
    (mean, var.sqrt())
}

#[test]
fn named_initializers_have_their_moments() {
    // A kernel [64, 3, 3, 32]: fan_in 288, fan_out 576. For 18,432 values the standard error of the mean is std/136, that of
    // the standard deviation at most std/136.
    let shape = [64, 3, 3, 32];
    let (fan_in, fan_mean) = (288f64, 432f64);
    for (text, mean, std) in [
        ("uniform(-1, 3)", 1.0, 4.0 / 12f64.sqrt()),
        ("normal(0.5, 0.2)", 0.5, 0.2),
        ("truncated_normal(0, 1)", 0.0, 0.879_625_66),
        ("kaiming_uniform", 0.0, (2.0 / fan_in).sqrt()),
        ("he_uniform", 0.0, (2.0 / fan_in).sqrt()),
        ("kaiming_normal", 0.0, (2.0 / fan_in).sqrt()),
        ("he_normal", 0.0, (2.0 / fan_in).sqrt()),
        ("xavier_uniform", 0.0, (1.0 / fan_mean).sqrt()),
        ("glorot_uniform", 0.0, (1.0 / fan_mean).sqrt()),
        ("xavier_normal", 0.0, (1.0 / fan_mean).sqrt()),
        ("glorot_normal", 0.0, (1.0 / fan_mean).sqrt()),
        ("lecun_uniform", 0.0, (1.0 / fan_in).sqrt()),
        ("lecun_normal", 0.0, (1.0 / fan_in).sqrt()),
        ("torch", 0.0, (1.0 / (3.0 * fan_in)).sqrt()),
    ] {
        let values = drawn(text, &shape);
        let (m, s) = moments(&values);
        assert!(
            (m - mean).abs() < 5.0 * std / 136.0,
            "{text}: mean {m}, expected {mean}"
        );
        assert!((s - std).abs() < 5.0 * std / 136.0, "{text}: std {s}, expected {std}");
        let largest = values.iter().map(|v| (v - mean).abs()).fold(0.0, f64::max);
        let bound = match text {
            t if t.contains("uniform") || t == "torch" => 3f64.sqrt() * std,
            "truncated_normal(0, 1)" => 2.0,
            "he_normal" | "glorot_normal" | "lecun_normal" => 2.0 * std / 0.879_625_66,
            _ => f64::INFINITY,
        };
        assert!(largest <= bound * (1.0 + 1e-6), "{text}: {largest} over {bound}");
    }
    assert_eq!(drawn("zeros", &[3]), [0.0; 3]);
    assert_eq!(drawn("ones", &[3]), [1.0; 3]);
    assert_eq!(drawn("constant(2.5)", &[3]), [2.5; 3]);
}

#[test]
fn orthogonal_rows_are_orthonormal() {
    for (text, gain) in [("orthogonal", 1.0), ("orthogonal(1.5)", 1.5)] {
        let (rows, columns) = (6, 2 * 2 * 5);
        let q = drawn(text, &[rows, 2, 2, 5]);
        for a in 0..rows {
            for b in 0..rows {
                let dot: f64 = (0..columns).map(|k| q[a * columns + k] * q[b * columns + k]).sum();
                let want = if a == b { gain * gain } else { 0.0 };
                assert!((dot - want).abs() < 1e-6, "{a}·{b} = {dot}");
            }
        }
    }
    let init = &mut Init::new(&Cpu::poisoned(), 1);
    let orthogonal = Initializer::Orthogonal { gain: 1.0 };
    assert!(matches!(init.tensor(&[3], &orthogonal), Err(Error::Rank { .. })));
    assert_eq!(init.tensor(&[0, 3], &orthogonal).unwrap().size(), 0);
    assert!(
        init.tensor(&[2, 3], &Initializer::Orthogonal { gain: f64::NAN })
            .is_err()
    );
}

#[test]
fn names_parse_and_print() {
    for text in [
        "zeros",
        "ones",
        "constant(0.5)",
        "uniform(-1, 2)",
        "normal(0, 0.02)",
        "truncated_normal(0, 1)",
    ] {
        let parsed: Initializer = text.parse().unwrap();
        assert_eq!(parsed.to_string(), text);
        assert_eq!(parsed.to_string().parse::<Initializer>().unwrap(), parsed);
    }
    for text in [
        "",
        "zero",
        "uniform",
        "uniform(1)",
        "normal(a, b)",
        "ones(",
        "zeros(1)",
        "he_normal(2)",
        "constant(1",
    ] {
        let refused = text.parse::<Initializer>().unwrap_err();
        assert!(
            matches!(
                refused,
                Error::InvalidArgument {
                    argument: "initializer",
                    ..
                }
            ),
            "{text}: {refused}"
        );
    }
    let kaiming = Initializer::kaiming_normal(Scaled::FanOut, Nonlinearity::LeakyRelu(5f64.sqrt()));
    let Initializer::VarianceScaling { scale, fan, spread } = kaiming else {
        panic!("{kaiming}")
    };
    assert!((scale - 1.0 / 3.0).abs() < 1e-15 && fan == Scaled::FanOut && spread == Spread::Normal);
}

#[test]
fn bad_parameters_are_refused() {
    let init = &mut Init::new(&Cpu::poisoned(), 1);
    for bad in [
        Initializer::Uniform { low: 1.0, high: 0.0 },
        Initializer::Normal { mean: 0.0, std: -1.0 },
        Initializer::Normal {
            mean: f64::NAN,
            std: 1.0,
        },
        Initializer::TruncatedNormal {
            mean: 0.0,
            std: f64::INFINITY,
        },
    ] {
        assert!(
            matches!(init.tensor(&[2], &bad), Err(Error::InvalidArgument { .. })),
            "{bad}"
        );
    }
    assert!(init.tensor(&[usize::MAX, 2], &Initializer::Zeros).is_err());
    let mut integers = Init::new(&Cpu::poisoned(), 1).dtype(DType::I32);
    assert!(Linear::new(&mut integers, 2, 2).is_err());
}

#[test]
fn fans_follow_the_shape() {
    let fan = |dims: &[usize]| Fan::of(&Shape::new(dims).unwrap());
    assert_eq!(
        fan(&[10, 3, 3, 4]),
        Fan {
            fan_in: 36,
            fan_out: 90
        }
    );
    assert_eq!(fan(&[10, 4]), Fan { fan_in: 4, fan_out: 10 });
    assert_eq!(fan(&[7]), Fan { fan_in: 7, fan_out: 7 });
    assert_eq!(fan(&[]), Fan { fan_in: 1, fan_out: 1 });
    assert_eq!(fan(&[0, 4]).fan_out, 0);
}

#[test]
fn schemes_are_those_of_pytorch_and_keras() {
    let cpu = Cpu::poisoned();
    let largest = |p: &[f64]| p.iter().fold(0f64, |m, v| m.max(v.abs()));
    let torch = &mut Init::new(&cpu, 5);
    let conv = Conv2d::new(torch, 8, 64, 3).unwrap();
    let bound = 1.0 / (8.0 * 9.0f64).sqrt();
    for p in [&conv.weight, conv.bias.as_ref().unwrap()] {
        let largest = largest(&p.to_f64().unwrap());
        assert!(
            largest <= bound * 1.000_001 && largest > 0.9 * bound,
            "{largest} of {bound}"
        );
    }
    let keras = &mut Init::new(&cpu, 5).scheme(Scheme::Keras);
    let linear = Linear::new(keras, 100, 50).unwrap();
    let bound = (6.0 / 150f64).sqrt();
    let weight = largest(&linear.weight.to_f64().unwrap());
    assert!(weight <= bound * 1.000_001 && weight > 0.95 * bound);
    assert_eq!(largest(&linear.bias.unwrap().to_f64().unwrap()), 0.0);
    let table = largest(&Embedding::new(keras, 50, 20).unwrap().weight.to_f64().unwrap());
    assert!(table <= 0.05 * 1.000_001 && table > 0.045);
    keras.set_scheme(Scheme::With {
        weight: Initializer::Ones,
        bias: Initializer::Constant(2.0),
    });
    let linear = Linear::new(keras, 2, 3).unwrap();
    assert_eq!(linear.weight.to_f64().unwrap(), [1.0; 6]);
    assert_eq!(linear.bias.unwrap().to_f64().unwrap(), [2.0; 3]);
}

#[test]
fn weights_are_a_function_of_seed_and_order() {
    let cpu = Cpu::poisoned();
    let draw = |seed| {
        let init = &mut Init::new(&cpu, seed);
        (0..3)
            .map(|_| Linear::new(init, 5, 4).unwrap().state_dict())
            .collect::<Vec<_>>()
    };
    let values = |seed| {
        let host = |d: &kiln_nn::module::StateDict<Cpu>| d.float("weight").unwrap().to_vec::<f32>().unwrap();
        draw(seed).iter().map(host).collect::<Vec<_>>()
    };
    assert_eq!(values(1), values(1));
    assert_ne!(values(1), values(2));
    assert_ne!(values(1)[0], values(1)[1], "each layer has a stream of its own");
}

/// With one seed, no two parameters and no two tensors of a user's generator have the same numbers.
#[test]
fn users_draw_what_parameters_do_not() -> Result<(), Error> {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 0);
    let standard = Initializer::Normal { mean: 0.0, std: 1.0 };
    let mut drawn = vec![Embedding::new(init, 4, 3)?.named_parameters()[0].1.to_vec::<f32>()?];
    for _ in 0..3 {
        drawn.push(init.tensor(&[4, 3], &standard)?.to_vec()?);
    }
    let mut rng = Rng::new(0);
    for _ in 0..4 {
        drawn.push(Tensor::randn(&cpu, &[4, 3], DType::F32, &mut rng)?.to_vec()?);
    }
    for (i, a) in drawn.iter().enumerate() {
        assert!(drawn[..i].iter().all(|b| a.iter().all(|x| !b.contains(x))), "{i}");
    }
    // Seed and position are the whole state of a generator.
    assert_eq!((rng.seed(), rng.position()), (0, 4));
    let mut again = Rng::at(0, 2);
    assert_eq!(
        Tensor::randn(&cpu, &[4, 3], DType::F32, &mut again)?.to_vec::<f32>()?,
        drawn[6]
    );
    assert_eq!(
        Tensor::randn(&cpu, &[4, 3], DType::F32, &mut again)?.to_vec::<f32>()?,
        drawn[7]
    );
    assert_eq!(again, rng);
    Ok(())
}

/// Generators at any position use only the streams that are reserved for them.
#[test]
fn generators_stay_in_their_space() {
    for position in [0, 1, (1 << 32) - 1, 1 << 32, (1 << 60) - 1, 1 << 60, u64::MAX] {
        let mut rng = Rng::at(7, position);
        let key = rng.next_key();
        assert!(spaces::RNG.contains(&key.stream), "{position}: {key:?}");
        assert_eq!((key.seed, key.step), (7, position as u32));
        assert_ne!(rng.next_key(), key);
    }
}
