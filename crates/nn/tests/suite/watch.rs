//! Watches of ops: which op and layer is named, in both passes, and values given in place of an op's own.

use kiln_cpu::Cpu;
use kiln_nn::autograd::checkpoint;
use kiln_nn::layers::{Lambda, Linear, Relu};
use kiln_nn::watch::{FirstNonFinite, OpCall, OpName, Pass, Watch};
use kiln_nn::{Backend, DType, Init, Layer, Module, Result, Sequential, Tensor, trace};

/// Keeps the names of ops.
#[derive(Default)]
struct Names(Vec<OpName>);

impl Watch for Names {
    fn op(&mut self, call: &OpCall<'_>) -> Option<Vec<f64>> {
        self.0.push(call.name());
        None
    }
}

impl Names {
    /// The names as `layer:op`, gradients as `layer:op'`.
    fn shown(&self) -> Vec<String> {
        let mark = |pass| if pass == Pass::Backward { "'" } else { "" };
        let shown = |n: &OpName| format!("{}:{}{}", n.layer, n.op, mark(n.pass));
        self.0.iter().map(shown).collect()
    }
}

#[derive(Module)]
struct Gan<B: Backend> {
    generator: Sequential<B>,
    critic: Sequential<B>,
}

fn gan(cpu: &Cpu) -> Gan<Cpu> {
    let init = &mut Init::new(cpu, 0);
    let mut net = || {
        let linear = Linear::new(init, 3, 3).unwrap();
        Sequential::new().push_named("fc", linear).unwrap()
    };
    Gan {
        generator: net(),
        critic: net(),
    }
}

/// Layers are named in the whole model, also where its parts are called one by one.
#[test]
fn ops_are_named_by_their_layer_in_the_model() -> Result<()> {
    let cpu = Cpu::poisoned();
    let model = gan(&cpu);
    let x = Tensor::ones(&cpu, &[2, 3], DType::F32)?;
    let (result, names) = trace::ops(&model, Names::default(), || {
        let y = model.critic.forward(&model.generator.forward(&x)?.relu()?)?;
        y.sum(&[], false)?.backward()
    });
    result?;
    let mut shown = names.shown();
    shown.dedup();
    assert_eq!(
        shown,
        [
            "generator.fc:linear",
            ":relu",
            "critic.fc:linear",
            ":sum",
            ":sum'",
            "critic.fc:linear'",
            ":relu'",
            "generator.fc:linear'",
        ]
    );
    Ok(())
}

/// A watch ends with its closure, and an inner one is told instead of the outer.
#[test]
fn a_watch_ends_with_its_closure() -> Result<()> {
    let cpu = Cpu::poisoned();
    let model = gan(&cpu);
    let x = Tensor::ones(&cpu, &[2, 3], DType::F32)?;
    let (inner, outer) = trace::ops(&model, Names::default(), || {
        x.exp().unwrap();
        let (_, inner) = trace::ops(&model, Names::default(), || x.square().unwrap());
        x.sqrt().unwrap();
        inner
    });
    x.log()?;
    let shown = (inner.shown(), outer.shown());
    assert_eq!(shown, (vec![":square".into()], vec![":exp".into(), ":sqrt".into()]));
    Ok(())
}

/// The ops inside of a checkpoint are told in both passes.
#[test]
fn ops_inside_of_a_checkpoint_are_told() -> Result<()> {
    let cpu = Cpu::poisoned();
    let model = gan(&cpu);
    let x = Tensor::ones(&cpu, &[2, 3], DType::F32)?.requires_grad();
    let (result, names) = trace::ops(&model, Names::default(), || {
        let y = checkpoint(&[&x], |t| t[0].square()?.sqrt())?;
        y.sum(&[], false)?.backward()
    });
    result?;
    let shown = names.shown();
    for op in [":square", ":sqrt", ":checkpoint", ":sqrt'", ":square'", ":checkpoint'"] {
        assert!(shown.contains(&op.to_string()), "{op}: {shown:?}");
    }
    Ok(())
}

fn first(f: impl FnOnce() -> Result<()>) -> (Option<String>, FirstNonFinite) {
    let model = gan(&Cpu::new());
    let (result, watch) = trace::ops(&model, FirstNonFinite::default(), f);
    result.unwrap();
    (watch.first().map(|op| op.name.to_string()), watch)
}

