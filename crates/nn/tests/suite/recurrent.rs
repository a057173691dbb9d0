//! Recurrent layers and cells against PyTorch's: results, last states and all gradients (`../golden/recurrent.py`), in f64.

use kiln_cpu::Cpu;
use kiln_nn::layers::{Gru, GruCell, Lstm, LstmCell, RecurrentBuilder, RecurrentLayers, RecurrentState, Rnn, RnnCell};
use kiln_nn::{Backend, DType, Error, Indices, Init, Layer, Module, Rng, Tensor, grad};
use kiln_testkit::Reference;
use serde_json::Value;

fn golden(part: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../golden/recurrent.json")).unwrap();
    all[part].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    let data = value["data"].as_array().unwrap();
    data.iter().map(|x| x.as_f64().unwrap()).collect()
}

fn tensor<B: Backend>(b: &B, value: &Value) -> Tensor<B> {
    let shape: Vec<usize> = value["shape"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d.as_u64().unwrap() as usize)
        .collect();
    Tensor::from_f64(b, &numbers(value), &shape, DType::F64).unwrap()
}

/// An input of a case, tracked, if the case has it.
fn input<B: Backend>(b: &B, case: &Value, name: &str) -> Option<Tensor<B>> {
    case["inputs"].get(name).map(|value| tensor(b, value).requires_grad())
}

fn close<B: Backend>(got: &Tensor<B>, want: &Value, what: &str) {
    let got = got.to_f64().unwrap();
    assert_eq!(got.len(), numbers(want).len(), "{what}");
    for (g, w) in got.iter().zip(numbers(want)) {
        assert!((g - w).abs() <= 1e-11 * w.abs().max(1.0), "{what}: {g}, expected {w}");
    }
}

/// Gives the module the parameters of the case, which has exactly those.
fn load<B: Backend>(b: &B, module: &mut dyn Module<B>, case: &Value) {
    let given = case["inputs"].as_object().unwrap();
    let mut names: Vec<&str> = given
        .keys()
        .map(String::as_str)
        .filter(|n| n.contains("ih") || n.contains("hh") || n.contains("hr"))
        .collect();
    for (name, p) in module.named_parameters_mut() {
        p.assign(&tensor(b, &given[&name])).unwrap();
        names.retain(|n| *n != name);
    }
    assert!(names.is_empty(), "{names:?}");
}

/// Compares results, and the gradients of the sum of their products with the case's weights.
fn check<B: Backend>(
    b: &B,
    case: &Value,
    results: &[Tensor<B>],
    inputs: &[(&str, Option<&Tensor<B>>)],
    module: &dyn Module<B>,
    what: &str,
) {
    let (want, weights) = (&case["results"], case["weights"].as_array().unwrap());
    assert_eq!(results.len(), weights.len(), "{what}");
    let mut total = Tensor::zeros(b, &[], DType::F64).unwrap();
    for (i, (result, weight)) in results.iter().zip(weights).enumerate() {
        close(result, &want[i], &format!("{what}: result {i}"));
        let sum = result.mul(&tensor(b, weight)).unwrap().sum(&[], false).unwrap();
        total = total.add(&sum).unwrap();
    }
    let grads = total.backward().unwrap();
    for (name, x) in inputs {
        if let Some(x) = x {
            close(
                grads.get(x).unwrap(),
                &case["grads"][name],
                &format!("{what}: gradient of {name}"),
            );
        }
    }
    for (name, p) in module.named_parameters() {
        close(
            grads.get(p).unwrap(),
            &case["grads"][&name],
            &format!("{what}: gradient of {name}"),
        );
    }
}

fn options<B: Backend, L: From<RecurrentLayers<B>>>(
    of: RecurrentBuilder<B, L>,
    case: &Value,
) -> RecurrentBuilder<B, L> {
    of.layers(case["layers"].as_u64().unwrap() as usize)
        .bias(case["bias"].as_bool().unwrap())
        .bidirectional(case["bidirectional"].as_bool().unwrap())
        .batch_first(case["batch_first"].as_bool().unwrap())
}

/// Compares the layers `made` with those of a case.
fn run<B: Backend, L>(b: &B, case: &Value, mut made: L)
where
    L: Layer<B> + std::ops::Deref<Target = RecurrentLayers<B>>,
{
    load(b, &mut made, case);
    let [x, h0, c0] = ["x", "h0", "c0"].map(|name| input(b, case, name));
    let x = x.unwrap();
    let lengths = case["lengths"].as_array().map(|lengths| {
        let lengths: Vec<i32> = lengths.iter().map(|l| l.as_i64().unwrap() as i32).collect();
        Indices::from_slice(b, &lengths, &[lengths.len()]).unwrap()
    });
    let state = h0.clone().map(|h| RecurrentState { h, c: c0.clone() });
    let (y, last) = match &lengths {
        Some(lengths) => made.forward_packed(&x, lengths, state.as_ref()).unwrap(),
        None => made.forward_from(&x, state.as_ref()).unwrap(),
    };
    if lengths.is_none() && state.is_none() {
        assert_eq!(made.forward(&x).unwrap().to_f64().unwrap(), y.to_f64().unwrap());
    }
    let mut results = vec![y, last.h];
    results.extend(last.c);
    let inputs = [("x", Some(&x)), ("h0", h0.as_ref()), ("c0", c0.as_ref())];
    let what = format!(
        "{} of {} layers, bidirectional {}, lengths {}, projection {}",
        case["kind"], case["layers"], case["bidirectional"], case["lengths"], case["proj_size"]
    );
    check(b, case, &results, &inputs, &made, &what);
}

fn layers<B: Backend>(b: &B) {
    let cases = golden("layers");
    assert!(cases.len() > 10);
    for case in &cases {
        let init = &mut Init::new(b, 0).dtype(DType::F64);
        match case["kind"].as_str().unwrap() {
            "RNN" => {
                let builder = Rnn::builder(3, 4);
                let builder = if case["relu"] == true { builder.relu() } else { builder };
                run(b, case, options(builder, case).build(init).unwrap());
            }
            "GRU" => run(b, case, options(Gru::builder(3, 4), case).build(init).unwrap()),
            _ => {
                let elements = case["proj_size"].as_u64().unwrap() as usize;
                let builder = options(Lstm::builder(3, 4), case).proj_size(elements);
                run(b, case, builder.build(init).unwrap());
            }
        }
    }
}

fn cells<B: Backend>(b: &B) {
    for case in &golden("cells") {
        let init = &mut Init::new(b, 0).dtype(DType::F64);
        let bias = case["bias"].as_bool().unwrap();
        let [x, h0, c0] = ["x", "h0", "c0"].map(|name| input(b, case, name));
        let (x, h0) = (x.unwrap(), h0.unwrap());
        let inputs = [("x", Some(&x)), ("h0", Some(&h0)), ("c0", c0.as_ref())];
        let what = case["kind"].as_str().unwrap();
        match (what, &c0) {
            ("RNNCell", _) => {
                let cell = RnnCell::new(init, 3, 4, bias).unwrap();
                let mut cell = if case["relu"] == true { cell.relu() } else { cell };
                load(b, &mut cell, case);
                check(b, case, &[cell.forward(&x, Some(&h0)).unwrap()], &inputs, &cell, what);
            }
            ("LSTMCell", Some(c0)) => {
                let mut cell = LstmCell::new(init, 3, 4, bias).unwrap();
                load(b, &mut cell, case);
                let (h, c) = cell.forward(&x, Some((&h0, c0))).unwrap();
                check(b, case, &[h, c], &inputs, &cell, what);
            }
            _ => {
                let mut cell = GruCell::new(init, 3, 4, bias).unwrap();
                load(b, &mut cell, case);
                check(b, case, &[cell.forward(&x, Some(&h0)).unwrap()], &inputs, &cell, what);
            }
        }
    }
}

#[test]
fn layers_equal_pytorchs() {
    layers(&Cpu::poisoned());
    layers(&Reference);
}