/// √0 has a value, and a slope that is none.
#[test]
fn a_gradient_that_is_not_finite_is_named() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = Tensor::zeros(&cpu, &[2], DType::F32)?.requires_grad();
    let (name, watch) = first(|| x.mul_scalar(1.0)?.sqrt()?.sum(&[], false)?.backward().map(drop));
    assert_eq!(name.as_deref(), Some("the gradient of op `sqrt`"));
    assert!(watch.found[0].arose && watch.found.len() == 1);
    Ok(())
}

/// Finite gradients whose sum is infinite, and values whose sum is.
#[test]
fn sums_that_overflow_are_named() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = Tensor::ones(&cpu, &[1], DType::F32)?.requires_grad();
    let twice = |scale: f64| {
        first(|| {
            let y = x.mul_scalar(scale)?;
            let terms = y.mul_scalar(3e38)?.add(&y.mul_scalar(3e38)?)?;
            terms.sum(&[], false)?.backward().map(drop)
        })
    };
    assert_eq!(twice(1.0).0.as_deref(), Some("the forward pass of op `add`"));
    assert_eq!(twice(1e-30).0.as_deref(), Some("the gradient of op `add_gradients`"));
    Ok(())
}

/// Infinities of a mask are passed over for the NaN that follows, and named only if nothing does.
#[test]
fn masks_are_not_named_before_a_value_that_arose() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = Tensor::from_slice(&cpu, &[0f32, 1.0], &[1, 2])?.requires_grad();
    let mask = Tensor::from_slice(&cpu, &[f32::NEG_INFINITY, 0.0], &[1, 2])?;
    let (name, watch) = first(|| x.add(&mask)?.softmax(1)?.log()?.sum(&[], false).map(drop));
    assert_eq!(name.as_deref(), Some("the forward pass of op `log`"));
    assert!(!watch.found[0].arose && watch.found[0].name.op == "add");
    let (name, _) = first(|| x.add(&mask)?.softmax(1).map(drop));
    assert_eq!(name.as_deref(), Some("the forward pass of op `add`"));
    Ok(())
}

/// Gives the squares of an op's values in their place.
struct Squares(&'static str);

impl Watch for Squares {
    fn op(&mut self, call: &OpCall<'_>) -> Option<Vec<f64>> {
        let values = call.output.to_f64().unwrap();
        (call.op == self.0).then(|| values.iter().map(|v| v * v).collect())
    }
}

/// Values that a watch gives are those that later ops and rules see.
#[test]
fn given_values_take_the_place_of_an_op() -> Result<()> {
    let cpu = Cpu::poisoned();
    let net = Sequential::new().push(Lambda::new(|x| x.mul_scalar(2.0))).push(Relu);
    let x = Tensor::from_slice(&cpu, &[1.5f32, -1.0], &[2])?.requires_grad();
    let run = |op| {
        let (result, _) = trace::ops(&net, Squares(op), || {
            let y = net.forward(&x)?.exp()?;
            Ok::<_, kiln_nn::Error>((y.to_f64()?, y.sum(&[], false)?.backward()?))
        });
        let (y, grads) = result.unwrap();
        (y, grads.get(&x).unwrap().to_f64().unwrap())
    };
    let near = |a: &[f64], b: [f64; 2]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs());
    // exp(relu(2x)), exp(relu(2x)²), and exp(relu((2x)²)), whose gradient of 2x is squared too.
    let (y, dx) = run("none");
    assert!(
        near(&y, [3f64.exp(), 1.0]) && near(&dx, [2.0 * 3f64.exp(), 0.0]),
        "{y:?} {dx:?}"
    );
    let (y, _) = run("relu");
    assert!(near(&y, [9f64.exp(), 1.0]), "{y:?}");
    let (y, dx) = run("mul_scalar");
    assert!(near(&y, [9f64.exp(), 4f64.exp()]), "{y:?}");
    let squared = [9.0, 4.0].map(|y: f64| (2.0 * y.exp()).powi(2));
    assert!(near(&dx, squared), "{dx:?}");
    Ok(())
}