#[test]
fn cells_equal_pytorchs() {
    cells(&Cpu::poisoned());
    cells(&Reference);
}

#[test]
fn parameters_have_pytorchs_names_and_bounds() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 0);
    let lstm: Lstm<Cpu> = Lstm::builder(3, 16)
        .proj_size(2)
        .layers(2)
        .bidirectional(true)
        .build(init)
        .unwrap();
    let names: Vec<String> = lstm.named_parameters().into_iter().map(|(name, _)| name).collect();
    let of = |suffix: &str| {
        ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"].map(|name| format!("{name}{suffix}"))
    };
    assert_eq!(names, ["_l0", "_l0_reverse", "_l1", "_l1_reverse"].map(of).concat());
    let all: Vec<f64> = lstm.parameters().iter().flat_map(|p| p.to_f64().unwrap()).collect();
    assert!(all.iter().all(|v| v.abs() <= 0.25));
    assert!(all.iter().any(|&v| v > 0.24) && all.iter().any(|&v| v < -0.24));
}

/// A gradient penalty reaches the weights of a layer.
#[test]
fn gradients_of_gradients_reach_the_weights() {
    let cpu = Cpu::poisoned();
    let lstm = Lstm::new(&mut Init::new(&cpu, 0).dtype(DType::F64), 3, 4).unwrap();
    let x = Tensor::randn(&cpu, &[4, 2, 3], DType::F64, &mut Rng::new(1))
        .unwrap()
        .requires_grad();
    let y = lstm.forward(&x).unwrap().square().unwrap().sum(&[], false).unwrap();
    let dx = grad(&y, &[&x], None, true).unwrap().remove(0).unwrap();
    let penalty = dx.square().unwrap().sum(&[], false).unwrap();
    let grads = penalty.backward().unwrap();
    for (name, p) in lstm.named_parameters() {
        assert!(
            grads.get(p).unwrap().to_f64().unwrap().iter().any(|g| g.abs() > 1e-6),
            "{name}"
        );
    }
}

#[test]
fn bad_input_is_a_typed_error() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 0);
    for options in [
        Lstm::<Cpu>::builder(0, 2),
        Lstm::builder(3, 0),
        Lstm::builder(3, 2).layers(0),
    ] {
        assert!(matches!(options.build(init), Err(Error::InvalidArgument { .. })));
    }
    for options in [
        Lstm::<Cpu>::builder(3, 2).proj_size(2),
        Lstm::builder(3, 2).dropout(1.5),
    ] {
        assert!(matches!(options.build(init), Err(Error::InvalidArgument { .. })));
    }
    let gru = Gru::new(init, 3, 2).unwrap();
    let zeros = |dims: &[usize]| Tensor::zeros(&cpu, dims, DType::F32).unwrap();
    assert!(gru.forward(&zeros(&[4, 3])).is_err());
    assert!(gru.forward(&zeros(&[4, 2, 5])).is_err());
    assert!(gru.forward(&zeros(&[0, 2, 3])).is_err());
    let x = zeros(&[4, 2, 3]);
    for state in [zeros(&[1, 2, 3]), zeros(&[2, 2, 2]), zeros(&[2, 2])] {
        assert!(
            gru.forward_from(&x, Some(&RecurrentState { h: state, c: None }))
                .is_err()
        );
    }
    let cells = RecurrentState {
        h: zeros(&[1, 2, 2]),
        c: Some(zeros(&[1, 2, 2])),
    };
    assert!(gru.forward_from(&x, Some(&cells)).is_err());
    for lengths in [[0i32, 4], [1, 5], [-1, 1]] {
        let lengths = Indices::from_slice(&cpu, &lengths, &[2]).unwrap();
        let packed = gru.forward_packed(&x, &lengths, None);
        let Err(Error::In { source, .. }) = packed else {
            panic!("{packed:?}");
        };
        assert!(matches!(*source, Error::IndexOutOfRange { .. }), "{source}");
    }
}
